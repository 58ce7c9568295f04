//! A program of several warps: a loop over them.

use super::{Program, Shared};

/// The loop that runs a program of several warps, one after the other.
pub struct Block {
    memory: *mut u8,
    index: u64,
    level: u32,
    warps: u32,
    own_bytes: u32,
    bytes: u32,
}

impl Block {
    /// The block with this number: `warps` warps, each with `own_bytes` of memory, and `bytes` for all of them.
    ///
    /// # Safety
    /// `memory` is valid for all of that and aligned to 64; this machine has the features of `level`.
    #[inline(always)]
    pub unsafe fn on_cpu(
        index: u64,
        memory: *mut u8,
        level: u32,
        warps: u32,
        own_bytes: u32,
        bytes: u32,
    ) -> Self {
        Block { memory, index, level, warps, own_bytes, bytes }
    }

    /// The number of this block in the grid.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.index as u32
    }

    /// Its warps.
    #[inline(always)]
    pub fn warps(&self) -> u32 {
        self.warps
    }

    /// The memory that its warps have in common, behind that of each.
    #[inline(always)]
    pub fn shared(&self) -> Shared {
        Shared(self.memory).at(self.warps * self.own_bytes)
    }

    /// Bytes of it.
    #[inline(always)]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Runs `f` in every warp with its number; then all have done so. Here: one after the other.
    #[inline(always)]
    pub fn each_warp(&mut self, f: impl Fn(u32, Program)) {
        for number in 0..self.warps {
            let own = Shared(self.memory).at(number * self.own_bytes);
            let index = self.index as u32 * self.warps + number;
            f(number, Program { own, index, level: self.level });
        }
    }

    /// All warps come by before any goes on.
    #[inline(always)]
    pub fn barrier(&mut self) {}
}
