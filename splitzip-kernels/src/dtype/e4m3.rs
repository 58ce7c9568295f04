//! e4m3 (the finite one, `fn`): sign, 4 bits of exponent, 3 of mantissa. Its residual is a nibble.

use super::{Dtype, four_times, spread8, word_functions};
use crate::tile::bits::{pack_nibbles, unpack_nibbles};
use crate::unroll;

/// e4m3.
#[derive(Clone, Copy, Debug)]
pub struct E4m3;

const MANTISSAS: u32 = 0x0707_0707;
const EXPONENTS: u32 = 0x0f0f_0f0f;
/// Of a residual.
const SIGNS: u32 = 0x0808_0808;

impl Dtype for E4m3 {
    const NAME: &'static str = "e4m3";
    const BITS: u32 = 8;
    const EXPONENT_BITS: u32 = 4;
    const MANTISSA_BITS: u32 = 3;
    type Words = [u32; 8];
    type Residuals = [u32; 4];
    type UpperResiduals = [u32; 0];

    #[inline(always)]
    fn split(words: [u32; 8]) -> ([u32; 4], [u32; 0]) {
        let mut out = [0; 8];
        unroll!(i < 8 => out[i] = (words[i] & MANTISSAS) | (words[i] >> 4 & SIGNS));
        (pack_nibbles(out), [])
    }

    #[inline(always)]
    fn exponents(words: [u32; 8]) -> [u32; 8] {
        let mut out = [0; 8];
        unroll!(i < 8 => out[i] = words[i] >> 3 & EXPONENTS);
        out
    }

    #[inline(always)]
    fn spread(words: [u32; 8]) -> [u32; 16] {
        spread8(words)
    }

    #[inline(always)]
    fn join(exponents: [u32; 8], residuals: [u32; 4], _: [u32; 0]) -> [u32; 8] {
        let (residuals, mut out) = (unpack_nibbles(residuals), [0; 8]);
        unroll!(i < 8 => {
            out[i] = (exponents[i] & EXPONENTS) << 3 | (residuals[i] & MANTISSAS) | (residuals[i] & SIGNS) << 4
        });
        out
    }

    word_functions!(8, four_times, 0xff);
}
