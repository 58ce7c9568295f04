#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(dtype = [Bf16], scheme = [W4], warps = 8, blocks = 8)]
pub fn encode<S: Scheme, D: Dtype>(program: &Program, chunks: Chunks, words: In<D::Words>, codes: Out<S::Codes>) {}

fn main() {}
