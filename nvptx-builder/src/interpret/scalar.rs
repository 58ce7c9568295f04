//! What instructions compute, for one lane, on operands as 64 bits without a sign.
//!
//! The text of the PTX ISA is the reference, for the corners above all: shift amounts clamp, fields are cut at the end of the register, `prmt` can
//! replicate a sign, floats give one NaN.

/// The NaN that arithmetic on `f32` gives.
pub(super) const NAN: u32 = 0x7fff_ffff;

/// Shift amounts of 32 and more give 0.
#[inline(always)]
pub(super) fn shl32(a: u32, b: u32) -> u32 {
    if b > 31 { 0 } else { a << b }
}

#[inline(always)]
pub(super) fn shr32(a: u32, b: u32) -> u32 {
    if b > 31 { 0 } else { a >> b }
}

/// Shift amounts of 32 and more give the sign.
#[inline(always)]
pub(super) fn sar32(a: u32, b: u32) -> u32 {
    ((a as i32) >> b.min(31)) as u32
}

#[inline(always)]
pub(super) fn shl64(a: u64, b: u32) -> u64 {
    if b > 63 { 0 } else { a << b }
}

#[inline(always)]
pub(super) fn shr64(a: u64, b: u32) -> u64 {
    if b > 63 { 0 } else { a >> b }
}

/// The high half of the pair (`b`, `a`), shifted left.
#[inline(always)]
pub(super) fn shf_l(a: u32, b: u32, n: u32) -> u32 {
    ((((u64::from(b) << 32) | u64::from(a)) << n) >> 32) as u32
}

/// The low half of the pair (`b`, `a`), shifted right.
#[inline(always)]
pub(super) fn shf_r(a: u32, b: u32, n: u32) -> u32 {
    (((u64::from(b) << 32) | u64::from(a)) >> n) as u32
}

#[inline(always)]
pub(super) fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let term = |bit: u8, x: u32| if table >> bit & 1 == 1 { x } else { 0 };
    term(0, !a & !b & !c)
        | term(1, !a & !b & c)
        | term(2, !a & b & !c)
        | term(3, !a & b & c)
        | term(4, a & !b & !c)
        | term(5, a & !b & c)
        | term(6, a & b & !c)
        | term(7, a & b & c)
}

/// The default mode: each of the four selectors takes a byte of the pair (`b`, `a`), or its sign eight times.
#[inline(always)]
pub(super) fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let pair = (u64::from(b) << 32) | u64::from(a);
    let mut result = 0;
    for i in 0..4 {
        let pick = selector >> (4 * i) & 0xf;
        let byte = (pair >> (8 * (pick & 7))) as u8;
        let byte = if pick & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
        result |= u32::from(byte) << (8 * i);
    }
    result
}

/// The other modes of `prmt`, as selectors of the default one.
pub(super) fn prmt_selector(mode: &str, selector: u32) -> Option<u32> {
    let table: [u32; 4] = match mode {
        "f4e" => [0x3210, 0x4321, 0x5432, 0x6543],
        "b4e" => [0x5670, 0x6701, 0x7012, 0x0123],
        "rc8" => [0x0000, 0x1111, 0x2222, 0x3333],
        "ecl" => [0x3210, 0x3211, 0x3222, 0x3333],
        "ecr" => [0x0000, 0x1110, 0x2210, 0x3210],
        "rc16" => [0x1010, 0x3232, 0x1010, 0x3232],
        _ => return None,
    };
    Some(table[(selector & 3) as usize])
}

#[inline(always)]
pub(super) fn bfe_u32(a: u32, b: u32, c: u32) -> u32 {
    let (at, length) = (b & 0xff, c & 0xff);
    let field = shr32(a, at);
    if length > 31 { field } else { field & ((1 << length) - 1) }
}

pub(super) fn bfe_u64(a: u64, b: u32, c: u32) -> u64 {
    let (at, length) = (b & 0xff, c & 0xff);
    let field = shr64(a, at);
    if length > 63 { field } else { field & ((1 << length) - 1) }
}

/// The sign of a field is its last bit, or the last bit of the register where the field hangs over.
pub(super) fn bfe_s64(a: u64, b: u32, c: u32, bits: u32) -> u64 {
    let (at, length) = (b & 0xff, c & 0xff);
    if length == 0 {
        return 0;
    }
    let sign = a >> (at + length - 1).min(bits - 1) & 1;
    let (mut result, width) = (0, length.min(bits.saturating_sub(at)));
    for i in 0..bits {
        let bit = if i < width { a >> (at + i) & 1 } else { sign };
        result |= bit << i;
    }
    result
}

/// `a`'s low bits into a field of `b`.
pub(super) fn bfi(a: u64, b: u64, c: u32, d: u32, bits: u32) -> u64 {
    let (at, length) = (c & 0xff, d & 0xff);
    let mut result = b;
    for i in 0..length {
        if at + i >= bits {
            break;
        }
        result = result & !(1 << (at + i)) | (a >> i & 1) << (at + i);
    }
    result
}

/// The place of the highest bit that is not the sign; all ones if there is none.
pub(super) fn bfind(a: u64, bits: u32, signed: bool, shift_amount: bool) -> u64 {
    let a = if signed && a >> (bits - 1) & 1 == 1 { !a } else { a };
    let a = if bits == 32 { a & 0xffff_ffff } else { a };
    match a {
        0 => 0xffff_ffff,
        _ => {
            let place = 63 - a.leading_zeros();
            u64::from(if shift_amount { bits - 1 - place } else { place })
        }
    }
}

#[inline(always)]
pub(super) fn dp4a_u(a: u32, b: u32, c: u32) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let mut sum = c;
    for i in 0..4 {
        sum = sum.wrapping_add(u32::from(a[i]) * u32::from(b[i]));
    }
    sum
}

pub(super) fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let wide = |byte: u8, signed: bool| if signed { i32::from(byte as i8) } else { i32::from(byte) };
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    (0..4).fold(c as i32, |sum, i| sum.wrapping_add(wide(a[i], a_signed) * wide(b[i], b_signed))) as u32
}

/// The halves of `a` times the low bytes of `b`, and `c`.
pub(super) fn dp2a_u(a: u32, b: u32, c: u32) -> u32 {
    (c.wrapping_add((a & 0xffff) * (b & 0xff))).wrapping_add((a >> 16) * (b >> 8 & 0xff))
}

/// Two operations on halves.
#[inline(always)]
pub(super) fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// A result of float arithmetic, with the one NaN.
pub(super) fn float(value: f32) -> u64 {
    u64::from(if value.is_nan() { NAN } else { value.to_bits() })
}

/// The float of these bits, subnormal numbers made 0 if asked for.
pub(super) fn to_float(bits: u64, flush: bool) -> f32 {
    let value = f32::from_bits(bits as u32);
    if flush && value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// The smaller number: -0 is smaller than +0; a NaN loses, or wins if asked for.
pub(super) fn min_float(a: f32, b: f32, nan: bool) -> u64 {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => u64::from(if a.total_cmp(&b).is_lt() { a } else { b }.to_bits()),
        (true, true) => u64::from(NAN),
        _ if nan => u64::from(NAN),
        (true, false) => u64::from(b.to_bits()),
        (false, true) => u64::from(a.to_bits()),
    }
}

/// The larger number, as [`min_float`].
pub(super) fn max_float(a: f32, b: f32, nan: bool) -> u64 {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => u64::from(if a.total_cmp(&b).is_gt() { a } else { b }.to_bits()),
        _ => min_float(a, b, nan),
    }
}

#[cfg(test)]
#[path = "scalar_tests.rs"]
mod tests;
