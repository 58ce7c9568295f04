//! Packed frames on the CPU, whose code wants planes at fixed offsets: an unpacked copy, where that is not much more than the caller has already.

use crate::format::{Layout, unpack};
use crate::{Frame, Result};

/// Calls `work` with a frame whose planes are at fixed offsets: this one, or an unpacked copy if it leaves chunks out.
pub(crate) fn with_fixed_planes<T>(
    frame: &Frame<'_>,
    work: impl FnOnce(&Frame<'_>) -> Result<T>,
) -> Result<T> {
    if !frame.spec().flags.packed {
        return work(frame);
    }
    let mut spec = frame.spec().clone();
    spec.flags.packed = false;
    if planes_equal(&spec.layout()?, frame.layout()) {
        return work(frame); // nothing is left out
    }
    let unpacked = unpack(frame)?;
    work(&Frame::parse(&unpacked)?)
}

/// Bytes of an unpacked copy for each byte of a packed frame, beside the bytes of what is decoded.
const MOST_UNPACKED: u64 = 8;

/// Is an unpacked copy not much larger than what the caller has in memory, the frame and `output` bytes? A packed frame can describe 315 times its bytes, and who wants
/// a part of it has allowed the bytes of the part: such a frame is decoded as it is, chunk by chunk.
pub(crate) fn unpacks_within(frame: &Frame<'_>, output: u64) -> Result<bool> {
    if !frame.spec().flags.packed {
        return Ok(true);
    }
    let mut spec = frame.spec().clone();
    spec.flags.packed = false;
    let most = (frame.bytes().len() as u64).saturating_mul(MOST_UNPACKED).saturating_add(output);
    Ok(spec.layout()?.dense_bytes <= most)
}

fn planes_equal(a: &Layout, b: &Layout) -> bool {
    a.dense_bytes == b.dense_bytes && a.tensors.iter().zip(&b.tensors).all(|(a, b)| a.planes == b.planes)
}
