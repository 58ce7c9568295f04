//! Element types: where sign, exponent and mantissa are.
//!
//! Functions on the packed words of one lane: 32 elements in four runs of 8 (`docs/format.md`, section 1). No arithmetic on
//! floats anywhere: words stay integers, so NaN payloads, denormals and both zeros are ordinary.

mod bf16;
pub use bf16::Bf16;

use crate::tile::Words;

/// An element type.
pub trait Dtype: Copy + 'static {
    /// As in entry names: `bf16`.
    const NAME: &'static str;
    /// Bits of an element.
    const BITS: u32;
    /// Bits of its exponent.
    const EXPONENT_BITS: u32;
    /// Bits of its mantissa: where the exponent starts.
    const MANTISSA_BITS: u32;
    /// 32 elements as they lie in memory.
    type Words: Words;
    /// 32 signs and mantissas.
    type Residuals: Words;

    /// The signs and mantissas.
    fn split(words: Self::Words) -> Self::Residuals;
    /// The exponents, four bytes a word, in the order of the elements of each run.
    fn exponents(words: Self::Words) -> [u32; 8];
    /// The way back.
    fn join(exponents: [u32; 8], residuals: Self::Residuals) -> Self::Words;
    /// 32 times the element in the low bits of `word`.
    fn repeat(word: u32) -> Self::Words;
    /// What differs between the elements and `word` repeated: zero when nothing does.
    fn differences(words: Self::Words, word: u32) -> u32;
    /// The same for the first few elements: a quick look.
    fn first_differences(words: Self::Words, word: u32) -> u32;
    /// Hash step of the checksum over all words, in order (`docs/format.md`, section 7).
    fn mix(words: Self::Words, hash: u32) -> u32;
    /// The lane's first element.
    fn first(words: Self::Words) -> u32;
}

/// One step of the checksum.
#[inline(always)]
pub(crate) fn mix_word(hash: u32, word: u32) -> u32 {
    hash.rotate_left(13).wrapping_mul(0x85EB_CA6B).wrapping_add(word)
}
