use splitzip_kernels::tile::Block;

pub fn wait_in_one_warp(block: &mut Block) {
    block.each_warp(|warp| {
        if warp.number() == 0 {
            block.each_warp(|_| {});
        }
    });
}

fn main() {}
