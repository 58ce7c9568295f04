//! The ladders of the window schemes on vectors of bit planes: section 4 of `docs/format.md`, as in `splitzip-kernels/src/scheme/`.

use super::vector::Vector;

/// What a lane of planes climbs to: codes, second level, third level (as many of each as the ladder says), and which elements are marked, twice
/// marked, escaped.
pub(super) struct Climbed<V> {
    pub codes: [V; 3],
    pub second: [V; 3],
    pub third: [V; 3],
    pub marked: V,
    pub twice_marked: V,
    pub escaped: V,
}

/// Which values of a window have a code at which level.
pub(super) trait Ladder: Copy + 'static {
    /// Values that have a code; the next one stands for all exponents outside.
    const VALUES: u8;
    /// The value of the mean exponent.
    const MEAN: u8;
    /// The value of exponent 0 in a chunk coded with zeros.
    const ZERO: u8;
    /// Escapes from which on a chunk is tried again without its zeros.
    const MANY_ESCAPES: usize;
    /// Bits of a code of each level.
    const BITS: [usize; 3];

    /// Codes of values, given as planes.
    unsafe fn climb<V: Vector>(values: [V; 4]) -> Climbed<V>;
    /// The elements that the first level marks.
    unsafe fn marked<V: Vector>(codes: [V; 3]) -> V;
    /// Of the marked elements, those that the second level marks.
    unsafe fn twice_marked<V: Vector>(second: [V; 3], marked: V) -> V;
    /// The planes of the values, and which elements are escaped. Codes outside of their masks are zero.
    unsafe fn descend<V: Vector>(codes: [V; 3], second: [V; 3], third: [V; 3], masks: [V; 2]) -> ([V; 4], V);
}

/// Values 0 to 6 are their codes.
#[derive(Clone, Copy)]
pub(super) struct W3;
/// Values 5, 6, 7 in the first level, 0 to 4, 8 and 9 in the second.
#[derive(Clone, Copy)]
pub(super) struct W2x3;
/// Values 8, 9, 10 in the first level, 6, 7, 11 in the second, 0 to 5 and 12 in the third.
#[derive(Clone, Copy)]
pub(super) struct W2x2x3;

// SAFETY of all blocks: by the contract of `Vector`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Ladder for W3 {
    const VALUES: u8 = 7;
    const MEAN: u8 = 3;
    const ZERO: u8 = 0;
    const MANY_ESCAPES: usize = 96;
    const BITS: [usize; 3] = [3, 0, 0];

    #[inline(always)]
    unsafe fn climb<V: Vector>([v0, v1, v2, _]: [V; 4]) -> Climbed<V> {
        unsafe {
            let zero = V::splat(0);
            let escaped = v0.and(v1).and(v2);
            let (codes, none) = ([v0, v1, v2], [zero; 3]);
            Climbed { codes, second: none, third: none, marked: zero, twice_marked: zero, escaped }
        }
    }
    #[inline(always)]
    unsafe fn marked<V: Vector>(_: [V; 3]) -> V {
        unsafe { V::splat(0) }
    }
    #[inline(always)]
    unsafe fn twice_marked<V: Vector>(_: [V; 3], _: V) -> V {
        unsafe { V::splat(0) }
    }
    #[inline(always)]
    unsafe fn descend<V: Vector>([a, b, c]: [V; 3], _: [V; 3], _: [V; 3], _: [V; 2]) -> ([V; 4], V) {
        unsafe { ([a, b, c, V::splat(0)], a.and(b).and(c)) }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Ladder for W2x3 {
    const VALUES: u8 = 10;
    const MEAN: u8 = 5;
    const ZERO: u8 = 5;
    const MANY_ESCAPES: usize = 32;
    const BITS: [usize; 3] = [2, 3, 0];

    #[inline(always)]
    unsafe fn climb<V: Vector>([v0, v1, v2, v3]: [V; 4]) -> Climbed<V> {
        unsafe {
            let zero = V::splat(0);
            let codes = [v0.and(v2), v1.and(v2), zero];
            let (second, marked) = ([v0.or(v2), v1.or(v2), v3.or(v2)], Self::marked(codes));
            Climbed { codes, second, third: [zero; 3], marked, twice_marked: zero, escaped: v3.and(v1) }
        }
    }
    #[inline(always)]
    unsafe fn marked<V: Vector>([a, b, _]: [V; 3]) -> V {
        unsafe { V::splat(0xff).without(a.or(b)) }
    }
    #[inline(always)]
    unsafe fn twice_marked<V: Vector>(_: [V; 3], _: V) -> V {
        unsafe { V::splat(0) }
    }
    #[inline(always)]
    unsafe fn descend<V: Vector>(
        [c0, c1, _]: [V; 3],
        [s0, s1, s2]: [V; 3],
        _: [V; 3],
        [marked, _]: [V; 2],
    ) -> ([V; 4], V) {
        unsafe {
            // Of the marked elements, 7 is value 4: all bits set, and only bit 2 of the value.
            let low = marked.without(s0.and(s1).and(s2));
            let high = low.and(s2);
            ([c0.or(low.and(s0)), c1.or(low.and(s1)), V::splat(0xff).without(low), high], high.and(s1))
        }
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Ladder for W2x2x3 {
    const VALUES: u8 = 13;
    const MEAN: u8 = 8;
    const ZERO: u8 = 8;
    const MANY_ESCAPES: usize = 32;
    const BITS: [usize; 3] = [2, 2, 3];

    #[inline(always)]
    unsafe fn climb<V: Vector>([v0, v1, v2, v3]: [V; 4]) -> Climbed<V> {
        unsafe {
            let all = V::splat(0xff);
            // Beyond the first level, and of those beyond the second.
            let (u1, u2) = (v2.or(all.without(v3)), all.without(v1.and(v2.or(v3))));
            let codes = [v0.or(u1), v1.or(u1), V::splat(0)];
            let second = [v0.without(v3).or(u2), v3.or(u2), V::splat(0)];
            let marked = Self::marked(codes);
            let twice_marked = Self::twice_marked(second, marked);
            let third = [v0, v1.or(v3), v2];
            Climbed { codes, second, third, marked, twice_marked, escaped: v3.and(v2).and(v0) }
        }
    }
    #[inline(always)]
    unsafe fn marked<V: Vector>([a, b, _]: [V; 3]) -> V {
        unsafe { a.and(b) }
    }
    #[inline(always)]
    unsafe fn twice_marked<V: Vector>([a, b, _]: [V; 3], marked: V) -> V {
        unsafe { marked.and(a).and(b) }
    }
    #[inline(always)]
    unsafe fn descend<V: Vector>(
        [c0, c1, _]: [V; 3],
        [s0, s1, _]: [V; 3],
        [t0, t1, t2]: [V; 3],
        [marked, twice]: [V; 2],
    ) -> ([V; 4], V) {
        unsafe {
            let (first, second) = (V::splat(0xff).without(marked), marked.without(twice));
            // 8, 9, 10; then 6, 7, 11; then 0 to 5, and 12 where all but bit 0 of the code are set.
            let twelve = twice.and(t1).and(t2);
            let v0 = first.and(c0).or(second.and(s0.or(s1))).or(twice.and(t0));
            let v1 = first.and(c1).or(second).or(twice.and(t1.without(t2)));
            let v2 = second.without(s1).or(twice.and(t2));
            let v3 = first.or(second.and(s1)).or(twelve);
            ([v0, v1, v2, v3], twelve.and(t0))
        }
    }
}
