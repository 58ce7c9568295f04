#![allow(unused_variables)]

extern crate self as splitzip_kernels;

#[path = "../stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
pub fn by_value(block: Block, chunks: Chunks) {}

#[kernel(warps = 8, blocks = 8)]
pub fn to_look_at(block: &Block, chunks: Chunks) {}

fn main() {}
