//! Variable parts that are written: a slot for each, of a fixed size.

use super::bits::{pack_nibbles, planes};
use super::{Chunk, Mask, Program, TailArea, Tile, Update, Words, map, short};
use crate::arch;
use crate::dtype::Dtype;
use crate::launch::{Extent, Size, memory_arguments};
use crate::scheme::Scheme;
use crate::stream::{CHUNK, chunks};
use core::marker::PhantomData;

/// A scratch with room for the largest variable part of every chunk of `D` x `S`.
#[derive(Clone, Copy)]
pub struct Slots<D, S>(*mut u8, PhantomData<(D, S)>);

impl<D: Dtype, S: Scheme> Slots<D, S> {
    /// Words of a slot: a raw chunk fills it.
    pub const WORDS: u32 = (D::EXPONENT_BITS - S::CODE_BITS) * 32;

    /// The slot of a chunk.
    #[inline(always)]
    pub fn of(self, chunk: &Chunk) -> Slot {
        Slot(self.0.wrapping_add(chunk.index as usize * (Self::WORDS as usize * 4)))
    }
}

impl<D: Dtype, S: Scheme> Extent for Slots<D, S> {
    fn bytes(size: Size) -> u64 {
        chunks(size.elements) * Self::WORDS as u64 * 4
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [D: Dtype, S: Scheme] Slots<D, S> = |p| Slots(p, PhantomData); }

/// The variable part of one chunk while it is written.
#[derive(Clone, Copy)]
pub struct Slot(*mut u8);
// SAFETY: never used: see `MemoryInsideALane`.
unsafe impl Sync for Slot where for<'a> super::AnyMemory<'a>: super::MemoryInsideALane {}

impl Slot {
    /// One word.
    #[inline(always)]
    pub fn store_uniform(self, value: u32) {
        Update::<4>(self.0).store32(0, value);
    }

    /// Word `at`.
    #[inline(always)]
    pub(crate) fn store_word(self, at: u32, value: u32) {
        // SAFETY: the caller stays within the slot.
        unsafe { arch::store32(self.0.add(at as usize * 4), value) }
    }

    /// The raw part of a chunk: the bits `S::CODE_BITS` to `D::EXPONENT_BITS` of its exponents.
    #[inline(always)]
    pub fn store_raw<D: Dtype, S: Scheme, const LEVEL: u32>(
        self,
        program: &Program,
        chunk: &Chunk,
        exponents: &Tile<[u32; 8]>,
    ) {
        let bits = D::EXPONENT_BITS - S::CODE_BITS;
        if bits == 4 && S::PACKED {
            let high = map(exponents, |e| {
                let mut high = [0; 8];
                crate::unroll!(i < 8 => high[i] = e[i] >> 4);
                pack_nibbles(high)
            });
            return self.store(&chunk.cleared_past_end(&high));
        }
        if S::PACKED {
            return self.store_high_bits(chunk, exponents);
        }
        let planes = map(exponents, planes);
        let whole = chunk.is_whole();
        let to = if whole { self.0 } else { chunk.tail.area(TailArea::Rest) };
        for lane in arch::lanes() {
            let planes = planes.at(lane);
            crate::unroll!(i < 8 => if i as u32 >= S::CODE_BITS && (i as u32) < D::EXPONENT_BITS {
                let at = (i as u32 - S::CODE_BITS) * 128 + lane * 4;
                // SAFETY: a raw chunk fits.
                unsafe { arch::store32(to.add(at as usize), planes[i]) }
            });
        }
        if whole {
            return;
        }
        program.sync();
        let bytes = raw_words(chunk.valid, bits) * 4;
        for lane in arch::lanes() {
            let mut at = lane;
            while at < bytes {
                // SAFETY: a raw chunk fits, and the copy holds whole planes.
                unsafe {
                    arch::store8(self.0.add(at as usize), short::to_element_order(to, bits, chunk.valid, at))
                };
                at += 32;
            }
        }
    }

    /// Bit 4 of every byte, in element order: the raw part of `w4` for exponents of 5 bits. A run is one byte.
    #[inline(always)]
    fn store_high_bits(self, chunk: &Chunk, bytes: &Tile<[u32; 8]>) {
        let end = raw_words(chunk.valid, 1) * 4;
        for lane in arch::lanes() {
            let (bytes, runs) = (bytes.at(lane), chunk.runs(lane));
            let gather = |x: u32| (x >> 4 & 1) | (x >> 11 & 2) | (x >> 18 & 4) | (x >> 25 & 8);
            crate::unroll!(g < 4 => {
                let at = g as u32 * 32 + lane;
                let byte = (gather(bytes[2 * g]) | gather(bytes[2 * g + 1]) << 4) & ((1 << runs[g]) - 1);
                if at < end {
                    // SAFETY: a raw chunk fits.
                    unsafe { arch::store8(self.0.add(at as usize), byte) }
                }
            });
        }
    }

    /// A plane.
    #[inline(always)]
    pub fn store<W: Words>(self, tile: &Tile<W>) {
        for lane in arch::lanes() {
            // SAFETY: a raw chunk fits.
            unsafe { tile.at(lane).write(self.0, lane) }
        }
    }

    /// A word for every element under the mask, from word `first` of each lane.
    #[inline(always)]
    pub fn store_words(self, program: &Program, mask: &Mask, first: &Tile<u32>, value: impl Fn(u32) -> u32) {
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            // SAFETY: the caller has counted them.
            unsafe { arch::store32(self.0.add(rank as usize * 4), value(Chunk::element(lane, bit))) }
        });
    }
}

/// Elements of a chunk, as a length of variable parts.
#[inline(always)]
pub(crate) const fn raw_words(valid: u32, bits: u32) -> u32 {
    if valid == CHUNK { bits * 32 } else { (valid * bits).div_ceil(32) }
}
