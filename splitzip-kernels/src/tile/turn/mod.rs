//! Turns: the groups of a tensor, one after the other, and the places of their variable parts.
//!
//! Parts stand in chunk order in a frame, but a program does not know how many words come before its own. A kernel says what it has, and a
//! [`Placement`] says how it is done:
//!
//! | call | when |
//! | --- | --- |
//! | [`Turns::keep_checksum`] | the checksum of the chunk is known, if it is wanted |
//! | [`Turns::count`] | the length of the part is known |
//! | [`Turns::next`] | the part stands in the memory of the program |
//! | [`Turns::leave`] | there is no group left |
//!
//! On the GPU, blocks take groups from a queue and code the next ones while the last ones find their place (`staying.rs`); or, where parts stand as they
//! come, a block takes one group and ends (`single.rs`). On the CPU programs run in order, and a part stands where the one before it ends
//! (`sequential.rs`): that is what all others must give.

mod records;
#[cfg(not(target_arch = "nvptx64"))]
mod sequential;
#[cfg(target_arch = "nvptx64")]
mod single;
#[cfg(target_arch = "nvptx64")]
mod staying;

use crate::arch::{self, Shared};
use crate::launch::{Extent, Size, memory_arguments};
use crate::stream::{GROUP, groups};
use crate::tile::{GroupSums, Part, Program, Tile, Update};
pub use records::{Records, TensorRecords};

/// In which order variable parts stand in a frame.
pub trait Placement: Copy + 'static {
    /// Programs of a block that only keep books, beside those that code.
    const BOOKKEEPERS: u32;
    /// Turns whose parts a program holds at once.
    const TURNS_HELD: u32;
    /// How a block takes its turns.
    type Turns: Turns;
}

/// Chunk order: the bytes are a function of the input.
#[derive(Clone, Copy, Debug)]
pub struct InOrder;

impl Placement for InOrder {
    const BOOKKEEPERS: u32 = 2;
    const TURNS_HELD: u32 = 3;
    #[cfg(target_arch = "nvptx64")]
    type Turns = staying::StayingTurn;
    #[cfg(not(target_arch = "nvptx64"))]
    type Turns = sequential::SequentialTurn;
}

/// Groups stand as they come: one atomic a group, nobody waits. For frames that live as long as a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival;

impl Placement for Arrival {
    const BOOKKEEPERS: u32 = 0;
    const TURNS_HELD: u32 = 1;
    #[cfg(target_arch = "nvptx64")]
    type Turns = single::SingleTurn;
    #[cfg(not(target_arch = "nvptx64"))]
    type Turns = sequential::SequentialTurn;
}

/// How the 16 chunks of a group are given to the programs of a block.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    /// Programs that code: 8 or 16. With 8, each codes two chunks in a turn, one after the other.
    pub programs: u32,
    /// Where the parts start in the memory of a program, in bytes.
    pub parts_at: u32,
    /// Do the programs of a block sum up channels together? Then each has one chunk of a group.
    pub channels: bool,
}

impl Seats {
    /// Chunks that a program codes in a turn.
    #[inline(always)]
    pub const fn rounds(&self) -> u32 {
        GROUP / self.programs
    }

    /// Programs of a block.
    pub const fn warps<P: Placement>(&self) -> u32 {
        self.programs + P::BOOKKEEPERS
    }

    /// Where in the memory of a block the first of three preparations is.
    pub const fn prepared_at(&self) -> u32 {
        TURN_BYTES + if self.channels { TURN_SUMS_BYTES } else { 0 }
    }

    /// Bytes of memory of a program.
    pub const fn bytes<P: Placement>(&self) -> u32 {
        self.parts_at + P::TURNS_HELD * self.rounds() * Part::BYTES
    }
}

#[cfg(target_arch = "nvptx64")]
impl Seats {
    /// The chunk of its group that a program of a block has in a round.
    #[inline(always)]
    pub(crate) fn seat(&self, rank: u32, round: u32) -> u32 {
        round * self.programs + rank
    }

    /// Where a program puts its part of a round together, in the memory of a turn.
    #[inline(always)]
    pub(in crate::tile) fn part(&self, program: &Program, turn: u32, round: u32) -> Part {
        Part::new(program, self.parts_at + (turn * self.rounds() + round) * Part::BYTES)
    }
}

/// The turns of a program.
pub trait Turns: Copy {
    /// Does a block stay, and code group after group?
    const STAYS: bool;

    /// The first of `groups` groups that this block has. `start` says how many words are before all of them.
    fn enter<R: Records>(
        program: &Program,
        groups: u32,
        seats: Seats,
        order: Order,
        start: Update<8>,
        records: R,
    ) -> Self;
    /// Is there a chunk, or something that is not placed yet?
    fn has_group(&self) -> bool;
    /// The group of this program, and which of its 16 chunks the program has.
    fn seat(&self) -> (u32, u32);
    /// Where this program puts its part together.
    fn part(&self, program: &Program) -> Part;
    /// What was [prepared](Records::prepare) for this group.
    fn prepared<R: Records>(&self, program: &Program, records: R) -> Shared;
    /// Where the channels of this group are summed up, if they are: only of a whole one.
    fn sums(&self, program: &Program, is_whole: bool, channels: u32) -> GroupSums;
    /// Adds to them, and waits for all programs that code the group.
    fn sum_up(&self, program: &Program, sums: GroupSums, own: &Tile<[u32; 4]>);
    /// Leaves the checksum of this program's chunk, before its entry.
    fn keep_checksum<R: Records>(&self, program: &Program, records: R, sum: u32);
    /// Leaves the entry of this program's chunk, with the number of words of its part. All programs of the block do.
    fn count<R: Records>(&mut self, program: &Program, records: R, entry: u32);
    /// Goes on to the next chunk, and places parts when it is time. `end` gets the words of the frame so far, where programs run in order.
    fn next<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut, end: Update<8>);
    /// Is this a program that keeps the books, and codes nothing?
    fn keeps_books(&self) -> bool;
    /// Keeps the books until the block has no group left.
    fn keep_books<R: Records>(&mut self, program: &Program, records: R, parts: PartsOut);
    /// After all turns: who knows where the parts of the tensor end, and has not told yet.
    fn ended(&self) -> Ended;
    /// The last of all makes the order ready for the next launch.
    fn leave(&self, program: &Program);
}

/// Who knows where the parts of a tensor end.
#[derive(Clone, Copy)]
pub struct Ended {
    /// Not 0: this program does.
    pub here: u32,
    /// Words of the frame after this tensor.
    pub words: u64,
}

/// Bytes of block memory that turns take; [`TURN_SUMS_BYTES`] more where channels are summed up.
pub const TURN_BYTES: u32 = 816;
/// Bytes of block memory for the sums of channels of three turns.
pub const TURN_SUMS_BYTES: u32 = 3 * GroupSums::BYTES;

/// What blocks tell each other while a tensor is encoded. It must be [`Order::prepared`] before it is used for the first time, and cleans itself.
///
/// A header, then words by 32, 1024, 32768 groups, then by group: the places of all earlier groups are one trip to memory away, for any number
/// of them up to 32768 (1 GiB of bf16), and two beyond.
#[derive(Clone, Copy)]
pub struct Order(*mut u8);

impl Order {
    /// Bytes of the header.
    pub const HEADER_BYTES: u64 = 32;
    /// A double word of the header that nobody uses.
    pub const SPARE: u64 = 24;
    /// Says that this is an order and not just any memory.
    const MAGIC: u32 = 0x5350_4c5a;
    /// What blocks that come and go count from: who finds another number was given just any memory.
    const NOBODY: u32 = 0x5a4c_0000;

    /// Bytes for a tensor of so many elements.
    pub const fn bytes_for(elements: u64) -> u64 {
        let groups = groups(elements);
        let sums = groups.div_ceil(1 << 5) + groups.div_ceil(1 << 10) + groups.div_ceil(1 << 15);
        (Self::HEADER_BYTES + 8 * (sums + groups)).next_multiple_of(16)
    }

    /// What the header must be before the first use; everything behind it is zero.
    pub const fn prepared() -> [u32; 8] {
        [0, 0, 1, Self::MAGIC, 0, Self::NOBODY, 0, 0]
    }
}

impl Extent for Order {
    fn bytes(size: Size) -> u64 {
        Order::bytes_for(size.elements)
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [] Order = Order; }

/// The variable parts of a frame that is encoded.
#[derive(Clone, Copy)]
pub struct PartsOut(*mut u8);

impl Extent for PartsOut {
    fn bytes(_: Size) -> u64 {
        0 // measured by the caller: it depends on what is coded
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] PartsOut = PartsOut; }

impl PartsOut {
    /// From word `start` on.
    #[inline(always)]
    pub(in crate::tile) fn at(self, start: u64) -> PartsOut {
        PartsOut(self.0.wrapping_add(start as usize * 4))
    }

    /// Word `at` of this lane's.
    ///
    /// # Safety
    /// The frame has room for it.
    #[inline(always)]
    pub(in crate::tile) unsafe fn store(self, at: u32, value: u32) {
        // SAFETY: by contract.
        unsafe { arch::store32(self.0.wrapping_add(at as usize * 4), value) }
    }
}
