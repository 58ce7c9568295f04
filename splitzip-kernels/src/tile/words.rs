//! Arrays of words that planes are made of.

use super::{LaneValue, Tile, Value, bits};
use crate::arch;

/// The words of one lane in a plane: `[u32; N]` gives each of the lane's 32 elements `N` bits.
///
/// In memory a plane of 4, 8 or 16 bits an element is in element order: the lane's run `g` (8 elements) is `N` bytes at `(32 g + lane) N`,
/// so a warp reads 128, 256 or 512 bytes at once. Other widths are `N` bit planes of a word a lane.
pub trait Words: Value + LaneValue<Tile = Tile<Self>> {
    /// Words a lane, and bits an element.
    const COUNT: u32;
    /// In element order, 4, 8 or 16 bits an element; otherwise bit planes in coding order.
    const PACKED: bool = matches!(Self::COUNT, 4 | 8 | 16);
    /// Bytes of a whole chunk.
    const CHUNK_BYTES: u32 = Self::COUNT * 128;
    /// The lane's words of a whole chunk.
    ///
    /// # Safety
    /// `p` is valid for reads of [`Words::CHUNK_BYTES`].
    unsafe fn read(p: *const u8, lane: u32) -> Self;
    /// Writes the lane's words of a whole chunk.
    ///
    /// # Safety
    /// `p` is valid for writes of [`Words::CHUNK_BYTES`].
    unsafe fn write(self, p: *mut u8, lane: u32);
    /// Something of every load that [`Words::read`] makes.
    fn one_of_each_load(self) -> u32;
    /// The words of one run, eight elements in element order: four of 16 bits an element, two of 8 bits.
    fn run(self, run: usize) -> [u32; 4];
    /// Word by word.
    fn from_fn(f: impl Fn(u32) -> u32) -> Self;
    /// One of the words.
    fn word(self, i: usize) -> u32;
    /// The bits under the mask, moved together; and back (bits outside of it are then anything).
    fn compact(self, mask: u32) -> Self;
    /// See [`Words::compact`].
    fn expand(self, mask: u32) -> Self;
    #[doc(hidden)]
    fn plane_of(lanes: &Self::Lanes, i: usize) -> &arch::Lanes<u32>;
    /// Zero where an element does not exist; `runs[g]` elements of run `g` do (0 to 8). For planes in element order.
    fn first_of_runs(self, runs: [u32; 4]) -> Self;
}

impl<const N: usize> Words for [u32; N] {
    const COUNT: u32 = N as u32;

    #[inline(always)]
    unsafe fn read(p: *const u8, lane: u32) -> Self {
        let mut out = [0; N];
        if N == 16 {
            // SAFETY: inside of the chunk, by contract.
            let p = unsafe { p.add(lane as usize * 16) };
            crate::unroll!(g < 4 => {
                // SAFETY: inside of the chunk, by contract.
                let run = unsafe { arch::load128(p.add(g * 512)) };
                crate::unroll!(k < 4 => out[4 * g + k] = run[k])
            });
        } else if N == 8 {
            // SAFETY: inside of the chunk, by contract.
            let p = unsafe { p.add(lane as usize * 8) };
            crate::unroll!(g < 4 => {
                // SAFETY: inside of the chunk, by contract.
                let run = unsafe { arch::load64(p.add(g * 256)) };
                crate::unroll!(k < 2 => out[2 * g + k] = run[k])
            });
        } else {
            // SAFETY: inside of the chunk, by contract.
            let p = unsafe { p.add(lane as usize * 4) };
            crate::unroll!(i < N => {
                // SAFETY: inside of the chunk, by contract.
                out[i] = unsafe { arch::load32(p.add(i * 128)) }
            });
        }
        out
    }

    #[inline(always)]
    unsafe fn write(self, p: *mut u8, lane: u32) {
        if N == 16 {
            // SAFETY: inside of the chunk, by contract.
            let p = unsafe { p.add(lane as usize * 16) };
            crate::unroll!(g < 4 => {
                let run = [self[4 * g], self[4 * g + 1], self[4 * g + 2], self[4 * g + 3]];
                // SAFETY: inside of the chunk, by contract.
                unsafe { arch::store128(p.add(g * 512), run) }
            });
        } else if N == 8 {
            // SAFETY: inside of the chunk, by contract.
            let p = unsafe { p.add(lane as usize * 8) };
            crate::unroll!(g < 4 => {
                // SAFETY: inside of the chunk, by contract.
                unsafe { arch::store64(p.add(g * 256), [self[2 * g], self[2 * g + 1]]) }
            });
        } else {
            // SAFETY: inside of the chunk, by contract.
            let p = unsafe { p.add(lane as usize * 4) };
            crate::unroll!(i < N => {
                // SAFETY: inside of the chunk, by contract.
                unsafe { arch::store32(p.add(i * 128), self[i]) }
            });
        }
    }

    #[inline(always)]
    fn run(self, run: usize) -> [u32; 4] {
        let (words, mut out) = (N / 4, [0; 4]);
        crate::unroll!(i < 4 => if i < words { out[i] = self[run * words + i] });
        out
    }

    #[inline(always)]
    fn from_fn(f: impl Fn(u32) -> u32) -> Self {
        let mut out = [0; N];
        crate::unroll!(i < N => out[i] = f(i as u32));
        out
    }

    #[inline(always)]
    fn word(self, i: usize) -> u32 {
        self[i]
    }

    #[inline(always)]
    fn compact(self, mask: u32) -> Self {
        bits::compact(self, mask)
    }

    #[inline(always)]
    fn expand(self, mask: u32) -> Self {
        bits::expand(self, mask)
    }

    #[inline(always)]
    fn plane_of(lanes: &Self::Lanes, i: usize) -> &arch::Lanes<u32> {
        &lanes[i]
    }

    #[inline(always)]
    fn one_of_each_load(self) -> u32 {
        let step = if N == 16 || N == 8 { N / 4 } else { 1 };
        let (mut x, mut i) = (0, 0);
        while i < N {
            x ^= self[i];
            i += step;
        }
        x
    }

    #[inline(always)]
    fn first_of_runs(self, runs: [u32; 4]) -> Self {
        let mut out = self;
        if N < 4 {
            return out;
        }
        let words = (N / 4).max(1);
        crate::unroll!(i < N => {
            // Word `i % words` of a run holds `32 / N` elements.
            let elements = 32 / (N as u32).max(1);
            let here = runs[i / words].saturating_sub((i % words) as u32 * elements).min(elements);
            let bits = here * N as u32;
            out[i] = if bits >= 32 { self[i] } else { self[i] & ((1 << bits) - 1) };
        });
        out
    }
}
