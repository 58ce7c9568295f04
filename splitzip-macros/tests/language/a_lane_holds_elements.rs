use splitzip_kernels::tile::Tile;

pub fn nothing(_: Tile<u64>) {}

fn main() {}
