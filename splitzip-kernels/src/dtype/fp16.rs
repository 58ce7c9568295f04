//! fp16: sign, 5 bits of exponent, 10 of mantissa. Its residual is 11 bits: a byte of mantissa, and three bit planes of the
//! other two mantissa bits and the sign.

use super::{Dtype, from_three_planes, high_bytes, spread16, three_planes, twice, word_functions};
use crate::arch::{even_bytes, zip_bytes_high, zip_bytes_low};
use crate::unroll;

/// fp16.
#[derive(Clone, Copy, Debug)]
pub struct Fp16;

const MANTISSAS: u32 = 0x0303_0303;
const EXPONENTS: u32 = 0x1f1f_1f1f;
/// Of a residual's upper three bits.
const SIGNS: u32 = 0x0404_0404;

impl Dtype for Fp16 {
    const NAME: &'static str = "fp16";
    const BITS: u32 = 16;
    const EXPONENT_BITS: u32 = 5;
    const MANTISSA_BITS: u32 = 10;
    type Words = [u32; 16];
    type Residuals = [u32; 8];
    type UpperResiduals = [u32; 3];

    #[inline(always)]
    fn split(words: [u32; 16]) -> ([u32; 8], [u32; 3]) {
        let (mut low, mut high) = ([0; 8], high_bytes(words));
        unroll!(i < 8 => {
            low[i] = even_bytes(words[2 * i], words[2 * i + 1]);
            high[i] = (high[i] & MANTISSAS) | (high[i] >> 5 & SIGNS)
        });
        (low, three_planes(high))
    }

    #[inline(always)]
    fn exponents(words: [u32; 16]) -> [u32; 8] {
        let mut out = high_bytes(words);
        unroll!(i < 8 => out[i] = out[i] >> 2 & EXPONENTS);
        out
    }

    #[inline(always)]
    fn spread(words: [u32; 16]) -> [u32; 16] {
        spread16(words)
    }

    #[inline(always)]
    fn join(exponents: [u32; 8], residuals: [u32; 8], upper: [u32; 3]) -> [u32; 16] {
        let (upper, mut out) = (from_three_planes(upper), [0; 16]);
        unroll!(i < 8 => {
            let high = (exponents[i] & EXPONENTS) << 2 | (upper[i] & MANTISSAS) | (upper[i] & SIGNS) << 5;
            out[2 * i] = zip_bytes_low(residuals[i], high);
            out[2 * i + 1] = zip_bytes_high(residuals[i], high)
        });
        out
    }

    word_functions!(16, twice, 0xffff);
}
