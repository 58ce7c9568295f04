//! Packing takes the chunks whose elements are all equal out of the planes, unpacking puts them back.
//!
//! A frame in device memory keeps its dense part at fixed offsets, so an all-zero chunk costs 1280 bytes there. A file
//! keeps 6.5 of them.

use super::directory::Mode;
use super::frame::{dynamic_range, kept_chunks};
use super::write::static_bytes;
use super::{Flags, Frame, FrameSpec, Layout};
use crate::reference::EqualPlanes;
use crate::{Error, Result};

/// The packed form of a frame; a copy if it is packed already.
///
/// # Errors
/// [`Error::HostMemory`] when the frame does not fit into memory.
pub fn pack(frame: &Frame<'_>) -> Result<Vec<u8>> {
    rewrite(frame, true)
}

/// The form of a frame with all chunks in the planes: what encoders write and device decoders read. A copy if it is not
/// packed.
///
/// It may be far larger than its packed form: [`Layout::dense_bytes`] of the frame's
/// [`FrameSpec`] without the flag says how large before anything is allocated.
///
/// # Errors
/// [`Error::HostMemory`] when it does not fit into memory, and [`Error::Chunk`] for a chunk that cannot be put back.
pub fn unpack(frame: &Frame<'_>) -> Result<Vec<u8>> {
    rewrite(frame, false)
}

fn rewrite(frame: &Frame<'_>, packed: bool) -> Result<Vec<u8>> {
    if frame.spec().flags.packed == packed {
        return Ok(frame.bytes().to_vec());
    }
    let spec = FrameSpec { flags: Flags { packed, ..frame.spec().flags }, ..frame.spec().clone() };
    let (bytes, from) = (frame.bytes(), frame.layout());
    let to = if packed {
        let (kept, _) = kept_chunks(bytes, from)?;
        Layout::with_kept(&spec, |t, _| kept[t])?
    } else {
        spec.layout()?
    };
    let dense = usize::try_from(to.dense_bytes)
        .map_err(|_| Error::TooLarge { what: "the frame", bits: usize::BITS })?;
    let bytes_of_all = to.dense_bytes.saturating_add(4 * frame.words());
    let mut out = Vec::new();
    out.try_reserve_exact(usize::try_from(bytes_of_all).unwrap_or(usize::MAX))
        .map_err(|_| Error::HostMemory { bytes: bytes_of_all })?;
    out.extend(static_bytes(&spec, &to));
    out.extend(&bytes[dynamic_range(from).start..from.planes_at as usize]);
    out.resize(dense, 0);
    for (tensor, to) in frame.tensors().zip(&to.tensors) {
        if let Some(stored) = tensor.stored() {
            out[to.planes[0].at as usize..][..stored.len()].copy_from_slice(stored);
            continue;
        }
        let (mut slot, mut equal_planes) = (0, EqualPlanes::default());
        for chunk in 0..to.chunks {
            let place = tensor.chunk(chunk)?;
            let equal = place.entry.mode == Mode::Equal;
            if packed && equal {
                continue;
            }
            let made = if equal { equal_planes.of(&tensor, chunk, &place)? } else { &[] };
            for (p, plane) in to.planes.iter().enumerate() {
                let part = if equal { &made[p][..] } else { place.planes[p] };
                let at = (plane.at + slot * plane.kind.whole_bytes() as u64) as usize;
                out[at..at + part.len()].copy_from_slice(part);
            }
            slot += 1;
        }
    }
    out.extend(&bytes[from.dense_bytes as usize..]);
    Ok(out)
}
