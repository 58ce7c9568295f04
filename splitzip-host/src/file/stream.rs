//! Files that come through a pipe, front to back, in bounded memory.
//!
//! An `.spz` file starts with the size of its original, so an original can only stream when its own header tells that size: a safetensors or a
//! `.npy` file does. Elements without a header do not, and have to be kept somewhere first
//! ([`Mapped::spooled`](super::Mapped::spooled)).
//! In the other direction frames are self-describing: a reader decodes them as they come, and compares what it has seen with
//! the index when that arrives at the end.

use super::container::{Footer, FrameRecord, Header, Index};
use super::decompress::{Frames, decode, restore};
use super::original::{Original, START_BYTES};
use super::reader::check_padding;
use super::writer::check_frame;
use super::{ALIGNMENT, FOOTER_BYTES, FileError, HEADER_BYTES, MAX_FRAME_BYTES, Progress};
use crate::format::Frame;
use crate::{Dtype, Error, Executor, Result};
use std::io::{Cursor, Read, Write};

/// No frame of a file is larger, coded: at most the raw bytes, a sixteenth for channel bases, and its tables.
const MAX_CODED_BYTES: u64 = 2 * MAX_FRAME_BYTES;

/// An original that is read from its start to its end. Its header has been read.
pub struct OriginalStream<R> {
    start: Vec<u8>,
    rest: R,
    original: Option<Original>,
}

impl<R: Read> OriginalStream<R> {
    /// Reads the header. `dtype` is as in [`Options`](super::Options).
    ///
    /// # Errors
    /// What is no original, as [`compress`](super::compress()) says; what the input returns.
    pub fn open(mut rest: R, dtype: Option<Dtype>) -> Result<OriginalStream<R>> {
        let mut start = Vec::new();
        fill(&mut rest, &mut start, START_BYTES as u64)?;
        let header = Original::header_bytes(&start);
        fill(&mut rest, &mut start, header)?;
        let original = if (start.len() as u64) < header.max(START_BYTES as u64) {
            // The end is there: the size is known, whatever it is.
            Some(Original::read(&start, start.len() as u64, dtype)?)
        } else {
            Original::without_size(&start, dtype)?
        };
        Ok(OriginalStream { start, rest, original })
    }

    /// The bytes of the original, if its header tells them.
    pub fn raw_bytes(&self) -> Option<u64> {
        self.original.as_ref().map(|original| original.raw_bytes)
    }

    /// The bytes from the start on.
    pub fn into_read(self) -> impl Read + use<R> {
        Cursor::new(self.start).chain(self.rest)
    }

    pub(super) fn into_known(mut self) -> Result<(Original, impl Read + use<R>)> {
        let unknown = || FileError::Options {
            reason: "the size of this input does not follow from its start: keep it in a file first"
                .to_owned(),
        };
        let original = self.original.take().ok_or_else(unknown)?;
        Ok((original, self.into_read()))
    }
}

/// Reads until there are `bytes` bytes or the input ends.
fn fill(input: &mut impl Read, out: &mut Vec<u8>, bytes: u64) -> Result<()> {
    let missing = bytes.saturating_sub(out.len() as u64);
    input.take(missing).read_to_end(out).map_err(FileError::input)?;
    Ok(())
}

/// What an `.spz` stream was, once it is at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamReport {
    /// Size of the original.
    pub raw_bytes: u64,
    /// Size of the `.spz` file.
    pub coded_bytes: u64,
    /// Frames.
    pub frames: u64,
    /// SHA-256 of the original.
    pub sha256: [u8; 32],
}

/// Restores the original of an `.spz` file that is read from its start to its end.
///
/// What has been written before an error shows is not to be used: the index, which says what belongs to the file, comes last.
///
/// # Errors
/// As [`decompress`](super::decompress()), and what the input returns.
pub fn decompress_stream(
    executor: &dyn Executor,
    input: impl Read,
    output: impl Write + Send,
    progress: Progress<'_>,
) -> Result<StreamReport> {
    decompress_stream_within(executor, input, output, u64::MAX, progress)
}

/// [`decompress_stream`] of a file that is not trusted: of an original of at most `most_bytes` bytes.
///
/// # Errors
/// [`Error::Limit`] for one that has more, before anything of it is read; and as [`decompress_stream`].
pub fn decompress_stream_within(
    executor: &dyn Executor,
    input: impl Read,
    mut output: impl Write + Send,
    most_bytes: u64,
    progress: Progress<'_>,
) -> Result<StreamReport> {
    let mut frames = FrameStream::open(input)?;
    frames.header.check_limit(most_bytes)?;
    restore(executor, &mut frames, progress, &mut |_, bytes| Ok(output.write_all(bytes)?))?;
    output.flush()?;
    frames.report()
}

/// Proves that an `.spz` file that is read from its start to its end restores to the bytes whose SHA-256 it holds.
///
/// # Errors
/// As [`decompress_stream`].
pub fn verify_stream(
    executor: &dyn Executor,
    input: impl Read,
    progress: Progress<'_>,
) -> Result<StreamReport> {
    let mut frames = FrameStream::open(input)?;
    restore(executor, &mut frames, progress, &mut |_, _| Ok(()))?;
    frames.report()
}

/// The frames of an `.spz` file, as they come.
struct FrameStream<R> {
    input: R,
    header: Header,
    seen: Vec<FrameRecord>,
    at: u64,
    raw_at: u64,
    end: Option<(Index, u64)>,
}

impl<R: Read> FrameStream<R> {
    fn open(mut input: R) -> Result<FrameStream<R>> {
        let mut start = Vec::new();
        fill(&mut input, &mut start, HEADER_BYTES)?;
        let header = Header::read(&start, start.len() as u64)?;
        Ok(FrameStream { input, header, seen: Vec::new(), at: HEADER_BYTES, raw_at: 0, end: None })
    }

    /// Reads one frame with the padding behind it. What is missing shows when one tries to parse what is there.
    fn read_frame(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let number = self.seen.len() as u64;
        let wrap = |source| Error::from(FileError::Frame { frame: number, source: Box::new(source) });
        let (record, padded) = loop {
            match Frame::parse(&bytes) {
                Err(Error::Truncated { needed, .. }) if needed <= MAX_CODED_BYTES => {
                    // Blocks, so that nothing behind the padding of the frame is read.
                    let before = bytes.len() as u64;
                    fill(&mut self.input, &mut bytes, needed.next_multiple_of(ALIGNMENT))?;
                    if bytes.len() as u64 == before {
                        let (needed, got) = (self.at + needed, self.at + before);
                        return Err(FileError::Truncated { what: "a frame", needed, got }.into());
                    }
                }
                parsed => {
                    let frame = parsed.map_err(wrap)?;
                    check_frame(&frame).map_err(wrap)?;
                    let record = FrameRecord {
                        at: self.at,
                        bytes: frame.bytes().len() as u64,
                        raw_at: self.raw_at,
                        raw_bytes: frame.layout().raw_bytes,
                        pieces: frame.len() as u32,
                        crc: 0,
                    };
                    break (record, record.padded_bytes());
                }
            }
        };
        let left = (self.header.raw_bytes - self.raw_at).min(self.header.frame_limit.into());
        if record.raw_bytes == 0 || record.raw_bytes > left {
            let what = format!("the raw size of frame {number}");
            return Err(FileError::field(what, record.raw_bytes, format!("1 to {left}")));
        }
        fill(&mut self.input, &mut bytes, padded)?;
        if (bytes.len() as u64) < padded {
            let (needed, got) = (self.at + padded, self.at + bytes.len() as u64);
            return Err(FileError::Truncated { what: "a frame", needed, got }.into());
        }
        check_padding(number, &bytes, record.bytes)?;
        self.seen.push(FrameRecord { crc: crc32fast::hash(&bytes), ..record });
        self.at += padded;
        self.raw_at += record.raw_bytes;
        Ok(bytes)
    }

    /// Reads index and footer behind `bytes`, up to the end of the stream, and compares them with what came.
    fn finish(&mut self, mut bytes: Vec<u8>) -> Result<()> {
        // One more than there may be shows that the stream goes on.
        fill(&mut self.input, &mut bytes, Index::bytes(self.seen.len()) + FOOTER_BYTES + 1)?;
        let end = self.at + bytes.len() as u64;
        let (index, footer) = bytes.split_at(bytes.len().saturating_sub(FOOTER_BYTES as usize));
        let footer = Footer::read(footer, end)?;
        if footer.index_at != self.at {
            let allowed = format!("{}, behind the frames", self.at);
            return Err(FileError::field("the place of the index", footer.index_at, allowed));
        }
        let index = Index::read(index, &footer, &self.header)?;
        if index.frames.len() != self.seen.len() {
            let allowed = format!("{}, as many as there are", self.seen.len());
            return Err(FileError::field("the number of frames", index.frames.len() as u64, allowed));
        }
        for (frame, (seen, record)) in self.seen.iter().zip(&index.frames).enumerate() {
            let number = |what: &str, found: u64, expected: u64| {
                let allowed = format!("{expected}, as the index says");
                let what = format!("the {what} of frame {frame}");
                if found == expected { Ok(()) } else { Err(FileError::field(what, found, allowed)) }
            };
            number("size", seen.bytes, record.bytes)?;
            number("raw size", seen.raw_bytes, record.raw_bytes)?;
            number("number of pieces", seen.pieces.into(), record.pieces.into())?;
            if seen.crc != record.crc {
                let (found, computed) = (record.crc, seen.crc);
                return Err(FileError::Check { what: format!("frame {frame}"), found, computed }.into());
            }
        }
        self.end = Some((index, end));
        Ok(())
    }

    fn report(self) -> Result<StreamReport> {
        let (index, coded_bytes) = self.end.ok_or(FileError::NoFooter)?;
        let (raw_bytes, frames) = (self.header.raw_bytes, index.frames.len() as u64);
        Ok(StreamReport { raw_bytes, coded_bytes, frames, sha256: index.sha256 })
    }
}

impl<R: Read> Frames for FrameStream<R> {
    fn decode_next(&mut self, executor: &dyn Executor, out: &mut Vec<u8>) -> Result<Option<u64>> {
        let mut start = Vec::new();
        fill(&mut self.input, &mut start, Index::MAGIC.len() as u64)?;
        if start.is_empty() || start == Index::MAGIC {
            return self.finish(start).map(|()| None);
        }
        let (number, raw_at) = (self.seen.len(), self.raw_at);
        let bytes = self.read_frame(start)?;
        // Parsed a second time: the view of the first one is gone, and only the tables are looked at.
        decode(executor, &Frame::parse(&bytes)?, number, out)?;
        Ok(Some(raw_at))
    }

    fn sha256(&self) -> [u8; 32] {
        self.end.as_ref().map_or([0; 32], |(index, _)| index.sha256)
    }
}
