//! Writing an `.spz` file front to back, to anything that takes bytes.

use super::container::{FrameRecord, Header, Index};
use super::{FileError, HEADER_BYTES};
use crate::format::Frame;
use crate::{Error, Result};
use std::io::Write;

/// Writes an `.spz` file: the header at once, frames as they come, the index and the footer at the end.
///
/// Nothing is ever written twice, so the output may be a pipe. A file without its footer is refused by every reader.
pub struct Writer<W: Write> {
    out: W,
    header: Header,
    at: u64,
    raw_at: u64,
    frames: Vec<FrameRecord>,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// A frame limit that is 0 or too large; what the output returns.
    pub fn new(mut out: W, header: Header) -> Result<Writer<W>> {
        header.check()?;
        out.write_all(&header.to_bytes())?;
        Ok(Writer { out, header, at: HEADER_BYTES, raw_at: 0, frames: Vec::new() })
    }

    /// Writes a frame: the next raw bytes of the original, packed, canonical, with checksums of its tensors.
    ///
    /// # Errors
    /// A frame that a file cannot hold; what the output returns.
    pub fn push(&mut self, frame: &Frame<'_>) -> Result<()> {
        check_frame(frame)?;
        let raw_bytes = frame.layout().raw_bytes;
        let left = (self.header.raw_bytes - self.raw_at).min(self.header.frame_limit.into());
        if raw_bytes == 0 || raw_bytes > left {
            let what = format!("the raw size of frame {}", self.frames.len());
            return Err(FileError::field(what, raw_bytes, format!("1 to {left}")));
        }
        let bytes = frame.bytes();
        let mut record = FrameRecord {
            at: self.at,
            bytes: bytes.len() as u64,
            raw_at: self.raw_at,
            raw_bytes,
            pieces: frame.len() as u32,
            crc: 0,
        };
        let padding = vec![0; (record.padded_bytes() - record.bytes) as usize];
        let mut crc = crc32fast::Hasher::new();
        for part in [bytes, &padding] {
            crc.update(part);
            self.out.write_all(part)?;
        }
        record.crc = crc.finalize();
        self.at += record.padded_bytes();
        self.raw_at += raw_bytes;
        self.frames.push(record);
        Ok(())
    }

    /// Writes index and footer, and returns the output and the bytes written. `sha256` is that of the original.
    ///
    /// # Errors
    /// Fewer raw bytes in the frames than the header says; what the output returns.
    pub fn finish(mut self, sha256: [u8; 32]) -> Result<(W, u64)> {
        if self.raw_at != self.header.raw_bytes {
            let allowed = format!("{}, as the header says", self.header.raw_bytes);
            return Err(FileError::field("the raw size of all frames", self.raw_at, allowed));
        }
        let end = Index { sha256, frames: self.frames }.to_bytes(self.at);
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok((self.out, self.at + end.len() as u64))
    }
}

/// Says whether a file can hold this frame.
pub(crate) fn check_frame(frame: &Frame<'_>) -> Result<()> {
    let flags = frame.spec().flags;
    let expected = super::FRAME_FLAGS;
    if flags == expected {
        return Ok(());
    }
    let allowed = format!("must be {} in a file: packed, canonical, checksums of tensors", expected.bits());
    Err(Error::Field { what: "flags".to_owned(), found: flags.bits().into(), allowed })
}
