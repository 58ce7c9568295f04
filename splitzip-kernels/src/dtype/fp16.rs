//! fp16: sign, 5 bits of exponent, 10 of mantissa. Its residual is 11 bits: a byte of mantissa, and three bit planes of the
//! other two mantissa bits and the sign.

use super::{Dtype, high_bytes, join_high_bytes, join_high_planes, split_high_bytes, twice, word_functions};
use crate::arch::{even_bytes, zip_bytes_high, zip_bytes_low};
use crate::unroll;

/// fp16.
#[derive(Clone, Copy, Debug)]
pub struct Fp16;

impl Dtype for Fp16 {
    const NAME: &'static str = "fp16";
    const BITS: u32 = 16;
    const EXPONENT_BITS: u32 = 5;
    const MANTISSA_BITS: u32 = 10;
    type Words = [u32; 16];
    type Residuals = [u32; 8];
    type UpperResiduals = [u32; 3];
    type Spread = [u32; 8];
    type Decoded = [u32; 5];

    #[inline(always)]
    fn split(words: [u32; 16]) -> ([u32; 8], [u32; 3]) {
        let mut low = [0; 8];
        unroll!(i < 8 => low[i] = even_bytes(words[2 * i], words[2 * i + 1]));
        (low, split_high_bytes(high_bytes(words)))
    }

    #[inline(always)]
    fn spread(words: [u32; 16]) -> [u32; 8] {
        high_bytes(words)
    }

    #[inline(always)]
    fn join(exponents: [u32; 8], residuals: [u32; 8], upper: [u32; 3]) -> [u32; 16] {
        join_bytes(residuals, join_high_bytes(exponents, upper))
    }

    #[inline(always)]
    fn join_decoded(exponents: [u32; 5], residuals: [u32; 8], upper: [u32; 3]) -> [u32; 16] {
        join_bytes(residuals, join_high_planes(exponents, upper))
    }

    word_functions!(16, twice, 0xffff);
}

/// Elements from their low and their high bytes.
#[inline(always)]
fn join_bytes(low: [u32; 8], high: [u32; 8]) -> [u32; 16] {
    let mut out = [0; 16];
    unroll!(i < 8 => {
        out[2 * i] = zip_bytes_low(low[i], high[i]);
        out[2 * i + 1] = zip_bytes_high(low[i], high[i])
    });
    out
}
