#![allow(unused_variables)]

extern crate self as splitzip_kernels;

#[path = "../stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};
use stand_in::prelude::*;

#[derive(Clone, Copy)]
pub struct Half;

impl Dtype for Half {
    const NAME: &'static str = "fp16";
    const EXPONENT_BITS: u32 = 5;
    type Words = u16;
}

#[kernel(dtype = [Half], warps = 8, blocks = 8)]
pub fn copy<D: Dtype>(program: &Program, chunks: Chunks, words: In<D::Words>) {}

fn main() {}
