//! A block of several warps that work on one thing together: the other kind of program.
//!
//! A kernel that starts with `program: &Program` is run by every warp alone. One that starts with `block: &mut Block` is run by a block: its body is
//! what all warps agree on, and [`Block::each_warp`] is where they differ. Every `each_warp` ends with a barrier: what warps have written to a
//! [`BlockArray`] there can be read by the other warps in the next one.
//!
//! The closure cannot have the block, which is borrowed while it runs; so no barrier ever stands where only some of the warps come by. It is
//! no `FnMut`, so no warp sees variables of another one. On a CPU the warps of a block run one after the other, in order, on one thread; a
//! kernel that keeps to the rule of [`BlockArray`] cannot tell the difference.

use super::{Element, OUTSIDE, Outside, Program, Tile, generate};
use crate::arch::{self, Shared};
use core::marker::PhantomData;
use core::ops::Deref;

/// Several warps and the memory they share: `warps` of `#[kernel]` says how many.
pub struct Block {
    machine: arch::Block,
    taken: u32,
    outside: Outside,
}

/// One of the warps of a block. It has everything that a [`Program`] has.
pub struct Warp {
    program: Program,
    number: u32,
}

impl Warp {
    /// Its number in the block.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Deref for Warp {
    type Target = Program;
    #[inline(always)]
    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Block {
    /// For the entries that `#[kernel]` writes.
    ///
    /// # Safety
    /// See [`arch::Block`].
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub unsafe fn on_gpu<const WARPS: u32, const SHARED: u32, const BLOCK: u32>(zero: u32) -> Self {
        // SAFETY: by contract.
        let machine = unsafe { arch::Block::on_gpu::<WARPS, SHARED, BLOCK>(zero) };
        Block { machine, taken: 0, outside: OUTSIDE }
    }

    /// For the CPU runs that `#[kernel]` writes.
    ///
    /// # Safety
    /// See [`arch::Block`].
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub unsafe fn on_cpu(
        index: u64,
        memory: *mut u8,
        level: u32,
        warps: u32,
        shared: u32,
        block: u32,
    ) -> Self {
        // SAFETY: by contract.
        let machine = unsafe { arch::Block::on_cpu(index, memory, level, warps, shared, block) };
        Block { machine, taken: 0, outside: OUTSIDE }
    }

    /// The number of this block in the grid.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        let _ = self.outside;
        self.machine.index()
    }

    /// Its warps.
    #[inline(always)]
    pub fn warps(&self) -> u32 {
        self.machine.warps()
    }

    /// Runs `f` in every warp, and waits until all have done it. One `bar.sync`.
    ///
    /// The closure is given its warp, and cannot have the block:
    /// ```compile_fail,E0500
    /// # use splitzip_kernels::tile::Block;
    /// fn wrong(block: &mut Block) {
    ///     block.each_warp(|warp| if warp.number() == 0 { block.each_warp(|_| {}) });
    /// }
    /// ```
    #[inline(always)]
    pub fn each_warp(&mut self, f: impl Fn(&Warp)) {
        self.machine.each_warp(|number, program| f(&Warp { program: Program::of(program), number }));
    }

    /// Memory for `N` elements, 4 bytes each, of the `block_shared` bytes of the kernel. What it holds at first is anything.
    ///
    /// # Panics
    /// `block_shared` has not as many bytes left. Where the kernel is compiled for a GPU, that is a panic path that `nvptx-builder` refuses.
    #[inline(always)]
    pub fn array<T: Element, const N: usize>(&mut self) -> BlockArray<T, N> {
        let start = self.taken;
        self.taken += N as u32 * 4;
        assert!(
            self.taken <= self.machine.bytes(),
            "the arrays of the block need more bytes than it has: raise `block_shared`"
        );
        BlockArray(self.machine.shared().at(start), PhantomData)
    }

    /// An element of an array, for all warps alike. It waits until all have read it. One `bar.sync`.
    #[inline(always)]
    pub fn read<T: Element, const N: usize>(&mut self, array: BlockArray<T, N>, index: u32) -> T {
        let value = array.element(index);
        self.machine.barrier();
        value
    }
}

/// `N` elements in the memory of a block.
///
/// The rule: an element that is written in one [`Block::each_warp`] is read by the other warps in a later one, and nobody else writes it there. Breaking
/// it is no danger to memory, but what is read then differs from run to run; the PTX interpreter of `nvptx-builder` finds it.
#[derive(Clone, Copy)]
pub struct BlockArray<T, const N: usize>(Shared, PhantomData<T>);

impl<T: Element, const N: usize> BlockArray<T, N> {
    #[inline(always)]
    fn element(self, index: u32) -> T {
        if index < N as u32 { T::from_word(self.0.at(index * 4).load32()) } else { T::ZERO }
    }

    /// An element, the same for all lanes; 0 behind the end.
    #[inline(always)]
    pub fn get(self, _: &Warp, index: u32) -> T {
        self.element(index)
    }

    /// Writes an element, on which all lanes agree; nothing behind the end.
    #[inline(always)]
    pub fn set(self, _: &Warp, index: u32, value: T) {
        for lane in arch::lanes() {
            if lane == 0 && index < N as u32 {
                self.0.at(index * 4).store32(value.to_word())
            }
        }
    }

    /// Element `first + l` for lane `l`; `fill` behind the end.
    #[inline(always)]
    pub fn load(self, _: &Warp, first: u32, fill: T) -> Tile<T> {
        generate(|lane| {
            let index = first.saturating_add(lane);
            if index < N as u32 { T::from_word(self.0.at(index * 4).load32()) } else { fill }
        })
    }

    /// Writes element `first + l` from lane `l`; nothing behind the end.
    #[inline(always)]
    pub fn store(self, _: &Warp, first: u32, tile: &Tile<T>) {
        for lane in arch::lanes() {
            let index = first.saturating_add(lane);
            if index < N as u32 {
                self.0.at(index * 4).store32(tile.at(lane).to_word())
            }
        }
    }
}
