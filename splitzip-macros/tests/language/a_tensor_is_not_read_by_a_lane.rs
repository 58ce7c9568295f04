use splitzip_kernels::tile::{Elements, Strip, Tile, map_each};

pub fn read_in_some_lanes(values: Elements<u32>, strip: &Strip<4>, wanted: &Tile<[u32; 4]>) -> Tile<[u32; 4]> {
    map_each(wanted, |wanted| if wanted > 0 { values.load(strip, 0); 1u32 } else { 0 })
}

fn main() {}
