//! Bit planes of a short chunk: in a frame they stand in element order (`docs/format.md`, section 2), for lanes in coding order.
//!
//! Bit by bit, and slow: at most one chunk of a tensor comes this way, and a plain loop keeps the kernels small.

use super::Chunk;
use crate::arch;

/// Word `plane` of a lane, from the elements that `exist` (bits of the lane's mask), `bits` bits each, in element order at `from`.
///
/// The loop ends where `exist` does, so that no compiler unrolls it: written out, it was two thirds of a decoder.
///
/// # Safety
/// `from` is valid for the bits of all elements that exist.
#[inline(always)]
pub(super) unsafe fn from_element_order(
    from: *const u8,
    bits: u32,
    exist: u32,
    lane: u32,
    plane: u32,
) -> u32 {
    let (mut word, mut left) = (0, exist);
    while left != 0 {
        let bit = left.trailing_zeros();
        let at = Chunk::element(lane, bit) * bits + plane;
        // SAFETY: the element exists.
        let byte = unsafe { arch::load8(from.add((at >> 3) as usize)) };
        word |= (byte >> (at & 7) & 1) << bit;
        left &= left - 1;
    }
    word
}

/// Byte `byte` of `valid` elements of `bits` bits in element order, from whole bit planes at `planes`.
///
/// # Safety
/// `planes` is valid for `bits` planes of 128 bytes.
#[inline(always)]
pub(super) unsafe fn to_element_order(planes: *const u8, bits: u32, valid: u32, byte: u32) -> u32 {
    let (mut out, mut i) = (0, 0);
    while i < 8 {
        let at = byte * 8 + i;
        let (element, plane) = (at / bits, at % bits);
        if element < valid {
            let lane = element >> 3 & 31;
            // SAFETY: plane and lane exist.
            let word = unsafe { arch::load32(planes.add((plane * 128 + lane * 4) as usize)) };
            out |= (word >> Chunk::bit(element) & 1) << i;
        }
        i += 1;
    }
    out
}
