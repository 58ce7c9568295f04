use splitzip_kernels::tile::{Program, Tile};

pub fn store_if_marked(program: &Program, marks: Tile<u32>) {
    if marks {
        program.sync();
    }
}

fn main() {}
