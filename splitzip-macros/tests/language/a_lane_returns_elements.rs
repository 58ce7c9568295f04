use splitzip_kernels::tile::{Tile, map};

pub fn is_large(values: &Tile<u32>) {
    let _ = map(values, |value| value > 3);
}

fn main() {}
