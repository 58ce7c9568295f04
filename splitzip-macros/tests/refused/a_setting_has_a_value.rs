#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps, blocks = 8)]
pub fn copy(program: &Program, chunks: Chunks) {}

fn main() {}
