//! Memory that is not a plane: tables, the directory, variable parts, totals.
//!
//! Variable parts stand in chunk order in a frame, but a program does not know how many words come before its own. So it
//! writes its part to a slot of fixed size in a scratch and adds its words to [`Totals`]; a second launch finds every group's place in one trip
//! and moves the parts. No program ever waits for another one: a launch may be aborted, blocks may start in any order, many may run at once.

use super::bits::{from_planes, pack_nibbles, planes, unpack_nibbles};
use super::{Chunk, Mask, Program, TailArea, Tile, Words, generate, map, short};
use crate::arch;
use crate::dtype::Dtype;
use crate::launch::{
    Argument, ArgumentError, Extent, Kind, Source, Target, directory_bytes, memory_arguments,
};
use crate::scheme::Scheme;
use crate::stream::{CHUNK, ENTRY_WORDS, GROUP, RECORD_BYTES, RECORD_ENTRIES, chunks, groups};
use core::marker::PhantomData;

// ------------------------------------------------------------------------------------------------------ tables

/// `N` bytes that all programs read.
#[derive(Clone, Copy)]
pub struct Table<const N: usize>(pub(crate) *const u8);

impl<const N: usize> Extent for Table<N> {
    fn bytes(_: u64) -> u64 {
        N as u64
    }
    // The codebook of a tensor lies in the dynamic part of a frame, which starts at a multiple of 8.
    const ALIGN: u64 = 8;
}
memory_arguments! { source [const N: usize] Table<N> = Table; }

impl<const N: usize> Table<N> {
    /// Four words, the same for all lanes.
    #[inline(always)]
    pub fn words(self) -> [u32; 4] {
        // SAFETY: only tables of 16 bytes and more are asked, at an aligned address.
        let ([a, b], [c, d]) = unsafe { (arch::load64(self.0), arch::load64(self.0.add(8))) };
        [a, b, c, d]
    }

    /// Of a table of 256 counters (u64): keys of the exponents `8 lane` to `8 lane + 7`, larger for what is more frequent, of
    /// equals for what is smaller; 0 for exponents that do not exist. Counts are below 2^24.
    #[inline(always)]
    pub fn keys(self, exponents: u32) -> Tile<[u32; 8]> {
        generate(|lane| {
            let mut keys = [0; 8];
            crate::unroll!(i < 8 => {
                let exponent = lane * 8 + i as u32;
                // SAFETY: only a table of 2048 bytes is asked.
                let count = unsafe { arch::load32(self.0.add(exponent as usize * 8)) };
                keys[i] = if exponent < exponents { count << 8 | (255 - exponent) } else { 0 };
            });
            keys
        })
    }
}

/// Nothing: what schemes without a codebook are given.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Argument for Nothing {
    type Raw = u32;
    type Host<'a> = Nothing;
    const KIND: Kind = Kind::U32;
    #[inline(always)]
    unsafe fn from_raw(_: u32) -> Self {
        Nothing
    }
    fn slot(_: &Nothing) -> u64 {
        0
    }
    fn raw(_: &Nothing) -> u32 {
        0
    }
    fn check(_: &Nothing, _: &'static str, _: u64) -> Result<(), ArgumentError> {
        Ok(())
    }
}

/// Channel bases: a byte for every channel of every group.
#[derive(Clone, Copy)]
pub struct ChannelBases(*const u8);

impl Extent for ChannelBases {
    fn bytes(_: u64) -> u64 {
        0 // measured by the caller, who knows the number of channels
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { source [] ChannelBases = ChannelBases; }

impl ChannelBases {
    /// No bases: nobody asks for any.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        ChannelBases(core::ptr::null())
    }

    /// The bases of the elements of a chunk, a byte each, in the order of the elements of each run.
    #[inline(always)]
    pub fn of(self, chunk: &Chunk, channels: u32) -> Tile<[u32; 8]> {
        let group = self.0.wrapping_add((chunk.index / GROUP) as usize * channels as usize);
        // Channels are a multiple of 8, so a run never crosses the end of a row.
        let channels = channels.max(1);
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
pub struct ChannelBasesOut(*mut u8);

impl Extent for ChannelBasesOut {
    fn bytes(_: u64) -> u64 {
        0 // as `ChannelBases`
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { target [] ChannelBasesOut = ChannelBasesOut; }

impl ChannelBasesOut {
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

/// `N` bytes that a program writes, or that many add to.
#[derive(Clone, Copy)]
pub struct Update<const N: usize>(pub(crate) *mut u8);

impl<const N: usize> Extent for Update<N> {
    fn bytes(_: u64) -> u64 {
        N as u64
    }
    const ALIGN: u64 = if N < 8 { 4 } else { 8 };
}
memory_arguments! { target [const N: usize] Update<N> = Update; }

impl<const N: usize> Update<N> {
    /// A double word, the same for all lanes.
    #[inline(always)]
    pub fn load64(self, at: u32) -> u64 {
        // SAFETY: the callers stay within `N`.
        let [low, high] = unsafe { arch::load64(self.0.add(at as usize)) };
        (high as u64) << 32 | low as u64
    }

    /// Stores a double word that all lanes agree on.
    #[inline(always)]
    pub fn store64(self, at: u32, value: u64) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the callers stay within `N`.
                unsafe { arch::store64(self.0.add(at as usize), [value as u32, (value >> 32) as u32]) }
            }
        }
    }

    /// Stores a word that all lanes agree on.
    #[inline(always)]
    pub fn store32(self, at: u32, value: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the callers stay within `N`.
                unsafe { arch::store32(self.0.add(at as usize), value) }
            }
        }
    }

    /// Adds a number that all lanes agree on to a double word; other programs may add to it as well.
    #[inline(always)]
    pub fn add64(self, at: u32, value: u64) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the callers stay within `N`.
                unsafe { arch::add64(self.0.add(at as usize), value) }
            }
        }
    }

    /// Two words of every lane, at `8 lane`.
    #[inline(always)]
    pub fn store_pairs(self, pairs: &Tile<[u32; 2]>) {
        for lane in arch::lanes() {
            // SAFETY: only updates of 256 bytes are asked.
            unsafe { arch::store64(self.0.add(lane as usize * 8), pairs.at(lane)) }
        }
    }

    /// Calls for every set bit of a lane's `mask`: byte `rank` becomes `value(lane, bit)`; ranks of a lane start at its `first`.
    #[inline(always)]
    pub fn store_bytes(
        self,
        program: &Program,
        mask: &Mask,
        first: &Tile<u32>,
        value: impl Fn(u32, u32) -> u32,
    ) {
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            if rank < N as u32 {
                // SAFETY: below `N`.
                unsafe { arch::store8(self.0.add(rank as usize), value(lane, bit)) }
            }
        });
    }
}

/// A word in which a kernel says what was wrong with its input; 0 before.
#[derive(Clone, Copy)]
pub struct Status(*mut u8);

impl Extent for Status {
    fn bytes(_: u64) -> u64 {
        4
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] Status = Status; }

impl Status {
    /// The frame is damaged: see `docs/format.md`, section 10.
    pub const DAMAGED: u32 = 1;

    /// Reports a problem. Many programs may; any of them is as good as the others.
    #[inline(always)]
    pub fn report(self, problem: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: checked by the launcher.
                unsafe { arch::store32(self.0, problem) }
            }
        }
    }
}

// --------------------------------------------------------------------------------------------------- directory

/// The directory of a tensor while it is written.
#[derive(Clone, Copy)]
pub struct Directory(*mut u8);

/// The directory of a tensor that is read.
#[derive(Clone, Copy)]
pub struct DirectoryIn(*const u8);

impl Extent for Directory {
    fn bytes(elements: u64) -> u64 {
        directory_bytes(elements)
    }
    const ALIGN: u64 = 8;
}
impl Extent for DirectoryIn {
    fn bytes(elements: u64) -> u64 {
        directory_bytes(elements)
    }
    const ALIGN: u64 = 8;
}
memory_arguments! { target [] Directory = Directory; }
memory_arguments! { source [] DirectoryIn = DirectoryIn; }

#[inline(always)]
fn entry_at(chunk: u32) -> usize {
    (chunk / GROUP) as usize * RECORD_BYTES as usize + (RECORD_ENTRIES + chunk % GROUP * 2) as usize
}

impl Directory {
    /// Writes the entry of a chunk.
    #[inline(always)]
    pub fn store_entry(self, chunk: &Chunk, entry: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the chunk exists.
                unsafe { arch::store16(self.0.add(entry_at(chunk.index)), entry) }
            }
        }
    }

    /// Lane `i` < 16: the entry of chunk `i` of a group that has `exist` chunks; the others get zero, here and in memory.
    #[inline(always)]
    pub fn complete_entries(self, group: u32, exist: u32) -> Tile<u32> {
        let record = self.0.wrapping_add(group as usize * RECORD_BYTES as usize);
        generate(|lane| {
            if lane >= GROUP {
                return 0;
            }
            let p = record.wrapping_add((RECORD_ENTRIES + lane * 2) as usize);
            // SAFETY: the record has 16 entries.
            unsafe {
                if lane < exist {
                    arch::load16(p)
                } else {
                    arch::store16(p, 0);
                    0
                }
            }
        })
    }

    /// Writes where the parts of a group start, in words.
    #[inline(always)]
    pub fn store_start(self, group: u32, start: u64) {
        Update::<8>(self.0.wrapping_add(group as usize * RECORD_BYTES as usize)).store64(0, start);
    }
}

impl DirectoryIn {
    /// The entry of a chunk, the same for all lanes.
    #[inline(always)]
    pub fn entry(self, chunk: &Chunk) -> u32 {
        // SAFETY: the chunk exists.
        unsafe { arch::load16(self.0.add(entry_at(chunk.index))) }
    }

    /// The word where the part of a chunk starts: the start of its group plus the words of the chunks before it.
    #[inline(always)]
    pub fn start(self, program: &Program, chunk: &Chunk) -> u64 {
        let record = self.0.wrapping_add((chunk.index / GROUP) as usize * RECORD_BYTES as usize);
        let rank = chunk.index % GROUP;
        let before = generate(|lane| {
            if lane < rank {
                // SAFETY: an earlier chunk of the group exists.
                (unsafe { arch::load16(record.add((RECORD_ENTRIES + lane * 2) as usize)) }) & ENTRY_WORDS
            } else {
                0
            }
        });
        // SAFETY: the record exists; it is aligned to 8.
        let [low, high] = unsafe { arch::load64(record) };
        ((high as u64) << 32 | low as u64).wrapping_add(program.sum(&before) as u64)
    }
}

// ----------------------------------------------------------------------------------------------- variable parts

/// A scratch with room for the largest variable part of every chunk of `D` x `S`.
#[derive(Clone, Copy)]
pub struct Slots<D, S>(*mut u8, PhantomData<(D, S)>);

impl<D: Dtype, S: Scheme> Slots<D, S> {
    /// Words of a slot: a raw chunk fills it.
    pub const WORDS: u32 = (D::EXPONENT_BITS - S::CODE_BITS) * 32;

    /// The slot of a chunk.
    #[inline(always)]
    pub fn of(self, chunk: &Chunk) -> Slot {
        Slot(self.0.wrapping_add(chunk.index as usize * (Self::WORDS as usize * 4)))
    }
}

impl<D: Dtype, S: Scheme> Extent for Slots<D, S> {
    fn bytes(elements: u64) -> u64 {
        chunks(elements) * Self::WORDS as u64 * 4
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [D: Dtype, S: Scheme] Slots<D, S> = |p| Slots(p, PhantomData); }

/// The variable part of one chunk while it is written.
#[derive(Clone, Copy)]
pub struct Slot(*mut u8);

impl Slot {
    /// One word.
    #[inline(always)]
    pub fn store_uniform(self, value: u32) {
        Update::<4>(self.0).store32(0, value);
    }

    /// Word `at`.
    #[inline(always)]
    pub(crate) fn store_word(self, at: u32, value: u32) {
        // SAFETY: the caller stays within the slot.
        unsafe { arch::store32(self.0.add(at as usize * 4), value) }
    }

    /// The raw part of a chunk: the bits `S::CODE_BITS` to `D::EXPONENT_BITS` of its exponents.
    #[inline(always)]
    pub fn store_raw<D: Dtype, S: Scheme, const LEVEL: u32>(
        self,
        program: &Program,
        chunk: &Chunk,
        exponents: &Tile<[u32; 8]>,
    ) {
        let bits = D::EXPONENT_BITS - S::CODE_BITS;
        if bits == 4 && S::PACKED {
            let high = map(exponents, |e| {
                let mut high = [0; 8];
                crate::unroll!(i < 8 => high[i] = e[i] >> 4);
                pack_nibbles(high)
            });
            return self.store(&chunk.cleared_past_end(&high));
        }
        if S::PACKED {
            return self.store_high_bits(chunk, exponents);
        }
        let planes = map(exponents, planes);
        let whole = chunk.is_whole();
        let to = if whole { self.0 } else { chunk.tail.area(TailArea::Rest) };
        for lane in arch::lanes() {
            let planes = planes.at(lane);
            crate::unroll!(i < 8 => if i as u32 >= S::CODE_BITS && (i as u32) < D::EXPONENT_BITS {
                let at = (i as u32 - S::CODE_BITS) * 128 + lane * 4;
                // SAFETY: a raw chunk fits.
                unsafe { arch::store32(to.add(at as usize), planes[i]) }
            });
        }
        if whole {
            return;
        }
        program.sync();
        let bytes = raw_words(chunk.valid, bits) * 4;
        for lane in arch::lanes() {
            let mut at = lane;
            while at < bytes {
                // SAFETY: a raw chunk fits, and the copy holds whole planes.
                unsafe {
                    arch::store8(self.0.add(at as usize), short::to_element_order(to, bits, chunk.valid, at))
                };
                at += 32;
            }
        }
    }

    /// Bit 4 of every byte, in element order: the raw part of `w4` for exponents of 5 bits. A run is one byte.
    #[inline(always)]
    fn store_high_bits(self, chunk: &Chunk, bytes: &Tile<[u32; 8]>) {
        let end = raw_words(chunk.valid, 1) * 4;
        for lane in arch::lanes() {
            let (bytes, runs) = (bytes.at(lane), chunk.runs(lane));
            let gather = |x: u32| (x >> 4 & 1) | (x >> 11 & 2) | (x >> 18 & 4) | (x >> 25 & 8);
            crate::unroll!(g < 4 => {
                let at = g as u32 * 32 + lane;
                let byte = (gather(bytes[2 * g]) | gather(bytes[2 * g + 1]) << 4) & ((1 << runs[g]) - 1);
                if at < end {
                    // SAFETY: a raw chunk fits.
                    unsafe { arch::store8(self.0.add(at as usize), byte) }
                }
            });
        }
    }

    /// A plane.
    #[inline(always)]
    pub fn store<W: Words>(self, tile: &Tile<W>) {
        for lane in arch::lanes() {
            // SAFETY: a raw chunk fits.
            unsafe { tile.at(lane).write(self.0, lane) }
        }
    }

    /// A word for every element under the mask, from word `first` of each lane.
    #[inline(always)]
    pub fn store_words(self, program: &Program, mask: &Mask, first: &Tile<u32>, value: impl Fn(u32) -> u32) {
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            // SAFETY: the caller has counted them.
            unsafe { arch::store32(self.0.add(rank as usize * 4), value(Chunk::element(lane, bit))) }
        });
    }
}

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
    fn bytes(elements: u64) -> u64 {
        Totals::bytes_for(elements)
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [] Totals = Totals; }

/// The variable parts of a frame while parts are moved to their places.
#[derive(Clone, Copy)]
pub struct Placed(*mut u8);

impl Extent for Placed {
    fn bytes(_: u64) -> u64 {
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
    fn bytes(_: u64) -> u64 {
        0 // written by an encode that had them checked
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { source [] SlotsIn = SlotsIn; }

/// The variable parts of a frame that is decoded: `words` words, from a word number on never read past.
#[derive(Clone, Copy)]
pub struct Parts(*const u8);

impl Extent for Parts {
    fn bytes(_: u64) -> u64 {
        0 // every part is checked against the word count that goes along
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { source [] Parts = Parts; }

impl Parts {
    /// The part that starts at a word. The caller has checked that it lies inside.
    #[inline(always)]
    pub fn at(self, start: u64) -> Parts {
        Parts(self.0.wrapping_add(start as usize * 4))
    }

    /// One word.
    #[inline(always)]
    pub fn word(self, at: u32) -> u32 {
        // SAFETY: inside, by the caller's check.
        unsafe { arch::load32(self.0.add(at as usize * 4)) }
    }

    /// Lane `l`: word `l + at`, if it is below `words`; else `otherwise`.
    #[inline(always)]
    pub fn words(self, at: u32, words: u32, otherwise: u32) -> Tile<u32> {
        generate(|lane| if at + lane < words { self.word(at + lane) } else { otherwise })
    }

    /// The exponents of a raw chunk, from the plane of its codes and this part.
    #[inline(always)]
    pub fn raw_exponents<D: Dtype, S: Scheme, const LEVEL: u32>(
        self,
        chunk: &Chunk,
        codes: &Tile<S::Codes>,
    ) -> Tile<[u32; 8]> {
        let bits = D::EXPONENT_BITS - S::CODE_BITS;
        let words = raw_words(chunk.valid, bits);
        if bits == 4 && S::PACKED {
            let high = generate(|lane| {
                let mut out = [0; 4];
                crate::unroll!(g < 4 => {
                    let at = g as u32 * 32 + lane;
                    if at < words { out[g] = self.word(at) }
                });
                out
            });
            return map((codes, &high), |(low, high): (S::Codes, [u32; 4])| {
                let (low, high, mut out) = (S::low_bits(low), unpack_nibbles(high), [0; 8]);
                crate::unroll!(i < 8 => out[i] = low[i] | high[i] << 4);
                out
            });
        }
        if S::PACKED {
            let high = generate(|lane| {
                let mut out = [0; 8];
                let spread = |x: u32| (x & 1) << 4 | (x & 2) << 11 | (x & 4) << 18 | (x & 8) << 25;
                crate::unroll!(g < 4 => {
                    let at = g as u32 * 32 + lane;
                    // SAFETY: below the words of the part.
                    let byte = if at < words * 4 { unsafe { arch::load8(self.0.add(at as usize)) } } else { 0 };
                    out[2 * g] = spread(byte);
                    out[2 * g + 1] = spread(byte >> 4)
                });
                out
            });
            return map((codes, &high), |(low, mut high): (S::Codes, [u32; 8])| {
                let low = S::low_bits(low);
                crate::unroll!(i < 8 => high[i] |= low[i]);
                high
            });
        }
        let whole = chunk.is_whole();
        let high = generate(|lane| {
            let (mut out, exist) = ([0; 8], chunk.exist(lane));
            crate::unroll!(i < 8 => if i as u32 >= S::CODE_BITS && (i as u32) < D::EXPONENT_BITS {
                let plane = i as u32 - S::CODE_BITS;
                out[i] = if whole {
                    self.word(plane * 32 + lane)
                } else {
                    // SAFETY: the part has the words of so many elements.
                    unsafe { short::from_element_order(self.0, bits, exist, lane, plane) }
                }
            });
            out
        });
        map((codes, &high), |(low, high): (S::Codes, [u32; 8])| {
            let (low, mut high) = (S::low_bits(low), from_planes(high));
            crate::unroll!(i < 8 => high[i] |= low[i]);
            high
        })
    }
}

/// A checksum of 32 bits for every chunk.
#[derive(Clone, Copy)]
pub struct ChunkSums(*mut u8);

impl Extent for ChunkSums {
    fn bytes(_: u64) -> u64 {
        0 // optional: a flag goes along
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] ChunkSums = ChunkSums; }

impl ChunkSums {
    /// Stores the checksum of a chunk.
    #[inline(always)]
    pub fn store(self, chunk: &Chunk, sum: u32) {
        Update::<4>(self.0.wrapping_add(chunk.index as usize * 4)).store32(0, sum);
    }
}

/// Elements of a chunk, as a length of variable parts.
#[inline(always)]
pub(crate) const fn raw_words(valid: u32, bits: u32) -> u32 {
    if valid == CHUNK { bits * 32 } else { (valid * bits).div_ceil(32) }
}
