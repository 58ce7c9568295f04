//! The directory of a tensor: where the variable parts of a group start, and an entry for each of its chunks.

use super::{Chunk, Program, Update, generate};
use crate::arch;
use crate::launch::{Extent, Size, directory_bytes, memory_arguments};
use crate::stream::{ENTRY_WORDS, GROUP, RECORD_BYTES, RECORD_ENTRIES};

/// The directory of a tensor while it is written.
#[derive(Clone, Copy)]
pub struct Directory(pub(in crate::tile) *mut u8);

/// The directory of a tensor that is read.
#[derive(Clone, Copy)]
pub struct DirectoryIn(pub(in crate::tile) *const u8);

impl Extent for Directory {
    fn bytes(size: Size) -> u64 {
        directory_bytes(size.elements)
    }
    const ALIGN: u64 = 8;
}
impl Extent for DirectoryIn {
    fn bytes(size: Size) -> u64 {
        directory_bytes(size.elements)
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
    /// Writes the entry of a chunk, or of one that its group lacks. For one lane.
    #[inline(always)]
    pub(crate) fn store_entry_in_lane(self, chunk: u32, entry: u32) {
        // SAFETY: the record of the group has an entry for each of its 16 chunks.
        unsafe { arch::store16(self.0.add(entry_at(chunk)), entry) }
    }

    /// Writes where the parts of a group start, in words.
    #[inline(always)]
    pub fn store_start(self, group: u32, start: u64) {
        Update::<8>(self.0.wrapping_add(group as usize * RECORD_BYTES as usize)).store64(0, start);
    }
}

impl DirectoryIn {
    /// A directory that starts at an address which the launcher has checked in another way.
    #[inline(always)]
    pub(crate) fn from_start(p: *const u8) -> Self {
        DirectoryIn(p)
    }

    /// The entry of a chunk, the same for all lanes.
    #[inline(always)]
    pub fn entry(self, chunk: &Chunk) -> u32 {
        // SAFETY: the chunk exists.
        unsafe { arch::load16(self.0.add(entry_at(chunk.index))) }
    }

    /// Has the record of a group brought to the cache.
    #[inline(always)]
    pub(crate) fn prefetch(self, group: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                // SAFETY: the group exists.
                unsafe { arch::prefetch(self.0.wrapping_add(group as usize * RECORD_BYTES as usize)) }
            }
        }
    }

    /// The word where the parts of a group start.
    #[inline(always)]
    pub(crate) fn start_of_group(self, group: u32) -> u64 {
        // SAFETY: the group exists; its record is aligned to 8.
        let [low, high] =
            unsafe { arch::load64(self.0.wrapping_add(group as usize * RECORD_BYTES as usize)) };
        (high as u64) << 32 | low as u64
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
