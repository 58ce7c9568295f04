#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
pub fn by_value(program: Program, chunks: Chunks) {}

#[kernel(warps = 8, blocks = 8)]
pub fn to_change(program: &mut Program, chunks: Chunks) {}

fn main() {}
