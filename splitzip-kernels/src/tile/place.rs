//! Placement in chunk order.
//!
//! Variable parts stand in chunk order in a frame, but a program does not know how many words come before its own. So it
//! writes its part to a slot of fixed size in a scratch and adds its words to [`Totals`]; a second launch finds every group's place in one trip
//! and moves the parts. No program ever waits for another one: a launch may be aborted, blocks may start in any order, many may run at once.

use super::{Chunk, Program, Tile, generate};
use crate::arch;
use crate::launch::{Extent, Size, memory_arguments};
use crate::stream::{GROUP, groups};

/// Words of variable parts: by group, by 32 groups, by 1024 groups. Zero before a tensor is encoded.
///
/// With complete sums the start of any group is three loads a lane and one sum away, however large the tensor is.
#[derive(Clone, Copy)]
pub struct Totals(*mut u8);

impl Totals {
    const FAN: u64 = 32;

    /// Bytes for a tensor of so many elements.
    pub const fn bytes_for(elements: u64) -> u64 {
        let groups = groups(elements);
        let bytes = 4 * (groups + groups.div_ceil(Self::FAN) + groups.div_ceil(Self::FAN * Self::FAN));
        bytes.div_ceil(16) * 16
    }

    #[inline(always)]
    fn level(self, groups: u64, level: u32) -> *mut u8 {
        let groups = groups as usize;
        let words = match level {
            0 => 0,
            1 => groups,
            _ => groups + groups.div_ceil(Self::FAN as usize),
        };
        self.0.wrapping_add(words * 4)
    }

    /// Adds the words of a chunk. A block has 16 programs, so that it is a group, and all of them call this: one addition
    /// a level and group instead of 16. (With one a chunk, 512 MiB of KV took 303 instead of 260 microseconds, zeros 524 instead of 271.)
    #[inline(always)]
    pub fn add(self, program: &Program, groups: u64, chunk: &Chunk, words: u32) {
        let group = (chunk.index / GROUP) as usize;
        program.machine().sum_of_block(words, |words| {
            for lane in arch::lanes() {
                // One lane a level.
                if lane < 3 && words != 0 {
                    let at = self.level(groups, lane).wrapping_add((group >> (5 * lane)) * 4);
                    // SAFETY: the group of the block's first chunk exists.
                    unsafe { arch::add32(at, words) }
                }
            }
        });
    }

    /// The words of all groups before this one.
    #[inline(always)]
    pub fn before(self, program: &Program, groups: u64, group: u32) -> u64 {
        let whole = generate(|lane| {
            let (mut sum, mut at) = (0u32, lane);
            while at < group >> 10 {
                // SAFETY: an earlier group exists.
                sum = sum.wrapping_add(unsafe { arch::load32(self.level(groups, 2).add(at as usize * 4)) });
                at += 32;
            }
            sum
        });
        let rest = generate(|lane| {
            let (fine, coarse) = (group & 31, group >> 5 & 31);
            let mut sum = if lane < fine {
                // SAFETY: an earlier group exists.
                unsafe { arch::load32(self.level(groups, 0).add(((group & !31) + lane) as usize * 4)) }
            } else {
                0
            };
            if lane < coarse {
                let at = (group >> 5 & !31) + lane;
                // SAFETY: an earlier group exists.
                sum += unsafe { arch::load32(self.level(groups, 1).add(at as usize * 4)) };
            }
            sum
        });
        program.sum_wide(&whole) + program.sum_wide(&rest)
    }
}

impl Extent for Totals {
    fn bytes(size: Size) -> u64 {
        Totals::bytes_for(size.elements)
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [] Totals = Totals; }
/// The variable parts of a frame while parts are moved to their places.
#[derive(Clone, Copy)]
pub struct Placed(*mut u8);

impl Extent for Placed {
    fn bytes(_: Size) -> u64 {
        0 // measured by the caller: it depends on what was coded
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] Placed = Placed; }

impl Placed {
    /// Parts up to so many words are moved by one lane each: nearly all of real KV.
    const SHORT: u32 = 8;

    /// Moves the parts of a group from their slots to `start` on. Lane `i` < 16 of `words` is the length of part `i`, of `before` the sum of those before it.
    ///
    /// Long parts are moved by all lanes, one round of 32 words of every part at a time; all loads of a round stand before its stores, so that 16
    /// of them are in flight.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn move_group(
        self,
        program: &Program,
        from: SlotsIn,
        slot_words: u32,
        group: u32,
        start: u64,
        words: &Tile<u32>,
        before: &Tile<u32>,
    ) {
        let longest = program.max(words);
        let slots = from.0.wrapping_add(group as usize * GROUP as usize * slot_words as usize * 4);
        let to = self.0.wrapping_add(start as usize * 4);
        if longest <= Self::SHORT {
            for lane in arch::lanes() {
                let (words, before, mut at) = (words.at(lane), before.at(lane), 0);
                let slot = slots.wrapping_add((lane * slot_words) as usize * 4);
                while at < words {
                    // SAFETY: below the length of a part in its slot; the frame has room for every part.
                    unsafe {
                        arch::store32(
                            to.add((before + at) as usize * 4),
                            arch::load32(slot.add(at as usize * 4)),
                        )
                    };
                    at += 1;
                }
            }
            return;
        }
        let mut round = 0;
        while round < longest {
            let mut lengths = [0; 16];
            crate::unroll!(i < 16 => lengths[i] = program.pick(words, i as u32));
            let loaded = generate(|lane| {
                let (mut out, at) = ([0; 16], round + lane);
                crate::unroll!(i < 16 => if at < lengths[i] {
                    // SAFETY: below the length of a part in its slot.
                    out[i] = unsafe { arch::load32(slots.add((i as u32 * slot_words + at) as usize * 4)) }
                });
                out
            });
            let mut starts = [0; 16];
            crate::unroll!(i < 16 => starts[i] = program.pick(before, i as u32));
            for lane in arch::lanes() {
                let (loaded, at) = (loaded.at(lane), round + lane);
                crate::unroll!(i < 16 => if at < lengths[i] {
                    // SAFETY: the frame has room for every part.
                    unsafe { arch::store32(to.add((starts[i] + at) as usize * 4), loaded[i]) }
                });
            }
            round += 32;
        }
    }
}

/// Slots that are read, of any dtype and scheme.
#[derive(Clone, Copy)]
pub struct SlotsIn(*const u8);

impl Extent for SlotsIn {
    fn bytes(_: Size) -> u64 {
        0 // written by an encode that had them checked
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { source [] SlotsIn = SlotsIn; }
