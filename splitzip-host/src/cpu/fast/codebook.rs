//! Coding whole chunks with a codebook: `w4`.

use super::dtype::Dtype;
use super::planes::to_planes;
use super::vector::Vector;
use super::window::Scratch;

/// Codes the exponents in the scratch: codes to `codes`, marks of escapes to the scratch. Returns how many escapes there are.
///
/// # Safety
/// The machine has the instructions; `codes` has 512 bytes.
#[inline(always)]
pub(super) unsafe fn code<V: Vector>(scratch: &mut Scratch, table: &V::Table, codes: *mut u8) -> usize {
    // SAFETY: by contract; a chunk has 1024 bytes, and a plane 128.
    unsafe {
        let (nibbles, mut any, mut at) = (V::splat(0x0f), V::splat(0), 0);
        while at < 1024 {
            let mut pair = [V::splat(0); 2];
            for (i, out) in pair.iter_mut().enumerate() {
                let from = scratch.exponents.0.as_ptr().add(at + i * V::BYTES);
                let entries = V::load(from).look_up(table);
                entries
                    .shift_right::<7>()
                    .and(V::splat(1))
                    .store(scratch.bytes.0.as_mut_ptr().add(at + i * V::BYTES));
                any = any.or(entries);
                *out = entries.and(nibbles);
            }
            pack_nibbles(pair).store(codes.add(at / 2));
            at += 2 * V::BYTES;
        }
        if any.and(V::splat(splitzip_kernels::scheme::ESCAPE)).is_zero() {
            return 0;
        }
        let mut lane = 0;
        while lane < 32 {
            let [escaped, ..] = to_planes::<V>(scratch.bytes.0.as_ptr(), lane);
            escaped.store(scratch.escaped.as_mut_ptr().add(lane).cast());
            lane += V::BYTES / 4;
        }
        scratch.escapes.find::<V>(&scratch.escaped);
        scratch.escapes.count()
    }
}

/// Decodes the exponents of a chunk into the scratch. False if its part does not hold together.
///
/// # Safety
/// The machine has the instructions; `codes` are the codes of the chunk, `codebook` has 16 bytes, `part` has `words` words.
#[inline(always)]
pub(super) unsafe fn decode<V: Vector, D: Dtype>(
    scratch: &mut Scratch,
    codes: *const u8,
    codebook: *const u8,
    part: *const u8,
    words: usize,
) -> bool {
    // SAFETY: by contract; an element outside of the chunk is refused.
    unsafe {
        let (codebook, mut at) = (V::splat_16(codebook), 0);
        while at < 1024 {
            let (first, second) = unpack_nibbles(V::load(codes.add(at / 2)));
            let to = scratch.exponents.0.as_mut_ptr().add(at);
            first.look_up_16(codebook).store(to);
            second.look_up_16(codebook).store(to.add(V::BYTES));
            at += 2 * V::BYTES;
        }
        for i in 0..words {
            let record = part.cast::<u32>().add(i).read_unaligned();
            let (element, exponent) = ((record & 0xffff) as usize, record >> 16);
            if exponent >> D::EXPONENT_BITS != 0 {
                return false;
            }
            match scratch.exponents.0.get_mut(element) {
                Some(slot) => *slot = exponent as u8,
                None => return false,
            }
        }
        true
    }
}

/// Four bits of every byte (below 16) of two neighbouring vectors.
#[inline(always)]
pub(super) unsafe fn pack_nibbles<V: Vector>([first, second]: [V; 2]) -> V {
    // SAFETY: by contract of `Vector`.
    unsafe { V::low_bytes(first.or(first.shift_right::<4>()), second.or(second.shift_right::<4>())) }
}

/// The way back.
#[inline(always)]
pub(super) unsafe fn unpack_nibbles<V: Vector>(nibbles: V) -> (V, V) {
    // SAFETY: by contract of `Vector`.
    unsafe {
        let low = V::splat(0x0f);
        V::words(nibbles.and(low), nibbles.shift_right::<4>().and(low))
    }
}

/// Codes the exponents in the scratch as they are: four bits to `codes`, four to the part.
///
/// # Safety
/// The machine has the instructions; exponents have 8 bits; `codes` and `part` have 512 bytes.
#[inline(always)]
pub(super) unsafe fn write_raw<V: Vector>(scratch: &mut Scratch, codes: *mut u8, part: *mut u8) {
    // SAFETY: by contract.
    unsafe {
        let (low, mut at) = (V::splat(0x0f), 0);
        while at < 1024 {
            let from = scratch.exponents.0.as_ptr().add(at);
            let (first, second) = (V::load(from), V::load(from.add(V::BYTES)));
            pack_nibbles([first.and(low), second.and(low)]).store(codes.add(at / 2));
            let high = [first.shift_right::<4>().and(low), second.shift_right::<4>().and(low)];
            pack_nibbles(high).store(part.add(at / 2));
            at += 2 * V::BYTES;
        }
    }
}

/// The way back.
///
/// # Safety
/// The machine has the instructions; `codes` and `part` have 512 bytes.
#[inline(always)]
pub(super) unsafe fn read_raw<V: Vector>(scratch: &mut Scratch, codes: *const u8, part: *const u8) {
    // SAFETY: by contract.
    unsafe {
        let mut at = 0;
        while at < 1024 {
            let (low, high) =
                (unpack_nibbles(V::load(codes.add(at / 2))), unpack_nibbles(V::load(part.add(at / 2))));
            let to = scratch.exponents.0.as_mut_ptr().add(at);
            low.0.or(high.0.shift_left::<4>()).store(to);
            low.1.or(high.1.shift_left::<4>()).store(to.add(V::BYTES));
            at += 2 * V::BYTES;
        }
    }
}
