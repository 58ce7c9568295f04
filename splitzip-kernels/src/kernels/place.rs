//! Place: the second launch of encoding. It brings the variable parts into chunk order.
//!
//! When it starts, all words are counted, so every group finds its place by itself (one trip to memory) and nobody waits. The study's alternatives, on
//! `w2x3` with far more words: persistent blocks and a counting tree 93 % of a copy, two launches like these 87 %, plain look-back 71 %.

use crate::kernel;
use crate::launch::Groups;
use crate::stream::{ENTRY_WORDS, GROUP, chunks, groups};
use crate::tile::{Directory, Placed, Program, SlotsIn, Totals, Update, map};

/// Moves the parts of a group from their slots of `slot_words` words to `parts`, and writes the group's start to the directory.
///
/// `start` holds the words of the tensors before this one; the last group writes what then is the total to `end`.
#[kernel(warps = 8, blocks = 6)]
pub fn place(
    program: &Program,
    grid: Groups,
    slots: SlotsIn,
    slot_words: u32,
    totals: Totals,
    directory: Directory,
    start: Update<8>,
    end: Update<8>,
    parts: Placed,
) {
    let (group, all) = (program.index(), groups(grid.elements));
    if group as u64 >= all {
        return;
    }
    let exist = (chunks(grid.elements) - group as u64 * GROUP as u64).min(GROUP as u64) as u32;
    let words = map(&directory.complete_entries(group, exist), |entry| entry & ENTRY_WORDS);
    let (before, total) = program.scan(&words);
    let first = start.load64(0) + totals.before(program, all, group);
    directory.store_start(group, first);
    if group as u64 + 1 == all {
        end.store64(0, first + total as u64);
    }
    if total != 0 {
        parts.move_group(program, slots, slot_words, group, first, &words, &before);
    }
}
