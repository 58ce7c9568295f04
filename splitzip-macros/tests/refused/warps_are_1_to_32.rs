#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 0, blocks = 1)]
pub fn none(program: &Program, chunks: Chunks) {}

#[kernel(warps = 33, blocks = 1)]
pub fn many(program: &Program, chunks: Chunks) {}

#[kernel(warps = "8", blocks = 1)]
pub fn unknown(program: &Program, chunks: Chunks) {}

fn main() {}
