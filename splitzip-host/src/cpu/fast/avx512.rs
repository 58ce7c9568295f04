//! AVX-512 with VBMI: bytes go anywhere in two vectors with one instruction, so nothing is ever out of order.

use super::vector::Vector;
use core::arch::x86_64::*;

/// 64 bytes.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

/// Every second byte of two vectors.
const fn every_other(first: u8) -> [u8; 64] {
    let (mut out, mut i) = ([0; 64], 0);
    while i < 64 {
        out[i] = first + 2 * i as u8;
        i += 1;
    }
    out
}

/// Bytes `first..` of one vector and of the other in turns.
const fn in_turns(first: u8) -> [u8; 64] {
    let (mut out, mut i) = ([0; 64], 0);
    while i < 64 {
        out[i] = first + i as u8 / 2 + 64 * (i as u8 % 2);
        i += 1;
    }
    out
}

/// The same for 32-bit words.
const fn words_in_turns(first: u32) -> [u32; 16] {
    let (mut out, mut i) = ([0; 16], 0);
    while i < 16 {
        out[i] = first + i as u32 / 2 + 16 * (i as u32 % 2);
        i += 1;
    }
    out
}

/// Every second 32-bit word.
const fn every_other_word(first: u32) -> [u32; 16] {
    let (mut out, mut i) = ([0; 16], 0);
    while i < 16 {
        out[i] = first + 2 * i as u32;
        i += 1;
    }
    out
}

static LOW: [u8; 64] = every_other(0);
static HIGH: [u8; 64] = every_other(1);
static WORDS: [[u8; 64]; 2] = [in_turns(0), in_turns(32)];
static EVEN: [u32; 16] = every_other_word(0);
static ODD: [u32; 16] = every_other_word(1);
static INTERLEAVED: [[u32; 16]; 2] = [words_in_turns(0), words_in_turns(8)];

// SAFETY of all blocks: the machine has the instructions, by the contract of the trait; pointers as it says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Avx512 {
    const BYTES: usize = 64;
    type Table = [Avx512; 4];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        Avx512(unsafe { _mm512_loadu_si512(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Avx512(unsafe { _mm512_set1_epi8(byte as i8) })
    }
    #[inline(always)]
    unsafe fn splat_16(from: *const u8) -> Self {
        Avx512(unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast())) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_and_si512(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_or_si512(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_xor_si512(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn without(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_andnot_si512(other.0, self.0) })
    }
    #[inline(always)]
    unsafe fn select(self, a: Self, b: Self) -> Self {
        Avx512(unsafe { _mm512_ternarylogic_epi64::<0xca>(self.0, a.0, b.0) })
    }
    #[inline(always)]
    unsafe fn shift_left<const N: i32>(self) -> Self {
        // (The immediate of `_mm512_slli_epi16` is a `u32`, which no `i32` in a signature becomes; the compiler finds it here.)
        Avx512(unsafe { _mm512_sll_epi16(self.0, _mm_cvtsi32_si128(N)) })
    }
    #[inline(always)]
    unsafe fn shift_right<const N: i32>(self) -> Self {
        Avx512(unsafe { _mm512_srl_epi16(self.0, _mm_cvtsi32_si128(N)) })
    }
    #[inline(always)]
    unsafe fn shift_string(self, before: Self, count: u32) -> Self {
        Avx512(unsafe {
            let (left, right) = (_mm_cvtsi32_si128(count as i32), _mm_cvtsi32_si128(64 - count as i32));
            _mm512_or_si512(_mm512_sll_epi64(self.0, left), _mm512_srl_epi64(before.0, right))
        })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_add_epi8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn subtract(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_sub_epi8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn equal(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(self.0, other.0)) })
    }
    #[inline(always)]
    unsafe fn least(self, other: Self) -> Self {
        Avx512(unsafe { _mm512_min_epu8(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn add_to_sums(self, bytes: Self) -> Self {
        Avx512(unsafe { _mm512_add_epi64(self.0, _mm512_sad_epu8(bytes.0, _mm512_setzero_si512())) })
    }
    #[inline(always)]
    unsafe fn total(self) -> u64 {
        unsafe { _mm512_reduce_add_epi64(self.0) as u64 }
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        unsafe { _mm512_test_epi64_mask(self.0, self.0) == 0 }
    }
    #[inline(always)]
    unsafe fn words_in_use(self) -> u32 {
        u32::from(unsafe { _mm512_test_epi64_mask(self.0, self.0) })
    }

    #[inline(always)]
    unsafe fn low_bytes(first: Self, second: Self) -> Self {
        Avx512(unsafe { _mm512_permutex2var_epi8(first.0, Self::load(LOW.as_ptr()).0, second.0) })
    }
    #[inline(always)]
    unsafe fn high_bytes(first: Self, second: Self) -> Self {
        Avx512(unsafe { _mm512_permutex2var_epi8(first.0, Self::load(HIGH.as_ptr()).0, second.0) })
    }
    #[inline(always)]
    unsafe fn words(low: Self, high: Self) -> (Self, Self) {
        unsafe {
            let [first, second] = [Self::load(WORDS[0].as_ptr()).0, Self::load(WORDS[1].as_ptr()).0];
            let of = [
                _mm512_permutex2var_epi8(low.0, first, high.0),
                _mm512_permutex2var_epi8(low.0, second, high.0),
            ];
            (Avx512(of[0]), Avx512(of[1]))
        }
    }

    #[inline(always)]
    unsafe fn even_odd(first: Self, second: Self) -> (Self, Self) {
        unsafe {
            let [even, odd] = [Self::load(EVEN.as_ptr().cast()).0, Self::load(ODD.as_ptr().cast()).0];
            let of = [
                _mm512_permutex2var_epi32(first.0, even, second.0),
                _mm512_permutex2var_epi32(first.0, odd, second.0),
            ];
            (Avx512(of[0]), Avx512(of[1]))
        }
    }
    #[inline(always)]
    unsafe fn interleave(even: Self, odd: Self) -> (Self, Self) {
        unsafe {
            let [first, second] =
                [Self::load(INTERLEAVED[0].as_ptr().cast()).0, Self::load(INTERLEAVED[1].as_ptr().cast()).0];
            let of = [
                _mm512_permutex2var_epi32(even.0, first, odd.0),
                _mm512_permutex2var_epi32(even.0, second, odd.0),
            ];
            (Avx512(of[0]), Avx512(of[1]))
        }
    }
    #[inline(always)]
    unsafe fn in_order(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn out_of_order(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn numbers_of_bits(bits: u64, table: &[u16; 64], first: u16, to: *mut u16) {
        unsafe {
            let first = _mm512_set1_epi16(first as i16);
            let [low, high] = [0, 32].map(|at| Self::load(table.as_ptr().add(at).cast()).0);
            let (half, rest) = (bits as u32, (bits >> 32) as u32);
            let numbers = _mm512_maskz_compress_epi16(half, _mm512_add_epi16(first, low));
            Avx512(numbers).store(to.cast());
            let numbers = _mm512_maskz_compress_epi16(rest, _mm512_add_epi16(first, high));
            Avx512(numbers).store(to.add(half.count_ones() as usize).cast());
        }
    }

    #[inline(always)]
    unsafe fn look_up_16(self, table: Self) -> Self {
        Avx512(unsafe { _mm512_shuffle_epi8(table.0, self.0) })
    }
    #[inline(always)]
    unsafe fn table(from: *const u8) -> [Avx512; 4] {
        unsafe {
            [Self::load(from), Self::load(from.add(64)), Self::load(from.add(128)), Self::load(from.add(192))]
        }
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &[Avx512; 4]) -> Self {
        let [a, b, c, d] = *table;
        Avx512(unsafe {
            let (low, high) =
                (_mm512_permutex2var_epi8(a.0, self.0, b.0), _mm512_permutex2var_epi8(c.0, self.0, d.0));
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(self.0), low, high)
        })
    }
}
