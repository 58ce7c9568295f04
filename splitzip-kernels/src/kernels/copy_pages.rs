//! Copy: tensors that are stored as they are, between their pages and their planes.

use crate::kernel;
use crate::launch::BatchChunks;
use crate::stream::GROUP;
use crate::tile::{Batch, BatchFrame, BatchGroup, Program, Status};

/// Copies 2048 bytes of a tensor of a batch into the frame, or (`to_frame` is 0) to their pages. The tensors count 2 bytes as an element.
#[kernel(warps = 8, blocks = 8, shared = BatchGroup::BYTES)]
pub fn copy_pages(
    program: &Program,
    chunks: BatchChunks,
    batch: Batch,
    frame: BatchFrame,
    to_frame: u32,
    status: Status,
) {
    let (index, groups) = (program.index(), chunks.groups as u32);
    let group = index / GROUP;
    if group >= groups {
        return;
    }
    let found = batch.describe_to_program(program, group, 0);
    let (tensor, number) = (found.tensor(), found.number());
    tensor.copy_piece(number * GROUP + index % GROUP, frame.at(tensor.codes()), to_frame, status);
}
