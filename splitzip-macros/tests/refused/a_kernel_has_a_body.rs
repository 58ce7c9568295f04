#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

trait Encode {
    #[kernel(warps = 8, blocks = 8)]
    fn encode(program: &Program, chunks: Chunks);
}

fn main() {}
