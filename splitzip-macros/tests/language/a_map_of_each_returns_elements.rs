use splitzip_kernels::tile::{Tile, map_each};

pub fn are_large(values: &Tile<[f32; 4]>) {
    let _ = map_each(values, |value| value > 3.0);
}

fn main() {}
