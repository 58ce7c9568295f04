#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(dtype = [Bf16], warps = 8, blocks = 8)]
pub fn convert<D: Dtype, E: Dtype>(program: &Program, chunks: Chunks, from: In<D::Words>, to: Out<E::Words>) {}

fn main() {}
