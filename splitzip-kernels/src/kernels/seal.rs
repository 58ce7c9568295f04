//! Seal: the check of the dynamic part of a frame, after everything else in it was written.

use super::checksum_kernel::{chunk_sum, tensor_share};
use crate::dtype::{Bf16, Dtype};
use crate::kernel;
use crate::launch::{Chunks, Programs};
use crate::stream::chunks;
use crate::tile::{Chunk, Fill, In, Program, Tail, TailArea, Update};

/// Reads the dynamic part (`elements` times 2 bytes) with its check still zero, and stores the check.
#[kernel(warps = 1, blocks = 1)]
pub fn seal(
    program: &Program,
    programs: Programs,
    dynamic: In<<Bf16 as Dtype>::Words>,
    elements: u64,
    check: Update<4>,
    tail: Tail,
) {
    let _ = programs;
    let (mut sum, mut index) = (0u64, 0);
    while (index as u64) < chunks(elements) {
        let chunk = Chunk::at(index, Chunks { elements }, tail);
        let words = dynamic.chunk(program, &chunk, Fill::Zeros, TailArea::Words).load();
        sum = sum.wrapping_add(tensor_share(index, chunk_sum::<Bf16>(program, &words)));
        index += 1;
    }
    check.store32(0, sum as u32);
}
