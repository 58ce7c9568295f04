use splitzip_kernels::tile::{Block, Tile};

pub fn add_up(block: &mut Block, values: &Tile<u32>) -> u32 {
    let mut total = 0;
    block.each_warp(|warp| total += warp.sum(values));
    total
}

fn main() {}
