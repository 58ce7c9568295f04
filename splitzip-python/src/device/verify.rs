//! What a frame in device memory says of itself.

use super::driver;
use crate::error::Result;
use splitzip_host::format::{DYNAMIC_BYTES, Frame, FrameSpec, Layout, write};
use splitzip_host::{Cpu, Error, Executor};

/// Compares the start of a frame with what it must be, once the stream has run; returns its dynamic part. `None` for a frame of other tensors.
///
/// # Safety
/// The dense part of the frame can be read.
pub unsafe fn start(
    layout: &Layout,
    statics: &[u8],
    stream: u64,
    frame: u64,
    bytes: u64,
) -> Result<Option<Vec<u8>>> {
    let mut start = vec![0; (layout.static_bytes + layout.dynamic_bytes) as usize];
    // SAFETY: by contract; the start lies in the dense part.
    unsafe { driver::download(stream, frame, &mut start)? };
    let (found, dynamic) = start.split_at(layout.static_bytes as usize);
    if found != statics {
        // Says what it is, if it is a frame at all.
        FrameSpec::read(found)?;
        return Ok(None);
    }
    check_dynamic(layout, &start, dynamic, bytes)?;
    Ok(Some(dynamic.to_vec()))
}

/// Compares checksums of what was decoded, a double word a tensor, with those in the dynamic part of a frame.
pub fn sums(dynamic: &[u8], sums: &[u8], tensors: impl IntoIterator<Item = usize>) -> Result<()> {
    for tensor in tensors {
        let found = u64_at(dynamic, DYNAMIC_BYTES as usize * (1 + tensor) + 8);
        let computed = u64_at(sums, 8 * tensor);
        if found != computed {
            return Err(Error::Checksum { tensor, chunk: None, found, computed }.into());
        }
    }
    Ok(())
}

/// Decodes a frame on the host, which verifies every checksum and knows what is damaged.
///
/// # Safety
/// So many bytes of the frame can be read.
pub unsafe fn on_host(layout: &Layout, stream: u64, frame: u64, bytes: u64) -> Result<()> {
    let most = layout.max_frame_bytes.min(bytes);
    let mut host = vec![0; most as usize];
    // SAFETY: by contract.
    unsafe { driver::download(stream, frame, &mut host)? };
    crate::pool::run(None, || {
        Cpu::new().decode_to_vecs(&Frame::parse(&host)?)?;
        Ok(())
    })
}

/// The check, the status and the length of a frame whose static part is right. Returns its length.
pub fn check_dynamic(layout: &Layout, start: &[u8], dynamic: &[u8], bytes: u64) -> Result<u64> {
    let mut sealed = start.to_vec();
    write::seal_dynamic(layout, &mut sealed)?;
    let word =
        |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let at = layout.static_bytes as usize + 12;
    let (found, computed) = (word(start, at), word(&sealed, at));
    if found != computed {
        return Err(Error::FrameCheck { what: "dynamic part", found, computed }.into());
    }
    match word(dynamic, 8) {
        0 => {}
        status => return Err(Error::EncoderFailed { status }.into()),
    }
    let end = layout.variable_parts(u64_at(dynamic, 0))?.end;
    if end > bytes {
        return Err(Error::Truncated { what: "the frame", needed: end, got: bytes }.into());
    }
    Ok(end)
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
