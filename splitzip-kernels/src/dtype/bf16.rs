//! bf16: sign, 8 bits of exponent, 7 of mantissa. Its residual is a byte.

use super::{Dtype, mix_word};
use crate::arch::{even_bytes, odd_bytes, select, zip_bytes_high, zip_bytes_low};
use crate::unroll;

/// bf16.
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

const SIGNS: u32 = 0x8080_8080;

impl Dtype for Bf16 {
    const NAME: &'static str = "bf16";
    const BITS: u32 = 16;
    const EXPONENT_BITS: u32 = 8;
    const MANTISSA_BITS: u32 = 7;
    type Words = [u32; 16];
    type Residuals = [u32; 8];

    #[inline(always)]
    fn split(words: [u32; 16]) -> [u32; 8] {
        let mut out = [0; 8];
        unroll!(i < 8 => {
            let (a, b) = (words[2 * i], words[2 * i + 1]);
            out[i] = select(SIGNS, odd_bytes(a, b), even_bytes(a, b));
        });
        out
    }

    #[inline(always)]
    fn exponents(words: [u32; 16]) -> [u32; 8] {
        let mut out = [0; 8];
        // The shift brings an exponent to the high byte of its half; the bit that it carries over lands in a low byte.
        unroll!(i < 8 => out[i] = odd_bytes(words[2 * i] << 1, words[2 * i + 1] << 1));
        out
    }

    #[inline(always)]
    fn join(exponents: [u32; 8], residuals: [u32; 8]) -> [u32; 16] {
        let mut out = [0; 16];
        unroll!(i < 8 => {
            let high = select(SIGNS, residuals[i], exponents[i] >> 1);
            let low = select(!SIGNS, residuals[i], exponents[i] << 7);
            out[2 * i] = zip_bytes_low(low, high);
            out[2 * i + 1] = zip_bytes_high(low, high);
        });
        out
    }

    #[inline(always)]
    fn repeat(word: u32) -> [u32; 16] {
        [word & 0xffff | word << 16; 16]
    }

    #[inline(always)]
    fn differences(words: [u32; 16], word: u32) -> u32 {
        let (pair, mut all) = (word & 0xffff | word << 16, 0);
        unroll!(i < 16 => all |= words[i] ^ pair);
        all
    }

    #[inline(always)]
    fn first_differences(words: [u32; 16], word: u32) -> u32 {
        words[0] ^ (word & 0xffff | word << 16)
    }

    #[inline(always)]
    fn mix(words: [u32; 16], mut hash: u32) -> u32 {
        unroll!(i < 16 => hash = mix_word(hash, words[i]));
        hash
    }

    #[inline(always)]
    fn first(words: [u32; 16]) -> u32 {
        words[0] & 0xffff
    }
}
