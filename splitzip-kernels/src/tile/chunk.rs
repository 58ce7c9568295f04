//! The chunk that a program works on, and what happens to a short one.
//!
//! A short last chunk is copied to a scratch of one chunk, filled up there, and its program goes on with that pointer: one code path
//! for all programs, and 2.6 % more instructions. Loads that ask for every element gave 1000 instructions and local memory.

use super::{Mask, Program, Tile, Words, each_run, generate};
use crate::arch;
use crate::launch::{Chunks, Extent, Size, memory_arguments};
use crate::stream::CHUNK;

/// Room for the planes of one short chunk; every tensor in flight needs its own.
#[derive(Clone, Copy)]
pub struct Tail(pub(crate) *mut u8);

/// Bytes of a [`Tail`].
pub const TAIL_BYTES: u64 = 8192;

impl Extent for Tail {
    fn bytes(size: Size) -> u64 {
        if size.elements.is_multiple_of(CHUNK as u64) { 0 } else { TAIL_BYTES }
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [] Tail = Tail; }

/// Which part of a [`Tail`] a plane uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TailArea {
    /// The elements: 2048 bytes.
    Words,
    /// The packed plane of their residuals: 1024 bytes.
    Residuals,
    /// The bit planes of their residuals: 1024 bytes.
    UpperResiduals,
    /// Their codes: 1024 bytes.
    Codes,
    /// What a raw chunk has besides codes: 1024 bytes.
    Rest,
}

impl Tail {
    /// The same for one chunk, as far as the compiler knows: no register holds addresses in it from chunk to chunk.
    #[inline(always)]
    pub fn of_one_chunk(self) -> Tail {
        Tail(self.0.wrapping_add(arch::rarely(0) as usize))
    }

    #[inline(always)]
    pub(crate) fn area(self, area: TailArea) -> *mut u8 {
        let at = match area {
            TailArea::Words => 0,
            TailArea::Residuals => 2048,
            TailArea::UpperResiduals => 3072,
            TailArea::Codes => 4096,
            TailArea::Rest => 5120,
        };
        self.0.wrapping_add(at)
    }
}

/// The chunk of a program.
#[derive(Clone, Copy)]
pub struct Chunk {
    /// Its number in the tensor.
    pub index: u32,
    /// Elements of it that exist: 1024, fewer in a short last chunk, 0 for a program too many.
    pub valid: u32,
    pub(crate) tail: Tail,
}

impl Chunk {
    /// The chunk with the number of the program.
    #[inline(always)]
    pub fn of(program: &Program, chunks: Chunks, tail: Tail) -> Self {
        Chunk::at(program.index(), chunks, tail)
    }

    /// The same with a branch for a chunk that is not whole: decoding bf16 `w2x2x3` gets from 0.952 of a copy to 0.970 with it, and e5m2 `w2x3` from 0.854
    /// to 0.818.
    #[inline(always)]
    pub fn of_apart(program: &Program, chunks: Chunks, tail: Tail) -> Self {
        Chunk { index: program.index(), valid: chunks.valid_apart(program.index()), tail }
    }

    /// The chunk with this number.
    #[inline(always)]
    pub fn at(index: u32, chunks: Chunks, tail: Tail) -> Self {
        Chunk { index, valid: chunks.valid(index), tail }
    }

    /// Is it a whole one?
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        self.valid == CHUNK
    }

    /// The channel of its first element, in rows of `channels` (at most 1024; in 32 bits, since a remainder of 64 bits is a long loop).
    #[inline(always)]
    pub fn channel(&self, channels: u32) -> u32 {
        let channels = channels.max(1);
        (self.index % channels) * (CHUNK % channels) % channels
    }

    /// Bit `p` of a lane's mask stands for this element of the chunk (`docs/format.md`, coding order).
    #[inline(always)]
    pub fn element(lane: u32, bit: u32) -> u32 {
        // Both ends of the bit go their way in one sum.
        ((bit << 8) + (bit >> 3)) & 0x303 | lane << 3 | bit & 4
    }

    /// The other way: which bit of a lane's mask an element is.
    #[inline(always)]
    pub fn bit(element: u32) -> u32 {
        (element & 3) << 3 | (element & 4) | element >> 8
    }

    /// Elements of the lane's run `g` that exist, 0 to 8.
    #[inline(always)]
    pub(crate) fn runs(&self, lane: u32) -> [u32; 4] {
        let run = |g: u32| self.run_elements(lane, g);
        [run(0), run(1), run(2), run(3)]
    }

    /// Elements of one of the lane's runs that exist, 0 to 8.
    #[inline(always)]
    pub(crate) fn run_elements(&self, lane: u32, run: u32) -> u32 {
        self.valid.saturating_sub(run << 8 | lane << 3).min(8)
    }

    /// The bits of elements that exist.
    #[inline(always)]
    pub fn within(&self, mask: &Mask) -> Mask {
        if self.is_whole() {
            return *mask;
        }
        generate(|lane| mask.at(lane) & self.exist(lane))
    }

    /// The bits of elements that exist, for whoever wants them for several masks.
    #[inline(always)]
    pub fn existing(&self) -> Mask {
        if self.is_whole() {
            return generate(|_| !0u32);
        }
        generate(|lane| {
            let mut exist = 0;
            each_run!(run => exist |= run_bits(self.run_elements(lane, run)) << run);
            exist
        })
    }

    /// The bits of a lane's elements that exist.
    #[inline(always)]
    pub(crate) fn exist(&self, lane: u32) -> u32 {
        let (runs, mut exist) = (self.runs(lane), 0);
        crate::unroll!(g < 4 => exist |= run_bits(runs[g]) << g);
        exist
    }

    /// A packed plane, zero where elements do not exist. (Bit planes are cut off when they are stored.)
    #[inline(always)]
    pub fn cleared_past_end<W: Words>(&self, tile: &Tile<W>) -> Tile<W> {
        if self.is_whole() || !W::PACKED {
            return *tile;
        }
        generate(|lane| tile.at(lane).first_of_runs(self.runs(lane)))
    }
}

/// The bits of the first `elements` (at most 8) of run 0.
#[inline(always)]
fn run_bits(elements: u32) -> u32 {
    let low = 0x01010101u32 & ((1u64 << (8 * elements.min(4))) - 1) as u32;
    let high = 0x10101010u32 & ((1u64 << (8 * (elements.max(4) - 4))) - 1) as u32;
    low | high
}
