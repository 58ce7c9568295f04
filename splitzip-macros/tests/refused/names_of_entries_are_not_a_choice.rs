#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
#[unsafe(no_mangle)]
#[unsafe(export_name = "copy_all")]
pub fn copy(program: &Program, chunks: Chunks) {}

fn main() {}
