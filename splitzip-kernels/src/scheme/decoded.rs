//! Exponents on their way back: from values of a window to what [`Dtype::join_decoded`] takes.
//!
//! Exponents of 8 bits are bytes. Those of 4 or 5 bits stay bit planes: there the low end has a carry to ripple through, an escape is a bit in each plane,
//! and one transposition makes elements of them.

use super::{Ladder, ValuePlanes};
use crate::arch::permute;
use crate::dtype::Dtype;
use crate::tile::bits::{from_planes, planes, transpose, unweave, weave};
use crate::tile::{Mask, Part, Program, Tile, Words, patch};
use crate::unroll;

/// The exponents of 32 elements, as suits their width: see [`Dtype::Decoded`].
pub trait Decoded: Words {
    /// From bytes.
    fn from_bytes(bytes: [u32; 8]) -> Self;
    /// From bit planes, of which those above the width are zeros.
    fn from_planes(planes: [u32; 8]) -> Self;
    /// Of values in a window with one low end.
    fn of_values<L: Ladder>(values: L::Values, low: u32) -> Self;
    /// The same with a low end for every element, a byte each.
    fn of_values_of_elements<L: Ladder>(values: L::Values, lows: [u32; 8]) -> Self;
    /// With 0 for `zeros`.
    fn with_zeros(self, zeros: u32) -> Self;
    /// With numbers of a part for the elements under the mask, from the number `first` of each lane on; number 0 is at bit `start`.
    fn with_escapes<D: Dtype>(
        program: &Program,
        exponents: &Tile<Self>,
        part: Part,
        start: u32,
        escaped: &Mask,
        first: &Tile<u32>,
    ) -> Tile<Self>;
}

impl Decoded for [u32; 8] {
    #[inline(always)]
    fn from_bytes(bytes: [u32; 8]) -> Self {
        bytes
    }

    #[inline(always)]
    fn from_planes(planes: [u32; 8]) -> Self {
        from_planes(planes)
    }

    #[inline(always)]
    fn of_values<L: Ladder>(values: L::Values, low: u32) -> Self {
        let mut out = values.to_bytes();
        unroll!(i < 8 => out[i] = out[i].wrapping_add(low * 0x0101_0101));
        out
    }

    #[inline(always)]
    fn of_values_of_elements<L: Ladder>(values: L::Values, lows: [u32; 8]) -> Self {
        let mut out = values.to_bytes();
        unroll!(i < 8 => out[i] = out[i].wrapping_add(lows[i]));
        out
    }

    #[inline(always)]
    fn with_zeros(self, zeros: u32) -> Self {
        let (keep, mut out) = (unweave(transpose([!zeros; 4])), self);
        unroll!(i < 8 => out[i] &= (keep[i] & 0x0101_0101) * 255);
        out
    }

    #[inline(always)]
    fn with_escapes<D: Dtype>(
        program: &Program,
        exponents: &Tile<Self>,
        part: Part,
        start: u32,
        escaped: &Mask,
        first: &Tile<u32>,
    ) -> Tile<Self> {
        patch(program, exponents, escaped, first, |rank| part.number(start, D::EXPONENT_BITS, rank))
    }
}

macro_rules! decoded_planes { ($count:literal, $of_bytes:expr) => {
impl Decoded for [u32; $count] {
    #[inline(always)]
    fn from_bytes(bytes: [u32; 8]) -> Self {
        $of_bytes(bytes)
    }

    #[inline(always)]
    fn from_planes(planes: [u32; 8]) -> Self {
        let mut out = [0; $count];
        unroll!(j < $count => out[j] = planes[j]);
        out
    }

    #[inline(always)]
    fn of_values<L: Ladder>(values: L::Values, low: u32) -> Self {
        // Every bit of the low end at the top of a byte, from where an instruction spreads it over a word.
        let (first, fifth) = (low.wrapping_mul(1 << 7 | 1 << 14 | 1 << 21 | 1 << 28), low << 3);
        let mut lows = [0; $count];
        unroll!(j < $count => lows[j] = match j {
            4.. => permute(fifth, 0, 0x8888),
            _ => permute(first, 0, 0x8888 | j as u32 * 0x1111),
        });
        sum::<L, $count>(values, lows)
    }

    #[inline(always)]
    fn of_values_of_elements<L: Ladder>(values: L::Values, lows: [u32; 8]) -> Self {
        sum::<L, $count>(values, $of_bytes(lows))
    }

    #[inline(always)]
    fn with_zeros(self, zeros: u32) -> Self {
        let mut out = self;
        unroll!(j < $count => out[j] &= !zeros);
        out
    }

    #[inline(always)]
    fn with_escapes<D: Dtype>(
        program: &Program,
        exponents: &Tile<Self>,
        part: Part,
        start: u32,
        escaped: &Mask,
        first: &Tile<u32>,
    ) -> Tile<Self> {
        part.insert_numbers(program, exponents, start, escaped, first)
    }
}
} }
decoded_planes!(4, |bytes| transpose(weave(bytes)));
decoded_planes!(5, |bytes| {
    let [a, b, c, d, e, ..] = planes(bytes);
    [a, b, c, d, e]
});

/// The planes of sums of values and low ends, without the last carry.
#[inline(always)]
fn sum<L: Ladder, const N: usize>(values: L::Values, lows: [u32; N]) -> [u32; N] {
    let (mut out, mut carry) = ([0; N], 0);
    unroll!(j < N => {
        let (v, low) = (if (j as u32) < L::Values::COUNT { values.word(j) } else { 0 }, lows[j]);
        out[j] = v ^ low ^ carry;
        carry = (v & low) | (carry & (v | low));
    });
    let _ = carry;
    out
}
