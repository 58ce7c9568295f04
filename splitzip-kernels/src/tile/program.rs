//! Who runs a kernel body: a program, with its collectives.

use super::{Chunk, Mask, OUTSIDE, Outside, Table, Tile, Update, Words, generate, lane_hash, map};
use crate::arch::{self, Shared};

/// One warp working on one chunk (or on one group, or alone: the kernel's grid says).
#[derive(Clone, Copy)]
pub struct Program(arch::Program, Outside);

impl Program {
    /// For the entries that `#[kernel]` writes.
    ///
    /// # Safety
    /// See [`arch::Program`].
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub unsafe fn on_gpu<const WARPS: u32, const SHARED: u32, const BLOCK: u32>(zero: u32) -> Self {
        // SAFETY: by contract.
        Program(unsafe { arch::Program::on_gpu::<WARPS, SHARED, BLOCK>(zero) }, OUTSIDE)
    }

    /// For the CPU runs that `#[kernel]` writes.
    ///
    /// # Safety
    /// See [`arch::Program`].
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub unsafe fn on_cpu(index: u64, memory: *mut u8, level: u32) -> Self {
        // SAFETY: by contract.
        Program(unsafe { arch::Program::on_cpu(index, memory, level) }, OUTSIDE)
    }

    /// A warp of a block.
    #[inline(always)]
    pub(crate) fn of(machine: arch::Program) -> Self {
        Program(machine, OUTSIDE)
    }

    /// The number of this program in the grid.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.0.index()
    }

    /// The number of this program among those that run at once, if none comes after another one: a place in memory that nobody else uses meanwhile.
    #[inline(always)]
    pub(crate) fn slot(&self) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        return self.index();
        // One after the other.
        #[cfg(not(target_arch = "nvptx64"))]
        return 0;
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> Shared {
        self.0.shared()
    }

    #[inline(always)]
    pub(crate) fn machine(&self) -> &arch::Program {
        &self.0
    }

    /// What lanes have written to memory before is seen by the other lanes after.
    #[inline(always)]
    pub fn sync(&self) {
        self.0.sync()
    }

    /// `value`, which is the same in all lanes, where it takes no register of the lanes. One `redux`.
    #[inline(always)]
    pub fn uniform(&self, value: u32) -> u32 {
        self.0.uniform(value)
    }

    /// Has any lane something else than 0? One `vote`.
    #[inline(always)]
    pub fn any(&self, flags: &Tile<u32>) -> bool {
        self.0.any(flags.lanes())
    }

    /// The sum over the lanes, modulo 2^32. One `redux`.
    #[inline(always)]
    pub fn sum(&self, values: &Tile<u32>) -> u32 {
        self.0.sum(values.lanes())
    }

    /// The sum over the lanes of values that need more than 32 bits together. Two `redux`.
    #[inline(always)]
    pub fn sum_wide(&self, values: &Tile<u32>) -> u64 {
        let low = self.sum(&map(values, |x| x & 0xffff));
        let high = self.sum(&map(values, |x| x >> 16));
        ((high as u64) << 16) + low as u64
    }

    /// The sum over the lanes of double words, modulo 2^64. Three `redux`.
    #[inline(always)]
    pub fn sum_pairs(&self, values: &Tile<[u32; 2]>) -> u64 {
        // Thirty-two times 2^27 fit a word.
        const LOW: u32 = (1 << 27) - 1;
        let piece = |from: u32| {
            self.sum(&map(values, |[low, high]| (((high as u64) << 32 | low as u64) >> from) as u32 & LOW))
        };
        let (low, middle, high) = (piece(0), piece(27), piece(54));
        (low as u64).wrapping_add((middle as u64) << 27).wrapping_add((high as u64) << 54)
    }

    /// What all programs of the block have, a lane each, and how many they are: for the first of them, nothing for the others. Every program of the
    /// block has to come here, also one without a chunk. Takes [`Program::GATHERED_BYTES`] of the memory of the block, from its start. One `bar.arrive`, or `bar.sync`.
    #[inline(always)]
    pub fn gather(&self, value: u32) -> Option<(Tile<u32>, u32)> {
        self.0.gather(value).map(|(values, programs)| (Tile::of(values), programs))
    }

    /// See [`Program::gather`].
    pub const GATHERED_BYTES: u32 = 128;

    /// The largest of the lanes. One `redux`.
    #[inline(always)]
    pub fn max(&self, values: &Tile<u32>) -> u32 {
        self.0.max(values.lanes())
    }

    /// Bits that are set, over all lanes.
    #[inline(always)]
    pub fn count(&self, mask: &Mask) -> u32 {
        self.sum(&map(mask, u32::count_ones))
    }

    /// The value of one lane, for all. One `shfl`.
    #[inline(always)]
    pub fn pick(&self, values: &Tile<u32>, lane: u32) -> u32 {
        self.0.pick(values.lanes(), lane)
    }

    /// The sum of the lanes before each, and of all. Five `shfl`, one `redux`.
    #[inline(always)]
    pub fn scan(&self, values: &Tile<u32>) -> (Tile<u32>, u32) {
        let (before, total) = self.0.scan(values.lanes());
        (Tile::of(before), total)
    }

    /// The same value, but known only when both tiles have arrived: what depends on it cannot be moved in front of their loads.
    ///
    /// Without it ptxas sinks a load whose value is needed late below the wait for an earlier one, which costs a trip to memory.
    /// Put it on the value that the first branch uses. Two instructions; nothing on a CPU.
    #[inline(always)]
    pub fn after<V: Words, W: Words>(&self, value: u32, first: &Tile<V>, second: &Tile<W>) -> u32 {
        let arrived = map((first, second), |(a, b)| a.one_of_each_load() ^ b.one_of_each_load());
        self.0.after(value, arrived.lanes())
    }

    /// Copies a table into the memory of the program, where [`Program::look_up_256`] wants it: every lane 8 bytes, so
    /// that no barrier of the block is needed. It takes 256 bytes of the program's memory, from `at` on.
    #[inline(always)]
    pub fn stage(&self, table: Table<256>, at: u32) -> StagedTable {
        let own = self.shared().at(at);
        for lane in arch::lanes() {
            // SAFETY: 256 bytes, checked by the launcher.
            own.at(lane * 8).store64(unsafe { arch::load64(table.0.add(lane as usize * 8)) });
        }
        self.sync();
        StagedTable(own)
    }

    /// Every byte of `x` replaced by that byte of a staged table. One `ld.shared` a byte.
    #[inline(always)]
    pub fn look_up_256<const N: usize>(&self, table: StagedTable, x: &Tile<[u32; N]>) -> Tile<[u32; N]> {
        Tile::of(self.0.look_up_256(table.0, x.lanes()))
    }

    /// Every nibble of `codes` replaced by that byte of a table of 16, in the order of the nibbles: word `g` gives words `2 g` and `2 g + 1`.
    #[inline(always)]
    pub fn look_up_16(&self, table: [u32; 4], codes: &Tile<[u32; 4]>) -> Tile<[u32; 8]> {
        Tile::of(self.0.look_up_16(table, codes.lanes()))
    }
}

impl Program {
    /// A hash of every lane's words: `mix` steps from a seed that differs between lanes, then a finish (`docs/format.md`, section 7).
    #[inline(always)]
    pub fn hash_lanes<W: Words>(&self, words: &Tile<W>, mix: impl Fn(W, u32) -> u32) -> Tile<u32> {
        generate(|lane| lane_hash(lane, |hash| mix(words.at(lane), hash)))
    }

    /// Puts four bytes a word into the memory of the program, in element order, to be patched there. Takes 1024 bytes.
    #[inline(always)]
    pub fn share_bytes(&self, bytes: &Tile<[u32; 8]>) -> SharedBytes {
        for lane in arch::lanes() {
            let (own, bytes) = (self.shared().at(lane * 8), bytes.at(lane));
            crate::unroll!(g < 4 => own.at(g as u32 * 256).store64([bytes[2 * g], bytes[2 * g + 1]]));
        }
        self.sync();
        SharedBytes(self.shared())
    }

    /// A sum for each of `channels` channels in the memory of the program, all zero. Takes 4 bytes a channel.
    #[inline(always)]
    pub fn channel_sums(&self, channels: u32) -> ChannelSums {
        for lane in arch::lanes() {
            let mut channel = lane;
            while channel < channels {
                self.shared().at(channel * 4).store32(0);
                channel += 32;
            }
        }
        self.sync();
        ChannelSums(self.shared())
    }

    /// 256 counters in the memory of the program, all zero. Takes 1024 bytes.
    #[inline(always)]
    pub fn bins(&self) -> Bins {
        for lane in arch::lanes() {
            let own = self.shared().at(lane * 8);
            crate::unroll!(i < 4 => own.at(i as u32 * 256).store64([0, 0]));
        }
        self.sync();
        Bins(self.shared())
    }
}

/// The bytes of a chunk in the memory of the program, in element order.
#[derive(Clone, Copy)]
pub struct SharedBytes(Shared);

impl SharedBytes {
    /// Replaces the byte of an element.
    #[inline(always)]
    pub(crate) fn set(self, element: u32, byte: u32) {
        self.0.at(element).store8(byte);
    }

    /// Replaces bytes: `element | byte << 16` a lane, nothing for a lane that says `!0`. Elements are below 1024.
    #[inline(always)]
    pub fn patch(self, records: &Tile<u32>) {
        for lane in arch::lanes() {
            let record = records.at(lane);
            if record != !0 {
                self.0.at(record & 1023).store8(record >> 16);
            }
        }
    }

    /// All of them.
    #[inline(always)]
    pub fn load(self, program: &Program) -> Tile<[u32; 8]> {
        program.sync();
        generate(|lane| {
            let (own, mut out) = (self.0.at(lane * 8), [0; 8]);
            crate::unroll!(g < 4 => {
                let run = own.at(g as u32 * 256).load64();
                out[2 * g] = run[0];
                out[2 * g + 1] = run[1];
            });
            out
        })
    }
}

/// Counters of exponents in the memory of a program.
#[derive(Clone, Copy)]
pub struct Bins(Shared);

impl Bins {
    /// Counts every byte.
    #[inline(always)]
    pub fn count(self, bytes: &Tile<[u32; 8]>) {
        for lane in arch::lanes() {
            let bytes = bytes.at(lane);
            crate::unroll!(i < 8 => {
                self.0.at((bytes[i] & 255) << 2).add32(1);
                self.0.at((bytes[i] >> 8 & 255) << 2).add32(1);
                self.0.at((bytes[i] >> 16 & 255) << 2).add32(1);
                self.0.at(bytes[i] >> 24 << 2).add32(1)
            });
        }
    }

    /// Counts the bytes of the elements of a short chunk.
    #[inline(always)]
    pub fn count_first(self, bytes: &Tile<[u32; 8]>, chunk: &Chunk) {
        for lane in arch::lanes() {
            let bytes = bytes.at(lane);
            crate::unroll!(i < 8 => {
                let first = (i as u32 / 2) << 8 | lane << 3 | (i as u32 & 1) << 2;
                crate::unroll!(b < 4 => if first + (b as u32) < chunk.valid {
                    self.0.at((bytes[i] >> (8 * b as u32) & 255) << 2).add32(1);
                })
            });
        }
    }

    /// Adds the counters to 256 double words.
    #[inline(always)]
    pub fn add_to(self, counts: Update<2048>) {
        for lane in arch::lanes() {
            crate::unroll!(i < 8 => {
                let bin = i as u32 * 32 + lane;
                let count = self.0.at(bin * 4).load32();
                if count != 0 {
                    // SAFETY: the launcher has checked 256 double words.
                    unsafe { arch::add64(counts.0.add(bin as usize * 8), count as u64) }
                }
            });
        }
    }
}

/// Where [`Program::stage`] has put a table.
#[derive(Clone, Copy)]
pub struct StagedTable(Shared);

/// Sums of exponents by channel, in the memory of a program.
#[derive(Clone, Copy)]
pub struct ChannelSums(Shared);

impl ChannelSums {
    /// Adds the bytes of a chunk, whose elements are rows of `channels` (a multiple of 8, so a run of 8 stays in a row). Elements that do not
    /// exist have byte 0.
    #[inline(always)]
    pub fn add(self, chunk: &Chunk, channels: u32, bytes: &Tile<[u32; 8]>) {
        let channels = channels.max(1);
        let first = chunk.channel(channels);
        for lane in arch::lanes() {
            let bytes = bytes.at(lane);
            crate::unroll!(g < 4 => {
                let channel = (first + ((g as u32) << 8 | lane << 3)) % channels;
                let own = self.0.at(channel * 4);
                crate::unroll!(b < 4 => {
                    own.at(b as u32 * 4).add32(bytes[2 * g] >> (8 * b as u32) & 255);
                    own.at(b as u32 * 4 + 16).add32(bytes[2 * g + 1] >> (8 * b as u32) & 255)
                })
            });
        }
    }

    /// The sum of a channel.
    #[inline(always)]
    pub fn sum(self, channel: u32) -> u32 {
        self.0.at(channel * 4).load32()
    }
}
