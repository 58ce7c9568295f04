//! Bases: the channel bases of a group, from the mean exponent of every channel in it.

use crate::dtype::*;
use crate::kernel;
use crate::launch::{Chunks, Groups};
use crate::scheme::low_of;
use crate::stream::{CHUNK, GROUP};
use crate::tile::{ChannelBasesOut, Chunk, Fill, In, Program, Tail, TailArea, map};

/// Writes the bases of a group: `channels` bytes. `channels` is a multiple of 8 and at most 1024; the window has `values` values, of which the
/// mean exponent gets number `mean_value`.
#[kernel(dtype = [Bf16, Fp16, E4m3, E5m2], warps = 4, blocks = 5, shared = 4096)]
pub fn bases<D: Dtype>(
    program: &Program,
    grid: Groups,
    words: In<D::Words>,
    channels: u32,
    mean_value: u32,
    values: u32,
    bases: ChannelBasesOut,
    tail: Tail,
) {
    let group = program.index();
    let start = group as u64 * (CHUNK * GROUP) as u64;
    if start >= grid.elements {
        return;
    }
    let sums = program.channel_sums(channels);
    let mut i = 0;
    while i < GROUP {
        let chunk = Chunk::at(group * GROUP + i, Chunks { elements: grid.elements }, tail);
        if chunk.valid != 0 {
            let input = words.chunk(program, &chunk, Fill::Zeros, TailArea::Words);
            sums.add(&chunk, channels, &map(&input.load(), D::exponents));
        }
        i += 1;
    }
    program.sync();
    // Elements of a channel in this group: `start` is where the group starts in its row.
    let elements = (grid.elements - start).min((CHUNK * GROUP) as u64) as u32;
    let channels = channels.max(1);
    let first = Chunk::at(group * GROUP, Chunks { elements: grid.elements }, tail).channel(channels);
    bases.store(group, channels, |channel| {
        let before = (channel + channels - first) % channels;
        let count = if before < elements { (elements - before).div_ceil(channels) } else { 0 };
        let mean = sums.sum(channel) / count.max(1);
        low_of::<D>(mean, mean_value, values)
    });
}
