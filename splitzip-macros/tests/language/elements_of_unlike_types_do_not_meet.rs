use splitzip_kernels::tile::{ElementsOut, Strip, Tile};

pub fn store(values: ElementsOut<f32>, strip: &Strip<4>, words: &Tile<[u32; 4]>) {
    values.store(strip, words);
}

fn main() {}
