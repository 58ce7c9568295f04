//! Strings of bits: the codes of marked elements, moved together and apart by `pext` and `pdep`, 64 elements at a time.
//!
//! All planes of a level have the same mask, so the codes of each are first moved together from bit 0 on, with one count of bits and one set of
//! shifts for all planes; then whole vectors are shifted to where the plane starts. (One running string over all planes counts
//! and shifts for each plane again, and each word of it waits for the one before.)

use super::planes::Plane;
use super::vector::Vector;
use core::arch::x86_64::{_pdep_u64, _pext_u64};

/// 64-bit words of a plane.
const WORDS: usize = 16;
/// Words of a string, and what vectors read and write around it: one word in front, one vector behind.
const STRING: usize = WORDS + 12;

/// A plane moved together: its bits from word 1 on, word 0 is zero.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct String([u64; STRING]);

/// Room for the strings of a level.
pub(super) type Strings = [String; 3];
pub(super) const NO_STRINGS: Strings = [String([0; STRING]); 3];

#[inline(always)]
fn word(plane: &Plane, i: usize) -> u64 {
    u64::from(plane[2 * i]) | u64::from(plane[2 * i + 1]) << 32
}

/// Elements under a mask.
#[inline(always)]
pub(super) fn count(mask: &Plane) -> usize {
    (0..WORDS).map(|i| word(mask, i).count_ones() as usize).sum()
}

/// Writes the codes of the elements under `mask`, `BITS` planes of them, plane behind plane from bit `at` on, and returns the bit behind them. `before` has the
/// bits of the double word at `at` that are below it, and gets those below the end.
///
/// # Safety
/// The machine has BMI2; the string with 128 more bytes lies in memory behind `to`; `marked` is the count of the mask.
#[inline(always)]
pub(super) unsafe fn put<V: Vector, const BITS: usize>(
    to: *mut u8,
    at: usize,
    before: &mut u64,
    planes: &[Plane; 3],
    mask: &Plane,
    marked: usize,
    strings: &mut Strings,
) -> usize {
    // SAFETY: words 1 to 17 of a string and a vector behind them exist; the rest by contract.
    unsafe {
        let (mut filled, mut pending, mut index) = (0, [0; 3], 1);
        for i in 0..WORDS {
            let mask = word(mask, i);
            let end = filled + mask.count_ones();
            for plane in 0..BITS {
                let bits = _pext_u64(word(&planes[plane], i), mask);
                let low = pending[plane] | bits << filled;
                *strings[plane].0.get_unchecked_mut(index) = low;
                pending[plane] = if end >= 64 { (bits >> 1) >> (63 - filled) } else { low };
            }
            index += (end >> 6) as usize;
            filled = end & 63;
        }
        for plane in 0..BITS {
            let string = strings[plane].0.as_mut_ptr();
            string.add(index).write(pending[plane]);
            let mut zero = index + 1;
            while zero < index + 1 + 8 {
                V::splat(0).store(string.add(zero).cast());
                zero += V::BYTES / 8;
            }
            let start = at + plane * marked;
            let (to, shift) = (to.add(start >> 6 << 3), (start & 63) as u32);
            let (mut done, words) = (0, (shift as usize + marked).div_ceil(64));
            while done < words {
                let (bits, carried) = (string.add(1 + done), string.add(done));
                V::load(bits.cast()).shift_string(V::load(carried.cast()), shift).store(to.add(8 * done));
                done += V::BYTES / 8;
            }
            let whole = (shift as usize + marked) >> 6;
            to.cast::<u64>().write_unaligned(*before | string.add(1).read() << shift);
            let carried = if whole == 0 { *before } else { (string.add(whole).read() >> 1) >> (63 - shift) };
            *before = carried | string.add(1 + whole).read() << shift;
        }
        at + BITS * marked
    }
}

/// Reads what [`put`] wrote into `planes`, zero outside of the mask, and returns the bit behind it.
///
/// # Safety
/// The machine has BMI2; the string with 128 more bytes is readable behind `from`.
#[inline(always)]
pub(super) unsafe fn take<const BITS: usize>(
    from: *const u8,
    at: usize,
    planes: &mut [Plane; 3],
    mask: &Plane,
    marked: usize,
) -> usize {
    // SAFETY: by contract.
    unsafe {
        let mut at = at;
        let end = at + BITS * marked;
        for i in 0..WORDS {
            let mask = word(mask, i);
            let count = mask.count_ones();
            for (plane, out) in planes.iter_mut().enumerate().take(BITS) {
                let start = at + plane * marked;
                let (from, shift) = (from.add(start >> 3), start & 7);
                let mut bits = from.cast::<u64>().read_unaligned() >> shift;
                if count > 56 {
                    bits |= u64::from(from.add(8).read()) << 1 << (63 - shift);
                }
                let bits = _pdep_u64(bits, mask);
                out[2 * i] = bits as u32;
                out[2 * i + 1] = (bits >> 32) as u32;
            }
            at += count as usize;
        }
        end
    }
}
