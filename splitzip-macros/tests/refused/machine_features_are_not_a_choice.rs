#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
#[target_feature(enable = "avx2")]
pub fn copy(program: &Program, chunks: Chunks) {}

fn main() {}
