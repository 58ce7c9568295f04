//! Arithmetic on `f32`, rounded to nearest even: what Rust's own does, but for NaNs and subnormal numbers.

use super::decode::{Call, Decoded};
use super::decode_number::{Scalar, finish, plain};
use super::op::Op;
use super::scalar::{max_float, min_float, to_float};

/// A function with and without `.ftz`.
macro_rules! flushing {
    ($flush:expr, |$($name:ident),*| $value:expr) => {
        if $flush {
            let f: Scalar = |s| { let [$($name,)* ..] = s.map(|bits| to_float(bits, true)); Some(finish($value, true)) };
            f
        } else {
            let f: Scalar = |s| { let [$($name,)* ..] = s.map(|bits| to_float(bits, false)); Some(finish($value, false)) };
            f
        }
    };
}

pub(super) fn decode(name: &str, call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.ty()?;
    let flush = call.has("ftz");
    let nearest = call.has("rn");
    let nan = call.has("NaN");
    let exact = matches!(name, "div" | "rcp" | "sqrt" | "fma");
    if exact && !nearest || nearest && matches!(name, "min" | "max" | "neg" | "abs") {
        return call.unknown();
    }
    if nan && !matches!(name, "min" | "max") {
        return call.unknown();
    }
    let (f, count): (Scalar, usize) = match name {
        "add" => (flushing!(flush, |a, b| a + b), 2),
        "sub" => (flushing!(flush, |a, b| a - b), 2),
        "mul" => (flushing!(flush, |a, b| a * b), 2),
        "div" => (flushing!(flush, |a, b| a / b), 2),
        "fma" => (flushing!(flush, |a, b, c| a.mul_add(b, c)), 3),
        "mad" if nearest => (flushing!(flush, |a, b, c| a.mul_add(b, c)), 3),
        "rcp" => (flushing!(flush, |a| 1.0 / a), 1),
        "sqrt" => (flushing!(flush, |a| a.sqrt()), 1),
        "min" | "max" => {
            let f: Scalar = match (name, nan, flush) {
                ("min", false, false) => {
                    |s| Some(min_float(to_float(s[0], false), to_float(s[1], false), false))
                }
                ("min", false, true) => {
                    |s| Some(min_float(to_float(s[0], true), to_float(s[1], true), false))
                }
                ("min", true, false) => {
                    |s| Some(min_float(to_float(s[0], false), to_float(s[1], false), true))
                }
                ("min", true, true) => |s| Some(min_float(to_float(s[0], true), to_float(s[1], true), true)),
                (_, false, false) => |s| Some(max_float(to_float(s[0], false), to_float(s[1], false), false)),
                (_, false, true) => |s| Some(max_float(to_float(s[0], true), to_float(s[1], true), false)),
                (_, true, false) => |s| Some(max_float(to_float(s[0], false), to_float(s[1], false), true)),
                (_, true, true) => |s| Some(max_float(to_float(s[0], true), to_float(s[1], true), true)),
            };
            (f, 2)
        }
        // Of bits: a NaN keeps its payload.
        "neg" if !flush => (|s| Some(u64::from(s[0] as u32 ^ 0x8000_0000)), 1),
        "neg" => (|s| Some(u64::from((-to_float(s[0], true)).to_bits())), 1),
        "abs" if !flush => (|s| Some(u64::from(s[0] as u32 & 0x7fff_ffff)), 1),
        "abs" => (|s| Some(u64::from(to_float(s[0], true).abs().to_bits())), 1),
        _ => return call.unknown(),
    };
    plain(call, f, count)
}
