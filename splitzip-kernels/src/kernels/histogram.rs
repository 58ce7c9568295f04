//! Histogram: how often every exponent occurs, in all chunks or in an evenly spaced sample of them.

use crate::dtype::*;
use crate::kernel;
use crate::launch::Chunks;
use crate::launch::Programs;
use crate::stream::chunks;
use crate::tile::{Chunk, Fill, In, Program, Tail, TailArea, Update, map};

/// Counts the exponents of `samples` of the chunks of a tensor of `elements` elements: chunk `i * chunks / samples` for `i` below `samples`.
///
/// Adds to the 256 counters (u64) of `counts`. Programs share the samples among themselves in turns.
#[kernel(dtype = [Bf16, Fp16, E4m3, E5m2], warps = 8, blocks = 3, shared = 1024)]
pub fn histogram<D: Dtype>(
    program: &Program,
    programs: Programs,
    words: In<D::Words>,
    elements: u64,
    samples: u64,
    counts: Update<2048>,
    tail: Tail,
) {
    let bins = program.bins();
    let total = chunks(elements);
    let mut sample = program.index() as u64;
    while sample < samples {
        let index = if samples == total { sample } else { sample * total / samples };
        let chunk = Chunk::at(index as u32, Chunks { elements }, tail);
        let exponents = map(&words.chunk(program, &chunk, Fill::Zeros, TailArea::Words).load(), D::exponents);
        if chunk.is_whole() {
            bins.count(&exponents);
        } else {
            bins.count_first(&exponents, &chunk);
        }
        sample += programs.programs;
    }
    program.sync();
    bins.add_to(counts);
}
