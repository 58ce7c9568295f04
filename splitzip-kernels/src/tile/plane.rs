//! Planes: `W::COUNT` bits for every element of a tensor.

use super::{Chunk, Program, TailArea, Tile, Words, generate, short};
use crate::arch;
use crate::launch::{Extent, Size, memory_arguments};
use core::marker::PhantomData;

/// A plane that is read.
#[derive(Clone, Copy)]
pub struct In<W>(*const u8, PhantomData<W>);

/// A plane that is written.
#[derive(Clone, Copy)]
pub struct Out<W>(*mut u8, PhantomData<W>);

impl<W: Words> Extent for In<W> {
    fn bytes(size: Size) -> u64 {
        (size.elements as u128 * W::COUNT as u128).div_ceil(8) as u64
    }
    const ALIGN: u64 = 16;
}
impl<W: Words> Extent for Out<W> {
    fn bytes(size: Size) -> u64 {
        In::<W>::bytes(size)
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { source [W: Words] In<W> = |p| In(p, PhantomData); }
memory_arguments! { target [W: Words] Out<W> = |p| Out(p, PhantomData); }

/// What a short chunk is filled up with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Zero bits.
    Zeros,
    /// Its first element, so that a chunk of equal elements stays one.
    FirstElement,
}

/// One whole chunk of a plane that is read, or a filled-up copy of a short one.
#[derive(Clone, Copy)]
pub struct InChunk<W>(*const u8, PhantomData<W>);
// SAFETY: never used: see `MemoryInsideALane`.
unsafe impl<W> Sync for InChunk<W> where for<'a> super::AnyMemory<'a>: super::MemoryInsideALane {}

impl<W: Words> In<W> {
    /// A plane that starts at an address which the launcher has checked in another way.
    #[inline(always)]
    pub(crate) fn from_start(p: *const u8) -> Self {
        In(p, PhantomData)
    }

    /// The chunk, as words of every lane; zero bits for elements that do not exist.
    #[inline(always)]
    pub fn load(self, program: &Program, chunk: &Chunk, area: TailArea) -> Tile<W> {
        if W::PACKED || chunk.is_whole() {
            return self.chunk(program, chunk, Fill::Zeros, area).load();
        }
        // SAFETY: the launcher has checked the length.
        let p = unsafe { self.0.add(chunk.index as usize * W::CHUNK_BYTES as usize) };
        generate(|lane| {
            let exist = chunk.exist(lane);
            // SAFETY: so many elements exist.
            W::from_fn(|plane| unsafe { short::from_element_order(p, W::COUNT, exist, lane, plane) })
        })
    }

    /// The same with loads of their own for a short chunk of a packed plane: 4 instructions less for the others. For who has a register more.
    #[inline(always)]
    pub fn load_apart(self, program: &Program, chunk: &Chunk, area: TailArea) -> Tile<W> {
        if !W::PACKED || !chunk.is_whole() {
            return self.load(program, chunk, area);
        }
        InChunk(self.0.wrapping_add(chunk.index as usize * W::CHUNK_BYTES as usize), PhantomData).load()
    }

    /// The chunk, still in memory. Of a short one, a copy in `area` of its tail. (Packed planes only.)
    #[inline(always)]
    pub fn chunk(self, program: &Program, chunk: &Chunk, fill: Fill, area: TailArea) -> InChunk<W> {
        self.chunk_or_short(program, chunk, fill, area, |_| {})
    }

    /// The same, with something to do with the copy of a short one: where it is made, so that whole ones are not asked for it.
    #[inline(always)]
    pub fn chunk_or_short(
        self,
        program: &Program,
        chunk: &Chunk,
        fill: Fill,
        area: TailArea,
        of_short: impl FnOnce(InChunk<W>),
    ) -> InChunk<W> {
        // SAFETY: the launcher has checked the length.
        let p = self.0.wrapping_add(chunk.index as usize * W::CHUNK_BYTES as usize);
        if chunk.is_whole() || chunk.valid == 0 {
            return InChunk(p, PhantomData);
        }
        let copy = chunk.tail.area(area);
        let valid = (chunk.valid * W::COUNT).div_ceil(8);
        // Bytes of the first element: 1 or 2 (narrower planes are filled with zeros).
        let unit = W::COUNT / 8;
        for lane in arch::lanes() {
            let mut at = lane;
            while at < W::CHUNK_BYTES {
                // SAFETY: `at` is below `valid` where it reads the plane; the copy has room for a chunk.
                unsafe {
                    let byte = if at < valid {
                        arch::load8(p.add(at as usize))
                    } else if fill == Fill::FirstElement {
                        arch::load8(p.add(if unit == 2 { at & 1 } else { 0 } as usize))
                    } else {
                        0
                    };
                    arch::store8(copy.add(at as usize), byte);
                }
                at += 32;
            }
        }
        program.sync();
        let copy = InChunk(copy, PhantomData);
        of_short(copy);
        copy
    }
}

impl<W: Words> InChunk<W> {
    /// A whole chunk, or a copy, at an address that somebody else has checked.
    #[inline(always)]
    pub(in crate::tile) fn at(p: *const u8) -> Self {
        InChunk(p, PhantomData)
    }

    #[inline(always)]
    pub(in crate::tile) fn address(self) -> *const u8 {
        self.0
    }

    /// The words of every lane.
    #[inline(always)]
    pub fn load(self) -> Tile<W> {
        arch::prefetch_next(self.0, W::CHUNK_BYTES);
        // SAFETY: one whole chunk.
        generate(|lane| unsafe { W::read(self.0, lane) })
    }

    /// The same, where it is rarely wanted: nobody holds the addresses until then, nor the words from one time to the next.
    #[inline(always)]
    pub fn load_again(self, program: &Program, time: u32) -> Tile<W> {
        InChunk(self.0.wrapping_add((program.machine().zero() & time) as usize), PhantomData).load()
    }

    /// The words of one run of a lane: eight elements, in four words or the first two of them.
    #[inline(always)]
    pub fn run(self, lane: u32, run: u32) -> [u32; 4] {
        let bytes = W::COUNT; // of eight elements
        // SAFETY: there are four runs, and 32 lanes.
        unsafe {
            let at = self.0.wrapping_add(((run << 5 | lane) * bytes) as usize);
            if bytes == 16 {
                return arch::load128(at);
            }
            let [a, b] = arch::load64(at);
            [a, b, 0, 0]
        }
    }

    /// One element, of 1 or 2 bytes, still in memory.
    #[inline(always)]
    pub(crate) fn element(self, element: u32) -> u32 {
        // SAFETY: elements are below 1024.
        unsafe {
            if W::COUNT == 16 {
                arch::load16(self.0.add(element as usize * 2))
            } else {
                arch::load8(self.0.add(element as usize))
            }
        }
    }
}

impl<W: Words> Out<W> {
    /// As [`In::from_start`].
    #[inline(always)]
    pub(crate) fn from_start(p: *mut u8) -> Self {
        Out(p, PhantomData)
    }

    /// Writes the chunk; of a short one, the elements that exist (through `area` of its tail).
    #[inline(always)]
    pub fn store(self, program: &Program, chunk: &Chunk, area: TailArea, tile: &Tile<W>) {
        // SAFETY: the launcher has checked the length.
        let p = unsafe { self.0.add(chunk.index as usize * W::CHUNK_BYTES as usize) };
        let whole = chunk.is_whole();
        let mut to = p;
        if !whole {
            arch::branched();
            to = chunk.tail.area(area);
        }
        arch::prefetch_next(to, W::CHUNK_BYTES);
        for lane in arch::lanes() {
            // SAFETY: one whole chunk.
            unsafe { tile.at(lane).write(to, lane) }
        }
        if !whole {
            Self::copy_short(program, chunk, to, p);
        }
    }

    /// The same with an address and stores of its own for a short chunk: 9 instructions less for the others. For who has the registers: 5 encoders would spill.
    #[inline(always)]
    pub fn store_apart(self, program: &Program, chunk: &Chunk, area: TailArea, tile: &Tile<W>) {
        // SAFETY: the launcher has checked the length.
        let p = unsafe { self.0.add(chunk.index as usize * W::CHUNK_BYTES as usize) };
        let write = |to: *mut u8| {
            for lane in arch::lanes() {
                // SAFETY: one whole chunk.
                unsafe { tile.at(lane).write(to, lane) }
            }
        };
        if chunk.is_whole() {
            arch::prefetch_next(p, W::CHUNK_BYTES);
            return write(p);
        }
        let to = chunk.tail.area(area);
        write(to);
        Self::copy_short(program, chunk, to, p);
    }

    /// The elements of a short chunk that exist, from its tail to their place.
    #[inline(always)]
    fn copy_short(program: &Program, chunk: &Chunk, to: *mut u8, p: *mut u8) {
        program.sync();
        let bytes = (chunk.valid * W::COUNT).div_ceil(8);
        for lane in arch::lanes() {
            let mut at = lane;
            while at < bytes {
                // SAFETY: so many bytes of this chunk exist; the copy holds a whole one.
                unsafe {
                    let byte = if W::PACKED {
                        // The last byte may have elements that do not exist: zero bits.
                        let left = (chunk.valid * W::COUNT - at * 8).min(8);
                        arch::load8(to.add(at as usize)) & ((1 << left) - 1)
                    } else {
                        short::to_element_order(to, W::COUNT, chunk.valid, at)
                    };
                    arch::store8(p.add(at as usize), byte);
                }
                at += 32;
            }
        }
        program.sync();
    }
}
