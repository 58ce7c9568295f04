//! The parts of an `.spz` file that are no frames: header, index, footer. `docs/files.md` specifies them byte by byte.
//!
//! Reading is strict: every byte is under a checksum, and a field that follows from others must say what they say.

use super::{ALIGNMENT, FOOTER_BYTES, FileError, HEADER_BYTES, MAGIC, MAX_FRAME_BYTES, VERSION};
use crate::format::PLANE_ALIGNMENT;
use crate::{Error, Result};

const INDEX_MAGIC: [u8; 8] = *b"SPZINDEX";
const END_MAGIC: [u8; 8] = *b"SPZ-END\n";
const INDEX_HEAD: usize = 48;
const RECORD: usize = 40;
const CRC_AT: usize = HEADER_BYTES as usize - 4;

/// What the raw bytes of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Any bytes.
    Bytes = 0,
    /// A safetensors file.
    Safetensors = 1,
}

/// The header of an `.spz` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the raw bytes are.
    pub content: Content,
    /// The most raw bytes that a frame of this file holds: at most [`MAX_FRAME_BYTES`].
    pub frame_limit: u32,
    /// Size of the original file.
    pub raw_bytes: u64,
}

impl Header {
    /// Says whether the original has at most `most_bytes` bytes: a file can hold 315 times as many as it has.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn check_limit(&self, most_bytes: u64) -> Result<()> {
        match self.raw_bytes {
            needed if needed > most_bytes => {
                Err(Error::Limit { what: "the original", needed, allowed: most_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Says whether a file can have this header.
    pub(crate) fn check(&self) -> Result<()> {
        if self.frame_limit == 0 || u64::from(self.frame_limit) > MAX_FRAME_BYTES {
            let allowed = format!("1 to {MAX_FRAME_BYTES}");
            return Err(FileError::field("the frame limit", self.frame_limit.into(), allowed));
        }
        Ok(())
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES as usize);
        out.extend(MAGIC);
        out.extend(VERSION.0.to_le_bytes());
        out.extend(VERSION.1.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend((self.content as u32).to_le_bytes());
        out.extend(self.frame_limit.to_le_bytes());
        out.extend(self.raw_bytes.to_le_bytes());
        out.resize(CRC_AT, 0);
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads the header from the first bytes of a file (at most [`HEADER_BYTES`] of them are given).
    pub(crate) fn read(bytes: &[u8], file_bytes: u64) -> Result<Header> {
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        if start.is_empty() || !MAGIC.starts_with(start) {
            return Err(FileError::NotSpz { hint: hint(bytes) }.into());
        }
        if bytes.len() < HEADER_BYTES as usize {
            return Err(
                FileError::Truncated { what: "the header", needed: HEADER_BYTES, got: file_bytes }.into()
            );
        }
        let (major, minor) = (u16_at(bytes, 8), u16_at(bytes, 10));
        if (major, minor) != VERSION {
            return Err(FileError::Version { major, minor }.into());
        }
        check_crc("header", u32_at(bytes, CRC_AT), &bytes[..CRC_AT])?;
        let flags = u32_at(bytes, 12);
        if flags != 0 {
            return Err(FileError::field("the flags", flags.into(), "0, as no others are known"));
        }
        let content = match u32_at(bytes, 16) {
            0 => Content::Bytes,
            1 => Content::Safetensors,
            other => {
                return Err(FileError::field(
                    "the kind of content",
                    other.into(),
                    "0 (bytes) or 1 (safetensors)",
                ));
            }
        };
        if let Some(at) = bytes[32..CRC_AT].iter().position(|&byte| byte != 0) {
            let at = 32 + at;
            return Err(FileError::field(format!("byte {at} of the header"), bytes[at].into(), "0"));
        }
        let header = Header { content, frame_limit: u32_at(bytes, 20), raw_bytes: u64_at(bytes, 24) };
        header.check()?;
        Ok(header)
    }
}

/// Where a frame lies and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRecord {
    /// Where it starts in the file, a multiple of 128.
    pub at: u64,
    /// Its bytes, without the padding behind it.
    pub bytes: u64,
    /// Where its raw bytes start in the original.
    pub raw_at: u64,
    /// Its raw bytes.
    pub raw_bytes: u64,
    /// Its pieces: tensors of the frame.
    pub pieces: u32,
    /// CRC-32 of the frame with the padding behind it.
    pub crc: u32,
}

impl FrameRecord {
    /// Bytes with the padding behind it.
    pub(crate) fn padded_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGNMENT)
    }
}

/// The index of a file: where every frame lies, and what the original is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// SHA-256 of the original file.
    pub sha256: [u8; 32],
    /// The frames, in order.
    pub frames: Vec<FrameRecord>,
}

impl Index {
    pub(crate) const MAGIC: [u8; 8] = INDEX_MAGIC;

    /// The bytes of the index of so many frames.
    pub(crate) const fn bytes(frames: usize) -> u64 {
        (INDEX_HEAD + RECORD * frames) as u64
    }

    /// The index with its footer; `at` is where it starts in the file.
    pub(crate) fn to_bytes(&self, at: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(INDEX_HEAD + RECORD * self.frames.len() + FOOTER_BYTES as usize);
        out.extend(INDEX_MAGIC);
        out.extend((self.frames.len() as u64).to_le_bytes());
        out.extend(self.sha256);
        for frame in &self.frames {
            for field in [frame.at, frame.bytes, frame.raw_at, frame.raw_bytes] {
                out.extend(field.to_le_bytes());
            }
            out.extend(frame.pieces.to_le_bytes());
            out.extend(frame.crc.to_le_bytes());
        }
        let footer = Footer { index_at: at, index_bytes: out.len() as u64, index_crc: crc32fast::hash(&out) };
        out.extend(footer.to_bytes());
        out
    }

    /// Reads an index that the footer has led to, and checks it against the header.
    pub(crate) fn read(bytes: &[u8], footer: &Footer, header: &Header) -> Result<Index> {
        check_crc("index", footer.index_crc, bytes)?;
        if bytes.len() < INDEX_HEAD || bytes[..8] != INDEX_MAGIC {
            return Err(FileError::field(
                "the size of the index",
                bytes.len() as u64,
                "48 or more, after SPZINDEX",
            ));
        }
        let count = u64_at(bytes, 8);
        let expected =
            count.checked_mul(RECORD as u64).and_then(|records| records.checked_add(INDEX_HEAD as u64));
        if expected != Some(bytes.len() as u64) {
            let allowed = format!("that of an index of {} bytes", bytes.len());
            return Err(FileError::field("the number of frames", count, allowed));
        }
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(&bytes[16..INDEX_HEAD]);
        let mut frames = Vec::with_capacity(count as usize);
        let (mut at, mut raw_at) = (HEADER_BYTES, 0u64);
        for (record, frame) in bytes[INDEX_HEAD..].chunks_exact(RECORD).zip(0u64..) {
            let record = FrameRecord {
                at: u64_at(record, 0),
                bytes: u64_at(record, 8),
                raw_at: u64_at(record, 16),
                raw_bytes: u64_at(record, 24),
                pieces: u32_at(record, 32),
                crc: u32_at(record, 36),
            };
            let must = |what: &str, found: u64, expected: u64| {
                let refuse =
                    || FileError::field(format!("the {what} of frame {frame}"), found, expected.to_string());
                if found == expected { Ok(()) } else { Err(refuse()) }
            };
            must("place", record.at, at)?;
            must("raw place", record.raw_at, raw_at)?;
            if record.raw_bytes == 0 || record.raw_bytes > header.frame_limit.into() {
                let allowed = format!("1 to {}, the frame limit", header.frame_limit);
                return Err(FileError::field(
                    format!("the raw size of frame {frame}"),
                    record.raw_bytes,
                    allowed,
                ));
            }
            let end =
                at.checked_add(record.bytes).and_then(|end| end.checked_next_multiple_of(PLANE_ALIGNMENT));
            at = end.filter(|&end| end <= footer.index_at).ok_or_else(|| {
                let allowed = format!("at most {}, up to the index", footer.index_at - at);
                FileError::field(format!("the size of frame {frame}"), record.bytes, allowed)
            })?;
            raw_at += record.raw_bytes;
            frames.push(record);
        }
        if at != footer.index_at {
            return Err(FileError::field(
                "the place of the index",
                footer.index_at,
                format!("{at}, behind the frames"),
            ));
        }
        if raw_at != header.raw_bytes {
            let allowed = format!("{raw_at}, the sum over the frames");
            return Err(FileError::field("the size of the original", header.raw_bytes, allowed));
        }
        Ok(Index { sha256, frames })
    }
}

/// The last bytes of a file: where the index is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Footer {
    pub index_at: u64,
    pub index_bytes: u64,
    pub index_crc: u32,
}

impl Footer {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES as usize);
        out.extend(self.index_at.to_le_bytes());
        out.extend(self.index_bytes.to_le_bytes());
        out.extend(self.index_crc.to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out.extend(END_MAGIC);
        out
    }

    /// Reads the footer, the last [`FOOTER_BYTES`] of a file of `file_bytes`.
    pub(crate) fn read(bytes: &[u8], file_bytes: u64) -> Result<Footer> {
        if bytes.len() != FOOTER_BYTES as usize || bytes[24..] != END_MAGIC {
            return Err(FileError::NoFooter.into());
        }
        check_crc("footer", u32_at(bytes, 20), &bytes[..20])?;
        let footer = Footer {
            index_at: u64_at(bytes, 0),
            index_bytes: u64_at(bytes, 8),
            index_crc: u32_at(bytes, 16),
        };
        let end =
            footer.index_at.checked_add(footer.index_bytes).and_then(|end| end.checked_add(FOOTER_BYTES));
        if end != Some(file_bytes) {
            let found = end.unwrap_or(u64::MAX);
            return Err(FileError::field(
                "the end of index and footer",
                found,
                format!("{file_bytes}, the end of the file"),
            ));
        }
        if footer.index_at < HEADER_BYTES {
            let allowed = format!("at least {HEADER_BYTES}");
            return Err(FileError::field("the place of the index", footer.index_at, allowed));
        }
        Ok(footer)
    }
}

pub(crate) fn check_crc(what: impl Into<String>, found: u32, bytes: &[u8]) -> Result<()> {
    let computed = crc32fast::hash(bytes);
    let refuse = || FileError::Check { what: what.into(), found, computed }.into();
    if found == computed { Ok(()) } else { Err(refuse()) }
}

/// What bytes that are no `.spz` file may be instead.
fn hint(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "; it is empty",
        [b'S', b'P', b'Z', b'F', b'R', b'A', b'M', b'E', ..] => "; it is a single frame",
        [_, _, _, _, _, 0, 0, 0, b'{', ..] => "; it looks like a safetensors file, which is compressed first",
        _ => "",
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
