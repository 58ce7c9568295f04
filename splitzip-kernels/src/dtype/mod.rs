//! Element types: where sign, exponent and mantissa are.
//!
//! Functions on the packed words of one lane: 32 elements in four runs of 8 (`docs/format.md`, section 1). No arithmetic on
//! floats anywhere: words stay integers, so NaN payloads, denormals and both zeros are ordinary.
//!
//! To add one: a file like `bf16.rs`, and its name in the `dtype = [..]` lists of the kernels; `CONTRIBUTING.md` has every step.

mod bf16;
mod e4m3;
mod e5m2;
mod fp16;

pub use bf16::Bf16;
pub use e4m3::E4m3;
pub use e5m2::E5m2;
pub use fp16::Fp16;

use crate::arch::{odd_bytes, select};
use crate::scheme::{Decoded, Spread};
use crate::tile::Words;
use crate::tile::bits::{from_planes, planes, transpose};
use crate::unroll;

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
    /// The packed plane of the residuals (sign and mantissa): 8 or 4 bits of each, or none.
    type Residuals: Words;
    /// The bit planes of what the packed plane does not hold, or none.
    type UpperResiduals: Words;
    /// Where coding has the exponents: two a word, each at the top of its half, or bytes that have them in their middle.
    type Spread: Spread;
    /// Where decoding has them: bytes, or bit planes.
    type Decoded: Decoded;

    /// The signs and mantissas.
    fn split(words: Self::Words) -> (Self::Residuals, Self::UpperResiduals);
    /// The exponents, four bytes a word, in the order of the elements of each run.
    #[inline(always)]
    fn exponents(words: Self::Words) -> [u32; 8] {
        Self::spread(words).bytes::<Self>()
    }
    /// The exponents for coding.
    fn spread(words: Self::Words) -> Self::Spread;
    /// The way back from both, from exponents of bytes. Bits above their width do not matter.
    #[inline(always)]
    fn join(exponents: [u32; 8], residuals: Self::Residuals, upper: Self::UpperResiduals) -> Self::Words {
        Self::join_decoded(Self::Decoded::from_bytes(exponents), residuals, upper)
    }
    /// The same from where decoding has the exponents.
    fn join_decoded(
        exponents: Self::Decoded,
        residuals: Self::Residuals,
        upper: Self::UpperResiduals,
    ) -> Self::Words;
    /// 32 times the element in the low bits of `word`.
    fn repeat(word: u32) -> Self::Words;
    /// What differs between the elements of a run ([`crate::tile::InChunk::run`]) and the one in `word`: zero when nothing does.
    fn run_differences(run: [u32; 4], word: u32) -> u32;
    /// The same for the first few elements: a quick look.
    fn first_differences(words: Self::Words, word: u32) -> u32;
    /// Hash step of the checksum over all words, in order (`docs/format.md`, section 7).
    fn mix(words: Self::Words, hash: u32) -> u32;
    /// The same over the words of one run.
    fn mix_run(run: [u32; 4], hash: u32) -> u32;
    /// The lane's first element.
    fn first(words: Self::Words) -> u32;
}

/// The bits of an exponent in the four bytes of a word.
pub(crate) const fn exponent_bytes<D: Dtype>() -> u32 {
    ((1 << D::EXPONENT_BITS) - 1) * 0x0101_0101
}

/// One step of the checksum.
#[inline(always)]
fn mix_word(hash: u32, word: u32) -> u32 {
    hash.rotate_left(13).wrapping_mul(0x85EB_CA6B).wrapping_add(word)
}

/// What all dtypes of a width share: repetition, differences, hashing.
macro_rules! word_functions {
    ($words:literal, $repeat:expr, $mask:literal) => {
        #[inline(always)]
        fn repeat(word: u32) -> [u32; $words] {
            [$repeat(word); $words]
        }

        #[inline(always)]
        fn run_differences(run: [u32; 4], word: u32) -> u32 {
            let (all_equal, mut differences) = ($repeat(word), 0);
            crate::unroll!(i < $words / 4 => differences |= run[i] ^ all_equal);
            differences
        }

        #[inline(always)]
        fn first_differences(words: [u32; $words], word: u32) -> u32 {
            words[0] ^ $repeat(word)
        }

        #[inline(always)]
        fn mix(words: [u32; $words], mut hash: u32) -> u32 {
            crate::unroll!(i < $words => hash = super::mix_word(hash, words[i]));
            hash
        }

        #[inline(always)]
        fn mix_run(run: [u32; 4], mut hash: u32) -> u32 {
            crate::unroll!(i < $words / 4 => hash = super::mix_word(hash, run[i]));
            hash
        }

        #[inline(always)]
        fn first(words: [u32; $words]) -> u32 {
            words[0] & $mask
        }
    };
}
use word_functions;

/// A 16-bit element twice.
#[inline(always)]
fn twice(word: u32) -> u32 {
    word & 0xffff | word << 16
}

/// An 8-bit element four times.
#[inline(always)]
fn four_times(word: u32) -> u32 {
    (word & 0xff) * 0x0101_0101
}

/// Two 16-bit elements a word: what is below their signs, moved to the top. The bit that crosses into the upper half lands below its exponent.
#[inline(always)]
fn spread16(words: [u32; 16]) -> [u32; 16] {
    let mut out = [0; 16];
    unroll!(i < 16 => out[i] = words[i] << 1);
    out
}

/// The high bytes of 16-bit elements.
#[inline(always)]
fn high_bytes(words: [u32; 16]) -> [u32; 8] {
    let mut out = [0; 8];
    unroll!(i < 8 => out[i] = odd_bytes(words[2 * i], words[2 * i + 1]));
    out
}

/// The bit planes of sign and two bits of mantissa of bytes that have five bits of exponent between them: e5m2, and the high bytes of fp16.
#[inline(always)]
fn split_high_bytes(bytes: [u32; 8]) -> [u32; 3] {
    // All planes: coding takes those of exponents.
    let [a, b, _, _, _, _, _, c] = planes(bytes);
    [a, b, c]
}

/// The way back.
#[inline(always)]
fn join_high_bytes(exponents: [u32; 8], [a, b, c]: [u32; 3]) -> [u32; 8] {
    const MANTISSAS: u32 = 0x0303_0303;
    const EXPONENTS: u32 = 0x7c7c_7c7c;
    // Nibbles of sign and mantissa, those of two words woven: the sign of each is already at the top of one of them.
    let (woven, mut out) = (transpose([a, b, 0, c]), [0; 8]);
    unroll!(i < 8 => {
        let x = woven[i / 2];
        let rest = if i.is_multiple_of(2) { select(MANTISSAS, x, x << 4) } else { select(MANTISSAS, x >> 4, x) };
        out[i] = select(EXPONENTS, exponents[i] << 2, rest)
    });
    out
}

/// The same from planes of exponents.
#[inline(always)]
fn join_high_planes([d, e, f, g, h]: [u32; 5], [a, b, c]: [u32; 3]) -> [u32; 8] {
    from_planes([a, b, d, e, f, g, h, c])
}
