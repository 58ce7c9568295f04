//! What LLVM does not find by itself: whole-tile look-ups.
//!
//! A look-up of 256 bytes through memory is one load a byte, 69 % of `w4` encoding; as two `vpermi2b` and a blend for 64 bytes
//! it took encoding from 4.7 to 11.4 GB/s in the study.

use super::{Lanes, Shared};
use core::arch::x86_64::*;

/// Every byte of `x` replaced by that byte of a table of 256.
///
/// # Safety
/// The machine has these features; `table` has 256 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
pub(super) unsafe fn look_up_256<const N: usize>(
    table: Shared,
    x: &[Lanes<u32>; N],
    out: &mut [Lanes<u32>; N],
) {
    // SAFETY: 256 bytes of table, by contract; `Lanes` are two vectors of 64 bytes, aligned to 64.
    unsafe {
        let quarter = |i: usize| _mm512_loadu_si512((table.pointer() as *const __m512i).add(i));
        let (t0, t1, t2, t3) = (quarter(0), quarter(1), quarter(2), quarter(3));
        let (from, to) = (x.as_ptr() as *const __m512i, out.as_mut_ptr() as *mut __m512i);
        for i in 0..2 * N {
            let v = _mm512_load_si512(from.add(i));
            let (low, high) = (_mm512_permutex2var_epi8(t0, v, t1), _mm512_permutex2var_epi8(t2, v, t3));
            _mm512_store_si512(to.add(i), _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
        }
    }
}

/// Every byte of `x` (below 16) replaced by that byte of a table of 16.
///
/// # Safety
/// The machine has these features.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn look_up_16<const N: usize>(table: [u32; 4], x: &mut [Lanes<u32>; N]) {
    // SAFETY: `Lanes` are four vectors of 32 bytes, aligned to 64.
    unsafe {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128((&raw const table).cast()));
        let x = x.as_mut_ptr() as *mut __m256i;
        for i in 0..4 * N {
            _mm256_store_si256(x.add(i), _mm256_shuffle_epi8(table, _mm256_load_si256(x.add(i))));
        }
    }
}
