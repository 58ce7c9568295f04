//! Channel bases: where the window of each channel of a group lies.

use super::{Chunk, GroupSums, Nothing, Tile, generate};
use crate::arch;
use crate::launch::{Extent, Size, memory_arguments};
use crate::stream::GROUP;

/// Channel bases: a byte for every channel of every group.
#[derive(Clone, Copy)]
pub struct ChannelBases(pub(in crate::tile) *const u8);

impl Extent for ChannelBases {
    fn bytes(_: Size) -> u64 {
        0 // measured by the caller, who knows the number of channels
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { source [] ChannelBases = ChannelBases; }

/// No bases: nobody asks for any.
impl From<Nothing> for ChannelBases {
    #[inline(always)]
    fn from(_: Nothing) -> Self {
        ChannelBases(core::ptr::null())
    }
}

impl ChannelBases {
    /// The eight bases that the runs of a lane have in common, a byte each, if [`GroupSums::takes`] so many channels; else nothing.
    #[inline(always)]
    pub fn of_lanes(self, chunk: &Chunk, channels: u32) -> Tile<[u32; 2]> {
        let group = self.0.wrapping_add((chunk.index / GROUP) as usize * channels as usize);
        let takes = GroupSums::takes(channels);
        generate(|lane| {
            let own = group.wrapping_add((lane << 3 & channels.wrapping_sub(1)) as usize);
            // SAFETY: the group has a byte for every channel, a multiple of 8 of them.
            if takes { unsafe { arch::load64(own) } } else { [0, 0] }
        })
    }

    /// The bases of the elements of a chunk, a byte each, in the order of the elements of each run.
    #[inline(always)]
    pub fn of(self, chunk: &Chunk, channels: u32) -> Tile<[u32; 8]> {
        let group = self.0.wrapping_add((chunk.index / GROUP) as usize * channels as usize);
        // Remainders: computed here, and not before for all. Channels are a multiple of 8, so a run never crosses the end of a row.
        let channels = arch::rarely(channels).max(1);
        let first = chunk.channel(channels);
        generate(|lane| {
            let mut out = [0; 8];
            crate::unroll!(g < 4 => {
                let channel = (first + ((g as u32) << 8 | lane << 3)) % channels;
                // SAFETY: the group has a byte for every channel; 8 of them are aligned to 8.
                let run = unsafe { arch::load64(group.add(channel as usize)) };
                out[2 * g] = run[0];
                out[2 * g + 1] = run[1]
            });
            out
        })
    }
}

/// Channel bases while they are computed.
#[derive(Clone, Copy)]
pub struct ChannelBasesOut(pub(in crate::tile) *mut u8);

impl Extent for ChannelBasesOut {
    fn bytes(_: Size) -> u64 {
        0 // as `ChannelBases`
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { target [] ChannelBasesOut = ChannelBasesOut; }

/// No bases: nobody stores any.
impl From<Nothing> for ChannelBasesOut {
    #[inline(always)]
    fn from(_: Nothing) -> Self {
        ChannelBasesOut(core::ptr::null_mut())
    }
}

impl ChannelBasesOut {
    /// As the decoder reads them, once they are there.
    #[inline(always)]
    pub fn known(self) -> ChannelBases {
        ChannelBases(self.0)
    }

    /// Stores the bases of a group that was summed up: eight a lane, a half each.
    #[inline(always)]
    pub fn store_summed(self, group: u32, sums: GroupSums, bases: &Tile<[u32; 4]>) {
        let lanes = sums.lanes();
        let group = self.0.wrapping_add((group * lanes) as usize * 8);
        for lane in arch::lanes() {
            if lane < lanes {
                let [a, b, c, d] = bases.at(lane);
                // SAFETY: the group has a byte for every channel.
                unsafe {
                    arch::store64(
                        group.add(lane as usize * 8),
                        [arch::even_bytes(a, b), arch::even_bytes(c, d)],
                    )
                };
            }
        }
    }

    /// Stores what `base` says of every channel of a group.
    #[inline(always)]
    pub fn store(self, group: u32, channels: u32, base: impl Fn(u32) -> u32) {
        let group = self.0.wrapping_add(group as usize * channels as usize);
        for lane in arch::lanes() {
            let mut channel = lane;
            while channel < channels {
                // SAFETY: the group has a byte for every channel.
                unsafe { arch::store8(group.add(channel as usize), base(channel)) };
                channel += 32;
            }
        }
    }
}
