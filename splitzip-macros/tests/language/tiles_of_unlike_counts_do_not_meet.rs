use splitzip_kernels::tile::{Tile, map_each};

pub fn add(a: &Tile<[f32; 4]>, b: &Tile<[f32; 8]>) -> Tile<[f32; 4]> {
    map_each((a, b), |(a, b)| a + b)
}

fn main() {}
