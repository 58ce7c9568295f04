#![allow(unused_variables)]

extern crate self as splitzip_kernels;

#[path = "../stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
pub fn scale(program: &Program, chunks: Chunks, factor: f64) {}

fn main() {}
