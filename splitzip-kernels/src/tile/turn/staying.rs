//! Turns of a block that stays: programs that code, one that counts, and one that places.
//!
//! A group is coded in one turn and placed two turns later, so nobody waits for what was only just asked for; the memory of a program holds the
//! parts of three turns. The coding programs leave their words and go on; they wait, if at all, for a message about two turns ago. The counter adds the words
//! up, publishes them and draws the groups to come. The placer finds where the parts of a counted group start, however long that takes: the counter does not
//! wait for it. (One bookkeeper for both gave 0.908, 0.863, 0.884 of a copy for `w4`, `w3`, `w2x3`; two give 0.957, 0.912, 0.938. With the books in the
//! hands of a coding program, and barriers of the block, `w4` spent 44 % of its time at those.)
//!
//! A placer asks once, a turn after its group was counted, and then with pauses: one that asks without a pause takes a third of the speed of all,
//! for the words that it waits for have to pass its questions.
//!
//! Every group leaves its words in a counting tree (by group, 32, 1024 and 32768 groups), so what comes before a group is one trip to memory. Groups are
//! numbers drawn from a counter, so whoever is waited for is running: blocks may start in any order, and any number of launches at once.
//!
//! The last bookkeeper that leaves zeroes the tree and steps the launch number, which tells words of groups from those of earlier launches.

use super::{Ended, InOrder, Order, PartsOut, Placement, Records, Seats, TURN_BYTES, Turns};
use crate::arch::{self, Shared};
use crate::stream::{ENTRY_WORDS, GROUP};
use crate::tile::{GroupSums, Part, Program, Tile, Update, generate};

// Block memory, and barriers: three of each, by slots. Turn `t` has slot `t % 3`.
const ENTRIES: u32 = 0; // 3 x 16 x u32: entries of the chunks
const PLACES: u32 = 192; // 3 x 16 x {words before the part in its group, its words}
const MESSAGE: u32 = 576; // 3 x {u64: where the parts of the group go, the group three turns later, -}
const CHECKSUMS: u32 = 624; // 3 x 16 x u32: checksums of the chunks, if they are wanted
const COUNTED: u32 = 1; // barriers: everybody has left their words
const TOLD: u32 = 4; // barriers: places and message are there
const SUMMED: u32 = 7; // barrier: everybody has added to the sums of channels

/// The group that a block works on.
#[derive(Clone, Copy)]
pub struct StayingTurn {
    order: *mut u8,
    seats: Seats,
    groups: u32,
    group: u32,
    slot: u32,
    round: u32,
    /// Bit 0: the turn before had a group; bit 1: the one before that.
    earlier: u32,
    launch: u32,
    rank: u32,
    block: Shared,
    start: Update<8>,
    ended: Ended,
}

impl Turns for StayingTurn {
    const STAYS: bool = true;

    #[inline(always)]
    fn enter<R: Records>(
        program: &Program,
        groups: u32,
        seats: Seats,
        order: Order,
        start: Update<8>,
        records: R,
    ) -> Self {
        let machine = program.machine();
        let (rank, block, order) = (machine.rank(), machine.block_shared(), order.0);
        if rank == seats.programs {
            for lane in arch::lanes() {
                if lane == 0 {
                    // SAFETY: the header, checked by the launcher.
                    let first = unsafe { arch::take32(order, 1) };
                    block.at(MESSAGE + 8).store32(first);
                }
            }
            if R::PREPARED_BYTES != 0 {
                program.sync();
                let first = machine.uniform(block.at(MESSAGE + 8).load32());
                if first < groups {
                    records.prepare(program, first, block.at(seats.prepared_at()));
                }
            }
        }
        // SAFETY: the header.
        let [launch, magic] = unsafe { arch::load_shared64(order.add(8)) };
        if seats.channels && rank == 0 {
            crate::unroll!(slot < 2 => GroupSums::clear(sums_at(block, slot as u32)));
        }
        machine.sync_block();
        StayingTurn {
            order,
            seats,
            groups: if machine.uniform(magic) == Order::MAGIC { groups } else { 0 },
            // The slot of the first message is used again when the second turn was counted.
            group: machine.uniform(block.at(MESSAGE + 8).load32()),
            slot: 0,
            round: 0,
            earlier: 0,
            launch,
            rank,
            block,
            start,
            ended: Ended { here: 0, words: 0 },
        }
    }

    /// The last two turns of a block are for groups that are not placed yet; no program has a chunk then.
    #[inline(always)]
    fn has_group(&self) -> bool {
        self.group < self.groups || self.earlier != 0
    }

    #[inline(always)]
    fn seat(&self) -> (u32, u32) {
        (self.group, self.seats.seat(self.rank, self.round))
    }

    #[inline(always)]
    fn prepared<R: Records>(&self, _: &Program, _: R) -> Shared {
        self.prepared_slot::<R>(self.slot)
    }

    #[inline(always)]
    fn part(&self, program: &Program) -> Part {
        self.seats.part(program, self.slot, self.round)
    }

    #[inline(always)]
    fn sums(&self, _: &Program, is_whole: bool, channels: u32) -> GroupSums {
        GroupSums::of_group(sums_at(self.block, self.slot), is_whole, channels)
    }

    /// Nobody reads the sums of the turn before any more when all have added to those of this one.
    #[inline(always)]
    fn sum_up(&self, program: &Program, sums: GroupSums, own: &Tile<[u32; 4]>) {
        sums.add(own);
        program.machine().wait_among(SUMMED, self.seats.programs);
        if self.rank == 1 {
            GroupSums::clear(sums_at(self.block, following(following(self.slot))));
        }
    }

    #[inline(always)]
    fn keep_checksum<R: Records>(&self, _: &Program, _: R, sum: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                self.checksum(self.seats.seat(self.rank, self.round)).store32(sum);
            }
        }
    }

    #[inline(always)]
    fn count<R: Records>(&mut self, program: &Program, _: R, entry: u32) {
        // Once more after the last group, to say that it was.
        if self.group < self.groups || self.earlier & 1 != 0 {
            for lane in arch::lanes() {
                if lane == 0 {
                    self.entry(self.seats.seat(self.rank, self.round)).store32(entry);
                }
            }
            if self.round + 1 == self.seats.rounds() {
                program.sync();
                program.machine().arrive(COUNTED + self.slot);
            }
        }
    }

    /// Places the parts of two turns ago.
    #[inline(always)]
    fn next<R: Records>(&mut self, program: &Program, _: R, _: PartsOut, _: Update<8>) {
        self.round += 1;
        if self.round < self.seats.rounds() {
            return;
        }
        let (machine, oldest) = (program.machine(), following(self.slot));
        program.sync();
        machine.wait(TOLD + oldest);
        let [low, high, next, _] = self.block.at(MESSAGE + oldest * 16).load128();
        if self.earlier & 2 != 0 {
            let group = PartsOut(((high as u64) << 32 | low as u64) as *mut u8);
            let mut round = 0;
            while round < self.seats.rounds() {
                let [before, words] = self.place_of(oldest, self.seats.seat(self.rank, round)).load64();
                // SAFETY: the frame has room for every part.
                unsafe { self.seats.part(program, oldest, round).copy_to(words, group.at(before as u64)) };
                round += 1;
            }
            // The next parts are put together where these were.
            program.sync();
        }
        self.round = 0;
        self.earlier = (self.earlier << 1 | (self.group < self.groups) as u32) & 3;
        self.group = machine.uniform(next);
        self.slot = oldest;
    }

    #[inline(always)]
    fn keeps_books(&self) -> bool {
        self.rank >= self.seats.programs
    }

    #[inline(always)]
    fn keep_books<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut) {
        if self.group >= self.groups {
            return;
        }
        if self.rank == self.seats.programs {
            self.keep_counts(program, records);
        } else {
            self.keep_places(program, records, parts);
        }
    }

    #[inline(always)]
    fn ended(&self) -> Ended {
        self.ended
    }

    #[inline(always)]
    fn leave(&self, program: &Program) {
        if self.groups == 0 || !self.keeps_books() {
            return;
        }
        program.sync();
        let finished = generate(|lane| {
            // SAFETY: the header.
            if lane == 0 { unsafe { arch::finish32(self.order.add(4), 1) } } else { 0 }
        });
        if program.sum(&finished) + 1 == program.machine().block_index().1 * InOrder::BOOKKEEPERS {
            program.sync();
            self.clean(program);
        }
    }
}

/// The slot of the next turn, and of two turns ago.
#[inline(always)]
fn following(slot: u32) -> u32 {
    if slot == 2 { 0 } else { slot + 1 }
}

/// The sums of channels of a turn.
#[inline(always)]
fn sums_at(block: Shared, slot: u32) -> Shared {
    block.at(TURN_BYTES + slot * GroupSums::BYTES)
}

impl StayingTurn {
    #[inline(always)]
    fn place_of(&self, slot: u32, rank: u32) -> Shared {
        self.block.at(PLACES + slot * 128 + rank * 8)
    }

    /// Counts every group of the block, and draws the ones to come: as late as can be, since whoever draws one holds up all later ones until it is counted.
    #[inline(always)]
    fn keep_counts<R: Records>(&mut self, program: &Program, records: R) {
        let machine = program.machine();
        let mut next = program.sum(&self.draw());
        self.tell_next(program, records, following(self.slot), next);
        loop {
            machine.wait(COUNTED + self.slot);
            // The message of the turn before this one.
            let message = following(following(self.slot));
            if self.group >= self.groups {
                return self.tell_next(program, records, message, next);
            }
            let entries = self.entries();
            let (before, total) = program.scan(&generate(|lane| entries.at(lane) & ENTRY_WORDS));
            if records.want_checksums() {
                let sums = generate(|lane| self.checksum(lane % GROUP).load32());
                records.add_checksums(program, self.group, 0, GROUP, &sums);
            }
            for lane in arch::lanes() {
                self.publish(lane, total);
            }
            let drawn = self.draw();
            let (directory, group) = records.of_group(self.group);
            for lane in arch::lanes() {
                if lane < GROUP {
                    let words = entries.at(lane) & ENTRY_WORDS;
                    self.place_of(self.slot, lane).store64([before.at(lane), words]);
                    directory.store_entry_in_lane(group * GROUP + lane, entries.at(lane));
                }
            }
            self.group = next;
            next = program.sum(&drawn);
            self.tell_next(program, records, message, next);
            self.slot = following(self.slot);
        }
    }

    /// Places every group of the block, each when the next one is counted: by then the words of all groups before it are mostly there.
    #[inline(always)]
    fn keep_places<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut) {
        let (machine, base) = (program.machine(), self.start.load64(0));
        machine.arrive(TOLD + 1);
        machine.arrive(TOLD + 2);
        machine.wait(COUNTED + self.slot);
        while self.group < self.groups {
            let slot = following(self.slot);
            machine.wait(COUNTED + slot);
            // Told three turns ago, or that there is none.
            let next = machine.uniform(self.block.at(MESSAGE + slot * 16 + 8).load32());
            let mut asked = generate(|lane| self.look(lane));
            while program.any(&asked.slot(1)) {
                arch::pause();
                asked = generate(|lane| self.look(lane));
            }
            let start = base + program.sum(&asked.slot(0)) as u64;
            records.store_start(self.group, start);
            let to = parts.at(start).0 as u64;
            for lane in arch::lanes() {
                if lane == 0 {
                    self.block.at(MESSAGE + self.slot * 16).store64([to as u32, (to >> 32) as u32]);
                }
            }
            if self.group + 1 == self.groups {
                let words = self.entries();
                let words = program.sum(&generate(|lane| words.at(lane) & ENTRY_WORDS));
                self.ended = Ended { here: 1, words: start + words as u64 };
            }
            program.sync();
            machine.arrive(TOLD + self.slot);
            self.slot = slot;
            self.group = next;
        }
    }

    /// Where a program leaves its entry.
    #[inline(always)]
    fn entry(&self, seat: u32) -> Shared {
        self.block.at(ENTRIES + self.slot * 64 + seat * 4)
    }

    /// Where a program leaves the checksum of its chunk.
    #[inline(always)]
    fn checksum(&self, seat: u32) -> Shared {
        self.block.at(CHECKSUMS + self.slot * 64 + seat * 4)
    }

    /// The entries that programs have left, in 16 lanes.
    #[inline(always)]
    fn entries(&self) -> Tile<u32> {
        generate(|lane| if lane < GROUP { self.entry(lane).load32() } else { 0 })
    }

    /// Draws a group, in lane 0.
    #[inline(always)]
    fn draw(&self) -> Tile<u32> {
        generate(|lane| {
            // SAFETY: the header.
            if lane == 0 { unsafe { arch::take32(self.order, 1) } } else { 0 }
        })
    }

    /// What was prepared for the turn with this slot.
    #[inline(always)]
    fn prepared_slot<R: Records>(&self, slot: u32) -> Shared {
        self.block.at(self.seats.prepared_at() + slot * R::PREPARED_BYTES)
    }

    /// Completes a message. (Nobody reads what was prepared for the turn that had this slot any more: its programs have counted the turn after it.)
    #[inline(always)]
    fn tell_next<R: Records>(&self, program: &Program, records: R, slot: u32, next: u32) {
        if R::PREPARED_BYTES != 0 && next < self.groups {
            records.prepare(program, next, self.prepared_slot::<R>(slot));
        }
        for lane in arch::lanes() {
            if lane == 0 {
                self.block.at(MESSAGE + slot * 16 + 8).store32(next);
            }
        }
        program.sync();
        program.machine().arrive(TOLD + slot);
    }

    /// Level 1 to 3 of the tree: words by 32, 1024, 32768 groups. Level 0: by group.
    #[inline(always)]
    fn level(&self, level: u32) -> *mut u8 {
        let sums = |level: u32| (self.groups + ((1 << (5 * level)) - 1)) >> (5 * level);
        let before = match level {
            1 => 0,
            2 => sums(1),
            3 => sums(1) + sums(2),
            _ => sums(1) + sums(2) + sums(3),
        };
        self.order.wrapping_add(Order::HEADER_BYTES as usize + before as usize * 8)
    }

    /// Adds the words of this group to the tree: one lane a level, as many as the tensor needs.
    #[inline(always)]
    fn publish(&self, lane: u32, words: u32) {
        let group = self.group;
        // SAFETY: the group exists.
        unsafe {
            if lane == 0 {
                arch::store_shared64(self.level(0).add(group as usize * 8), [words, self.launch]);
            } else if lane <= 3 && (self.groups - 1) >> (5 * lane) != 0 {
                let level = match lane {
                    1 => self.level(1),
                    2 => self.level(2),
                    _ => self.level(3),
                };
                arch::add64(level.add((group >> (5 * lane)) as usize * 8), 1 << 32 | words as u64);
            }
        }
    }

    /// The words of all groups before this one, or what of them is known, and what is missing. Four loads a lane, one trip.
    #[inline(always)]
    fn look(&self, lane: u32) -> [u32; 2] {
        let (mut words, mut missing) = (0, 0);
        crate::unroll!(level < 4 => {
            let first = self.group >> (5 * level as u32);
            let full = if level == 0 { self.launch } else { 1 << (5 * level as u32) };
            // Below the first of the numbers that level `level + 1` counts together. There are at most 32 on the top level.
            let base = if level == 3 { 0 } else { first & !31 };
            if base + lane < first {
                let at = self.level(level as u32).wrapping_add((base + lane) as usize * 8);
                // SAFETY: an earlier group exists.
                let [w, known] = unsafe { arch::load_shared64(at) };
                words += w;
                missing |= known ^ full;
            }
        });
        [words, missing]
    }

    /// Makes the order ready for the next launch.
    #[inline(always)]
    fn clean(&self, program: &Program) {
        let (from, to) = (self.level(1), self.level(0));
        let words = (to as usize - from as usize) as u32 / 8;
        for lane in arch::lanes() {
            let mut at = lane;
            while at < words {
                // SAFETY: the levels above that of groups.
                unsafe { arch::store64(from.add(at as usize * 8), [0, 0]) }
                at += 32;
            }
        }
        program.sync();
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the header.
                unsafe {
                    arch::store64(self.order, [0, 0]);
                    arch::store64(self.order.add(8), [self.launch + 1, Order::MAGIC]);
                }
            }
        }
    }
}
