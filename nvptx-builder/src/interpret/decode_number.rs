//! Arithmetic on integers; comparisons, conversions and floats are in files of their own.

use super::decode::{Call, Decoded, Type, predicates};
use super::op::{Dst, Fast32, Fast64, Op, Src};
use super::parse::Operand;
use super::scalar::{self as x, float, to_float};
use super::{decode_compare, decode_convert, decode_float};

/// A function of scalars; none is a division by zero.
pub(super) type Scalar = fn(&[u64; 4]) -> Option<u64>;

pub(super) fn decode(name: &str, call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    match name {
        "and" | "or" | "xor" | "not" if call.has("pred") => return predicates(name, call),
        "setp" => return decode_compare::compare(call),
        "selp" => return select(call),
        "set" => return decode_compare::set(call),
        "cvt" => return decode_convert::decode(call),
        "add" | "sub" | "addc" | "subc" if name.ends_with('c') || call.words.contains(&"cc") => {
            return carry(name, call);
        }
        _ => {}
    }
    if call.words.last() == Some(&"f32") {
        return decode_float::decode(name, call);
    }
    if let Some(scalar) = special(name, call)? {
        return Ok(scalar);
    }
    let wide = call.has("wide");
    let half = if wide { None } else { call.one_of(&["lo", "hi"]) };
    if matches!(name, "add" | "sub" | "min" | "max") && call.one_of(&["u16x2", "s16x2"]).is_some() {
        let signed = call.opcode.ends_with("s16x2");
        let relu = call.has("relu");
        let f: Scalar = match (name, signed || relu) {
            ("min", true) if relu => |s| {
                Some(
                    x::halves(s[0] as u32, s[1] as u32, |a, b| (a as i16).min(b as i16).max(0) as u16).into(),
                )
            },
            (_, _) if relu => return call.unknown(),
            ("add", _) => |s| Some(x::halves(s[0] as u32, s[1] as u32, u16::wrapping_add).into()),
            ("sub", _) => return call.unknown(),
            ("min", false) => |s| Some(x::halves(s[0] as u32, s[1] as u32, u16::min).into()),
            ("max", false) => |s| Some(x::halves(s[0] as u32, s[1] as u32, u16::max).into()),
            ("min", _) => {
                |s| Some(x::halves(s[0] as u32, s[1] as u32, |a, b| (a as i16).min(b as i16) as u16).into())
            }
            _ => |s| Some(x::halves(s[0] as u32, s[1] as u32, |a, b| (a as i16).max(b as i16) as u16).into()),
        };
        return plain(call, f, 2);
    }
    let ty = call.ty()?;
    if wide {
        return multiply_wide(name, call, ty);
    }
    if matches!(name, "mul" | "mad") != half.is_some() || ty.kind == b'f' || ty.bits == 8 {
        return call.unknown();
    }
    let high = half == Some("hi");
    let f = integer(name, ty, high).ok_or(()).or_else(|()| call.unknown())?;
    if let Some(op) = fast(name, call, ty, high)? {
        return Ok(op);
    }
    let count = match name {
        "not" | "neg" | "abs" | "popc" | "clz" | "brev" | "cnot" => 1,
        "mad" | "sad" => 3,
        _ => 2,
    };
    plain(call, f, count)
}

/// A function of the operands behind the first one.
pub(super) fn plain(call: &Call<'_, '_, '_>, f: Scalar, count: usize) -> Decoded<Op> {
    call.count(count + 1)?;
    let mut s = [Src::Imm(0); 4];
    for (number, s) in s.iter_mut().enumerate().take(count) {
        *s = call.src(number + 1)?;
    }
    Ok(Op::Call { f, dst: call.dst(0)?, s })
}

/// What kernels are full of, where all registers have the width of the type.
fn fast(name: &str, call: &Call<'_, '_, '_>, ty: Type, high: bool) -> Decoded<Option<Op>> {
    let count = match name {
        "not" | "popc" => 1,
        "mad" => 3,
        _ => 2,
    };
    let mut s = [Src::Imm(0); 3];
    if call.operands.len() != count + 1 {
        return Ok(None);
    }
    for (number, s) in s.iter_mut().enumerate().take(count) {
        *s = call.src(number + 1)?;
    }
    let (s32, s64) = (
        s.iter().all(|s| matches!(s, Src::W(_) | Src::Imm(_))),
        s.iter().all(|s| matches!(s, Src::D(_) | Src::Imm(_))),
    );
    let unsigned = !ty.signed();
    match (call.dst(0)?, ty.bits) {
        (Dst::W(dst), 32) if s32 => {
            let f = match name {
                "not" => Fast32::Not,
                "popc" => Fast32::Popc,
                "and" => Fast32::And,
                "or" => Fast32::Or,
                "xor" => Fast32::Xor,
                "add" => Fast32::Add,
                "sub" => Fast32::Sub,
                "mul" if !high => Fast32::Mul,
                "mul" if unsigned => Fast32::MulHi,
                "mad" if !high => Fast32::Mad,
                "min" if unsigned => Fast32::MinU,
                "max" if unsigned => Fast32::MaxU,
                "shl" => Fast32::Shl,
                "shr" if unsigned => Fast32::ShrU,
                "shr" => Fast32::ShrS,
                _ => return Ok(None),
            };
            Ok(Some(Op::Fast32 { f, dst, s }))
        }
        (Dst::D(dst), 64) if s64 && !matches!(name, "shl" | "shr") => {
            let f = match name {
                "and" => Fast64::And,
                "or" => Fast64::Or,
                "xor" => Fast64::Xor,
                "add" => Fast64::Add,
                "sub" => Fast64::Sub,
                "mul" if !high => Fast64::Mul,
                "mad" if !high => Fast64::Mad,
                "min" if unsigned => Fast64::MinU,
                "max" if unsigned => Fast64::MaxU,
                _ => return Ok(None),
            };
            Ok(Some(Op::Fast64 { f, dst, s }))
        }
        (Dst::D(dst), 64) if name == "shl" || (name == "shr" && unsigned) => {
            let widths = matches!(s[0], Src::D(_) | Src::Imm(_)) && matches!(s[1], Src::W(_) | Src::Imm(_));
            Ok(widths.then_some(Op::Shift64 { left: name == "shl", dst, a: s[0], b: s[1] }))
        }
        _ => Ok(None),
    }
}

fn multiply_wide(name: &str, call: &mut Call<'_, '_, '_>, ty: Type) -> Decoded<Op> {
    let f: Scalar = match (name, ty.kind, ty.bits) {
        ("mul", b'u', 32) => {
            call.count(3)?;
            let (a, b) = (call.src(1)?, call.src(2)?);
            if let (Dst::D(dst), Src::W(_) | Src::Imm(_), Src::W(_) | Src::Imm(_)) = (call.dst(0)?, a, b) {
                return Ok(Op::MulWide { dst, a, b });
            }
            |s| Some(u64::from(s[0] as u32) * u64::from(s[1] as u32))
        }
        ("mul", b's', 32) => |s| Some((i64::from(s[0] as i32) * i64::from(s[1] as i32)) as u64),
        ("mul", b'u', 16) => |s| Some(u64::from(s[0] as u16) * u64::from(s[1] as u16)),
        ("mul", b's', 16) => |s| Some((i32::from(s[0] as i16) * i32::from(s[1] as i16)) as u32 as u64),
        ("mad", b'u', 32) => |s| Some((u64::from(s[0] as u32) * u64::from(s[1] as u32)).wrapping_add(s[2])),
        ("mad", b's', 32) => {
            |s| Some(((i64::from(s[0] as i32) * i64::from(s[1] as i32)) as u64).wrapping_add(s[2]))
        }
        ("mad", b'u', 16) => {
            |s| Some((u32::from(s[0] as u16) * u32::from(s[1] as u16)).wrapping_add(s[2] as u32).into())
        }
        ("mad", b's', 16) => |s| {
            let product = i32::from(s[0] as i16) * i32::from(s[1] as i16);
            Some((product as u32).wrapping_add(s[2] as u32).into())
        },
        _ => return call.unknown(),
    };
    plain(call, f, if name == "mad" { 3 } else { 2 })
}

/// Integers of 16, 32 and 64 bits, the same three times.
macro_rules! integers {
    ($name:expr, $ty:expr, $high:expr, $($bits:literal: $u:ty, $s:ty, $wide_u:ty, $wide_s:ty;)*) => {
        match ($name, $ty.signed(), $ty.bits) { $(
            ("add", _, $bits) => |s| Some(((s[0] as $u).wrapping_add(s[1] as $u)) as u64),
            ("sub", _, $bits) => |s| Some(((s[0] as $u).wrapping_sub(s[1] as $u)) as u64),
            ("mul", _, $bits) if !$high => |s| Some(((s[0] as $u).wrapping_mul(s[1] as $u)) as u64),
            ("mul", false, $bits) =>
                |s| Some((((s[0] as $u as $wide_u) * (s[1] as $u as $wide_u)) >> $bits) as $u as u64),
            ("mul", true, $bits) =>
                |s| Some((((s[0] as $s as $wide_s) * (s[1] as $s as $wide_s)) >> $bits) as $u as u64),
            ("mad", _, $bits) if !$high =>
                |s| Some(((s[0] as $u).wrapping_mul(s[1] as $u).wrapping_add(s[2] as $u)) as u64),
            ("mad", false, $bits) => |s| {
                let high = (((s[0] as $u as $wide_u) * (s[1] as $u as $wide_u)) >> $bits) as $u;
                Some(high.wrapping_add(s[2] as $u) as u64)
            },
            ("mad", true, $bits) => |s| {
                let high = (((s[0] as $s as $wide_s) * (s[1] as $s as $wide_s)) >> $bits) as $u;
                Some(high.wrapping_add(s[2] as $u) as u64)
            },
            ("sad", false, $bits) =>
                |s| Some((s[0] as $u).abs_diff(s[1] as $u).wrapping_add(s[2] as $u) as u64),
            ("sad", true, $bits) =>
                |s| Some((s[0] as $s).abs_diff(s[1] as $s).wrapping_add(s[2] as $u) as u64),
            ("div", false, $bits) => |s| Some((s[0] as $u).checked_div(s[1] as $u)? as u64),
            ("rem", false, $bits) => |s| Some((s[0] as $u).checked_rem(s[1] as $u)? as u64),
            ("div", true, $bits) =>
                |s| if s[1] as $s == 0 { None } else { Some((s[0] as $s).wrapping_div(s[1] as $s) as $u as u64) },
            ("rem", true, $bits) =>
                |s| if s[1] as $s == 0 { None } else { Some((s[0] as $s).wrapping_rem(s[1] as $s) as $u as u64) },
            ("min", false, $bits) => |s| Some((s[0] as $u).min(s[1] as $u) as u64),
            ("max", false, $bits) => |s| Some((s[0] as $u).max(s[1] as $u) as u64),
            ("min", true, $bits) => |s| Some((s[0] as $s).min(s[1] as $s) as $u as u64),
            ("max", true, $bits) => |s| Some((s[0] as $s).max(s[1] as $s) as $u as u64),
            ("neg", true, $bits) => |s| Some((s[0] as $s).wrapping_neg() as $u as u64),
            ("abs", true, $bits) => |s| Some((s[0] as $s).wrapping_abs() as $u as u64),
            ("and", false, $bits) => |s| Some((s[0] & s[1]) as $u as u64),
            ("or", false, $bits) => |s| Some((s[0] | s[1]) as $u as u64),
            ("xor", false, $bits) => |s| Some((s[0] ^ s[1]) as $u as u64),
            ("not", false, $bits) => |s| Some(!(s[0] as $u) as u64),
            ("cnot", false, $bits) => |s| Some((s[0] as $u == 0) as u64),
            ("shl", false, $bits) =>
                |s| Some(if s[1] as u32 >= $bits { 0 } else { (s[0] as $u) << (s[1] as u32) } as u64),
            ("shr", false, $bits) =>
                |s| Some(if s[1] as u32 >= $bits { 0 } else { (s[0] as $u) >> (s[1] as u32) } as u64),
            ("shr", true, $bits) =>
                |s| Some(((s[0] as $s) >> (s[1] as u32).min($bits - 1)) as $u as u64),
            ("popc", false, $bits) => |s| Some((s[0] as $u).count_ones().into()),
            ("clz", false, $bits) => |s| Some((s[0] as $u).leading_zeros().into()),
            ("brev", false, $bits) => |s| Some((s[0] as $u).reverse_bits() as u64),
        )*
            _ => return None,
        }
    };
}

#[allow(clippy::unnecessary_cast, reason = "the same lines for three widths")]
fn integer(name: &str, ty: Type, high: bool) -> Option<Scalar> {
    let of_bits = matches!(name, "and" | "or" | "xor" | "not" | "cnot" | "shl" | "popc" | "clz" | "brev");
    let fits = match ty.kind {
        b'b' => of_bits || name == "shr",
        _ => !of_bits,
    };
    if !fits || (ty.bits == 16 && matches!(name, "popc" | "clz" | "brev" | "sad")) {
        return None;
    }
    let f: Scalar = integers! { name, ty, high,
        16: u16, i16, u32, i32;
        32: u32, i32, u64, i64;
        64: u64, i64, u128, i128;
    };
    Some(f)
}

/// Instructions with a shape of their own.
fn special(name: &str, call: &mut Call<'_, '_, '_>) -> Decoded<Option<Op>> {
    let (f, count): (Scalar, usize) = match name {
        "lop3" => return lop3(call).map(Some),
        "prmt" => {
            if !call.has("b32") {
                return call.unknown();
            }
            match call.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
                None => return fast3(call, Fast32::Prmt).map(Some),
                Some("f4e") => (|s| prmt_mode(s, "f4e"), 3),
                Some("b4e") => (|s| prmt_mode(s, "b4e"), 3),
                Some("rc8") => (|s| prmt_mode(s, "rc8"), 3),
                Some("ecl") => (|s| prmt_mode(s, "ecl"), 3),
                Some("ecr") => (|s| prmt_mode(s, "ecr"), 3),
                Some(_) => (|s| prmt_mode(s, "rc16"), 3),
            }
        }
        "shf" => {
            if !call.has("b32") {
                return call.unknown();
            }
            let left = match call.one_of(&["l", "r"]) {
                Some(side) => side == "l",
                None => return call.unknown(),
            };
            match (left, call.one_of(&["wrap", "clamp"])) {
                (true, Some("wrap")) => return fast3(call, Fast32::ShfLWrap).map(Some),
                (false, Some("wrap")) => return fast3(call, Fast32::ShfRWrap).map(Some),
                (true, Some(_)) => {
                    (|s| Some(x::shf_l(s[0] as u32, s[1] as u32, (s[2] as u32).min(32)).into()), 3)
                }
                (false, Some(_)) => {
                    (|s| Some(x::shf_r(s[0] as u32, s[1] as u32, (s[2] as u32).min(32)).into()), 3)
                }
                _ => return call.unknown(),
            }
        }
        "bfe" => match call.one_of(&["u32", "s32", "u64", "s64"]) {
            Some("u32") => return fast3(call, Fast32::BfeU).map(Some),
            Some("s32") => (|s| Some(x::bfe_s64(s[0] & 0xffff_ffff, s[1] as u32, s[2] as u32, 32)), 3),
            Some("u64") => (|s| Some(x::bfe_u64(s[0], s[1] as u32, s[2] as u32)), 3),
            Some(_) => (|s| Some(x::bfe_s64(s[0], s[1] as u32, s[2] as u32, 64)), 3),
            None => return call.unknown(),
        },
        "bfi" => match call.one_of(&["b32", "b64"]) {
            Some("b32") => (|s| Some(x::bfi(s[0], s[1], s[2] as u32, s[3] as u32, 32) & 0xffff_ffff), 4),
            Some(_) => (|s| Some(x::bfi(s[0], s[1], s[2] as u32, s[3] as u32, 64)), 4),
            None => return call.unknown(),
        },
        "bfind" => {
            let shift = call.has("shiftamt");
            let f: Scalar = match (call.one_of(&["u32", "s32", "u64", "s64"]), shift) {
                (Some("u32"), false) => |s| Some(x::bfind(s[0], 32, false, false)),
                (Some("u32"), true) => |s| Some(x::bfind(s[0], 32, false, true)),
                (Some("s32"), false) => |s| Some(x::bfind(s[0], 32, true, false)),
                (Some("s32"), true) => |s| Some(x::bfind(s[0], 32, true, true)),
                (Some("u64"), false) => |s| Some(x::bfind(s[0], 64, false, false)),
                (Some("u64"), true) => |s| Some(x::bfind(s[0], 64, false, true)),
                (Some("s64"), false) => |s| Some(x::bfind(s[0], 64, true, false)),
                (Some("s64"), true) => |s| Some(x::bfind(s[0], 64, true, true)),
                _ => return call.unknown(),
            };
            (f, 1)
        }
        "dp4a" => {
            let f: Scalar = match call.words[..] {
                ["u32", "u32"] => {
                    call.words.clear();
                    return fast3(call, Fast32::Dp4aU).map(Some);
                }
                ["u32", "s32"] => {
                    |s| Some(x::dp4a(s[0] as u32, s[1] as u32, s[2] as u32, false, true).into())
                }
                ["s32", "u32"] => {
                    |s| Some(x::dp4a(s[0] as u32, s[1] as u32, s[2] as u32, true, false).into())
                }
                ["s32", "s32"] => |s| Some(x::dp4a(s[0] as u32, s[1] as u32, s[2] as u32, true, true).into()),
                _ => return call.unknown(),
            };
            call.words.clear();
            (f, 3)
        }
        "dp2a" => {
            let f: Scalar = match call.words[..] {
                ["lo", "u32", "u32"] => |s| Some(x::dp2a_u(s[0] as u32, s[1] as u32, s[2] as u32).into()),
                ["hi", "u32", "u32"] => {
                    |s| Some(x::dp2a_u(s[0] as u32, (s[1] >> 16) as u32, s[2] as u32).into())
                }
                _ => return call.unknown(),
            };
            call.words.clear();
            (f, 3)
        }
        "slct" => {
            let ty = match call.words.pop() {
                Some("s32") => call.ty()?,
                _ => return call.unknown(),
            };
            let f: Scalar = match ty.bits {
                16 => |s| Some(if s[2] as i32 >= 0 { s[0] } else { s[1] } & 0xffff),
                32 => |s| Some(if s[2] as i32 >= 0 { s[0] } else { s[1] } & 0xffff_ffff),
                64 => |s| Some(if s[2] as i32 >= 0 { s[0] } else { s[1] }),
                _ => return call.unknown(),
            };
            (f, 3)
        }
        _ => return Ok(None),
    };
    plain(call, f, count).map(Some)
}

fn prmt_mode(s: &[u64; 4], mode: &str) -> Option<u64> {
    let selector = x::prmt_selector(mode, s[2] as u32)?;
    Some(x::prmt(s[0] as u32, s[1] as u32, selector).into())
}

/// Three operands of 32 bits.
fn fast3(call: &Call<'_, '_, '_>, f: Fast32) -> Decoded<Op> {
    call.count(4)?;
    let s = [call.src(1)?, call.src(2)?, call.src(3)?];
    match call.dst(0)? {
        Dst::W(dst) if s.iter().all(|s| matches!(s, Src::W(_) | Src::Imm(_))) => Ok(Op::Fast32 { f, dst, s }),
        _ => Err(format!("`{}` takes registers of 32 bits", call.opcode)),
    }
}

fn lop3(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(5)?;
    let Operand::Number(table @ 0..=255) = call.operands[4] else { return call.unknown() };
    if !call.has("b32") {
        return call.unknown();
    }
    let s = [call.src(1)?, call.src(2)?, call.src(3)?];
    match call.dst(0)? {
        Dst::W(dst) if s.iter().all(|s| matches!(s, Src::W(_) | Src::Imm(_))) => {
            Ok(Op::Fast32 { f: Fast32::Lop3(table as u8), dst, s })
        }
        _ => Err(format!("`{}` takes registers of 32 bits", call.opcode)),
    }
}

fn carry(name: &str, call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(3)?;
    let carry_out = call.has("cc");
    let ty = call.ty()?;
    if ty.kind == b'f' || ty.bits < 32 {
        return call.unknown();
    }
    let (subtract, carry_in) = (name.starts_with("sub"), name.ends_with('c'));
    let (dst, a, b) = (call.dst(0)?, call.src(1)?, call.src(2)?);
    Ok(Op::Carry { bits64: ty.bits == 64, subtract, carry_in, carry_out, dst, a, b })
}

fn select(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(4)?;
    if call.ty()?.bits == 8 {
        return call.unknown();
    }
    let pred = call.body.pred(&call.operands[3])?;
    Ok(Op::Sel { dst: call.dst(0)?, a: call.src(1)?, b: call.src(2)?, pred })
}

/// A result of floats; here, so that both files of floats see one name.
pub(super) fn finish(value: f32, flush: bool) -> u64 {
    float(to_float(u64::from(value.to_bits()), flush))
}
