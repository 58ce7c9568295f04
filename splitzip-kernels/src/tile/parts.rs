//! Variable parts that are read.

use super::bits::unpack_nibbles;
use super::{Chunk, Tile, generate, map, raw_words, short};
use crate::arch;
use crate::dtype::Dtype;
use crate::launch::{Extent, Size, memory_arguments};
use crate::scheme::Scheme;

/// The variable parts of a frame that is decoded: `words` words, from a word number on never read past.
#[derive(Clone, Copy)]
pub struct Parts(*const u8);

impl Extent for Parts {
    fn bytes(_: Size) -> u64 {
        0 // every part is checked against the word count that goes along
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { source [] Parts = Parts; }

impl Parts {
    /// The part that starts at a word. The caller has checked that it lies inside.
    #[inline(always)]
    pub fn at(self, start: u64) -> Parts {
        Parts(self.0.wrapping_add(start as usize * 4))
    }

    /// One word.
    #[inline(always)]
    pub fn word(self, at: u32) -> u32 {
        // SAFETY: inside, by the caller's check.
        unsafe { arch::load32(self.0.add(at as usize * 4)) }
    }

    /// Has 4 KiB from word `start` brought to the cache, as far as there are `words` words: the parts of most groups.
    #[inline(always)]
    pub(crate) fn prefetch(self, start: u64, words: u64) {
        for lane in arch::lanes() {
            let at = start.wrapping_add(lane as u64 * 32);
            if at < words {
                // SAFETY: inside.
                unsafe { arch::prefetch(self.0.wrapping_add(at as usize * 4)) }
            }
        }
    }

    /// Lane `l`: word `l + at`, if it is below `words`; else `otherwise`.
    #[inline(always)]
    pub fn words(self, at: u32, words: u32, otherwise: u32) -> Tile<u32> {
        generate(|lane| if at + lane < words { self.word(at + lane) } else { otherwise })
    }

    /// The exponents of a raw chunk, from the plane of its codes and this part.
    #[inline(always)]
    pub fn raw_exponents<D: Dtype, S: Scheme, const LEVEL: u32>(
        self,
        chunk: &Chunk,
        codes: &Tile<S::Codes>,
    ) -> Tile<S::Decoded<D>> {
        let bits = D::EXPONENT_BITS - S::CODE_BITS;
        let words = raw_words(chunk.valid, bits);
        if bits == 4 && S::PACKED {
            let high = generate(|lane| {
                let mut out = [0; 4];
                crate::unroll!(g < 4 => {
                    let at = g as u32 * 32 + lane;
                    if at < words { out[g] = self.word(at) }
                });
                out
            });
            return map((codes, &high), |(low, high): (S::Codes, [u32; 4])| {
                let mut high = unpack_nibbles(high);
                crate::unroll!(i < 8 => high[i] <<= 4);
                S::raw_exponents::<D>(low, high)
            });
        }
        if S::PACKED {
            let high = generate(|lane| {
                let mut out = [0; 8];
                let spread = |x: u32| (x & 1) << 4 | (x & 2) << 11 | (x & 4) << 18 | (x & 8) << 25;
                crate::unroll!(g < 4 => {
                    let at = g as u32 * 32 + lane;
                    // SAFETY: below the words of the part.
                    let byte = if at < words * 4 { unsafe { arch::load8(self.0.add(at as usize)) } } else { 0 };
                    out[2 * g] = spread(byte);
                    out[2 * g + 1] = spread(byte >> 4)
                });
                out
            });
            return map((codes, &high), |(low, high): (S::Codes, [u32; 8])| S::raw_exponents::<D>(low, high));
        }
        let whole = chunk.is_whole();
        let high = generate(|lane| {
            let (mut out, exist) = ([0; 8], chunk.exist(lane));
            crate::unroll!(i < 8 => if i as u32 >= S::CODE_BITS && (i as u32) < D::EXPONENT_BITS {
                let plane = i as u32 - S::CODE_BITS;
                out[i] = if whole {
                    self.word(plane * 32 + lane)
                } else {
                    // SAFETY: the part has the words of so many elements.
                    unsafe { short::from_element_order(self.0, bits, exist, lane, plane) }
                }
            });
            out
        });
        map((codes, &high), |(low, high): (S::Codes, [u32; 8])| S::raw_exponents::<D>(low, high))
    }
}
