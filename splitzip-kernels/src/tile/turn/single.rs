//! The turn of a block that takes one group and ends: parts stand as blocks come, so nobody waits for another block.
//!
//! One atomic a block says where its parts go, and how many blocks were there before: the last one knows where the parts of the tensor end, without
//! a fence. A block of 8 programs with two chunks each has its barriers once for two chunks, and six of them on a multiprocessor hide each other's. (`w2x3`,
//! `w2x2x3`: 0.966 and 0.975 of a copy; blocks of 16 programs 0.942 and 0.880, blocks that stay 0.936 and 0.847; one with a fence, `w2x3`, 0.59.)

use super::{Ended, Order, PartsOut, Records, Seats, TURN_BYTES, Turns};
use crate::arch::{self, Shared};
use crate::stream::{ENTRY_WORDS, GROUP};
use crate::tile::{GroupSums, Part, Program, Tile, Update, generate};

const ENTRIES: u32 = 0; // 16 x u32: entries of the chunks
const GOES_TO: u32 = 64; // u64: where the parts of the group go, or 0
const CHECKSUMS: u32 = 128; // 16 x u32: checksums of the chunks, if they are wanted

/// The group of a block.
#[derive(Clone, Copy)]
pub struct SingleTurn {
    order: *mut u8,
    seats: Seats,
    start: Update<8>,
    groups: u32,
    group: u32,
    round: u32,
    rank: u32,
    block: Shared,
    taken: Tile<[u32; 2]>,
    ended: Ended,
}

impl Turns for SingleTurn {
    const STAYS: bool = false;

    #[inline(always)]
    fn enter<R: Records>(
        program: &Program,
        groups: u32,
        seats: Seats,
        order: Order,
        start: Update<8>,
        _: R,
    ) -> Self {
        let machine = program.machine();
        if seats.channels && machine.rank() == 0 {
            GroupSums::clear(machine.block_shared().at(TURN_BYTES));
        }
        SingleTurn {
            order: order.0,
            seats,
            start,
            groups,
            group: machine.block_index().0,
            round: 0,
            rank: machine.rank(),
            block: machine.block_shared(),
            taken: generate(|_| [0, 0]),
            ended: Ended { here: 0, words: 0 },
        }
    }

    #[inline(always)]
    fn has_group(&self) -> bool {
        self.round < self.seats.rounds()
    }

    #[inline(always)]
    fn seat(&self) -> (u32, u32) {
        (self.group, self.seats.seat(self.rank, self.round))
    }

    /// Made now: a batch is never encoded with parts as they come.
    #[inline(always)]
    fn prepared<R: Records>(&self, program: &Program, _: R) -> Shared {
        program.shared()
    }

    #[inline(always)]
    fn part(&self, program: &Program) -> Part {
        self.seats.part(program, 0, self.round)
    }

    #[inline(always)]
    fn sums(&self, _: &Program, is_whole: bool, channels: u32) -> GroupSums {
        GroupSums::of_group(self.block.at(TURN_BYTES), is_whole, channels)
    }

    /// The first barrier costs little: it passes while the elements are under way.
    #[inline(always)]
    fn sum_up(&self, program: &Program, sums: GroupSums, own: &Tile<[u32; 4]>) {
        program.machine().sync_block();
        sums.add(own);
        program.machine().sync_block();
    }

    #[inline(always)]
    fn keep_checksum<R: Records>(&self, _: &Program, _: R, sum: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                self.block.at(CHECKSUMS + self.seats.seat(self.rank, self.round) * 4).store32(sum);
            }
        }
    }

    /// After the last chunk, the first program asks for a place; it puts its part together meanwhile.
    #[inline(always)]
    fn count<R: Records>(&mut self, program: &Program, records: R, entry: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                self.block.at(ENTRIES + self.seats.seat(self.rank, self.round) * 4).store32(entry);
            }
        }
        if self.round + 1 < self.seats.rounds() {
            return;
        }
        program.machine().sync_block();
        if self.rank == 0 {
            let entries = self.entries();
            let total = program.sum(&generate(|lane| entries.at(lane) & ENTRY_WORDS));
            let (directory, group) = records.of_group(self.group);
            for lane in arch::lanes() {
                if lane < GROUP {
                    directory.store_entry_in_lane(group * GROUP + lane, entries.at(lane));
                }
            }
            self.taken = generate(|lane| {
                // SAFETY: the header, checked by the launcher.
                if lane == 0 { unsafe { arch::take64(self.order.add(16), [total, 1]) } } else { [0, 0] }
            });
        }
    }

    #[inline(always)]
    fn next<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut, _: Update<8>) {
        self.round += 1;
        if self.round < self.seats.rounds() {
            return;
        }
        if self.rank == 0 {
            self.place(program, records, parts);
            if records.want_checksums() {
                let sums = generate(|lane| self.block.at(CHECKSUMS + lane % GROUP * 4).load32());
                records.add_checksums(program, self.group, 0, GROUP, &sums);
            }
        }
        program.machine().sync_block();
        let [low, high] = self.block.at(GOES_TO).load64();
        let to = (high as u64) << 32 | low as u64;
        if to == 0 {
            return;
        }
        let words = self.entries();
        let words = generate(|lane| words.at(lane) & ENTRY_WORDS);
        let mut round = 0;
        while round < self.seats.rounds() {
            let seat = self.seats.seat(self.rank, round);
            let before = program.sum(&generate(|lane| if lane < seat { words.at(lane) } else { 0 }));
            let (own, to) = (program.pick(&words, seat), PartsOut(to as *mut u8).at(before as u64));
            // SAFETY: the frame has room for every part.
            unsafe { self.seats.part(program, 0, round).copy_to(own, to) };
            round += 1;
        }
    }

    #[inline(always)]
    fn keeps_books(&self) -> bool {
        false
    }

    #[inline(always)]
    fn keep_books<R: Records>(&mut self, _: &Program, _: R, _: PartsOut) {}

    #[inline(always)]
    fn ended(&self) -> Ended {
        self.ended
    }

    /// Nobody has anything to ask any more when all blocks have asked.
    #[inline(always)]
    fn leave(&self, _: &Program) {
        if self.ended.here != 0 {
            for lane in arch::lanes() {
                if lane == 0 {
                    // SAFETY: the header.
                    unsafe { arch::store64(self.order.add(16), [0, Order::NOBODY]) }
                }
            }
        }
    }
}

impl SingleTurn {
    /// The entries of the group, in 16 lanes.
    #[inline(always)]
    fn entries(&self) -> Tile<u32> {
        generate(|lane| if lane < GROUP { self.block.at(ENTRIES + lane * 4).load32() } else { 0 })
    }

    /// Says where the parts go; nowhere, if the order is not prepared.
    #[inline(always)]
    fn place<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut) {
        let mut to = 0;
        let earlier = program.sum(&self.taken.slot(1)).wrapping_sub(Order::NOBODY);
        if earlier < self.groups {
            let start = self.start.load64(0) + program.sum(&self.taken.slot(0)) as u64;
            to = parts.at(start).0 as u64;
            records.store_start(self.group, start);
            if earlier + 1 == self.groups {
                let words = self.entries();
                let words = program.sum(&generate(|lane| words.at(lane) & ENTRY_WORDS));
                self.ended = Ended { here: 1, words: start + words as u64 };
            }
        }
        for lane in arch::lanes() {
            if lane == 0 {
                self.block.at(GOES_TO).store64([to as u32, (to >> 32) as u32]);
            }
        }
    }
}
