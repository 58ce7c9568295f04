#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel]
pub fn copy(program: &Program, chunks: Chunks) {}

fn main() {}
