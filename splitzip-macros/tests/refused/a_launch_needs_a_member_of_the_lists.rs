#![allow(unused_variables)]

extern crate self as splitzip_kernels;

#[path = "../stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};
use stand_in::prelude::*;

#[kernel(dtype = [Bf16, E4m3], scheme = [W3, W4], except = [(E4m3, W4)], warps = 8, blocks = 8)]
pub fn encode<D: Dtype, S: Scheme>(program: &Program, chunks: Chunks, words: In<D::Words>, codes: Out<S::Codes>) {}

fn launch(arguments: &encode::Arguments<'_, E4m3, W4>) {
    let _ = arguments.launch();
}

fn main() {}
