#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 1, blocks = 0)]
pub fn none(program: &Program, chunks: Chunks) {}

#[kernel(warps = 1, blocks = 33)]
pub fn many(program: &Program, chunks: Chunks) {}

fn main() {}
