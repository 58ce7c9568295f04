//! [`map_each`]: [`map`](super::map) for every element of tiles that hold several a lane.

use super::{Element, LaneValue, Tile};
use crate::arch;
use core::mem::MaybeUninit;

/// What [`map_each`] takes: references to tiles of `N` elements a lane, alone or up to four in a tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that `map_each` can go through",
    label = "not tiles of several elements a lane",
    note = "pass `&Tile<[T; N]>`, or a tuple of such references with the same `N`; for one element a lane there is `map`"
)]
pub trait Each<const N: usize> {
    /// What the closure gets.
    type Element;
    #[doc(hidden)]
    type Lane;
    #[doc(hidden)]
    fn lane(&self, lane: u32) -> Self::Lane;
    #[doc(hidden)]
    fn element(lane: &Self::Lane, i: usize) -> Self::Element;
}

impl<T: Element, const N: usize> Each<N> for &Tile<[T; N]> {
    type Element = T;
    type Lane = [T; N];
    #[inline(always)]
    fn lane(&self, lane: u32) -> [T; N] {
        self.at(lane)
    }
    #[inline(always)]
    fn element(lane: &[T; N], i: usize) -> T {
        lane[i]
    }
}

/// What the closure of [`map_each`] returns: an element, or up to four in a tuple.
#[diagnostic::on_unimplemented(
    message = "the closure of `map_each` cannot return `{Self}`",
    label = "not an element",
    note = "it returns a `u8`, `u16`, `u32` or `f32`, or up to four of them in a tuple, which gives as many tiles"
)]
pub trait EachValue<const N: usize> {
    #[doc(hidden)]
    type Lane: LaneValue;
    #[doc(hidden)]
    const START: Self::Lane;
    #[doc(hidden)]
    fn set(self, lane: &mut Self::Lane, i: usize);
}

macro_rules! elements { ($($type:ty)*) => { $(
    impl<const N: usize> EachValue<N> for $type {
        type Lane = [$type; N];
        const START: [$type; N] = [<$type>::ZERO; N];
        #[inline(always)]
        fn set(self, lane: &mut [$type; N], i: usize) {
            lane[i] = self
        }
    }
)* } }
elements! { u8 u16 u32 f32 }

macro_rules! tuples { ($(($($name:ident $i:tt),*))*) => { $(
    impl<const N: usize, $($name: Each<N>),*> Each<N> for ($($name),*) {
        type Element = ($($name::Element),*);
        type Lane = ($($name::Lane),*);
        #[inline(always)]
        fn lane(&self, lane: u32) -> Self::Lane { ($(self.$i.lane(lane)),*) }
        #[inline(always)]
        fn element(lane: &Self::Lane, i: usize) -> Self::Element { ($($name::element(&lane.$i, i)),*) }
    }
    impl<const N: usize, $($name: EachValue<N>),*> EachValue<N> for ($($name),*) {
        type Lane = ($($name::Lane),*);
        const START: Self::Lane = ($($name::START),*);
        #[inline(always)]
        fn set(self, lane: &mut Self::Lane, i: usize) { $( self.$i.set(&mut lane.$i, i); )* }
    }
)* } }
tuples! { (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

/// Applies `f` to every element of tiles that hold `N` elements a lane (at most 16). It may return a tuple, which gives several tiles.
///
/// As in [`map`](super::map), `f` may use uniform values, but no tile and no program. A product and a sum of floats are two roundings,
/// on every machine; one rounding is [`multiply_add`](super::multiply_add).
///
/// ```
/// # use splitzip_kernels::tile::{Tile, map_each};
/// fn scale(factor: f32, x: &Tile<[f32; 4]>, y: &Tile<[f32; 4]>) -> Tile<[f32; 4]> {
///     map_each((x, y), |(x, y)| factor * x + y)
/// }
/// fn bytes(words: &Tile<[u16; 8]>) -> (Tile<[u8; 8]>, Tile<[u8; 8]>) {
///     map_each(words, |word| (word as u8, (word >> 8) as u8))
/// }
/// ```
#[inline(always)]
pub fn map_each<const N: usize, I: Each<N>, O: EachValue<N>>(
    tiles: I,
    f: impl Fn(I::Element) -> O + Sync,
) -> <O::Lane as LaneValue>::Tile {
    let mut out = MaybeUninit::<<O::Lane as LaneValue>::Tile>::uninit();
    for lane in arch::lanes() {
        let (values, mut results) = (tiles.lane(lane), O::START);
        crate::unroll!(i < N => f(I::element(&values, i)).set(&mut results, i));
        // SAFETY: `out` is ours, the lane exists.
        unsafe { O::Lane::put(out.as_mut_ptr(), lane, results) }
    }
    // SAFETY: every lane was written.
    unsafe { out.assume_init() }
}
