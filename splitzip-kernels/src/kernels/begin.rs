//! Begin: what a frame starts with, and zeros between its parts, in one launch instead of a copy and many clears.

use crate::kernel;
use crate::launch::Programs;
use crate::tile::{Dynamic, Header, Pairs, Program};

/// Bytes of the start of a frame that a program copies.
pub const BEGIN_BYTES: u64 = 2048;

/// Copies `start_bytes` bytes (a multiple of 8) to the start of a frame, and zeros `gap_count` gaps, each of which is where it starts in the frame and its
/// length. There is a program for every [`BEGIN_BYTES`] bytes, and one for every gap.
#[kernel(warps = 4, blocks = 8)]
pub fn begin(
    program: &Program,
    programs: Programs,
    start: Dynamic,
    start_bytes: u64,
    frame: Header,
    gaps: Pairs,
    gap_count: u64,
) {
    let _ = programs;
    let index = program.index() as u64;
    frame.copy_range(start, index * BEGIN_BYTES, start_bytes.min((index + 1) * BEGIN_BYTES));
    if index < gap_count {
        let [at, bytes] = gaps.pair(program.index());
        frame.clear(at, bytes);
    }
}
