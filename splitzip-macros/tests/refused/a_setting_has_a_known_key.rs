#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8, threads = 256)]
pub fn copy(program: &Program, chunks: Chunks) {}

#[kernel(warps = 8, blocks = 8, debug)]
pub fn show(program: &Program, chunks: Chunks) {}

fn main() {}
