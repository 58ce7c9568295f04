//! Element types on vectors: exponents and residuals of neighbouring elements, a byte each, and back.

use super::vector::{Vector, bytes_right};

/// Where sign, exponent and mantissa are. An element is one byte, or a low and a high one.
pub(super) trait Dtype: Copy + 'static {
    /// Bytes of an element.
    const BYTES: usize;
    /// Bits of an exponent.
    const EXPONENT_BITS: u32;
    /// Bits of the packed plane of residuals: 8, 4 or none.
    const PACKED: usize;
    /// Are there three bit planes of residuals?
    const PLANES: bool;

    /// Exponents, what goes to the packed plane, what goes to bit planes; of elements given as low and high bytes (`high` alone for 8 bits).
    unsafe fn split<V: Vector>(low: V, high: V) -> [V; 3];
    /// The way back. Exponents may have bits above their width.
    unsafe fn join<V: Vector>(exponents: V, packed: V, planes: V) -> (V, V);
}

#[derive(Clone, Copy)]
pub(super) struct Bf16;
#[derive(Clone, Copy)]
pub(super) struct Fp16;
#[derive(Clone, Copy)]
pub(super) struct E4m3;
#[derive(Clone, Copy)]
pub(super) struct E5m2;

/// Bits of bytes, shifted to the left by `N`; those that leave a byte are gone.
#[inline(always)]
unsafe fn bytes_left<V: Vector, const N: i32>(bytes: V) -> V {
    // SAFETY: by contract.
    unsafe { bytes.and(V::splat(0xff >> N)).shift_left::<N>() }
}

// SAFETY of all blocks: by the contract of `Vector`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Dtype for Bf16 {
    const BYTES: usize = 2;
    const EXPONENT_BITS: u32 = 8;
    const PACKED: usize = 8;
    const PLANES: bool = false;

    #[inline(always)]
    unsafe fn split<V: Vector>(low: V, high: V) -> [V; 3] {
        unsafe {
            let exponents = high.add(high).or(bytes_right::<V, 7>(low));
            [exponents, V::splat(0x80).select(high, low), V::splat(0)]
        }
    }
    #[inline(always)]
    unsafe fn join<V: Vector>(exponents: V, packed: V, _: V) -> (V, V) {
        unsafe {
            let sign = V::splat(0x80);
            (
                sign.select(exponents.shift_left::<7>(), packed),
                sign.select(packed, exponents.shift_right::<1>()),
            )
        }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Dtype for Fp16 {
    const BYTES: usize = 2;
    const EXPONENT_BITS: u32 = 5;
    const PACKED: usize = 8;
    const PLANES: bool = true;

    #[inline(always)]
    unsafe fn split<V: Vector>(low: V, high: V) -> [V; 3] {
        unsafe {
            let upper = V::splat(0x03).select(high, high.shift_right::<5>()).and(V::splat(0x07));
            [high.shift_right::<2>().and(V::splat(0x1f)), low, upper]
        }
    }
    #[inline(always)]
    unsafe fn join<V: Vector>(exponents: V, packed: V, planes: V) -> (V, V) {
        unsafe {
            let signs = bytes_left::<V, 5>(planes.and(V::splat(0x04)));
            let high = V::splat(0x03).select(planes, bytes_left::<V, 2>(exponents.and(V::splat(0x1f))));
            (packed, high.or(signs))
        }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Dtype for E4m3 {
    const BYTES: usize = 1;
    const EXPONENT_BITS: u32 = 4;
    const PACKED: usize = 4;
    const PLANES: bool = false;

    #[inline(always)]
    unsafe fn split<V: Vector>(_: V, bytes: V) -> [V; 3] {
        unsafe {
            let residuals = V::splat(0x07).select(bytes, bytes.shift_right::<4>()).and(V::splat(0x0f));
            [bytes.shift_right::<3>().and(V::splat(0x0f)), residuals, V::splat(0)]
        }
    }
    #[inline(always)]
    unsafe fn join<V: Vector>(exponents: V, packed: V, _: V) -> (V, V) {
        unsafe {
            let signs = bytes_left::<V, 4>(packed.and(V::splat(0x08)));
            let bytes = V::splat(0x07).select(packed, bytes_left::<V, 3>(exponents.and(V::splat(0x0f))));
            (V::splat(0), bytes.or(signs))
        }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Dtype for E5m2 {
    const BYTES: usize = 1;
    const EXPONENT_BITS: u32 = 5;
    const PACKED: usize = 0;
    const PLANES: bool = true;

    #[inline(always)]
    unsafe fn split<V: Vector>(low: V, bytes: V) -> [V; 3] {
        unsafe { Fp16::split(low, bytes) }
    }
    #[inline(always)]
    unsafe fn join<V: Vector>(exponents: V, packed: V, planes: V) -> (V, V) {
        unsafe { Fp16::join(exponents, packed, planes) }
    }
}
