//! Plain elements: what a lane can hold, and how a word of memory holds them.
//!
//! The codec has no float arithmetic: its words stay integers, so that NaN payloads and both zeros are ordinary. `f32` is here for
//! kernels of other crates.

use super::{LaneValue, Tile, Value};
use crate::arch::Lanes;

mod sealed {
    pub trait Sealed {}
}

/// A number in memory and in a lane: `u8`, `u16`, `u32` or `f32`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element of a tensor",
    label = "a lane cannot hold it",
    note = "elements are `u8`, `u16`, `u32` and `f32`; the bits of other floats are a `u8` or a `u16`"
)]
pub trait Element: Copy + LaneValue<Tile = Tile<Self>> + Value<Lanes = Lanes<Self>> + sealed::Sealed {
    /// Bytes in memory.
    const BYTES: u32;
    /// The number 0.
    const ZERO: Self;
    /// From the low bits of a word; the others do not matter.
    fn from_word(word: u32) -> Self;
    /// To the low bits of a word; the others are 0.
    fn to_word(self) -> u32;
}

macro_rules! elements { ($($type:ty, $zero:literal, $from:expr, $to:expr;)*) => { $(
    impl sealed::Sealed for $type {}
    impl Element for $type {
        const BYTES: u32 = size_of::<$type>() as u32;
        const ZERO: Self = $zero;
        #[inline(always)]
        fn from_word(word: u32) -> Self { ($from)(word) }
        #[inline(always)]
        fn to_word(self) -> u32 { ($to)(self) }
    }
    impl Value for $type {
        type Lanes = Lanes<$type>;
        #[inline(always)]
        fn get(lanes: &Lanes<$type>, lane: u32) -> $type {
            lanes.get(lane)
        }
        #[inline(always)]
        unsafe fn put(lanes: *mut Lanes<$type>, lane: u32, value: $type) {
            // SAFETY: by contract.
            unsafe { Lanes::put(lanes, lane, value) }
        }
    }
    impl LaneValue for $type {
        type Tile = Tile<$type>;
        #[inline(always)]
        unsafe fn put(tile: *mut Self::Tile, lane: u32, value: $type) {
            // SAFETY: by contract.
            unsafe { Value::put(&raw mut (*tile).0, lane, value) }
        }
    }
)* } }
elements! {
    u8, 0, |word| word as u8, u32::from;
    u16, 0, |word| word as u16, u32::from;
    u32, 0, |word| word, |value| value;
    f32, 0.0, f32::from_bits, f32::to_bits;
}

impl<T: Element, const N: usize> Value for [T; N] {
    type Lanes = [Lanes<T>; N];
    #[inline(always)]
    fn get(lanes: &[Lanes<T>; N], lane: u32) -> [T; N] {
        let mut out = [T::ZERO; N];
        crate::unroll!(i < N => out[i] = lanes[i].get(lane));
        out
    }
    #[inline(always)]
    unsafe fn put(lanes: *mut [Lanes<T>; N], lane: u32, value: [T; N]) {
        // SAFETY: by contract; `i` is in the array.
        crate::unroll!(i < N => unsafe { Lanes::put((lanes as *mut Lanes<T>).add(i), lane, value[i]) });
    }
}

impl<T: Element, const N: usize> LaneValue for [T; N] {
    type Tile = Tile<[T; N]>;
    #[inline(always)]
    unsafe fn put(tile: *mut Self::Tile, lane: u32, value: Self) {
        // SAFETY: by contract.
        unsafe { Value::put(&raw mut (*tile).0, lane, value) }
    }
}
