use splitzip_kernels::tile::{Program, Tile};

pub fn store_if_large(program: &Program, values: Tile<u32>) {
    if values > 3 {
        program.sync();
    }
}

fn main() {}
