//! Turns where programs run in order: a part stands where the one before it ends.
//!
//! The order holds the words so far. Threads that share a tensor have an order and a place for parts each, and put them together afterwards.

use super::{Ended, Order, PartsOut, Records, Seats, Turns};
use crate::arch::{self, Shared};
use crate::stream::{ENTRY_WORDS, GROUP};
use crate::tile::{GroupSums, Part, Program, Tile, Update, generate};

/// The chunk that a program works on.
#[derive(Clone, Copy)]
pub struct SequentialTurn {
    order: *mut u8,
    index: u32,
    base: u64,
    words: u32,
    parts_at: u32,
    done: bool,
}

impl Turns for SequentialTurn {
    const STAYS: bool = true;

    /// The chunk with the number of the program. `start` says how many words are before this tensor.
    #[inline(always)]
    fn enter<R: Records>(
        program: &Program,
        _: u32,
        seats: Seats,
        order: Order,
        start: Update<8>,
        _: R,
    ) -> Self {
        let (order, index) = (order.0, program.index());
        let (base, parts_at) = (start.load64(0), seats.parts_at);
        SequentialTurn { order, index, base, words: 0, parts_at, done: false }
    }

    #[inline(always)]
    fn has_group(&self) -> bool {
        !self.done
    }

    #[inline(always)]
    fn seat(&self) -> (u32, u32) {
        (self.index / GROUP, self.index % GROUP)
    }

    /// Made now, in the memory of the program behind its part.
    #[inline(always)]
    fn prepared<R: Records>(&self, program: &Program, records: R) -> Shared {
        let to = program.shared().at(self.parts_at + Part::BYTES);
        records.prepare(program, self.index / GROUP, to);
        to
    }

    #[inline(always)]
    fn part(&self, program: &Program) -> Part {
        Part::new(program, self.parts_at)
    }

    /// None: the other chunks of the group do not run now.
    #[inline(always)]
    fn sums(&self, program: &Program, _: bool, _: u32) -> GroupSums {
        GroupSums::none(program)
    }

    #[inline(always)]
    fn sum_up(&self, _: &Program, _: GroupSums, _: &Tile<[u32; 4]>) {}

    #[inline(always)]
    fn keep_checksum<R: Records>(&self, program: &Program, records: R, sum: u32) {
        records.add_checksums(program, self.index / GROUP, self.index % GROUP, 1, &generate(|_| sum));
    }

    /// Stores the entry of the chunk, and says how many words its part has.
    #[inline(always)]
    fn count<R: Records>(&mut self, _: &Program, records: R, entry: u32) {
        let (directory, group) = records.of_group(self.index / GROUP);
        directory.store_entry_in_lane(group * GROUP + self.index % GROUP, entry);
        self.words = entry & ENTRY_WORDS;
    }

    /// Places the part. `end` gets the words of the frame so far.
    #[inline(always)]
    fn next<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut, end: Update<8>) {
        let start = self.so_far();
        if self.index.is_multiple_of(GROUP) {
            records.store_start(self.index / GROUP, self.base + start);
        }
        // SAFETY: the frame has room for every part.
        unsafe { self.part(program).copy_to(self.words, parts.at(self.base + start)) };
        let so_far = start + self.words as u64;
        // SAFETY: checked by the launcher.
        unsafe { arch::store64(self.order, [so_far as u32, (so_far >> 32) as u32]) }
        end.store64(0, self.base + so_far);
        self.done = true;
    }

    #[inline(always)]
    fn keeps_books(&self) -> bool {
        false
    }

    #[inline(always)]
    fn keep_books<R: Records>(&mut self, _: &Program, _: R, _: PartsOut) {}

    /// `end` has it already.
    #[inline(always)]
    fn ended(&self) -> Ended {
        Ended { here: 0, words: 0 }
    }

    #[inline(always)]
    fn leave(&self, _: &Program) {}
}

impl SequentialTurn {
    #[inline(always)]
    fn so_far(&self) -> u64 {
        // SAFETY: checked by the launcher.
        let [low, high] = unsafe { arch::load64(self.order) };
        (high as u64) << 32 | low as u64
    }
}
