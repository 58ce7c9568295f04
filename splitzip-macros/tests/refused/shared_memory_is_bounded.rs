#![allow(unused_variables)]

extern crate self as splitzip_kernels;

#[path = "../stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 1, shared = 6000, block_shared = 2000)]
pub fn copy(program: &Program, chunks: Chunks) {}

fn main() {}
