#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(dtype = [Bf16], warps = 8, blocks = 8)]
pub fn copy<D: Dtype + Copy>(program: &Program, chunks: Chunks, words: In<D::Words>) {}

fn main() {}
