//! Checksums of raw bits: 32 bits a chunk, and a sum of what chunks add to it a tensor (`docs/format.md`, section 7).
//!
//! Whoever has the elements of a chunk in registers has its checksum for some 40 instructions. What it adds to that of the tensor takes 64-bit products, and
//! an addition in memory: one lane a chunk does that for all chunks of a block at once.

use super::{Chunk, Program, Tile, Update, generate};
use crate::arch;
use crate::launch::{Chunks, Extent, Size, memory_arguments};

/// A checksum of 32 bits for every chunk.
#[derive(Clone, Copy)]
pub struct ChunkSums(*mut u8);

impl Extent for ChunkSums {
    fn bytes(_: Size) -> u64 {
        0 // optional: a flag goes along
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] ChunkSums = ChunkSums; }

/// Checksums of tensors, to which the shares of their chunks are added: a double word each, `STRIDE` bytes apart. At address 0 nobody wants them.
#[derive(Clone, Copy)]
pub struct TensorSums<const STRIDE: usize>(*mut u8);

impl<const STRIDE: usize> Extent for TensorSums<STRIDE> {
    fn bytes(_: Size) -> u64 {
        0 // optional
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { target [const STRIDE: usize] TensorSums<STRIDE> = TensorSums; }

impl<const STRIDE: usize> TensorSums<STRIDE> {
    /// Does anybody want them?
    #[inline(always)]
    pub fn are_wanted(self) -> bool {
        !self.0.is_null()
    }

    /// That of a tensor.
    #[inline(always)]
    pub fn of(self, tensor: u32) -> Update<8> {
        Update(self.0.wrapping_add(tensor as usize * STRIDE))
    }
}

/// Which checksums are wanted of what is encoded.
#[derive(Clone, Copy)]
pub struct SumsWanted(pub u32);

impl SumsWanted {
    /// Those of tensors.
    pub const OF_TENSORS: u32 = 1;
    /// Those of chunks.
    pub const OF_CHUNKS: u32 = 2;

    /// Any at all?
    #[inline(always)]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// That of the tensor?
    #[inline(always)]
    pub fn of_tensor(self) -> bool {
        self.0 & Self::OF_TENSORS != 0
    }

    /// Those of its chunks?
    #[inline(always)]
    pub fn of_chunks(self) -> bool {
        self.0 & Self::OF_CHUNKS != 0
    }
}

/// The checksums of chunks of a tensor that follow each other, a lane each.
#[derive(Clone, Copy)]
pub struct SumsInLanes {
    /// Elements of the tensor.
    pub elements: u64,
    /// The chunk of lane 0.
    pub first: u32,
    /// Lanes that have a checksum, if their chunk exists.
    pub lanes: u32,
    /// The checksums.
    pub sums: Tile<u32>,
}

impl SumsInLanes {
    #[inline(always)]
    fn exists(&self, lane: u32) -> bool {
        lane < self.lanes && Chunks { elements: self.elements }.valid(self.first + lane) != 0
    }

    /// Adds and stores what is wanted.
    #[inline(always)]
    pub(in crate::tile) fn keep(
        &self,
        program: &Program,
        wanted: SumsWanted,
        sum: impl FnOnce() -> Update<8>,
        chunk_sums: impl FnOnce() -> ChunkSums,
    ) {
        if wanted.of_tensor() {
            self.add_to(program, sum());
        }
        if wanted.of_chunks() {
            self.store_to(chunk_sums());
        }
    }

    /// Adds the shares of the chunks to the checksum of the tensor.
    #[inline(always)]
    pub fn add_to(&self, program: &Program, sum: Update<8>) {
        let shares = generate(|lane| {
            let share = tensor_share(self.first + lane, self.sums.at(lane));
            if self.exists(lane) { [share as u32, (share >> 32) as u32] } else { [0, 0] }
        });
        sum.add64(0, program.sum_pairs(&shares));
    }

    /// Stores the checksums of the chunks.
    #[inline(always)]
    pub fn store_to(&self, sums: ChunkSums) {
        for lane in arch::lanes() {
            if self.exists(lane) {
                // SAFETY: the chunk exists, so it has a place.
                unsafe {
                    arch::store32(sums.0.wrapping_add((self.first + lane) as usize * 4), self.sums.at(lane))
                }
            }
        }
    }
}

impl ChunkSums {
    /// Stores the checksum of a chunk.
    #[inline(always)]
    pub fn store(self, chunk: &Chunk, sum: u32) {
        Update::<4>(self.0.wrapping_add(chunk.index as usize * 4)).store32(0, sum);
    }

    /// At an address that somebody else has checked.
    #[inline(always)]
    pub(in crate::tile) fn at(p: *mut u8) -> Self {
        ChunkSums(p)
    }
}

/// What a chunk adds to the checksum of its tensor.
#[inline(always)]
pub(crate) fn tensor_share(chunk: u32, sum: u32) -> u64 {
    let mut x = (chunk as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(sum as u64);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Where a lane starts to hash its words, and what it makes of the hash in the end.
#[inline(always)]
pub(crate) fn lane_hash(lane: u32, words: impl FnOnce(u32) -> u32) -> u32 {
    let mut hash = words((lane + 1).wrapping_mul(0x9E37_79B9));
    hash = (hash ^ hash >> 16).wrapping_mul(0x7FEB_352D);
    hash = (hash ^ hash >> 15).wrapping_mul(0x846C_A68B);
    hash ^ hash >> 16
}
