//! What bookkeepers write of every group: its record, and checksums of its chunks.

use crate::arch::Shared;
use crate::stream::GROUP;
use crate::tile::{ChunkSums, Directory, Program, SumsInLanes, SumsWanted, TensorSums, Tile};

/// Where the records of groups stand: in the directory of a tensor, or in those of a batch.
pub trait Records: Copy {
    /// The directory that has the record of a group of the launch, and the number of the group there.
    fn of_group(self, group: u32) -> (Directory, u32);
    /// Writes where the parts of a group start, in words.
    fn store_start(self, group: u32, start: u64);
    /// Does anybody want checksums?
    fn want_checksums(self) -> bool;
    /// Adds the checksums of `lanes` chunks of a group, from chunk `seat` of it on, a lane each. (A chunk that does not exist has none.)
    fn add_checksums(self, program: &Program, group: u32, seat: u32, lanes: u32, sums: &Tile<u32>);
    /// Bytes of block memory a turn, for what the programs of a group are told of it beforehand.
    const PREPARED_BYTES: u32 = 0;
    /// Puts that there. Only a program that keeps the books does.
    fn prepare(self, _: &Program, _: u32, _: Shared) {}
}

/// The records of one tensor.
#[derive(Clone, Copy)]
pub struct TensorRecords {
    /// Its elements.
    pub elements: u64,
    /// Its directory.
    pub directory: Directory,
    /// Its checksum.
    pub sum: TensorSums<8>,
    /// Those of its chunks.
    pub chunk_sums: ChunkSums,
    /// Which of them anybody wants: one word, so that a bookkeeper needs no register for the question.
    pub wanted: SumsWanted,
}

impl Records for TensorRecords {
    #[inline(always)]
    fn of_group(self, group: u32) -> (Directory, u32) {
        (self.directory, group)
    }

    #[inline(always)]
    fn store_start(self, group: u32, start: u64) {
        self.directory.store_start(group, start);
    }

    #[inline(always)]
    fn want_checksums(self) -> bool {
        self.wanted.any()
    }

    #[inline(always)]
    fn add_checksums(self, program: &Program, group: u32, seat: u32, lanes: u32, sums: &Tile<u32>) {
        let sums = SumsInLanes { elements: self.elements, first: group * GROUP + seat, lanes, sums: *sums };
        sums.keep(program, self.wanted, || self.sum.of(0), || self.chunk_sums);
    }
}
