//! Turns where programs run in order: a part stands where the one before it ends.
//!
//! The order holds the words so far. Threads that share a tensor have an order and a place for parts each, and put them together afterwards.

use super::{Ended, Order, PartsOut, Seats, Turns};
use crate::arch;
use crate::launch::Queue;
use crate::stream::{ENTRY_WORDS, GROUP};
use crate::tile::{Chunk, Directory, GroupSums, Part, Program, Tail, Tile, Update};

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
    /// The chunk with the number of the program. `start` says how many words are before this tensor.
    #[inline(always)]
    fn enter(program: &Program, _: Queue, seats: Seats, order: Order, start: Update<8>) -> Self {
        let (order, index) = (order.0, program.index());
        let (base, parts_at) = (start.load64(0), seats.parts_at);
        SequentialTurn { order, index, base, words: 0, parts_at, done: false }
    }

    #[inline(always)]
    fn has_group(&self) -> bool {
        !self.done
    }

    #[inline(always)]
    fn chunk(&self, queue: Queue, tail: Tail) -> Chunk {
        Chunk::at(self.index, queue.chunks(), tail)
    }

    #[inline(always)]
    fn part(&self, program: &Program) -> Part {
        Part::new(program, self.parts_at)
    }

    /// None: the other chunks of the group do not run now.
    #[inline(always)]
    fn sums(&self, program: &Program, _: Queue, _: u32) -> GroupSums {
        GroupSums::none(program)
    }

    #[inline(always)]
    fn sum_up(&self, _: &Program, _: GroupSums, _: &Tile<[u32; 4]>) {}

    /// Stores the entry of the chunk, and says how many words its part has.
    #[inline(always)]
    fn count(&mut self, _: &Program, directory: Directory, entry: u32) {
        directory.store_entry_in_lane(self.index, entry);
        self.words = entry & ENTRY_WORDS;
    }

    /// Places the part. `end` gets the words of the frame so far.
    #[inline(always)]
    fn next(&mut self, program: &Program, directory: Directory, parts: PartsOut, end: Update<8>) {
        let start = self.so_far();
        if self.index.is_multiple_of(GROUP) {
            directory.store_start(self.index / GROUP, self.base + start);
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
    fn keep_books(&mut self, _: &Program, _: Directory, _: PartsOut) {}

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
