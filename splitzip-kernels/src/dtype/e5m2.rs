//! e5m2: sign, 5 bits of exponent, 2 of mantissa. Its residual is three bit planes.

use super::{Dtype, four_times, join_high_bytes, join_high_planes, split_high_bytes, word_functions};

/// e5m2.
#[derive(Clone, Copy, Debug)]
pub struct E5m2;

impl Dtype for E5m2 {
    const NAME: &'static str = "e5m2";
    const BITS: u32 = 8;
    const EXPONENT_BITS: u32 = 5;
    const MANTISSA_BITS: u32 = 2;
    type Words = [u32; 8];
    type Residuals = [u32; 0];
    type UpperResiduals = [u32; 3];
    type Spread = [u32; 8];
    type Decoded = [u32; 5];

    #[inline(always)]
    fn split(words: [u32; 8]) -> ([u32; 0], [u32; 3]) {
        ([], split_high_bytes(words))
    }

    #[inline(always)]
    fn spread(words: [u32; 8]) -> [u32; 8] {
        words
    }

    #[inline(always)]
    fn join(exponents: [u32; 8], _: [u32; 0], upper: [u32; 3]) -> [u32; 8] {
        join_high_bytes(exponents, upper)
    }

    #[inline(always)]
    fn join_decoded(exponents: [u32; 5], _: [u32; 0], upper: [u32; 3]) -> [u32; 8] {
        join_high_planes(exponents, upper)
    }

    word_functions!(8, four_times, 0xff);
}
