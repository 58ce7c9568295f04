//! Memory that is not a plane: tables, words that are updated, a status, the ends of a frame.

use super::{Mask, Program, Tile, generate};
use crate::arch;
use crate::launch::{Argument, ArgumentError, Extent, Kind, Size, memory_arguments};

/// `N` bytes that all programs read.
#[derive(Clone, Copy)]
pub struct Table<const N: usize>(pub(crate) *const u8);

impl<const N: usize> Extent for Table<N> {
    fn bytes(_: Size) -> u64 {
        N as u64
    }
    // The codebook of a tensor lies in the dynamic part of a frame, which starts at a multiple of 8.
    const ALIGN: u64 = 8;
}
memory_arguments! { source [const N: usize] Table<N> = Table; }

impl<const N: usize> Table<N> {
    /// Four words, the same for all lanes.
    #[inline(always)]
    pub fn words(self) -> [u32; 4] {
        // SAFETY: only tables of 16 bytes and more are asked, at an aligned address.
        let ([a, b], [c, d]) = unsafe { (arch::load64(self.0), arch::load64(self.0.add(8))) };
        [a, b, c, d]
    }

    /// Of a table of 256 counters (u64): keys of the exponents `8 lane` to `8 lane + 7`, larger for what is more frequent, of
    /// equals for what is smaller; 0 for exponents that do not exist. Counts are below 2^24.
    #[inline(always)]
    pub fn keys(self, exponents: u32) -> Tile<[u32; 8]> {
        generate(|lane| {
            let mut keys = [0; 8];
            crate::unroll!(i < 8 => {
                let exponent = lane * 8 + i as u32;
                // SAFETY: only a table of 2048 bytes is asked.
                let count = unsafe { arch::load32(self.0.add(exponent as usize * 8)) };
                keys[i] = if exponent < exponents { count << 8 | (255 - exponent) } else { 0 };
            });
            keys
        })
    }
}

/// Nothing: what schemes without a codebook are given.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Argument for Nothing {
    type Raw = u32;
    type Host<'a> = Nothing;
    const KIND: Kind = Kind::U32;
    #[inline(always)]
    unsafe fn from_raw(_: u32) -> Self {
        Nothing
    }
    fn slot(_: &Nothing) -> u64 {
        0
    }
    fn raw(_: &Nothing) -> u32 {
        0
    }
    fn check(_: &Nothing, _: &'static str, _: Size) -> Result<(), ArgumentError> {
        Ok(())
    }
}
/// `N` bytes that a program writes, or that many add to.
#[derive(Clone, Copy)]
pub struct Update<const N: usize>(pub(crate) *mut u8);

impl<const N: usize> Extent for Update<N> {
    fn bytes(_: Size) -> u64 {
        N as u64
    }
    const ALIGN: u64 = if N < 8 { 4 } else { 8 };
}
memory_arguments! { target [const N: usize] Update<N> = Update; }

impl<const N: usize> Update<N> {
    /// A double word, the same for all lanes.
    #[inline(always)]
    pub fn load64(self, at: u32) -> u64 {
        // SAFETY: the callers stay within `N`.
        let [low, high] = unsafe { arch::load64(self.0.add(at as usize)) };
        (high as u64) << 32 | low as u64
    }

    /// Stores a double word that all lanes agree on.
    #[inline(always)]
    pub fn store64(self, at: u32, value: u64) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the callers stay within `N`.
                unsafe { arch::store64(self.0.add(at as usize), [value as u32, (value >> 32) as u32]) }
            }
        }
    }

    /// A word, the same for all lanes.
    #[inline(always)]
    pub fn load32(self, at: u32) -> u32 {
        // SAFETY: the callers stay within `N`.
        unsafe { arch::load32(self.0.add(at as usize)) }
    }

    /// Stores a word that all lanes agree on.
    #[inline(always)]
    pub fn store32(self, at: u32, value: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the callers stay within `N`.
                unsafe { arch::store32(self.0.add(at as usize), value) }
            }
        }
    }

    /// Adds a number that all lanes agree on to a double word; other programs may add to it as well.
    #[inline(always)]
    pub fn add64(self, at: u32, value: u64) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the callers stay within `N`.
                unsafe { arch::add64(self.0.add(at as usize), value) }
            }
        }
    }

    /// Two words of every lane, at `8 lane`.
    #[inline(always)]
    pub fn store_pairs(self, pairs: &Tile<[u32; 2]>) {
        for lane in arch::lanes() {
            // SAFETY: only updates of 256 bytes are asked.
            unsafe { arch::store64(self.0.add(lane as usize * 8), pairs.at(lane)) }
        }
    }

    /// Calls for every set bit of a lane's `mask`: byte `rank` becomes `value(lane, bit)`; ranks of a lane start at its `first`.
    #[inline(always)]
    pub fn store_bytes(
        self,
        program: &Program,
        mask: &Mask,
        first: &Tile<u32>,
        value: impl Fn(u32, u32) -> u32,
    ) {
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            if rank < N as u32 {
                // SAFETY: below `N`.
                unsafe { arch::store8(self.0.add(rank as usize), value(lane, bit)) }
            }
        });
    }
}

/// A word in which a kernel says what was wrong with its input; 0 before.
#[derive(Clone, Copy)]
pub struct Status(*mut u8);

impl Extent for Status {
    fn bytes(_: Size) -> u64 {
        4
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] Status = Status; }

impl Status {
    /// The frame is damaged: see `docs/format.md`, section 10.
    pub const DAMAGED: u32 = 1;

    /// The same for one lane.
    #[inline(always)]
    pub(in crate::tile) fn report_in_lane(self, problem: u32) {
        // SAFETY: checked by the launcher.
        unsafe { arch::store32(self.0, problem) }
    }

    /// Reports a problem. Many programs may; any of them is as good as the others.
    #[inline(always)]
    pub fn report(self, problem: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: checked by the launcher.
                unsafe { arch::store32(self.0, problem) }
            }
        }
    }
}
/// The dynamic part of a frame: double words, at a multiple of 8.
#[derive(Clone, Copy)]
pub struct Dynamic(*const u8);

impl Extent for Dynamic {
    fn bytes(_: Size) -> u64 {
        0 // its own length goes along
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { source [] Dynamic = Dynamic; }

impl Dynamic {
    /// Its 2048 bytes from number `index` on as the words of a chunk, zero behind the end at `bytes` (a multiple of 8).
    #[inline(always)]
    pub fn chunk(self, index: u32, bytes: u64) -> Tile<[u32; 16]> {
        let start = index as u64 * 2048;
        generate(|lane| {
            let mut out = [0; 16];
            crate::unroll!(i < 8 => {
                let at = start + (lane as u64) * 16 + (i as u64 / 2) * 512 + (i as u64 % 2) * 8;
                if at < bytes {
                    // SAFETY: inside.
                    let pair = unsafe { arch::load64(self.0.wrapping_add(at as usize)) };
                    out[2 * i] = pair[0];
                    out[2 * i + 1] = pair[1];
                }
            });
            out
        })
    }
}

/// The start of a frame: double words.
#[derive(Clone, Copy)]
pub struct Header(*mut u8);

impl Extent for Header {
    fn bytes(_: Size) -> u64 {
        0 // a length goes along
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { target [] Header = Header; }

impl Header {
    /// Copies the double words of `from` from byte `start` to byte `end`.
    #[inline(always)]
    pub fn copy_range(self, from: Dynamic, start: u64, end: u64) {
        for lane in arch::lanes() {
            let mut at = start + lane as u64 * 8;
            while at < end {
                // SAFETY: both have so many bytes.
                unsafe { arch::store64(self.0.add(at as usize), arch::load64(from.0.add(at as usize))) };
                at += 256;
            }
        }
    }

    /// Zeros `bytes` bytes from `at` on.
    #[inline(always)]
    pub fn clear(self, at: u64, bytes: u64) {
        for lane in arch::lanes() {
            let mut byte = lane as u64;
            while byte < bytes {
                // SAFETY: the frame has so many bytes.
                unsafe { arch::store8(self.0.add((at + byte) as usize), 0) };
                byte += 32;
            }
        }
    }

    /// Copies `bytes` bytes (a multiple of 8).
    #[inline(always)]
    pub fn copy(self, from: Dynamic, bytes: u64) {
        for lane in arch::lanes() {
            let mut at = lane as u64 * 8;
            while at < bytes {
                // SAFETY: both have so many bytes.
                unsafe { arch::store64(self.0.add(at as usize), arch::load64(from.0.add(at as usize))) };
                at += 256;
            }
        }
    }
}

/// Pairs of double words.
#[derive(Clone, Copy)]
pub struct Pairs(*const u8);

impl Extent for Pairs {
    fn bytes(_: Size) -> u64 {
        0 // a count goes along
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { source [] Pairs = Pairs; }

impl Pairs {
    /// One of them, the same for all lanes.
    #[inline(always)]
    pub fn pair(self, index: u32) -> [u64; 2] {
        let at = self.0.wrapping_add(index as usize * 16);
        // SAFETY: the caller has checked the count.
        let ([a, b], [c, d]) = unsafe { (arch::load64(at), arch::load64(at.wrapping_add(8))) };
        [(b as u64) << 32 | a as u64, (d as u64) << 32 | c as u64]
    }
}
