//! Seal: the check of the dynamic part of a frame, after everything else in it was written.
//!
//! Encoding does it itself, unless the frame has checksums: then nobody knows in time that all blocks have added theirs.

use super::checksum_kernel::chunk_sum;
use crate::dtype::Bf16;
use crate::kernel;
use crate::launch::Programs;
use crate::tile::{Dynamic, Program, Update, tensor_share};

/// Reads the `bytes` bytes of the dynamic part with its check still zero, and stores the check. A check that is not zero says that encoding has failed: then what is
/// stored is not the check, and nobody takes the bytes for a frame.
#[kernel(warps = 1, blocks = 1)]
pub fn seal(program: &Program, programs: Programs, dynamic: Dynamic, bytes: u64, check: Update<4>) {
    let _ = programs;
    let failed = check.load32(0);
    program.sync();
    if failed != 0 {
        check.store32(0, 0);
        program.sync();
    }
    seal_dynamic(program, dynamic, bytes, check);
    if failed != 0 {
        program.sync();
        let sum = check.load32(0);
        program.sync();
        check.store32(0, !sum);
    }
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
