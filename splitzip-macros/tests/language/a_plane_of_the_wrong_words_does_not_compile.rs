use splitzip_kernels::dtype::{Bf16, Dtype};
use splitzip_kernels::kernel;
use splitzip_kernels::launch::Chunks;
use splitzip_kernels::tile::{Chunk, Fill, In, Out, Program, Tail, TailArea};

#[kernel(dtype = [Bf16], warps = 8, blocks = 8)]
pub fn copy<D: Dtype>(program: &Program, chunks: Chunks, words: In<D::Words>, copied: Out<D::Residuals>, tail: Tail) {
    let chunk = Chunk::of(program, chunks, tail);
    let elements = words.chunk(program, &chunk, Fill::Zeros, TailArea::Words).load();
    copied.store(program, &chunk, TailArea::Words, &elements);
}

fn main() {}
