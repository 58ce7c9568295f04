//! Seal: the check of the dynamic part of a frame, after everything else in it was written.
//!
//! Encoding does it itself, unless checksums are added to the frame afterwards.

use super::checksum_kernel::{chunk_sum, tensor_share};
use crate::dtype::Bf16;
use crate::kernel;
use crate::launch::Programs;
use crate::tile::{Dynamic, Program, Update};

/// Reads the `bytes` bytes of the dynamic part with its check still zero, and stores the check.
#[kernel(warps = 1, blocks = 1)]
pub fn seal(program: &Program, programs: Programs, dynamic: Dynamic, bytes: u64, check: Update<4>) {
    let _ = programs;
    seal_dynamic(program, dynamic, bytes, check);
}

/// The same for who has a program already.
#[inline(always)]
pub(super) fn seal_dynamic(program: &Program, dynamic: Dynamic, bytes: u64, check: Update<4>) {
    let (mut sum, mut index) = (0u64, 0);
    while index as u64 * 2048 < bytes {
        let words = dynamic.chunk(index, bytes);
        sum = sum.wrapping_add(tensor_share(index, chunk_sum::<Bf16>(program, &words)));
        index += 1;
    }
    check.store32(0, sum as u32);
}
