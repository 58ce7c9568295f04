//! A program of several warps: the block that this thread is in.

use super::{Program, Shared, warp};
use core::arch::nvptx::{_block_idx_x, _syncthreads};

/// The block that runs a program of several warps.
pub struct Block {
    warp: Program,
    bytes: u32,
}

impl Block {
    /// The block of this warp: `WARPS` warps, each with `SHARED` bytes of its own, and `BLOCK` bytes for all of them.
    ///
    /// # Safety
    /// As for [`Program::on_gpu`].
    #[inline(always)]
    pub unsafe fn on_gpu<const WARPS: u32, const SHARED: u32, const BLOCK: u32>(zero: u32) -> Self {
        // SAFETY: by contract.
        Block { warp: unsafe { Program::on_gpu::<WARPS, SHARED, BLOCK>(zero) }, bytes: BLOCK }
    }

    /// The number of this block in the grid.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        // SAFETY: reads a special register.
        unsafe { _block_idx_x() as u32 }
    }

    /// Its warps.
    #[inline(always)]
    pub fn warps(&self) -> u32 {
        self.warp.warps
    }

    /// The memory that its warps have in common.
    #[inline(always)]
    pub fn shared(&self) -> Shared {
        self.warp.block
    }

    /// Bytes of it.
    #[inline(always)]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Runs `f` in every warp with its number; then all have done so. Here: in this one, then a barrier.
    #[inline(always)]
    pub fn each_warp(&mut self, f: impl Fn(u32, Program)) {
        f(warp(), self.warp);
        self.barrier();
    }

    /// All warps come by before any goes on.
    #[inline(always)]
    pub fn barrier(&mut self) {
        // SAFETY: the body of a kernel that has a block branches on what all threads of it agree on, by contract of the language.
        unsafe { _syncthreads() };
    }
}
