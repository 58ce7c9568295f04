//! Sums of exponents by channel, of the group that the programs of a block code together.
//!
//! There are 64, 128 or 256 channels, so the four runs of a lane have the same eight of them, and a channel has 256, 128 or 64 elements: their sum fits a
//! half, and a lane has four words to add to the memory of the block. Then the programs wait for each other, once a group, with their elements in
//! registers. (A launch of its own reads the tensor once more: encoding was 0.38 of a copy for `w2x3` with it, and is 0.90; any other number of channels
//! still has it, and the last group, if it is short.)

use super::{Program, Tile, generate};
#[cfg(target_arch = "nvptx64")]
use crate::arch;
use crate::arch::Shared;
use crate::stream::{CHUNK, GROUP};

/// Where the programs of a block sum up the channels of their group.
#[derive(Clone, Copy)]
pub struct GroupSums {
    at: Shared,
    /// Elements of a channel are 2 to the power of this; 0: nothing is summed up.
    shift: u32,
}

impl GroupSums {
    /// Bytes for the sums of a group.
    pub(in crate::tile) const BYTES: u32 = 512;

    /// Is a group of rows of `channels` summed up by who codes it? What is not (short groups too) has bases from before.
    #[inline(always)]
    pub const fn takes(channels: u32) -> bool {
        channels == 64 || channels == 128 || channels == 256
    }

    /// Nothing is summed up.
    #[inline(always)]
    pub fn none(program: &Program) -> Self {
        GroupSums { at: program.shared(), shift: 0 }
    }

    /// Is there anything to sum up?
    #[inline(always)]
    pub fn are_wanted(self) -> bool {
        self.shift != 0
    }

    /// Lanes that have different channels.
    #[inline(always)]
    pub(in crate::tile) fn lanes(self) -> u32 {
        (CHUNK * GROUP / 8) >> self.shift
    }

    #[inline(always)]
    fn of_lane(self, lane: u32) -> Shared {
        self.at.at((lane & (self.lanes() - 1)) * 4)
    }

    /// The means of the channels of every lane, a half each. After everybody has added.
    #[inline(always)]
    pub fn means(self) -> Tile<[u32; 4]> {
        let mask = (0xffff >> self.shift) * 0x0001_0001;
        generate(|lane| {
            let (own, mut out) = (self.of_lane(lane), [0; 4]);
            crate::unroll!(i < 4 => out[i] = own.at(i as u32 * 128).load32() >> self.shift & mask);
            out
        })
    }
}

/// Where programs of a block run together.
#[cfg(target_arch = "nvptx64")]
impl GroupSums {
    /// For a group, at `at`: summed up if it is whole.
    #[inline(always)]
    pub(in crate::tile) fn of_group(at: Shared, is_whole: bool, channels: u32) -> Self {
        let takes = is_whole && Self::takes(channels);
        GroupSums {
            at,
            shift: if takes { (CHUNK * GROUP).trailing_zeros() - channels.trailing_zeros() } else { 0 },
        }
    }

    /// Adds the sums of every lane: eight channels, a half each.
    #[inline(always)]
    pub(in crate::tile) fn add(self, sums: &Tile<[u32; 4]>) {
        for lane in arch::lanes() {
            let (own, sums) = (self.of_lane(lane), sums.at(lane));
            crate::unroll!(i < 4 => own.at(i as u32 * 128).add32(sums[i]));
        }
    }

    /// Makes room for sums at `at`.
    #[inline(always)]
    pub(in crate::tile) fn clear(at: Shared) {
        for lane in arch::lanes() {
            crate::unroll!(i < 2 => at.at(i as u32 * 256 + lane * 8).store64([0, 0]));
        }
    }
}
