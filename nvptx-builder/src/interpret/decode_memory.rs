//! Loads, stores, atomics, fences and asynchronous copies.

use super::decode::{Call, Decoded, Type, parameter};
use super::op::{Address, At, AtomicFn, Dst, Op, Src, Strength};
use super::parse::Operand;

pub(super) fn decode(name: &str, call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    match name {
        "ld" => load(call),
        "st" => store(call),
        "atom" => atomic(call, true),
        "red" => atomic(call, false),
        "fence" => {
            call.one_of(&["sc", "acq_rel", "acquire", "release"]);
            call.one_of(&["cta", "cluster", "gpu", "sys"]);
            call.count(0)?;
            Ok(Op::Fence)
        }
        "membar" => {
            call.one_of(&["cta", "gl", "sys"]);
            call.count(0)?;
            Ok(Op::Fence)
        }
        "prefetch" => {
            call.one_of(&["global", "local"]);
            call.one_of(&["L1", "L2", "L2::evict_last", "L2::evict_normal"]);
            Ok(Op::Nop)
        }
        "cp" => copy(call),
        _ => call.unknown(),
    }
}

/// The space of an access. No word is a generic address.
fn space(call: &mut Call<'_, '_, '_>) -> At {
    match call.one_of(&["global", "const", "shared", "shared::cta"]) {
        Some("global" | "const") => At::Global,
        Some(_) => At::Shared,
        None => At::Generic,
    }
}

/// `.relaxed.gpu` and the like.
fn strength(call: &mut Call<'_, '_, '_>, atomic: bool) -> Strength {
    let mut strength = Strength { strong: atomic, ..Strength::WEAK };
    match call.one_of(&["weak", "relaxed", "volatile", "acquire", "release", "acq_rel"]) {
        Some("weak") | None => {}
        Some(word) => {
            strength.strong = true;
            strength.acquire = matches!(word, "acquire" | "acq_rel");
            strength.release = matches!(word, "release" | "acq_rel");
        }
    }
    call.one_of(&["cta", "cluster", "gpu", "sys"]);
    strength
}

/// Hints to caches do not change what is computed.
fn hints(call: &mut Call<'_, '_, '_>) {
    const HINTS: [&str; 19] = [
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
        "L1::evict_normal",
        "L1::evict_unchanged",
        "L1::evict_first",
        "L1::evict_last",
        "L1::no_allocate",
        "L2::evict_normal",
        "L2::evict_first",
        "L2::evict_last",
        "L2::64B",
        "L2::128B",
        "L2::256B",
        "level::eviction_priority",
    ];
    while call.one_of(&HINTS).is_some() {}
}

/// 1, 2 or 4.
fn vector(call: &mut Call<'_, '_, '_>) -> u8 {
    match call.one_of(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    }
}

fn address(call: &Call<'_, '_, '_>, number: usize, at: At) -> Decoded<Address> {
    match call.operands.get(number) {
        Some(Operand::Address(Some(base), offset)) => {
            Ok(Address { at, base: call.body.src(&Operand::Word(base))?, offset: *offset })
        }
        Some(Operand::Address(None, offset)) => Ok(Address { at, base: Src::Imm(0), offset: *offset }),
        _ => Err(format!("`{}` needs an address in brackets", call.opcode)),
    }
}

/// The elements of a vector, or the one operand.
fn parts<'o, 't>(call: &'o Call<'_, '_, 't>, number: usize, count: u8) -> Decoded<&'o [Operand<'t>]> {
    let parts = match call.operands.get(number) {
        Some(Operand::Vector(parts)) => parts.as_slice(),
        Some(operand) => std::slice::from_ref(operand),
        None => &[],
    };
    if parts.len() == usize::from(count) {
        return Ok(parts);
    }
    Err(format!("`{}` takes a vector of {count}", call.opcode))
}

fn access_type(call: &mut Call<'_, '_, '_>, count: u8) -> Decoded<Type> {
    let ty = call.ty()?;
    if ty.bits * u32::from(count) > 128 { call.unknown() } else { Ok(ty) }
}

fn load(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(2)?;
    let (param, nc, volatile) = (call.has("param"), call.has("nc"), strength(call, false));
    call.has("mmio");
    let at = space(call);
    hints(call);
    let count = vector(call);
    let ty = access_type(call, count)?;
    let signed = ty.signed();
    if param {
        let (Some(Operand::Address(Some(base), offset)), 1) = (call.operands.get(1), count) else {
            return call.unknown();
        };
        let slot = parameter(call.body, base).ok_or_else(|| format!("`{base}` is no parameter"))?;
        let offset = u8::try_from(*offset).ok().filter(|offset| offset + ty.bytes() <= 8);
        let offset =
            offset.ok_or_else(|| format!("`{}` reads behind the 8 bytes of a parameter", call.opcode))?;
        return Ok(Op::LdParam { dst: call.dst(0)?, slot, offset, bytes: ty.bytes(), signed });
    }
    let mut dst = [Dst::Sink; 4];
    for (dst, part) in dst.iter_mut().zip(parts(call, 0, count)?) {
        *dst = call.body.dst(part)?;
    }
    let strength = Strength { nc, ..volatile };
    Ok(Op::Ld { dst, parts: count, bytes: ty.bytes(), signed, address: address(call, 1, at)?, strength })
}

fn store(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(2)?;
    let strength = strength(call, false);
    let at = space(call);
    hints(call);
    let count = vector(call);
    let ty = access_type(call, count)?;
    let mut s = [Src::Imm(0); 4];
    for (s, part) in s.iter_mut().zip(parts(call, 1, count)?) {
        *s = call.body.src(part)?;
    }
    Ok(Op::St { s, parts: count, bytes: ty.bytes(), address: address(call, 0, at)?, strength })
}

fn atomic(call: &mut Call<'_, '_, '_>, returns: bool) -> Decoded<Op> {
    let strength = strength(call, true);
    let at = space(call);
    let ty = call.ty()?;
    let operation =
        call.one_of(&["add", "exch", "cas", "or", "and", "xor", "max", "min", "inc", "dec"]).unwrap_or("");
    let f: AtomicFn = match (operation, ty.kind, ty.bits) {
        ("add", b'u' | b's', 32) => |old, b, _| u64::from((old as u32).wrapping_add(b as u32)),
        ("add", b'u', 64) => |old, b, _| old.wrapping_add(b),
        ("add", b'f', 32) => {
            |old, b, _| super::scalar::float(f32::from_bits(old as u32) + f32::from_bits(b as u32))
        }
        ("exch", b'b', 32 | 64) if returns => |_, b, _| b,
        ("cas", b'b', 32) if returns => |old, b, c| if old == b & 0xffff_ffff { c } else { old },
        ("cas", b'b', 64) if returns => |old, b, c| if old == b { c } else { old },
        ("or", b'b', 32 | 64) => |old, b, _| old | b,
        ("and", b'b', 32 | 64) => |old, b, _| old & b,
        ("xor", b'b', 32 | 64) => |old, b, _| old ^ b,
        ("max", b'u', 32) => |old, b, _| u64::from((old as u32).max(b as u32)),
        ("min", b'u', 32) => |old, b, _| u64::from((old as u32).min(b as u32)),
        ("max", b'u', 64) => |old, b, _| old.max(b),
        ("min", b'u', 64) => |old, b, _| old.min(b),
        ("max", b's', 32) => |old, b, _| (old as i32).max(b as i32) as u32 as u64,
        ("min", b's', 32) => |old, b, _| (old as i32).min(b as i32) as u32 as u64,
        ("max", b's', 64) => |old, b, _| (old as i64).max(b as i64) as u64,
        ("min", b's', 64) => |old, b, _| (old as i64).min(b as i64) as u64,
        ("inc", b'u', 32) => |old, b, _| {
            if old as u32 >= b as u32 { 0 } else { u64::from(old as u32 + 1) }
        },
        ("dec", b'u', 32) => |old, b, _| {
            if old as u32 == 0 || old as u32 > b as u32 { b & 0xffff_ffff } else { old - 1 }
        },
        _ => return call.unknown(),
    };
    let first = usize::from(returns);
    call.count(first + 2 + usize::from(operation == "cas"))?;
    let dst = if returns { call.dst(0)? } else { Dst::Sink };
    let c = if operation == "cas" { call.src(3)? } else { Src::Imm(0) };
    let (address, b) = (address(call, first, at)?, call.src(first + 1)?);
    Ok(Op::Atom { f, dst, bytes: ty.bytes(), address, b, c, strength })
}

fn copy(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    if !call.has("async") {
        return call.unknown();
    }
    if call.has("commit_group") {
        call.count(0)?;
        return Ok(Op::CommitGroup);
    }
    if call.has("wait_all") {
        call.count(0)?;
        return Ok(Op::WaitAll);
    }
    if call.has("wait_group") {
        call.count(1)?;
        let [Operand::Number(pending)] = call.operands else { return call.unknown() };
        return Ok(Op::WaitGroup { pending: *pending });
    }
    let smallest = match call.one_of(&["ca", "cg"]) {
        Some("ca") => 4,
        Some(_) => 16,
        None => return call.unknown(),
    };
    if call.one_of(&["shared", "shared::cta"]).is_none() || !call.has("global") {
        return call.unknown();
    }
    hints(call);
    let Some(&Operand::Number(bytes @ (4 | 8 | 16))) = call.operands.get(2) else { return call.unknown() };
    if bytes < smallest || call.operands.len() > 4 {
        return call.unknown();
    }
    let size = if call.operands.len() == 4 { call.src(3)? } else { Src::Imm(bytes) };
    let (to, from) = (address(call, 0, At::Shared)?, address(call, 1, At::Global)?);
    Ok(Op::CopyAsync { to, from, bytes: bytes as u8, size })
}
