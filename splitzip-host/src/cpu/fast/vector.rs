//! The vectors that the fast paths are written in: one list of operations, for AVX2 and for AVX-512.
//!
//! No arithmetic is wider than a byte but for shifts, so a vector has no element type. Operations that cross the 128-bit parts of a vector
//! cost most and differ most between the two: the list says what they must do (bytes of neighbouring vectors in the order of memory),
//! and each implementation does it in its own way.

/// A vector of [`Vector::BYTES`] bytes.
///
/// # Safety
/// Whoever calls anything here vouches that the machine has the instructions, and for the memory behind pointers (any alignment).
pub(super) trait Vector: Copy {
    /// 32 or 64.
    const BYTES: usize;
    /// A table of 256 bytes, ready for look-ups.
    type Table: Copy;

    /// Loads a vector.
    unsafe fn load(from: *const u8) -> Self;
    /// Stores a vector.
    unsafe fn store(self, to: *mut u8);
    /// A byte everywhere.
    unsafe fn splat(byte: u8) -> Self;
    /// 16 bytes everywhere.
    unsafe fn splat_16(from: *const u8) -> Self;

    /// Bitwise and.
    unsafe fn and(self, other: Self) -> Self;
    /// Bitwise or.
    unsafe fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    unsafe fn xor(self, other: Self) -> Self;
    /// This, but for the bits of `other`.
    unsafe fn without(self, other: Self) -> Self;
    /// Bits of `a` where this has a bit, of `b` elsewhere.
    unsafe fn select(self, a: Self, b: Self) -> Self;
    /// Words of 16 bits, shifted to the left.
    unsafe fn shift_left<const N: i32>(self) -> Self;
    /// Words of 16 bits, shifted to the right.
    unsafe fn shift_right<const N: i32>(self) -> Self;
    /// Words of 64 bits, shifted to the left by `count`, and those of `before`, shifted to the right by 64 - `count`.
    unsafe fn shift_string(self, before: Self, count: u32) -> Self;

    /// Sums of bytes, modulo 256.
    unsafe fn add(self, other: Self) -> Self;
    /// Differences of bytes, modulo 256.
    unsafe fn subtract(self, other: Self) -> Self;
    /// All bits of bytes that are equal, none of others.
    unsafe fn equal(self, other: Self) -> Self;
    /// The smaller byte.
    unsafe fn least(self, other: Self) -> Self;
    /// Adds the bytes of `bytes` to sums, which [`Vector::total`] adds up.
    unsafe fn add_to_sums(self, bytes: Self) -> Self;
    /// See [`Vector::add_to_sums`].
    unsafe fn total(self) -> u64;
    /// Are all bits zero?
    unsafe fn is_zero(self) -> bool;
    /// A bit for each 64-bit word that is not zero.
    unsafe fn words_in_use(self) -> u32;

    /// The low bytes of the 16-bit words of two neighbouring vectors.
    unsafe fn low_bytes(first: Self, second: Self) -> Self;
    /// Their high bytes.
    unsafe fn high_bytes(first: Self, second: Self) -> Self;
    /// The way back from both: two neighbouring vectors.
    unsafe fn words(low: Self, high: Self) -> (Self, Self);

    /// The even and the odd 32-bit words of two neighbouring vectors, in some order that [`Vector::in_order`] mends.
    unsafe fn even_odd(first: Self, second: Self) -> (Self, Self);
    /// The way back.
    unsafe fn interleave(even: Self, odd: Self) -> (Self, Self);
    /// The order of memory from that of [`Vector::even_odd`].
    unsafe fn in_order(self) -> Self;
    /// The way back.
    unsafe fn out_of_order(self) -> Self;

    /// Writes `first` and the number in `table` of every bit that is set, in the order of bits: as many as there are, and up to 32 more that mean nothing.
    unsafe fn numbers_of_bits(bits: u64, table: &[u16; 64], first: u16, to: *mut u16);

    /// Each byte (below 16) replaced by that byte of `table`, which is 16 bytes everywhere.
    unsafe fn look_up_16(self, table: Self) -> Self;
    /// A table for [`Vector::look_up`].
    unsafe fn table(from: *const u8) -> Self::Table;
    /// Each byte replaced by that byte of the table.
    unsafe fn look_up(self, table: &Self::Table) -> Self;
}

/// Bytes, each shifted to the right.
#[inline(always)]
pub(super) unsafe fn bytes_right<V: Vector, const N: i32>(bytes: V) -> V {
    // SAFETY: by contract.
    unsafe { bytes.shift_right::<N>().and(V::splat(0xff >> N)) }
}

/// Asks for the cache line at an address, which may be anywhere.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint; every x86-64 has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}
