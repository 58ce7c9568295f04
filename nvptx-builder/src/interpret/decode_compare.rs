//! `setp` and `set`.

use super::decode::{Call, Decoded, Type};
use super::decode_number::{Scalar, plain};
use super::op::{Bool, Cmp, CmpKind, Op, Src};
use super::parse::Operand;
use super::scalar::to_float;

/// How two operands are compared.
#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "with a NaN, `!(a >= b)` is not `a < b`, and `a < b || a > b` is not `a != b`"
)]
fn comparison(call: &mut Call<'_, '_, '_>, ty: Type, flush: bool) -> Decoded<CmpKind> {
    macro_rules! signed {
        ($cmp:expr, $s:ty) => {
            CmpKind::Call(match $cmp {
                Cmp::Eq => |a, b| a as $s == b as $s,
                Cmp::Ne => |a, b| a as $s != b as $s,
                Cmp::Lt => |a, b| (a as $s) < b as $s,
                Cmp::Le => |a, b| a as $s <= b as $s,
                Cmp::Gt => |a, b| a as $s > b as $s,
                Cmp::Ge => |a, b| a as $s >= b as $s,
            })
        };
    }
    macro_rules! floats {
        ($flush:literal, $word:expr) => {
            CmpKind::Call(match $word {
                "eq" => |a, b| to_float(a, $flush) == to_float(b, $flush),
                "lt" => |a, b| to_float(a, $flush) < to_float(b, $flush),
                "le" => |a, b| to_float(a, $flush) <= to_float(b, $flush),
                "gt" => |a, b| to_float(a, $flush) > to_float(b, $flush),
                "ge" => |a, b| to_float(a, $flush) >= to_float(b, $flush),
                // Ordered: false where one is a NaN.
                "ne" => |a, b| {
                    let (a, b) = (to_float(a, $flush), to_float(b, $flush));
                    a < b || a > b
                },
                "equ" => |a, b| {
                    let (a, b) = (to_float(a, $flush), to_float(b, $flush));
                    !(a < b || a > b)
                },
                "neu" => |a, b| to_float(a, $flush) != to_float(b, $flush),
                "ltu" => |a, b| !(to_float(a, $flush) >= to_float(b, $flush)),
                "leu" => |a, b| !(to_float(a, $flush) > to_float(b, $flush)),
                "gtu" => |a, b| !(to_float(a, $flush) <= to_float(b, $flush)),
                "geu" => |a, b| !(to_float(a, $flush) < to_float(b, $flush)),
                "num" => |a, b| !to_float(a, false).is_nan() && !to_float(b, false).is_nan(),
                _ => |a, b| to_float(a, false).is_nan() || to_float(b, false).is_nan(),
            })
        };
    }
    const FLOATS: [&str; 14] =
        ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
    if ty.kind == b'f' {
        if ty.bits != 32 {
            return call.unknown();
        }
        return match call.one_of(&FLOATS) {
            Some(word) if flush => Ok(floats!(true, word)),
            Some(word) => Ok(floats!(false, word)),
            None => call.unknown(),
        };
    }
    let (cmp, unsigned) = match call.one_of(&["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"]) {
        Some("eq") => (Cmp::Eq, false),
        Some("ne") => (Cmp::Ne, false),
        Some("lt") => (Cmp::Lt, false),
        Some("le") => (Cmp::Le, false),
        Some("gt") => (Cmp::Gt, false),
        Some("ge") => (Cmp::Ge, false),
        Some("lo") => (Cmp::Lt, true),
        Some("ls") => (Cmp::Le, true),
        Some("hi") => (Cmp::Gt, true),
        Some("hs") => (Cmp::Ge, true),
        _ => return call.unknown(),
    };
    if unsigned && ty.kind != b'u' || ty.kind == b'b' && !matches!(cmp, Cmp::Eq | Cmp::Ne) {
        return call.unknown();
    }
    Ok(match (ty.signed(), ty.bits) {
        (false, 32) => CmpKind::U32(cmp),
        (false, 64) => CmpKind::U64(cmp),
        (false, 16) => signed!(cmp, u16),
        (true, 16) => signed!(cmp, i16),
        (true, 32) => signed!(cmp, i32),
        (true, 64) => signed!(cmp, i64),
        _ => return call.unknown(),
    })
}

pub(super) fn compare(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    let flush = call.has("ftz");
    let with = call.one_of(&["and", "or", "xor"]);
    let ty = call.ty()?;
    let kind = comparison(call, ty, flush)?;
    call.count(3 + usize::from(with.is_some()))?;
    let (dst, other) = match call.operands[0] {
        Operand::Word(dst) => (call.body.pred_dst(dst)?, None),
        Operand::Pair(dst, other) => (call.body.pred_dst(dst)?, call.body.pred_dst(other)?),
        _ => return call.unknown(),
    };
    let with = match with {
        None => None,
        Some(word) => {
            let f = match word {
                "and" => Bool::And,
                "or" => Bool::Or,
                _ => Bool::Xor,
            };
            Some((f, call.body.pred(&call.operands[3])?))
        }
    };
    let (a, b) = (call.src(1)?, call.src(2)?);
    let narrow = |s: Src| matches!(s, Src::W(_) | Src::Imm(_));
    let wide = |s: Src| matches!(s, Src::D(_) | Src::Imm(_));
    let kind = match kind {
        CmpKind::U32(cmp) if !(narrow(a) && narrow(b)) => signed_free(cmp, 32),
        CmpKind::U64(cmp) if !(wide(a) && wide(b)) => signed_free(cmp, 64),
        kind => kind,
    };
    Ok(Op::SetP { kind, dst, other, a, b, with })
}

/// A comparison without a sign, as a function.
fn signed_free(cmp: Cmp, bits: u32) -> CmpKind {
    macro_rules! functions {
        ($t:ty) => {
            match cmp {
                Cmp::Eq => |a, b| a as $t == b as $t,
                Cmp::Ne => |a, b| a as $t != b as $t,
                Cmp::Lt => |a, b| (a as $t) < b as $t,
                Cmp::Le => |a, b| a as $t <= b as $t,
                Cmp::Gt => |a, b| a as $t > b as $t,
                Cmp::Ge => |a, b| a as $t >= b as $t,
            }
        };
    }
    let f: fn(u64, u64) -> bool = if bits == 32 { functions!(u32) } else { functions!(u64) };
    CmpKind::Call(f)
}

/// `set`: all ones, or 1.0.
pub(super) fn set(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(3)?;
    let flush = call.has("ftz");
    let ty = call.ty()?;
    let to = call.ty()?;
    let (unsigned, word) = (!ty.signed() && ty.kind != b'f', call.words.first().copied().unwrap_or(""));
    comparison(call, ty, flush)?;
    macro_rules! functions {
        ($true:literal; $($word:literal $kind:pat, $bits:literal: $t:ty, $op:tt;)*) => {
            match (word, unsigned, ty.bits) {
                $( ($word, $kind, $bits) => |s| Some(if (s[0] as $t) $op (s[1] as $t) { $true } else { 0 }), )*
                _ => return call.unknown(),
            }
        };
        ($true:literal) => {
            functions! { $true;
                "eq" _, 32: u32, ==; "ne" _, 32: u32, !=; "eq" _, 64: u64, ==; "ne" _, 64: u64, !=;
                "lt" true, 32: u32, <; "le" true, 32: u32, <=; "gt" true, 32: u32, >; "ge" true, 32: u32, >=;
                "lt" false, 32: i32, <; "le" false, 32: i32, <=; "gt" false, 32: i32, >; "ge" false, 32: i32, >=;
                "lt" true, 64: u64, <; "le" true, 64: u64, <=; "gt" true, 64: u64, >; "ge" true, 64: u64, >=;
                "lt" false, 64: i64, <; "le" false, 64: i64, <=; "gt" false, 64: i64, >; "ge" false, 64: i64, >=;
            }
        };
    }
    if ty.kind == b'f' {
        return call.unknown();
    }
    let f: Scalar = match (to.kind, to.bits) {
        (b'u' | b's', 32) => functions!(0xffff_ffff),
        (b'f', 32) => functions!(0x3f80_0000),
        _ => return call.unknown(),
    };
    plain(call, f, 2)
}
