//! Checksum: of the raw bits, a position-mixed sum a chunk and a sum of those a tensor (`docs/format.md`, section 7).

use crate::dtype::*;
use crate::kernel;
use crate::launch::Chunks;
use crate::tile::{Chunk, ChunkSums, Fill, In, Program, Tail, TailArea, Tile, Update, generate};

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
    if let Some((sums, programs)) = program.gather(own) {
        let (first, chunks) = (chunk.index, Chunks { elements });
        let shares = generate(|lane| {
            let share = tensor_share(first + lane, sums.at(lane));
            let exists = lane < programs && chunks.valid(first + lane) != 0;
            if exists { [share as u32, (share >> 32) as u32] } else { [0, 0] }
        });
        sum().add64(0, program.sum_pairs(&shares));
    }
}

/// The checksum of a chunk.
#[inline(always)]
pub(super) fn chunk_sum<D: Dtype>(program: &Program, words: &Tile<D::Words>) -> u32 {
    program.sum(&program.hash_lanes(words, D::mix))
}

/// What a chunk adds to the checksum of its tensor.
#[inline(always)]
pub(super) fn tensor_share(chunk: u32, sum: u32) -> u64 {
    let mut x = (chunk as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(sum as u64);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}
