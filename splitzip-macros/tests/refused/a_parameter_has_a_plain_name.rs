#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
pub fn ignored(program: &Program, chunks: Chunks, _: u32) {}

#[kernel(warps = 8, blocks = 8)]
pub fn taken_apart(program: &Program, Chunks { elements }: Chunks) {}

#[kernel(warps = 8, blocks = 8)]
pub fn by_reference(program: &Program, chunks: Chunks, ref flags: u32) {}

fn main() {}
