//! The tile language.
//!
//! > A `u32` in a kernel is uniform: all lanes of the program agree on it, so `if` on it is a branch of the whole program.
//! > What differs between lanes is a [`Tile`]; it has no comparison that gives a `bool`, so nothing can branch on it.
//! > [`map`] hands the values of one lane to a closure: ordinary integer Rust on packed words, in which no collective can be called.
//!
//! The codec's kernels are made of these, chunks and planes. For plain tensors there are [`Elements`] with [`Strips`] and [`Rows`], `f32` (the
//! codec has no float arithmetic) and, where several warps work on one thing, [`Block`]; `docs/tutorial.md` begins with those.
//!
//! On the GPU a tile is the registers of one lane, on the host the same type holds the values of all 32. One body is both
//! the PTX and the CPU codec. The language costs nothing: 25 ways to write the same computation gave the same machine code (102 SASS
//! instructions). What does cost: iterators with `zip` in a lane, an index that is not known when compiled, a loop with a branch
//! in it over an array (write [`unroll!`](crate::unroll)); each puts the array into local memory.

mod batch;
pub mod bits;
mod block;
mod channels;
mod checksums;
mod chunk;
mod directory;
mod each;
mod element;
mod elements;
mod float;
mod memory;
mod pages;
mod part;
mod parts;
mod plane;
mod program;
mod raw;
mod short;
mod strip;
mod sums;
mod turn;
mod words;

pub use batch::{
    Batch, BatchFrame, BatchFrameIn, BatchGroup, BatchOf, BatchRecords, BatchTensor, BatchWorkspace,
    ChunkPlace, Described, InBatch, OfBatch,
};
pub use block::{Block, BlockArray, Warp};
pub use channels::{ChannelBases, ChannelBasesOut};
pub use checksums::{ChunkSums, SumsInLanes, SumsWanted, TensorSums};
pub(crate) use checksums::{lane_hash, tensor_share};
pub use chunk::{Chunk, TAIL_BYTES, Tail, TailArea};
pub use directory::{Directory, DirectoryIn};
pub use each::{Each, EachValue, map_each};
pub use element::Element;
pub use elements::{Elements, ElementsOut, RowValues, RowValuesOut};
pub use float::{maximum, multiply_add};
pub use memory::{Dynamic, Header, Nothing, Pairs, Status, Table, Update};
pub use pages::{Asked, PIECES_BYTES};
pub use part::Part;
pub(crate) use part::{count_before, patch};
pub use parts::Parts;
pub use plane::{Fill, In, InChunk, Out};
pub use program::{Program, StagedTable};
pub(crate) use raw::raw_words;
pub use strip::{Matrix, Row, RowStrips, Rows, Strip, Strips};
pub use sums::GroupSums;
pub use turn::{
    Arrival, Ended, InOrder, Order, PartsOut, Placement, Records, Seats, TURN_BYTES, TURN_SUMS_BYTES,
    TensorRecords, Turns,
};
pub use words::Words;

use crate::arch;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// `for i in 0..n` with the body written out; `n` is known when compiled and at most 16.
///
/// LLVM unrolls small loops by itself, but one with a branch in its body stays a loop, and the array that it indexes goes to local memory.
#[macro_export]
macro_rules! unroll {
    ($i:ident < $n:expr => $body:expr) => {{
        const {
            assert!($n <= 16, "at most 16 turns are written out: take fewer elements a lane, or a loop");
        }
        $crate::unroll!(@ $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }};
    (@ $i:ident, $n:expr, $body:expr, $($j:literal)*) => { { $( if $j < $n { let $i: usize = $j; $body; } )* } };
}

/// `each_run!(run => ..)`: the body for each of the four runs of a lane, in a loop. For what is rare: one run at a time takes fewer registers than four,
/// and `rarely` keeps LLVM from writing them out.
macro_rules! each_run {
    ($run:ident => $body:expr) => {{
        let (mut run, runs) = (0, $crate::arch::rarely(4));
        while run < runs {
            $crate::arch::not_unrolled();
            let $run = run;
            $body;
            run += 1;
        }
    }};
}
pub(crate) use each_run;

/// One `V` a lane: a word (`u32`), an array of words (`[u32; N]`), or other [`Element`]s in their places. On the GPU: registers.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Tile<V: Value>(V::Lanes, Outside);

/// One bit for each of a lane's 32 elements: bit `p` of [`Chunk::bit`].
pub type Mask = Tile<u32>;

/// Keeps what belongs to the whole program out of the closure of [`map`]: a collective in there would run in some lanes only.
///
/// Only an auto trait sees what a closure holds, and stable Rust has no other than those of `core`: so [`map`] asks for `Sync`, and this
/// is `Sync` on a condition that nothing fulfils. The condition is ours, so the compiler answers with our sentence.
#[derive(Clone, Copy)]
pub(crate) struct Outside<W = WholeProgram>(PhantomData<*const W>);
pub(crate) const OUTSIDE: Outside = Outside(PhantomData);

// SAFETY: never used: nothing is `InsideALane`.
unsafe impl<W: InsideALane> Sync for Outside<W> {}

#[derive(Clone, Copy)]
pub(crate) struct WholeProgram;

#[diagnostic::on_unimplemented(
    message = "the closure of a lane holds a tile or the program, which belong to all lanes",
    label = "in here, a collective would run in some lanes only",
    note = "a collective comes before `map`: `let sum = program.sum(&tile);`, and the closure uses `sum`",
    note = "a tile goes in as an argument of `map`: `map((&a, &b), |(a, b)| a + b)`"
)]
pub(crate) trait InsideALane {}

/// The same for what a launch is given as memory: `memory_arguments!` makes its types `Sync` where `AnyMemory` is this, which is nowhere.
/// (The lifetime is there because a condition without one is an error where it is written, not where it is needed.)
#[diagnostic::on_unimplemented(
    message = "the closure of a lane holds memory of the launch",
    label = "in here, every lane has its own words and nothing else",
    note = "load before `map`, which gives a tile: `let words = input.load(program, &chunk, area);`",
    note = "store after it: `output.store(program, &chunk, area, &map(&words, |w| ..));`"
)]
#[doc(hidden)]
pub trait MemoryInsideALane {}

#[doc(hidden)]
pub struct AnyMemory<'a>(PhantomData<&'a ()>);

/// What a lane can hold: an [`Element`] such as `u32`, or an array of them.
#[diagnostic::on_unimplemented(
    message = "a lane cannot hold a `{Self}`",
    label = "no value of a lane",
    note = "a lane holds elements, which are `u8`, `u16`, `u32` and `f32`: `Tile<u32>`, or `Tile<[u32; N]>` for `N` of them"
)]
pub trait Value: Copy {
    /// The values of all lanes that this machine keeps together.
    #[doc(hidden)]
    type Lanes: Copy;
    #[doc(hidden)]
    fn get(lanes: &Self::Lanes, lane: u32) -> Self;
    /// # Safety
    /// `lanes` is valid for writes, `lane` is one of [`arch::lanes`].
    #[doc(hidden)]
    unsafe fn put(lanes: *mut Self::Lanes, lane: u32, value: Self);
}

impl<V: Value> Tile<V> {
    #[inline(always)]
    pub(crate) fn of(lanes: V::Lanes) -> Self {
        Tile(lanes, OUTSIDE)
    }
    #[inline(always)]
    pub(crate) fn lanes(&self) -> &V::Lanes {
        &self.0
    }
    #[inline(always)]
    pub(crate) fn at(&self, lane: u32) -> V {
        V::get(&self.0, lane)
    }
}

impl<V: LaneValue<Tile = Tile<V>> + Value + Sync> Tile<V> {
    /// The same value in every lane.
    #[inline(always)]
    pub fn splat(value: V) -> Self {
        generate(|_| value)
    }
}

impl<T: Element, const N: usize> Tile<[T; N]> {
    /// Element `i` of every lane.
    #[inline(always)]
    pub fn slot(&self, i: usize) -> Tile<T> {
        Tile(self.0[i], OUTSIDE)
    }
}

/// What [`map`] takes: references to tiles, alone or up to four in a tuple.
#[diagnostic::on_unimplemented(
    message = "`map` takes tiles by reference, and this is `{Self}`",
    label = "no reference to a tile, and no tuple of two to four of them",
    note = "write `map(&tile, |x| ..)`, or `map((&a, &b), |(a, b)| ..)`; what is the same for all lanes is used in the closure as it is"
)]
pub trait Tiles {
    /// What a lane sees.
    type Lane;
    #[doc(hidden)]
    fn lane(&self, lane: u32) -> Self::Lane;
}

impl<V: Value> Tiles for &Tile<V> {
    type Lane = V;
    #[inline(always)]
    fn lane(&self, lane: u32) -> V {
        self.at(lane)
    }
}

/// What the closure of [`map`] returns: a value, or up to four in a tuple.
#[diagnostic::on_unimplemented(
    message = "the closure of a lane cannot return `{Self}`",
    label = "neither elements nor a tuple of two to four",
    note = "return an element (`u8`, `u16`, `u32`, `f32`), an array of them, or up to four of these in a tuple; a condition becomes a word with `u32::from(..)`"
)]
pub trait LaneValue {
    /// What comes out of [`map`].
    type Tile;
    /// # Safety
    /// `tile` is valid for writes, `lane` is one of [`arch::lanes`].
    #[doc(hidden)]
    unsafe fn put(tile: *mut Self::Tile, lane: u32, value: Self);
}

macro_rules! tuples { ($(($($name:ident $i:tt),*))*) => { $(
    impl<$($name: Tiles),*> Tiles for ($($name),*) {
        type Lane = ($($name::Lane),*);
        #[inline(always)]
        fn lane(&self, lane: u32) -> Self::Lane { ($(self.$i.lane(lane)),*) }
    }
    impl<$($name: LaneValue),*> LaneValue for ($($name),*) {
        type Tile = ($($name::Tile),*);
        #[inline(always)]
        unsafe fn put(tile: *mut Self::Tile, lane: u32, value: Self) {
            // SAFETY: by contract, for each field.
            unsafe { $( $name::put(&raw mut (*tile).$i, lane, value.$i); )* }
        }
    }
)* } }
tuples! { (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

/// Applies `f` to the values of every lane.
///
/// `f` may use uniform values, but no tile and no program:
/// ```compile_fail
/// # use splitzip_kernels::tile::{map, Program, Tile};
/// fn wrong(program: &Program, a: &Tile<u32>, b: &Tile<u32>) -> Tile<u32> {
///     map(a, |x| if x > 3 { program.sum(b) } else { 0 })
/// }
/// ```
/// ```
/// # use splitzip_kernels::tile::{map, Program, Tile};
/// fn right(program: &Program, a: &Tile<u32>, b: &Tile<u32>) -> Tile<u32> {
///     let sum = program.sum(b);
///     map(a, |x| if x > 3 { sum } else { 0 })
/// }
/// ```
#[inline(always)]
pub fn map<I: Tiles, O: LaneValue>(tiles: I, f: impl Fn(I::Lane) -> O + Sync) -> O::Tile {
    let mut out = MaybeUninit::<O::Tile>::uninit();
    for lane in arch::lanes() {
        // SAFETY: `out` is ours, the lane exists.
        unsafe { O::put(out.as_mut_ptr(), lane, f(tiles.lane(lane))) }
    }
    // SAFETY: every lane was written.
    unsafe { out.assume_init() }
}

/// [`map`] with its closure written in place, on a CPU: for bodies so large that a compiler leaves the closure a call, which costs the
/// vectors (encoding `w2x3` went from 0.7 to 1.5 GB/s). On the GPU it is [`map`]. Nothing keeps a collective out of it there, so only schemes use it.
#[cfg(target_arch = "nvptx64")]
macro_rules! lane_map {
    (($tile:expr), |$name:pat_param| $body:expr) => {
        $crate::tile::map($tile, |$name| $body)
    };
    (($a:expr, $b:expr), |$x:pat_param, $y:pat_param| $body:expr) => {
        $crate::tile::map(($a, $b), |($x, $y)| $body)
    };
}
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! lane_map {
    (($($tile:expr),+), |$($name:pat_param),+| $body:expr) => {{
        let mut out = ::core::mem::MaybeUninit::uninit();
        for lane in $crate::arch::lanes() {
            let ($($name,)+) = ($($tile.at(lane),)+);
            $crate::tile::put_lane(&mut out, lane, $body);
        }
        // SAFETY: every lane was written.
        unsafe { out.assume_init() }
    }};
}
pub(crate) use lane_map;

/// Sets what one lane says.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn put_lane<O: LaneValue>(out: &mut MaybeUninit<O::Tile>, lane: u32, value: O) {
    // SAFETY: `out` is valid, the lane exists.
    unsafe { O::put(out.as_mut_ptr(), lane, value) }
}

/// The same from the number of the lane; only the language itself may use it.
#[inline(always)]
pub(crate) fn generate<O: LaneValue>(f: impl Fn(u32) -> O) -> O::Tile {
    let mut out = MaybeUninit::<O::Tile>::uninit();
    for lane in arch::lanes() {
        // SAFETY: `out` is ours, the lane exists.
        unsafe { O::put(out.as_mut_ptr(), lane, f(lane)) }
    }
    // SAFETY: every lane was written.
    unsafe { out.assume_init() }
}
