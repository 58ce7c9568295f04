//! Floats of 32 bits: what is the same on every machine, and what is not.
//!
//! `+`, `-`, `*`, `/` and comparisons of `f32` are Rust's own in a closure: each is rounded once, to nearest, ties to even, with subnormal
//! numbers, on the CPU as on the GPU. Nothing is contracted: `a * x + y` is a product and a sum, two roundings, and PTX says `mul.rn` and `add.rn`, which
//! the assembler must not fuse. Who wants one rounding asks for [`multiply_add`]. So results are the same bits on all machines, but for one
//! thing: which NaN an operation gives (its sign and payload). [`maximum`] gives one and the same NaN everywhere.

use super::{Program, Tile, map};
use crate::arch;

/// `a * b + c` with one rounding. One `fma`; on a CPU without such an instruction a slow call.
#[inline(always)]
pub fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    arch::multiply_add_f32(a, b, c)
}

/// The larger number; NaN (0x7fffffff) if either is NaN; of both zeros +0. One `max.NaN`.
///
/// (`f32::max` takes the number beside a NaN, and either of two zeros.)
#[inline(always)]
pub fn maximum(a: f32, b: f32) -> f32 {
    arch::maximum_f32(a, b)
}

/// Floats in the order of these numbers: -inf first, -0 below +0, NaN last.
#[inline(always)]
fn rank(x: f32) -> u32 {
    let bits = x.to_bits();
    let sign = (bits as i32 >> 31) as u32;
    if bits & 0x7fff_ffff > 0x7f80_0000 { u32::MAX } else { bits ^ (sign | 0x8000_0000) }
}

/// The way back; the NaN is 0x7fffffff.
#[inline(always)]
fn ranked(rank: u32) -> f32 {
    f32::from_bits(if rank >> 31 != 0 { rank ^ 0x8000_0000 } else { !rank })
}

impl Program {
    /// The [`maximum`] of the lanes. One `redux` (of whole numbers in the order of the floats) and a few instructions.
    #[inline(always)]
    pub fn maximum(&self, values: &Tile<f32>) -> f32 {
        ranked(self.max(&map(values, rank)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order that `maximum` knows, without equal ones.
    const ASCENDING: [u32; 12] = [
        0xff80_0000, // -inf
        0xff7f_ffff,
        0xbf80_0000, // -1
        0x8080_0000,
        0x8000_0001, // the smallest subnormal, negative
        0x8000_0000, // -0
        0,
        1,
        0x0080_0000,
        0x3f80_0000, // 1
        0x7f7f_ffff,
        0x7f80_0000, // inf
    ];

    #[test]
    fn the_maximum_is_the_later_in_the_order() {
        for (i, a) in ASCENDING.into_iter().enumerate() {
            assert_eq!(ranked(rank(f32::from_bits(a))).to_bits(), a);
            for (j, b) in ASCENDING.into_iter().enumerate() {
                let larger = maximum(f32::from_bits(a), f32::from_bits(b)).to_bits();
                assert_eq!(larger, ASCENDING[i.max(j)], "{a:#x} {b:#x}");
                assert_eq!(rank(f32::from_bits(a)).cmp(&rank(f32::from_bits(b))), i.cmp(&j));
            }
        }
    }

    #[test]
    fn a_nan_wins_and_is_always_the_same() {
        for nan in [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff, 0x7fff_ffff].map(f32::from_bits) {
            for other in ASCENDING.map(f32::from_bits).into_iter().chain([nan]) {
                assert_eq!(maximum(nan, other).to_bits(), 0x7fff_ffff);
                assert_eq!(maximum(other, nan).to_bits(), 0x7fff_ffff);
            }
            assert_eq!(ranked(rank(nan)).to_bits(), 0x7fff_ffff);
        }
    }

    #[test]
    fn multiply_add_rounds_once() {
        let (a, b) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON);
        assert_eq!(multiply_add(a, b, -1.0), -f32::EPSILON * f32::EPSILON);
        assert_eq!(a * b - 1.0, 0.0);
    }
}
