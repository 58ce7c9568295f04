//! `cvt`: between integers, and between integers and `f32`.

use super::decode::{Call, Decoded, Type};
use super::decode_number::{Scalar, finish, plain};
use super::op::{Dst, Op, Src};
use super::scalar::to_float;

pub(super) fn decode(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(2)?;
    let from = call.ty()?;
    let to = call.ty()?;
    let (saturate, flush) = (call.has("sat"), call.has("ftz"));
    let round = call.one_of(&["rn", "rni", "rzi", "rmi", "rpi"]);
    let known = |f: Option<Scalar>| f.ok_or(()).or_else(|()| call.unknown());
    let f = match (from.kind == b'f', to.kind == b'f') {
        (false, false) if round.is_none() && !flush => {
            if !saturate
                && (from.kind, from.bits, to.bits) == (b'u', 32, 64)
                && let (Dst::D(dst), a @ (Src::W(_) | Src::Imm(_))) = (call.dst(0)?, call.src(1)?)
            {
                return Ok(Op::Widen { dst, a });
            }
            if !saturate
                && (from.bits, to.bits) == (64, 32)
                && let (Dst::W(dst), a @ (Src::D(_) | Src::Imm(_))) = (call.dst(0)?, call.src(1)?)
            {
                return Ok(Op::Narrow { dst, a });
            }
            known(integers(from, to, saturate))?
        }
        (false, true) if round == Some("rn") && !saturate && to.bits == 32 => known(to_floats(from))?,
        (true, false) if from.bits == 32 => known(round.and_then(|round| from_floats(to, round)))?,
        (true, true) if from.bits == 32 && to.bits == 32 => known(float_to_float(round, saturate, flush))?,
        _ => return call.unknown(),
    };
    plain(call, f, 1)
}

fn integers(from: Type, to: Type, saturate: bool) -> Option<Scalar> {
    macro_rules! pairs {
        ($($from_kind:literal $from_bits:literal $f:ty),*; $to:tt) => {
            match (from.signed(), from.bits) { $( ($from_kind, $from_bits) => pairs!(@to $f, $to), )* _ => return None }
        };
        (@to $f:ty, [$($to_kind:literal $to_bits:literal $t:ty),*]) => {
            match (to.signed(), to.bits, saturate) { $(
                ($to_kind, $to_bits, false) => {
                    // As many bits as a register holds; narrow signed results are extended to it.
                    let f: Scalar = |s| Some(register(s[0] as $f as $t as i64 as u64, <$t>::BITS)); f
                }
                ($to_kind, $to_bits, true) => {
                    let f: Scalar = |s| {
                        let value = i128::from(s[0] as $f).clamp(<$t>::MIN.into(), <$t>::MAX.into());
                        Some(register(value as $t as i64 as u64, <$t>::BITS))
                    }; f
                }
            )* _ => return None }
        };
    }
    if from.kind == b'b' || to.kind == b'b' {
        return None;
    }
    Some(pairs! {
        false 8 u8, true 8 i8, false 16 u16, true 16 i16, false 32 u32, true 32 i32, false 64 u64, true 64 i64;
        [false 8 u8, true 8 i8, false 16 u16, true 16 i16, false 32 u32, true 32 i32, false 64 u64, true 64 i64]
    })
}

/// What a register of 32 or 64 bits holds of a value that was extended to 64.
fn register(value: u64, bits: u32) -> u64 {
    if bits > 32 { value } else { value & 0xffff_ffff }
}

fn to_floats(from: Type) -> Option<Scalar> {
    let f: Scalar = match (from.kind, from.bits) {
        (b'u', 8) => |s| Some((s[0] as u8 as f32).to_bits().into()),
        (b's', 8) => |s| Some((s[0] as i8 as f32).to_bits().into()),
        (b'u', 16) => |s| Some((s[0] as u16 as f32).to_bits().into()),
        (b's', 16) => |s| Some((s[0] as i16 as f32).to_bits().into()),
        (b'u', 32) => |s| Some((s[0] as u32 as f32).to_bits().into()),
        (b's', 32) => |s| Some((s[0] as i32 as f32).to_bits().into()),
        (b'u', 64) => |s| Some((s[0] as f32).to_bits().into()),
        (b's', 64) => |s| Some((s[0] as i64 as f32).to_bits().into()),
        _ => return None,
    };
    Some(f)
}

/// Out of range gives the nearest integer; a NaN gives 0, in 64 bits the highest bit alone.
fn from_floats(to: Type, round: &str) -> Option<Scalar> {
    macro_rules! functions {
        ($round:expr; $($kind:literal $bits:literal $t:ty, $u:ty;)*) => {
            match (to.kind, to.bits) {
                $( ($kind, $bits) => { let f: Scalar = |s| {
                    let value = to_float(s[0], false);
                    if value.is_nan() && <$t>::BITS == 64 { return Some(1 << 63) }
                    Some($round(value) as $t as $u as u64)
                }; f } )*
                _ => return None,
            }
        };
        ($round:expr) => {
            functions! { $round; b'u' 32 u32, u32; b's' 32 i32, u32; b'u' 64 u64, u64; b's' 64 i64, u64; }
        };
    }
    Some(match round {
        "rni" => functions!(f32::round_ties_even),
        "rzi" => functions!(f32::trunc),
        "rmi" => functions!(f32::floor),
        "rpi" => functions!(f32::ceil),
        _ => return None,
    })
}

#[allow(clippy::manual_clamp, reason = "`clamp` keeps a NaN")]
fn float_to_float(round: Option<&str>, saturate: bool, flush: bool) -> Option<Scalar> {
    let f: Scalar = match (round, saturate, flush) {
        (None, false, false) => |s| Some(finish(to_float(s[0], false), false)),
        (None, false, true) => |s| Some(finish(to_float(s[0], true), true)),
        // A NaN becomes 0.
        (None, true, false) => |s| Some((to_float(s[0], false).max(0.0).min(1.0) + 0.0).to_bits().into()),
        (Some("rni"), false, false) => |s| Some(finish(to_float(s[0], false).round_ties_even(), false)),
        (Some("rzi"), false, false) => |s| Some(finish(to_float(s[0], false).trunc(), false)),
        (Some("rmi"), false, false) => |s| Some(finish(to_float(s[0], false).floor(), false)),
        (Some("rpi"), false, false) => |s| Some(finish(to_float(s[0], false).ceil(), false)),
        _ => return None,
    };
    Some(f)
}
