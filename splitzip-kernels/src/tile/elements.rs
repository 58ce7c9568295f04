//! Plain tensors in memory: elements one behind the other, of any number, at any address that is a multiple of an element's size.

use super::{Element, Row, Strip, Tile, generate};
use crate::arch;
use crate::launch::{Extent, Size, memory_arguments};
use core::marker::PhantomData;

/// A tensor that is read.
#[derive(Clone, Copy)]
pub struct Elements<T>(*const u8, PhantomData<T>);

/// A tensor that is written, and may be read: what was there before, or what this program has written.
#[derive(Clone, Copy)]
pub struct ElementsOut<T>(*mut u8, PhantomData<T>);

/// A value for every row, that is read.
#[derive(Clone, Copy)]
pub struct RowValues<T>(*const u8, PhantomData<T>);

/// A value for every row, that is written.
#[derive(Clone, Copy)]
pub struct RowValuesOut<T>(*mut u8, PhantomData<T>);

macro_rules! extents { ($($type:ident, $of:ident;)*) => { $(
    impl<T: Element> Extent for $type<T> {
        fn bytes(size: Size) -> u64 {
            size.$of.saturating_mul(u64::from(T::BYTES))
        }
        const ALIGN: u64 = T::BYTES as u64;
    }
)* } }
extents! { Elements, elements; ElementsOut, elements; RowValues, rows; RowValuesOut, rows; }
memory_arguments! {
    source [T: Element] Elements<T> = |p| Elements(p, PhantomData);
    source [T: Element] RowValues<T> = |p| RowValues(p, PhantomData);
}
memory_arguments! {
    target [T: Element] ElementsOut<T> = |p| ElementsOut(p, PhantomData);
    target [T: Element] RowValuesOut<T> = |p| RowValuesOut(p, PhantomData);
}

impl<T: Element> Elements<T> {
    /// The elements of a strip; `fill` for those that do not exist.
    #[inline(always)]
    pub fn load<const N: usize>(self, strip: &Strip<N>, fill: T) -> Tile<[T; N]> {
        // The launcher has measured the buffer by the grid, and what exists of the strip lies within the grid.
        let p = self.0.wrapping_add(strip.first as usize * T::BYTES as usize);
        if Access::<T, N>::is_wide(strip, p) {
            // SAFETY: a whole strip at an aligned address.
            return generate(|lane| unsafe { Access::<T, N>::read(p, lane) });
        }
        generate(|lane| {
            let mut out = [fill; N];
            crate::unroll!(i < N => {
                let at = lane * N as u32 + i as u32;
                if at < strip.exist {
                    // SAFETY: the element exists.
                    out[i] = unsafe { read_one(p.wrapping_add((at * T::BYTES) as usize)) }
                }
            });
            out
        })
    }
}

impl<T: Element> ElementsOut<T> {
    /// The elements of a strip; `fill` for those that do not exist.
    #[inline(always)]
    pub fn load<const N: usize>(self, strip: &Strip<N>, fill: T) -> Tile<[T; N]> {
        Elements(self.0 as *const u8, PhantomData).load(strip, fill)
    }

    /// Writes the elements of a strip that exist.
    #[inline(always)]
    pub fn store<const N: usize>(self, strip: &Strip<N>, tile: &Tile<[T; N]>) {
        // The launcher has measured the buffer by the grid, and what exists of the strip lies within the grid.
        let p = self.0.wrapping_add(strip.first as usize * T::BYTES as usize);
        if Access::<T, N>::is_wide(strip, p) {
            for lane in arch::lanes() {
                // SAFETY: a whole strip at an aligned address.
                unsafe { Access::<T, N>::write(p, lane, tile.at(lane)) }
            }
            return;
        }
        for lane in arch::lanes() {
            let values = tile.at(lane);
            crate::unroll!(i < N => {
                let at = lane * N as u32 + i as u32;
                if at < strip.exist {
                    // SAFETY: the element exists.
                    unsafe { write_one(p.wrapping_add((at * T::BYTES) as usize), values[i]) }
                }
            });
        }
    }
}

impl<T: Element> RowValues<T> {
    /// The value of a row, the same for all lanes; `fill` where the row does not exist.
    #[inline(always)]
    pub fn load(self, row: &Row, fill: T) -> T {
        if !row.exists {
            return fill;
        }
        // SAFETY: the launcher has measured the buffer by the rows, and the row exists.
        unsafe { read_one(self.0.add(row.number as usize * T::BYTES as usize)) }
    }
}

impl<T: Element> RowValuesOut<T> {
    /// Writes the value of a row, on which all lanes agree; nothing where the row does not exist.
    #[inline(always)]
    pub fn store(self, row: &Row, value: T) {
        for lane in arch::lanes() {
            if lane == 0 && row.exists {
                // SAFETY: the launcher has measured the buffer by the rows, and the row exists.
                unsafe { write_one(self.0.add(row.number as usize * T::BYTES as usize), value) }
            }
        }
    }
}

/// # Safety
/// `p` is valid for it, and aligned.
#[inline(always)]
unsafe fn read_one<T: Element>(p: *const u8) -> T {
    // SAFETY: by contract.
    T::from_word(unsafe {
        match T::BYTES {
            1 => arch::load8(p),
            2 => arch::load16(p),
            _ => arch::load32(p),
        }
    })
}

/// # Safety
/// `p` is valid for it, and aligned.
#[inline(always)]
unsafe fn write_one<T: Element>(p: *mut u8, value: T) {
    let word = value.to_word();
    // SAFETY: by contract.
    unsafe {
        match T::BYTES {
            1 => arch::store8(p, word),
            2 => arch::store16(p, word),
            _ => arch::store32(p, word),
        }
    }
}

/// How a lane's elements of a whole strip are read and written: in words, up to four at once.
struct Access<T, const N: usize>(PhantomData<T>);

impl<T: Element, const N: usize> Access<T, N> {
    const BYTES: u32 = N as u32 * T::BYTES;
    /// Bytes of one access, as many as divide those of a lane; 1 where these are not whole words.
    const AT_ONCE: u32 = match Self::BYTES % 16 {
        0 => 16,
        8 => 8,
        4 | 12 => 4,
        _ => 1,
    };
    const IN_WORD: usize = (4 / T::BYTES) as usize;

    #[inline(always)]
    fn is_wide(strip: &Strip<N>, p: *const u8) -> bool {
        let aligned = p as usize & (Self::AT_ONCE as usize - 1) == 0;
        Self::AT_ONCE > 1 && strip.exist == Strip::<N>::ELEMENTS && aligned
    }

    /// # Safety
    /// `p` is valid for reads of a whole strip, and a multiple of `AT_ONCE`.
    #[inline(always)]
    unsafe fn read(p: *const u8, lane: u32) -> [T; N] {
        let p = p.wrapping_add((lane * Self::BYTES) as usize);
        let mut words = [0; 16];
        // Words behind the last one are not read.
        crate::unroll!(w < 16 => if (w as u32) * 4 < Self::BYTES && (w as u32 * 4).is_multiple_of(Self::AT_ONCE) {
            let p = p.wrapping_add(w * 4);
            // SAFETY: within the lane's bytes, by contract.
            unsafe {
                match Self::AT_ONCE {
                    16 => [words[w], words[(w + 1) & 15], words[(w + 2) & 15], words[(w + 3) & 15]] = arch::load128(p),
                    8 => [words[w], words[(w + 1) & 15]] = arch::load64(p),
                    _ => words[w] = arch::load32(p),
                }
            }
        });
        let mut out = [T::ZERO; N];
        crate::unroll!(i < N => {
            out[i] = T::from_word(words[(i / Self::IN_WORD) & 15] >> (8 * T::BYTES * (i % Self::IN_WORD) as u32))
        });
        out
    }

    /// # Safety
    /// `p` is valid for writes of a whole strip, and a multiple of `AT_ONCE`.
    #[inline(always)]
    unsafe fn write(p: *mut u8, lane: u32, values: [T; N]) {
        let p = p.wrapping_add((lane * Self::BYTES) as usize);
        let mut words = [0; 16];
        crate::unroll!(i < N => {
            words[(i / Self::IN_WORD) & 15] |= values[i].to_word() << (8 * T::BYTES * (i % Self::IN_WORD) as u32)
        });
        crate::unroll!(w < 16 => if (w as u32) * 4 < Self::BYTES && (w as u32 * 4).is_multiple_of(Self::AT_ONCE) {
            let p = p.wrapping_add(w * 4);
            // SAFETY: within the lane's bytes, by contract.
            unsafe {
                match Self::AT_ONCE {
                    16 => arch::store128(p, [words[w], words[(w + 1) & 15], words[(w + 2) & 15], words[(w + 3) & 15]]),
                    8 => arch::store64(p, [words[w], words[(w + 1) & 15]]),
                    _ => arch::store32(p, words[w]),
                }
            }
        });
    }
}
