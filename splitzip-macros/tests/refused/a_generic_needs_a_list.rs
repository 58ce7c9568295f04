#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(dtype = [Bf16], warps = 8, blocks = 8)]
pub fn encode<D: Dtype, S: Scheme>(program: &Program, chunks: Chunks, words: In<D::Words>, codes: Out<S::Codes>) {}

fn main() {}
