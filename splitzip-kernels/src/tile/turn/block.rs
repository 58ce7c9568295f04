//! Turns of a block that stays: 16 programs that code, and one that keeps the books.
//!
//! A group is coded in one turn and placed two turns later, so nobody waits for what was only just asked for; the memory of a program holds three
//! parts. The coding programs leave their words and go on; they wait, if at all, for a message about two turns ago. The bookkeeper adds the words
//! up, publishes them, finds where the parts start, and draws the next group. (With the books in the hands of a coding program and two barriers of the
//! block a turn, `w4` spent 44 % of its time at those.)
//!
//! Every group leaves its words in a counting tree (by group, 32, 1024 and 32768 groups), so what comes before a group is one trip to memory. Groups are
//! numbers drawn from a counter, so whoever is waited for is running: blocks may start in any order, and any number of launches at once.
//!
//! The last block that leaves zeroes the tree and steps the launch number, which tells words of groups from those of earlier launches.

use super::{Ended, Order, PartsOut, Placement};
use crate::arch::{self, Shared};
use crate::launch::Queue;
use crate::stream::{ENTRY_WORDS, GROUP};
use crate::tile::{Chunk, Directory, Part, Program, Tail, Tile, Update, generate};
use core::marker::PhantomData;

/// No group.
const NONE: u32 = !0;

// Block memory, and barriers: three of each, by slots.
const WORDS: u32 = 0; // 3 x 16 x u32: words of the parts
const PLACES: u32 = 192; // 3 x 16 x {words before the part in its group, its words}
const MESSAGE: u32 = 576; // 3 x {words of the tensor before the group, the group three turns later}
const BASE: u32 = 600; // u64: words of the frame before this tensor
const COUNTED: u32 = 1; // barriers: everybody has left their words
const TOLD: u32 = 4; // barriers: the message is there

/// A group, and the slot of what belongs to it.
#[derive(Clone, Copy)]
struct Held {
    group: u32,
    slot: u32,
}

/// The group that a block works on, and the two before it.
#[derive(Clone, Copy)]
pub struct Turn<P> {
    order: *mut u8,
    groups: u32,
    now: Held,
    last: Held,
    oldest: Held,
    launch: u32,
    rank: u32,
    block: Shared,
    placement: PhantomData<P>,
}

impl<P: Placement> Turn<P> {
    /// The first group of this block. `start` says how many words are before this tensor.
    #[inline(always)]
    pub fn enter(program: &Program, queue: Queue, order: Order, start: Update<8>) -> Self {
        let machine = program.machine();
        let (rank, block, order) = (machine.rank(), machine.block_shared(), order.0);
        if rank == GROUP {
            let base = start.load64(0);
            for lane in arch::lanes() {
                if lane == 0 {
                    // SAFETY: the header, checked by the launcher.
                    let first = unsafe { arch::take32(order, 1) };
                    block.at(MESSAGE).store64([0, first]);
                    block.at(BASE).store64([base as u32, (base >> 32) as u32]);
                }
            }
        }
        // SAFETY: the header.
        let [launch, magic] = unsafe { arch::load_shared64(order.add(8)) };
        machine.sync_block();
        let groups = if machine.uniform(magic) == Order::MAGIC { queue.groups() } else { 0 };
        let held = |slot: u32| Held { group: NONE, slot };
        // The slot of the first message is used again when the first turn was counted.
        let now = Held { group: machine.uniform(block.at(MESSAGE).load64()[1]), slot: 0 };
        Turn {
            order,
            groups,
            now,
            last: held(2),
            oldest: held(1),
            launch,
            rank,
            block,
            placement: PhantomData,
        }
    }

    /// Is there a group, or one that is not placed yet? (The last two turns of a block are for those; no program has a chunk then.)
    #[inline(always)]
    pub fn has_group(&self) -> bool {
        self.now.group < self.groups || self.last.group != NONE || self.oldest.group != NONE
    }

    /// The chunk of this program in the group.
    #[inline(always)]
    pub fn chunk(&self, queue: Queue, tail: Tail) -> Chunk {
        Chunk::at(self.now.group * GROUP + self.rank, queue.chunks(), tail)
    }

    /// Where this program puts its part together.
    #[inline(always)]
    pub fn part(&self, program: &Program) -> Part {
        Part::new(program, self.now.slot * Part::BYTES)
    }

    /// Stores the entry of this program's chunk, and says how many words its part has. All programs of the block do.
    #[inline(always)]
    pub fn count(&self, program: &Program, directory: Directory, entry: u32) {
        if self.now.group < self.groups {
            for lane in arch::lanes() {
                if lane == 0 {
                    directory.store_entry_in_lane(self.now.group * GROUP + self.rank, entry);
                    self.block.at(WORDS + self.now.slot * 64 + self.rank * 4).store32(entry & ENTRY_WORDS);
                }
            }
            program.sync();
            program.machine().arrive(COUNTED + self.now.slot);
        }
    }

    /// Places the part of two turns ago, and goes on to the next group.
    #[inline(always)]
    pub fn next(&mut self, program: &Program, _: Directory, parts: PartsOut, _: Update<8>) {
        let (machine, oldest) = (program.machine(), self.oldest);
        program.sync();
        machine.wait(TOLD + oldest.slot);
        let [before, next] = self.block.at(MESSAGE + oldest.slot * 8).load64();
        if oldest.group != NONE {
            let [own, words] = self.place_of(oldest.slot, self.rank).load64();
            let to = parts.at(self.base() + (before + own) as u64);
            let part = Part::new(program, oldest.slot * Part::BYTES);
            // SAFETY: the frame has room for every part.
            part.copy_to(words, |at, word| unsafe { to.store(at, word) });
            // The next part is put together where this one was.
            program.sync();
        }
        self.turn(machine.uniform(next));
    }

    /// Is this the program that keeps the books, and codes nothing?
    #[inline(always)]
    pub fn keeps_books(&self) -> bool {
        self.rank == GROUP
    }

    /// Keeps the books until the block has no group left. The one who places the last group of the tensor learns how many words the frame has after it.
    #[inline(always)]
    pub fn keep_books(&mut self, program: &Program, directory: Directory) -> Ended {
        let machine = program.machine();
        let (mut following, mut total, mut taken) = (NONE, 0, generate(|_| 0u32));
        let mut ended = Ended { here: 0, words: 0 };
        if self.now.group < self.groups {
            following = self.draw(program);
            self.tell(program, self.oldest.slot, 0, following);
        }
        while self.now.group < self.groups || self.last.group != NONE {
            // The last group was published a turn ago, as those before it in other blocks: where it starts is mostly known at once. Asked here, answered below.
            let asked = generate(|lane| self.look(lane));
            let mut after = if P::IN_ORDER { 0 } else { self.draw(program) };
            let counted = total;
            let before_taken = program.sum(&taken);
            if self.now.group < self.groups {
                machine.wait(COUNTED + self.now.slot);
                (total, taken) = self.add_up(program);
            }
            // A group is drawn as late as can be: whoever draws one holds up all later ones until it is counted.
            if P::IN_ORDER {
                after = self.draw(program);
            }
            let (mut before, mut missing) = (program.sum(&asked.slot(0)), program.any(&asked.slot(1)));
            while P::IN_ORDER && missing {
                let found = generate(|lane| self.look(lane));
                (before, missing) = (program.sum(&found.slot(0)), program.any(&found.slot(1)));
            }
            if !P::IN_ORDER {
                before = before_taken;
            }
            self.tell(program, self.last.slot, before, after);
            if self.last.group != NONE {
                directory.store_start(self.last.group, self.base() + before as u64);
                if P::IN_ORDER && self.last.group + 1 == self.groups {
                    ended = Ended { here: 1, words: self.base() + (before + counted) as u64 };
                }
            }
            self.turn(following);
            following = after;
        }
        ended
    }

    /// The bookkeeper that is the last of all makes the order ready for the next launch. As they come, only it knows how many words there are.
    #[inline(always)]
    pub fn leave(&self, program: &Program) -> Ended {
        if self.groups == 0 {
            return Ended { here: 0, words: 0 };
        }
        program.sync();
        let finished = generate(|lane| {
            // SAFETY: the header.
            if lane == 0 { unsafe { arch::finish32(self.order.add(4), 1) } } else { 0 }
        });
        if program.sum(&finished) + 1 != program.machine().block_index().1 {
            return Ended { here: 0, words: 0 };
        }
        program.sync();
        // SAFETY: the header.
        let [words, _] = unsafe { arch::load_shared64(self.order.add(16)) };
        self.clean(program);
        Ended { here: 1, words: self.base() + words as u64 }
    }
}

impl<P: Placement> Turn<P> {
    #[inline(always)]
    fn place_of(&self, slot: u32, rank: u32) -> Shared {
        self.block.at(PLACES + slot * 128 + rank * 8)
    }

    #[inline(always)]
    fn base(&self) -> u64 {
        let [low, high] = self.block.at(BASE).load64();
        (high as u64) << 32 | low as u64
    }

    #[inline(always)]
    fn turn(&mut self, next: u32) {
        let slot = self.oldest.slot;
        self.oldest = self.last;
        self.last = Held {
            group: if self.now.group < self.groups { self.now.group } else { NONE },
            slot: self.now.slot,
        };
        self.now = Held { group: next, slot };
    }

    /// Draws a group.
    #[inline(always)]
    fn draw(&self, program: &Program) -> u32 {
        let number = generate(|lane| {
            // SAFETY: the header.
            if lane == 0 { unsafe { arch::take32(self.order, 1) } } else { 0 }
        });
        program.sum(&number)
    }

    /// Adds up the words of this turn and publishes them; or, as they come, takes their place.
    #[inline(always)]
    fn add_up(&self, program: &Program) -> (u32, Tile<u32>) {
        let slot = self.now.slot;
        let words =
            generate(
                |lane| if lane < GROUP { self.block.at(WORDS + slot * 64 + lane * 4).load32() } else { 0 },
            );
        let total = program.sum(&words);
        if P::IN_ORDER {
            for lane in arch::lanes() {
                self.publish(lane, total);
            }
        }
        let (before, _) = program.scan(&words);
        for lane in arch::lanes() {
            if lane < GROUP {
                self.place_of(slot, lane).store64([before.at(lane), words.at(lane)]);
            }
        }
        let taken = generate(|lane| {
            // SAFETY: the header.
            if !P::IN_ORDER && lane == 0 { unsafe { arch::take32(self.order.add(16), total) } } else { 0 }
        });
        (total, taken)
    }

    /// Leaves a message in a slot.
    #[inline(always)]
    fn tell(&self, program: &Program, slot: u32, before: u32, next: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                self.block.at(MESSAGE + slot * 8).store64([before, next]);
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
        let group = self.now.group;
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

    /// The words of all groups before the last one, or what of them is known, and what is missing. Four loads a lane, one trip.
    #[inline(always)]
    fn look(&self, lane: u32) -> [u32; 2] {
        let (mut words, mut missing) = (0, 0);
        if P::IN_ORDER && self.last.group != NONE {
            crate::unroll!(level < 4 => {
                let first = self.last.group >> (5 * level as u32);
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
        }
        [words, missing]
    }

    /// Makes the order ready for the next launch.
    #[inline(always)]
    fn clean(&self, program: &Program) {
        if P::IN_ORDER {
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
        }
        program.sync();
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the header.
                unsafe {
                    arch::store64(self.order, [0, 0]);
                    arch::store64(self.order.add(8), [self.launch + 1, Order::MAGIC]);
                    arch::store64(self.order.add(16), [0, 0]);
                }
            }
        }
    }
}
