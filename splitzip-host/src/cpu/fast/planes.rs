//! Between bytes in the order of elements and bit planes in coding order (`docs/format.md`, section 1).
//!
//! Element `256 g + 8 l + j` has bit `8 (j % 4) + 4 (j / 4) + g` of word `l`. So 32-bit words of four bytes are the words of a plane already,
//! but for one thing: what are bits of a value (plane `b`) in four words (`g`) must become bits `g` of four planes. That is a 4 x 4 transpose
//! of bits across four vectors, in every nibble at once: 48 instructions for 1024 values with AVX-512, no look-ups, no masks.

use super::vector::Vector;

/// A bit of each of the 1024 elements of a chunk, in coding order.
pub(super) type Plane = [u32; 32];
/// A byte of each of the 1024 elements of a chunk, in their order.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Bytes(pub [u8; 1024]);

/// Exchanges bit `i` of the nibbles of vector `k` with bit `k` of those of vector `i`.
#[inline(always)]
unsafe fn transpose<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 4] {
    // SAFETY: by contract.
    unsafe {
        let (pairs, ones) = (V::splat(0x33), V::splat(0x55));
        let (e, g) = (pairs.select(a, c.shift_left::<2>()), pairs.select(a.shift_right::<2>(), c));
        let (f, h) = (pairs.select(b, d.shift_left::<2>()), pairs.select(b.shift_right::<2>(), d));
        [
            ones.select(e, f.shift_left::<1>()),
            ones.select(e.shift_right::<1>(), f),
            ones.select(g, h.shift_left::<1>()),
            ones.select(g.shift_right::<1>(), h),
        ]
    }
}

/// The four planes of bytes below 16, of the lanes that one vector of each plane holds; `lane` is the first of them.
///
/// # Safety
/// 1024 bytes at `from`.
#[inline(always)]
pub(super) unsafe fn to_planes<V: Vector>(from: *const u8, lane: usize) -> [V; 4] {
    // SAFETY: `lane` is a multiple of the lanes of a vector, so the last byte read is 256 * 3 + 8 * 32.
    unsafe {
        let mut runs = [V::splat(0); 4];
        for (g, run) in runs.iter_mut().enumerate() {
            let from = from.add(256 * g + 8 * lane);
            let (even, odd) = V::even_odd(V::load(from), V::load(from.add(V::BYTES)));
            *run = even.or(odd.shift_left::<4>());
        }
        let [a, b, c, d] = transpose(runs);
        [a.in_order(), b.in_order(), c.in_order(), d.in_order()]
    }
}

/// The way back: two neighbouring vectors of bytes for each of the four runs.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
pub(super) unsafe fn from_planes<V: Vector>([a, b, c, d]: [V; 4]) -> [(V, V); 4] {
    // SAFETY: by contract.
    unsafe {
        let runs = transpose([a.out_of_order(), b.out_of_order(), c.out_of_order(), d.out_of_order()]);
        let (low, zero) = (V::splat(0x0f), V::splat(0));
        let mut out = [(zero, zero); 4];
        for (run, out) in runs.into_iter().zip(&mut out) {
            *out = V::interleave(run.and(low), run.shift_right::<4>().and(low));
        }
        out
    }
}
