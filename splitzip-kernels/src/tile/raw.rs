//! The variable part of a raw chunk: the bits of its exponents that the code plane has no room for.

use super::bits::pack_nibbles;
use super::{Chunk, Part, Program, TailArea, Tile, map, short};
use crate::arch;
use crate::dtype::Dtype;
use crate::scheme::{Scheme, Spread};
use crate::stream::CHUNK;

impl Part {
    /// The raw part of a chunk: the bits `S::CODE_BITS` to `D::EXPONENT_BITS` of its exponents.
    #[inline(always)]
    pub fn store_raw<D: Dtype, S: Scheme, const LEVEL: u32>(
        self,
        program: &Program,
        chunk: &Chunk,
        spread: &Tile<D::Spread>,
    ) {
        let bits = D::EXPONENT_BITS - S::CODE_BITS;
        if bits == 4 && S::PACKED {
            let high = map(spread, |s| {
                let (e, mut high) = (s.bytes::<D>(), [0; 8]);
                crate::unroll!(i < 8 => high[i] = e[i] >> 4);
                pack_nibbles(high)
            });
            return self.store_plane(&chunk.cleared_past_end(&high));
        }
        if S::PACKED {
            return self.store_high_bits(chunk, &map(spread, |s| s.bytes::<D>()));
        }
        let planes = map(spread, |s| s.planes::<D>());
        let (whole, rest) = (chunk.is_whole(), chunk.tail.area(TailArea::Rest));
        for lane in arch::lanes() {
            let planes = planes.at(lane);
            crate::unroll!(i < 8 => if i as u32 >= S::CODE_BITS && (i as u32) < D::EXPONENT_BITS {
                let at = (i as u32 - S::CODE_BITS) * 128 + lane * 4;
                if whole {
                    self.memory().at(at).store32(planes[i]);
                } else {
                    // SAFETY: the area holds whole planes.
                    unsafe { arch::store32(rest.add(at as usize), planes[i]) }
                }
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
                // SAFETY: the area holds whole planes.
                let byte = unsafe { short::to_element_order(rest, bits, chunk.valid, at) };
                self.memory().at(at).store8(byte);
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
                    self.memory().at(at).store8(byte);
                }
            });
        }
    }

    /// Words of a packed plane, run by run.
    #[inline(always)]
    fn store_plane(self, tile: &Tile<[u32; 4]>) {
        for lane in arch::lanes() {
            let words = tile.at(lane);
            crate::unroll!(g < 4 => self.memory().at(g as u32 * 128 + lane * 4).store32(words[g]));
        }
    }
}

/// Elements of a chunk, as a length of variable parts.
#[inline(always)]
pub(crate) fn raw_words(valid: u32, bits: u32) -> u32 {
    let mut words = bits * 32;
    if valid != CHUNK {
        arch::branched();
        words = (arch::rarely(valid) * bits).div_ceil(32);
    }
    words
}
