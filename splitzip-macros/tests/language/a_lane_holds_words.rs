use splitzip_kernels::tile::Tile;

pub fn nothing(_: Tile<u8>) {}

fn main() {}
