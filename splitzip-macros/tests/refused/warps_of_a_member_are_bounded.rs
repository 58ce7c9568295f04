#![allow(unused_variables)]

extern crate self as splitzip_kernels;

#[path = "../stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};
use stand_in::prelude::*;

#[kernel(scheme = [W3, W4], warps = S::CODE_BITS - 3, blocks = 1)]
pub fn none<S: Scheme>(program: &Program, chunks: Chunks, codes: Out<S::Codes>) {}

#[kernel(scheme = [W3, W4], warps = warps::<S>(), blocks = 8)]
pub fn many<S: Scheme>(program: &Program, chunks: Chunks, codes: Out<S::Codes>) {}

#[kernel(warps = WARPS, blocks = 1)]
pub fn more(program: &Program, chunks: Chunks) {}

const fn warps<S: Scheme>() -> u32 {
    S::CODE_BITS + 5
}

const WARPS: u32 = 33;

fn main() {}
