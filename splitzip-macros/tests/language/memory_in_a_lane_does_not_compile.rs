use splitzip_kernels::tile::{Parts, Tile, map};

pub fn gather(parts: Parts, indices: &Tile<u32>) -> Tile<u32> {
    map(indices, |index| parts.word(index))
}

fn main() {}
