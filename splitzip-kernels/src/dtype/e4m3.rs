//! e4m3 (the finite one, `fn`): sign, 4 bits of exponent, 3 of mantissa. Its residual is a nibble.

use super::{Dtype, four_times, word_functions};
use crate::arch::{even_bytes, odd_bytes, permute, select};
use crate::unroll;

/// e4m3.
#[derive(Clone, Copy, Debug)]
pub struct E4m3;

const EXPONENTS: u32 = 0x0f0f_0f0f;

impl Dtype for E4m3 {
    const NAME: &'static str = "e4m3";
    const BITS: u32 = 8;
    const EXPONENT_BITS: u32 = 4;
    const MANTISSA_BITS: u32 = 3;
    type Words = [u32; 8];
    type Residuals = [u32; 4];
    type UpperResiduals = [u32; 0];
    type Spread = [u32; 8];

    #[inline(always)]
    fn split(words: [u32; 8]) -> ([u32; 4], [u32; 0]) {
        let mut out = [0; 4];
        unroll!(g < 4 => {
            // Elements whose residuals are the low nibbles of bytes, and those of the high ones.
            let (low, high) =
                (even_bytes(words[2 * g], words[2 * g + 1]), odd_bytes(words[2 * g], words[2 * g + 1]));
            let high = select(0x7070_7070, high << 4, high);
            out[g] = select(0x0707_0707, low, select(0x0808_0808, low >> 4, high))
        });
        (out, [])
    }

    #[inline(always)]
    fn spread(words: [u32; 8]) -> [u32; 8] {
        words
    }

    #[inline(always)]
    fn join(exponents: [u32; 8], residuals: [u32; 4], _: [u32; 0]) -> [u32; 8] {
        let mut out = [0; 8];
        unroll!(i < 8 => {
            // Every byte of residuals twice: for the low nibble, and for the high one.
            let twice = permute(residuals[i / 2], 0, if i.is_multiple_of(2) { 0x1100 } else { 0x3322 });
            let moved = select(0x0080_0080, twice << 4, twice >> 4);
            out[i] = select(EXPONENTS << 3, exponents[i] << 3, select(0x8007_8007, twice, moved))
        });
        out
    }

    word_functions!(8, four_times, 0xff);
}
