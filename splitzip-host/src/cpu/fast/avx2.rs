//! AVX2: what crosses the two 128-bit halves of a vector is a permutation of its four 64-bit words on top.

use super::vector::Vector;
use core::arch::x86_64::*;

/// 32 bytes.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

/// A table of 256 bytes as rows of 16: only those that hold anything, for a codebook of 16 neighbours 2 or 3 of them.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    count: usize,
    /// What the high half of a byte is in a row, and the row, each with [`Rows::NOTHING`] as 0.
    rows: [(Avx2, Avx2); 16],
}

impl Rows {
    /// What bytes of rows that are left out become.
    const NOTHING: u8 = splitzip_kernels::scheme::ESCAPE;
}

/// The words 0, 2, 1, 3.
const SWAPPED: i32 = 0b11_01_10_00;

// SAFETY of all blocks: the machine has the instructions, by the contract of the trait; pointers as it says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Avx2 {
    const BYTES: usize = 32;
    type Table = Rows;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        Avx2(unsafe { _mm256_loadu_si256(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Avx2(unsafe { _mm256_set1_epi8(byte as i8) })
    }
    #[inline(always)]
    unsafe fn splat_16(from: *const u8) -> Self {
        Avx2(unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast())) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_and_si256(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_or_si256(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_xor_si256(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn without(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_andnot_si256(other.0, self.0) })
    }
    #[inline(always)]
    unsafe fn select(self, a: Self, b: Self) -> Self {
        unsafe { a.and(self).or(b.without(self)) }
    }
    #[inline(always)]
    unsafe fn shift_left<const N: i32>(self) -> Self {
        Avx2(unsafe { _mm256_slli_epi16::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn shift_right<const N: i32>(self) -> Self {
        Avx2(unsafe { _mm256_srli_epi16::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn shift_string(self, before: Self, count: u32) -> Self {
        Avx2(unsafe {
            let (left, right) = (_mm_cvtsi32_si128(count as i32), _mm_cvtsi32_si128(64 - count as i32));
            _mm256_or_si256(_mm256_sll_epi64(self.0, left), _mm256_srl_epi64(before.0, right))
        })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_add_epi8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn subtract(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_sub_epi8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn equal(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_cmpeq_epi8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn least(self, other: Self) -> Self {
        Avx2(unsafe { _mm256_min_epu8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn add_to_sums(self, bytes: Self) -> Self {
        Avx2(unsafe { _mm256_add_epi64(self.0, _mm256_sad_epu8(bytes.0, _mm256_setzero_si256())) })
    }
    #[inline(always)]
    unsafe fn total(self) -> u64 {
        unsafe {
            let halves = _mm_add_epi64(_mm256_castsi256_si128(self.0), _mm256_extracti128_si256::<1>(self.0));
            (_mm_cvtsi128_si64(halves) + _mm_extract_epi64::<1>(halves)) as u64
        }
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        unsafe { _mm256_testz_si256(self.0, self.0) != 0 }
    }
    #[inline(always)]
    unsafe fn words_in_use(self) -> u32 {
        unsafe {
            let unused = _mm256_cmpeq_epi64(self.0, _mm256_setzero_si256());
            _mm256_movemask_pd(_mm256_castsi256_pd(unused)) as u32 ^ 0xf
        }
    }

    #[inline(always)]
    unsafe fn low_bytes(first: Self, second: Self) -> Self {
        Avx2(unsafe {
            let low = _mm256_set1_epi16(0xff);
            let packed = _mm256_packus_epi16(_mm256_and_si256(first.0, low), _mm256_and_si256(second.0, low));
            _mm256_permute4x64_epi64::<SWAPPED>(packed)
        })
    }
    #[inline(always)]
    unsafe fn high_bytes(first: Self, second: Self) -> Self {
        Avx2(unsafe {
            let packed =
                _mm256_packus_epi16(_mm256_srli_epi16::<8>(first.0), _mm256_srli_epi16::<8>(second.0));
            _mm256_permute4x64_epi64::<SWAPPED>(packed)
        })
    }
    #[inline(always)]
    unsafe fn words(low: Self, high: Self) -> (Self, Self) {
        unsafe {
            let low = _mm256_permute4x64_epi64::<SWAPPED>(low.0);
            let high = _mm256_permute4x64_epi64::<SWAPPED>(high.0);
            (Avx2(_mm256_unpacklo_epi8(low, high)), Avx2(_mm256_unpackhi_epi8(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn even_odd(first: Self, second: Self) -> (Self, Self) {
        unsafe {
            let (a, b) = (_mm256_castsi256_ps(first.0), _mm256_castsi256_ps(second.0));
            let even = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            (Avx2(even), Avx2(_mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b))))
        }
    }
    #[inline(always)]
    unsafe fn interleave(even: Self, odd: Self) -> (Self, Self) {
        unsafe { (Avx2(_mm256_unpacklo_epi32(even.0, odd.0)), Avx2(_mm256_unpackhi_epi32(even.0, odd.0))) }
    }
    #[inline(always)]
    unsafe fn in_order(self) -> Self {
        Avx2(unsafe { _mm256_permute4x64_epi64::<SWAPPED>(self.0) })
    }
    #[inline(always)]
    unsafe fn out_of_order(self) -> Self {
        Avx2(unsafe { _mm256_permute4x64_epi64::<SWAPPED>(self.0) })
    }

    #[inline(always)]
    unsafe fn numbers_of_bits(bits: u64, table: &[u16; 64], first: u16, to: *mut u16) {
        // How many there are cannot be predicted, so some are taken at once; only what is left after that is a branch.
        const AT_ONCE: usize = 4;
        let (mut bits, mut done) = (bits, 0);
        loop {
            for i in done..done + AT_ONCE {
                let number = first.wrapping_add(table[bits.trailing_zeros() as usize & 63]);
                unsafe { to.add(i).write(number) }
                bits &= bits.wrapping_sub(1);
            }
            done += AT_ONCE;
            if bits == 0 {
                return;
            }
        }
    }

    #[inline(always)]
    unsafe fn look_up_16(self, table: Self) -> Self {
        Avx2(unsafe { _mm256_shuffle_epi8(table.0, self.0) })
    }
    #[inline(always)]
    unsafe fn table(from: *const u8) -> Rows {
        unsafe {
            let nothing = Self::splat(Rows::NOTHING);
            let mut table = Rows { count: 0, rows: [(nothing, nothing); 16] };
            for row in 0..16 {
                let entries = Self::splat_16(from.add(16 * row)).xor(nothing);
                if !entries.is_zero() {
                    table.rows[table.count] = (Self::splat((row << 4) as u8), entries);
                    table.count += 1;
                }
            }
            table
        }
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &Rows) -> Self {
        unsafe {
            let (mut found, outside) = (Self::splat(0), Self::splat(0x70));
            for (row, entries) in &table.rows[..table.count] {
                // Below 0x80 in this row only, and what is above looks up 0.
                let index = Avx2(_mm256_adds_epu8(self.xor(*row).0, outside.0));
                found = found.or(index.look_up_16(*entries));
            }
            found.xor(Self::splat(Rows::NOTHING))
        }
    }
}
