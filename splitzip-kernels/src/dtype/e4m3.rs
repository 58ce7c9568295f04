//! e4m3 (the finite one, `fn`): sign, 4 bits of exponent, 3 of mantissa. Its residual is a nibble.

use super::{Dtype, four_times, word_functions};
use crate::arch::{even_bytes, odd_bytes, select, zip_bytes_high, zip_bytes_low};
use crate::tile::bits::transpose;
use crate::unroll;

/// e4m3.
#[derive(Clone, Copy, Debug)]
pub struct E4m3;

const EXPONENTS: u32 = 0x7878_7878;

impl Dtype for E4m3 {
    const NAME: &'static str = "e4m3";
    const BITS: u32 = 8;
    const EXPONENT_BITS: u32 = 4;
    const MANTISSA_BITS: u32 = 3;
    type Words = [u32; 8];
    type Residuals = [u32; 4];
    type UpperResiduals = [u32; 0];
    type Spread = [u32; 8];
    type Decoded = [u32; 4];

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
    fn join_decoded(exponents: [u32; 4], residuals: [u32; 4], _: [u32; 0]) -> [u32; 8] {
        const SIGNS: u32 = 0x8080_8080;
        let (woven, mut out) = (transpose(exponents), [0; 8]);
        unroll!(g < 4 => {
            // Residuals of the elements at even places of the run, those at odd ones, in their places, with other bits where exponents go; then in order.
            let (x, r) = (woven[g], residuals[g]);
            let (even, odd) = (select(SIGNS, r << 4, r), select(SIGNS, r, r >> 4));
            out[2 * g] = select(EXPONENTS, x << 3, zip_bytes_low(even, odd));
            out[2 * g + 1] = select(EXPONENTS, x >> 1, zip_bytes_high(even, odd))
        });
        out
    }

    word_functions!(8, four_times, 0xff);
}
