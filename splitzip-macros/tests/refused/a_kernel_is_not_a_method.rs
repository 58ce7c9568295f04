#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

struct Encoder;

impl Encoder {
    #[kernel(warps = 8, blocks = 8)]
    pub fn encode(&self, program: &Program, chunks: Chunks) {}
}

fn main() {}
