#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
pub fn copy(program: &Program, chunks: Chunks, words: &[u32], out: &mut [u32]) {}

fn main() {}
