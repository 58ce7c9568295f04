//! bf16: sign, 8 bits of exponent, 7 of mantissa. Its residual is a byte.

use super::{Dtype, spread16, twice, word_functions};
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
    type UpperResiduals = [u32; 0];
    type Spread = [u32; 16];
    type Decoded = [u32; 8];

    #[inline(always)]
    fn split(words: [u32; 16]) -> ([u32; 8], [u32; 0]) {
        let mut out = [0; 8];
        unroll!(i < 8 => {
            let (a, b) = (words[2 * i], words[2 * i + 1]);
            out[i] = select(SIGNS, odd_bytes(a, b), even_bytes(a, b))
        });
        (out, [])
    }

    #[inline(always)]
    fn spread(words: [u32; 16]) -> [u32; 16] {
        spread16(words)
    }

    #[inline(always)]
    fn join_decoded(exponents: [u32; 8], residuals: [u32; 8], _: [u32; 0]) -> [u32; 16] {
        let mut out = [0; 16];
        unroll!(i < 8 => {
            let high = select(SIGNS, residuals[i], exponents[i] >> 1);
            let low = select(!SIGNS, residuals[i], exponents[i] << 7);
            out[2 * i] = zip_bytes_low(low, high);
            out[2 * i + 1] = zip_bytes_high(low, high)
        });
        out
    }

    word_functions!(16, twice, 0xffff);
}
