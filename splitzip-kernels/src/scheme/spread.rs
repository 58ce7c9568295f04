//! Exponents on their way to a window: sums of them, and the bit planes of their distances to its low end.
//!
//! Exponents of 8 bits are spread over halves of words, at their tops: the hardware adds and limits two of them at once. Those of 4 or 5 bits stay in the
//! bytes where they are, and become bit planes at once: there a sum is a count of bits, and a distance has a carry to ripple through.

use super::{Ladder, ValuePlanes};
use crate::arch::{
    add_clamp_halves, add_min_halves, even_bytes, odd_bytes, permute, select, sum_bytes, zip_bytes_high,
    zip_bytes_low,
};
use crate::dtype::{Dtype, exponent_bytes};
use crate::tile::Words;
use crate::tile::bits::{planes, transpose, zero_bytes};
use crate::unroll;

/// The exponents of 32 elements, as suits their width: see [`Dtype::Spread`].
pub trait Spread: Words {
    /// The exponents, a byte each.
    fn bytes<D: Dtype>(self) -> [u32; 8];
    /// The bit planes of the exponents, and zeros.
    fn planes<D: Dtype>(self) -> [u32; 8];
    /// Their sum.
    fn sum<D: Dtype>(self) -> u32;
    /// The elements whose exponent is 0.
    fn zeros<D: Dtype>(self) -> u32;
    /// The sums of the lane's four runs, a half each: element by element, where the four have the same eight channels.
    fn sums_of_runs<D: Dtype>(self) -> [u32; 4];
    /// The values of exponents in a window with one low end.
    fn values<D: Dtype, L: Ladder>(self, low: u32) -> L::Values;
    /// The same with eight low ends, a half each, that all runs have.
    fn values_of_runs<D: Dtype, L: Ladder>(self, lows: [u32; 4]) -> L::Values;
    /// The same with a low end for every element, a byte each.
    fn values_of_elements<D: Dtype, L: Ladder>(self, lows: [u32; 8]) -> L::Values;
}

/// The low ends of windows, from means, a half each: [`low_of`](super::low_of) of both.
#[inline(always)]
pub(super) fn lows_of_halves<D: Dtype, L: Ladder>(means: [u32; 4]) -> [u32; 4] {
    let all = |half: u32| (half & 0xffff) * 0x0001_0001;
    let mut out = [0; 4];
    unroll!(i < 4 => out[i] = match D::EXPONENT_BITS {
        8 => add_clamp_halves(means[i], all(L::MEAN.wrapping_neg()), all(255 - L::VALUES)),
        bits => (means[i] + all((1 << bits) - L::MEAN)) & all((1 << bits) - 1),
    });
    out
}

/// What stands for all values outside; the largest distance, where a window is wider than the exponents.
const fn limit<D: Dtype, L: Ladder>() -> u32 {
    let most = (1 << D::EXPONENT_BITS) - 1;
    if L::VALUES < most { L::VALUES } else { most }
}

/// Four bytes, each negated.
#[inline(always)]
fn negated_bytes(x: u32) -> u32 {
    const HIGH: u32 = 0x8080_8080;
    (HIGH - (x & !HIGH)) ^ (!x & HIGH)
}

// ------------------------------------------------------------------------------------------------------ halves

/// Two exponents of 8 bits a word, each at the top of its half; what is below does not matter.
impl Spread for [u32; 16] {
    #[inline(always)]
    fn bytes<D: Dtype>(self) -> [u32; 8] {
        let mut out = [0; 8];
        unroll!(i < 8 => out[i] = odd_bytes(self[2 * i], self[2 * i + 1]));
        out
    }

    #[inline(always)]
    fn planes<D: Dtype>(self) -> [u32; 8] {
        planes(self.bytes::<D>())
    }

    #[inline(always)]
    fn sum<D: Dtype>(self) -> u32 {
        let (bytes, mut sum) = (self.bytes::<D>(), 0);
        unroll!(i < 8 => sum = sum_bytes(bytes[i], sum));
        sum
    }

    #[inline(always)]
    fn zeros<D: Dtype>(self) -> u32 {
        zero_bytes(self.bytes::<D>())
    }

    #[inline(always)]
    fn sums_of_runs<D: Dtype>(self) -> [u32; 4] {
        let exponents = |i: usize| permute(self[i], 0, 0x4341);
        let mut out = [0; 4];
        unroll!(i < 4 => out[i] = exponents(i) + exponents(i + 4) + exponents(i + 8) + exponents(i + 12));
        out
    }

    #[inline(always)]
    fn values<D: Dtype, L: Ladder>(self, low: u32) -> L::Values {
        let add = (low.wrapping_neg() << 8 & 0xffff) * 0x0001_0001;
        of_halves::<D, L>(self, |_| add)
    }

    #[inline(always)]
    fn values_of_runs<D: Dtype, L: Ladder>(self, lows: [u32; 4]) -> L::Values {
        let mut add = lows;
        // Negated, and no bit below those of exponents: a carry from there would be one of a value.
        unroll!(i < 4 => add[i] = ((0x0100_0100 - add[i]) & 0x00ff_00ff) << 8);
        of_halves::<D, L>(self, |i| add[i % 4])
    }

    #[inline(always)]
    fn values_of_elements<D: Dtype, L: Ladder>(self, lows: [u32; 8]) -> L::Values {
        // A base to the top of a half, negated there.
        of_halves::<D, L>(self, |i| {
            let bytes = negated_bytes(lows[i / 2]);
            if i % 2 == 0 { zip_bytes_low(0, bytes) } else { zip_bytes_high(0, bytes) }
        })
    }
}

/// The bit planes of the values, from exponents and what to add to each (the low end, negated) at the top of halves.
#[inline(always)]
fn of_halves<D: Dtype, L: Ladder>(spread: [u32; 16], add: impl Fn(usize) -> u32) -> L::Values {
    let limit = (limit::<D, L>() << 8 | 0xff) * 0x0001_0001;
    let mut out = [0; 8];
    unroll!(i < 8 => {
        let (a, b) = (add_min_halves(spread[2 * i], add(2 * i), limit), add_min_halves(spread[2 * i + 1], add(2 * i + 1), limit));
        out[i] = odd_bytes(a, b)
    });
    L::Values::from_bytes(out)
}

// ------------------------------------------------------------------------------------------------------- bytes

/// The bytes that have the exponents: 8-bit elements as they are, or high bytes.
impl Spread for [u32; 8] {
    #[inline(always)]
    fn bytes<D: Dtype>(self) -> [u32; 8] {
        let mut out = [0; 8];
        unroll!(i < 8 => out[i] = self[i] >> below::<D>() & exponent_bytes::<D>());
        out
    }

    #[inline(always)]
    fn planes<D: Dtype>(self) -> [u32; 8] {
        exponent_planes::<D>(self)
    }

    #[inline(always)]
    fn sum<D: Dtype>(self) -> u32 {
        let (planes, mut sum) = (exponent_planes::<D>(self), 0);
        unroll!(j < 8 => sum += planes[j].count_ones() << j);
        sum
    }

    #[inline(always)]
    fn zeros<D: Dtype>(self) -> u32 {
        let (planes, mut any) = (exponent_planes::<D>(self), 0);
        unroll!(j < 8 => any |= planes[j]);
        !any
    }

    #[inline(always)]
    fn sums_of_runs<D: Dtype>(self) -> [u32; 4] {
        let e = self.bytes::<D>();
        // Four times 31 fit a byte.
        let (first, second) = (e[0] + e[2] + e[4] + e[6], e[1] + e[3] + e[5] + e[7]);
        [
            permute(first, 0, 0x4140),
            permute(first, 0, 0x4342),
            permute(second, 0, 0x4140),
            permute(second, 0, 0x4342),
        ]
    }

    #[inline(always)]
    fn values<D: Dtype, L: Ladder>(self, low: u32) -> L::Values {
        let (exponents, add) = (exponent_planes::<D>(self), low.wrapping_neg());
        let (mut out, mut carry) = ([0; 8], 0);
        unroll!(j < 8 => if (j as u32) < D::EXPONENT_BITS {
            let (e, a) = (exponents[j], (add >> j & 1).wrapping_neg());
            out[j] = e ^ a ^ carry;
            carry = select(e ^ a, carry, e);
        });
        let _ = carry;
        limited::<D, L>(out)
    }

    #[inline(always)]
    fn values_of_runs<D: Dtype, L: Ladder>(self, lows: [u32; 4]) -> L::Values {
        let (first, second) = (even_bytes(lows[0], lows[1]), even_bytes(lows[2], lows[3]));
        self.values_of_elements::<D, L>([first, second, first, second, first, second, first, second])
    }

    #[inline(always)]
    fn values_of_elements<D: Dtype, L: Ladder>(self, lows: [u32; 8]) -> L::Values {
        let mut out = [0; 8];
        unroll!(i < 8 => {
            let exponents = exponent_bytes::<D>() << below::<D>();
            // Without their signs, two exponents fit a byte.
            let low = (0x8080_8080 - (lows[i] << below::<D>())) & exponents;
            out[i] = (self[i] & exponents) + low;
        });
        limited::<D, L>(exponent_planes::<D>(out))
    }
}

/// Bits of mantissa below the exponent, in its byte.
const fn below<D: Dtype>() -> u32 {
    D::MANTISSA_BITS % 8
}

/// The bit planes of the exponents of bytes, and zeros.
#[inline(always)]
fn exponent_planes<D: Dtype>(words: [u32; 8]) -> [u32; 8] {
    const NIBBLES: u32 = 0x0f0f_0f0f;
    if D::EXPONENT_BITS == 4 && below::<D>() == 3 {
        let mut woven = [0; 4];
        unroll!(g < 4 => woven[g] = select(NIBBLES, words[2 * g] >> 3, words[2 * g + 1] << 1));
        let [a, b, c, d] = transpose(woven);
        return [a, b, c, d, 0, 0, 0, 0];
    }
    // All planes: those of the residuals are wanted as well.
    let (all, mut out) = (planes(words), [0; 8]);
    unroll!(j < 8 => if (j as u32) < D::EXPONENT_BITS { out[j] = all[(j + below::<D>() as usize) & 7] });
    out
}

/// Values of distances, all of [`limit`] and more the same.
#[inline(always)]
fn limited<D: Dtype, L: Ladder>(distances: [u32; 8]) -> L::Values {
    let mut reach = !0;
    unroll!(j < 8 => if (j as u32) < D::EXPONENT_BITS {
        reach = if limit::<D, L>() >> j & 1 != 0 { distances[j] & reach } else { distances[j] | reach };
    });
    L::Values::from_fn(|j| {
        let distance = distances[j as usize & 7];
        if limit::<D, L>() >> j & 1 != 0 { distance | reach } else { distance & !reach }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{Bf16, E4m3, E5m2, Fp16};
    use crate::scheme::{low_of, w2x2x3, w2x3, w3};

    /// Exponents of 32 elements, in the order of the elements of each run, as elements with signs and mantissas of all kinds.
    fn elements<D: Dtype>(exponents: &[u32; 32], salt: u32) -> D::Words {
        let element = |i: usize| {
            let noise = (i as u32).wrapping_mul(0x9E37_79B9).wrapping_add(salt).rotate_left(7);
            let field = ((1 << D::EXPONENT_BITS) - 1) << D::MANTISSA_BITS;
            (exponents[i] << D::MANTISSA_BITS | noise & !field) & (((1u64 << D::BITS) - 1) as u32)
        };
        let in_word = 32 / D::BITS as usize;
        D::Words::from_fn(|w| {
            (0..in_word).fold(0, |word, i| word | element(w as usize * in_word + i) << (D::BITS as usize * i))
        })
    }

    /// The bit of a lane's mask that an element of the lane is.
    fn bit(i: usize) -> u32 {
        (8 * (i % 4) + 4 * (i / 4 % 2) + i / 8) as u32
    }

    fn value<D: Dtype, L: Ladder>(exponent: u32, low: u32) -> u32 {
        match D::EXPONENT_BITS {
            8 => exponent.wrapping_sub(low) & 255,
            bits => exponent.wrapping_sub(low) & ((1 << bits) - 1),
        }
        .min(limit::<D, L>())
    }

    fn check_values<L: Ladder>(values: L::Values, expected: impl Fn(usize) -> u32, what: &str) {
        for i in 0..32 {
            let got = (0..L::Values::COUNT).fold(0, |v, j| v | (values.word(j as usize) >> bit(i) & 1) << j);
            assert_eq!(got, expected(i), "{what}, element {i}");
        }
    }

    fn check<D: Dtype, L: Ladder>() {
        let count = 1u32 << D::EXPONENT_BITS;
        for round in 0..count.max(64) {
            let mut exponents = [0; 32];
            for (i, e) in exponents.iter_mut().enumerate() {
                *e = (round * 3 + i as u32 * (1 + 2 * (round & 7))) & (count - 1);
            }
            let spread = D::spread(elements::<D>(&exponents, round));
            let bytes = spread.bytes::<D>();
            for i in 0..32 {
                assert_eq!(bytes[i / 4] >> (8 * (i % 4)) & 255, exponents[i], "{}", D::NAME);
            }
            assert_eq!(spread.planes::<D>(), planes(bytes), "{}", D::NAME);
            assert_eq!(spread.sum::<D>(), exponents.iter().sum::<u32>(), "{}", D::NAME);
            let zeros = (0..32).fold(0, |mask, i| mask | u32::from(exponents[i] == 0) << bit(i));
            assert_eq!(spread.zeros::<D>(), zeros, "{}", D::NAME);
            let sums = spread.sums_of_runs::<D>();
            for c in 0..8 {
                let sum: u32 = (0..4).map(|run| exponents[8 * run + c]).sum();
                assert_eq!(sums[c / 2] >> (16 * (c % 2)) & 0xffff, sum, "{} channel {c}", D::NAME);
            }
            let low = low_of::<D>(round & (count - 1), L::MEAN, L::VALUES);
            let expected = |i: usize| value::<D, L>(exponents[i], low);
            check_values::<L>(spread.values::<D, L>(low), expected, D::NAME);
            let lows: Vec<u32> =
                (0..8).map(|c| low_of::<D>((round + 5 * c) & (count - 1), L::MEAN, L::VALUES)).collect();
            let mut halves = [0; 4];
            (0..8).for_each(|c| halves[c / 2] |= lows[c] << (16 * (c % 2)));
            let expected = |i: usize| value::<D, L>(exponents[i], lows[i % 8]);
            check_values::<L>(spread.values_of_runs::<D, L>(halves), expected, D::NAME);
            let lows: Vec<u32> =
                (0..32).map(|i| low_of::<D>((round + 7 * i) & (count - 1), L::MEAN, L::VALUES)).collect();
            let mut of_elements = [0; 8];
            (0..32).for_each(|i| of_elements[i / 4] |= lows[i] << (8 * (i % 4)));
            let expected = |i: usize| value::<D, L>(exponents[i], lows[i]);
            check_values::<L>(spread.values_of_elements::<D, L>(of_elements), expected, D::NAME);
        }
    }

    #[test]
    fn spread_exponents_are_those_of_the_elements() {
        macro_rules! all { ($($dtype:ty)*) => { $(
            check::<$dtype, w3::W3>();
            check::<$dtype, w2x3::W2x3>();
            check::<$dtype, w2x2x3::W2x2x3>();
        )* } }
        all! { Bf16 Fp16 E4m3 E5m2 }
    }
}
