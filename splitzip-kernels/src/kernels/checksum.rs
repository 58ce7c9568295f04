//! Checksum: of the raw bits, a position-mixed sum a chunk and a sum of those a tensor (`docs/format.md`, section 7).

use crate::dtype::*;
use crate::kernel;
use crate::launch::Chunks;
use crate::tile::{
    Chunk, ChunkSums, Fill, In, InChunk, Program, SumsInLanes, Tail, TailArea, Tile, Update, each_run,
    generate, lane_hash, tensor_share,
};

/// Adds the chunk's share to the checksum of its tensor, and stores its own checksum where `keep` is not 0.
#[kernel(dtype = [Bf16, Fp16, E4m3, E5m2], warps = 8, blocks = 8)]
pub fn checksum<D: Dtype>(
    program: &Program,
    chunks: Chunks,
    words: In<D::Words>,
    tensor_sum: Update<8>,
    chunk_sums: ChunkSums,
    keep: u32,
    tail: Tail,
) {
    let chunk = Chunk::of(program, chunks, tail);
    if chunk.valid == 0 {
        return;
    }
    let words = words.chunk(program, &chunk, Fill::Zeros, TailArea::Words).load();
    let sum = chunk_sum::<D>(program, &words);
    tensor_sum.add64(0, tensor_share(chunk.index, sum));
    if keep != 0 {
        chunk_sums.store(&chunk, sum);
    }
}

/// Adds the shares of the chunks of a block, whose elements are still in registers; `words` is nothing for a program without a chunk, which comes here as
/// well. `elements` are those of the tensor, `chunk` is the number of the program's chunk in it. (A launch of its own reads the tensor once more. And one
/// addition a chunk to the same double word takes the memory as long as decoding takes: 0.47 of the speed.)
#[inline(always)]
pub(super) fn add_shares<D: Dtype>(
    program: &Program,
    chunk: &Chunk,
    words: Option<&Tile<D::Words>>,
    elements: u64,
    sum: impl FnOnce() -> Update<8>,
) {
    let own = match words {
        Some(words) => chunk_sum::<D>(program, &chunk.cleared_past_end(words)),
        None => 0,
    };
    if let Some((sums, lanes)) = program.gather(own) {
        SumsInLanes { elements, first: chunk.index, lanes, sums }.add_to(program, sum());
    }
}

/// The checksum of a chunk.
#[inline(always)]
pub(super) fn chunk_sum<D: Dtype>(program: &Program, words: &Tile<D::Words>) -> u32 {
    program.sum(&program.hash_lanes(words, D::mix))
}

/// The checksum of a short chunk, which is filled up in memory: run by run, since there are not as many registers for a cleared copy of it.
#[inline(always)]
pub(super) fn short_sum<D: Dtype>(program: &Program, chunk: &Chunk, input: InChunk<D::Words>) -> u32 {
    program.sum(&generate(|lane| {
        lane_hash(lane, |mut hash| {
            each_run!(run => {
                let exist = chunk.run_elements(lane, run);
                hash = D::mix_run(first_of_run::<D>(input.run(lane, run), exist), hash)
            });
            hash
        })
    }))
}

/// The first elements of a run, and zeros.
#[inline(always)]
fn first_of_run<D: Dtype>(run: [u32; 4], elements: u32) -> [u32; 4] {
    let mut out = run;
    crate::unroll!(i < 4 => {
        let bits = (elements * D::BITS).saturating_sub(i as u32 * 32).min(32);
        out[i] = (run[i] as u64 & ((1 << bits) - 1)) as u32
    });
    out
}
