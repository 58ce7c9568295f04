use splitzip_kernels::tile::{Tile, map};

pub fn add(values: Tile<u32>, more: u32) -> Tile<u32> {
    map((values, more), |(value, more)| value + more)
}

fn main() {}
