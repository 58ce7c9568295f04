use splitzip_kernels::tile::{Program, Tile, map};

pub fn sum_in_some_lanes(program: &Program, values: &Tile<u32>) -> Tile<u32> {
    map(values, |value| if value > 3 { program.sum(values) } else { 0 })
}

fn main() {}
