//! Reading an `.spz` file: from bytes (a mapped file) or from anything that can seek.

use super::container::{Footer, FrameRecord, Header, Index, check_crc};
use super::original::safetensors_name;
use super::tensors::{Contents, MAX_HEADER_BYTES, Tensor};
use super::writer::check_frame;
use super::{Content, FOOTER_BYTES, FileError, HEADER_BYTES};
use crate::format::Frame;
use crate::{Error, Result};
use std::borrow::Cow;
use std::io::{Read, Seek, SeekFrom};

trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

enum Source<'a> {
    Bytes(&'a [u8]),
    Seek(Box<dyn ReadSeek + 'a>),
}

/// An `.spz` file whose header and index have been read and checked.
///
/// Opening reads three small parts; a frame is read, and its CRC checked, when it is asked for.
pub struct Reader<'a> {
    source: Source<'a>,
    file_bytes: u64,
    header: Header,
    index: Index,
}

impl<'a> Reader<'a> {
    /// Opens a file that lies in memory, or is mapped into it.
    ///
    /// # Errors
    /// Everything that `docs/files.md` says a reader must refuse in header, index and footer.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Reader<'a>> {
        Reader::open(Source::Bytes(bytes), bytes.len() as u64)
    }

    /// Opens a file that is read piece by piece.
    ///
    /// # Errors
    /// As [`Reader::from_bytes`], and what the input returns.
    pub fn from_seek(mut input: impl Read + Seek + Send + 'a) -> Result<Reader<'a>> {
        let file_bytes = input.seek(SeekFrom::End(0))?;
        Reader::open(Source::Seek(Box::new(input)), file_bytes)
    }

    fn open(mut source: Source<'a>, file_bytes: u64) -> Result<Reader<'a>> {
        let header = Header::read(&source.read(0, HEADER_BYTES.min(file_bytes))?, file_bytes)?;
        let footer_at = file_bytes.saturating_sub(FOOTER_BYTES).max(HEADER_BYTES);
        let footer =
            Footer::read(&source.read(footer_at, file_bytes.saturating_sub(footer_at))?, file_bytes)?;
        let index = Index::read(&source.read(footer.index_at, footer.index_bytes)?, &footer, &header)?;
        Ok(Reader { source, file_bytes, header, index })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// SHA-256 of the original file.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.index.sha256
    }

    /// The frames, in order.
    pub fn frames(&self) -> &[FrameRecord] {
        &self.index.frames
    }

    /// Size of the `.spz` file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Reads the bytes of frame number `frame` and checks their CRC: borrowed from a file in memory, else read.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`FileError::Check`], what the input returns.
    pub fn frame_bytes(&mut self, frame: usize) -> Result<Cow<'a, [u8]>> {
        let count = self.index.frames.len() as u64;
        let record = self.index.frames.get(frame);
        let record = *record.ok_or(Error::OutOfRange { what: "frame", given: frame as u64, count })?;
        let bytes = self.source.read(record.at, record.padded_bytes())?;
        check_crc(format!("frame {frame}"), record.crc, &bytes)?;
        check_padding(frame as u64, &bytes, record.bytes)?;
        Ok(first(bytes, record.bytes))
    }

    /// The bytes of a frame whatever their CRC is: to see what is damaged.
    pub(super) fn damaged_bytes(&mut self, frame: usize) -> Result<Cow<'a, [u8]>> {
        let record = self.index.frames[frame];
        Ok(first(self.source.read(record.at, record.padded_bytes())?, record.bytes))
    }

    /// Parses bytes that [`Reader::frame_bytes`] gave, and checks them against the index.
    ///
    /// # Errors
    /// [`FileError::Frame`] with what [`Frame::parse`] returns, or for a frame that is not what the index says.
    pub fn parse<'f>(&self, frame: usize, bytes: &'f [u8]) -> Result<Frame<'f>> {
        let wrap = |source| Error::from(FileError::Frame { frame: frame as u64, source: Box::new(source) });
        let parsed = Frame::parse(bytes).map_err(wrap)?;
        check_frame(&parsed).map_err(wrap)?;
        let record = &self.index.frames[frame];
        for (what, found, expected) in [
            ("size", parsed.bytes().len() as u64, record.bytes),
            ("raw size", parsed.layout().raw_bytes, record.raw_bytes),
            ("number of pieces", parsed.len() as u64, record.pieces.into()),
        ] {
            if found != expected {
                let what = format!("the {what} of frame {frame}");
                return Err(FileError::field(what, found, format!("{expected}, as the index says")));
            }
        }
        Ok(parsed)
    }

    /// The tensors of the original, when it is a safetensors file: read from the stored pieces at its start, so nothing
    /// is decoded.
    ///
    /// # Errors
    /// A start that is not stored, or is no header of a safetensors file; what [`Reader::frame_bytes`] returns.
    pub fn contents(&mut self) -> Result<Option<Contents>> {
        self.contents_by(Self::frame_bytes)
    }

    /// The same from frames that are read so.
    pub(super) fn contents_by(
        &mut self,
        read: impl Fn(&mut Self, usize) -> Result<Cow<'a, [u8]>>,
    ) -> Result<Option<Contents>> {
        if self.header.content != Content::Safetensors {
            return Ok(None);
        }
        let raw_bytes = self.header.raw_bytes;
        let mut start = Vec::new();
        for frame in 0..self.index.frames.len() {
            let bytes = read(self, frame)?;
            let parsed = self.parse(frame, &bytes)?;
            for piece in parsed.tensors() {
                let stored = piece.stored();
                let mut rest = stored.ok_or_else(|| {
                    FileError::safetensors("the header in the .spz file is coded, and must be stored")
                })?;
                // First the length of the header, then the header.
                loop {
                    let missing = needed(&start, raw_bytes)? - start.len();
                    if missing == 0 {
                        return Contents::read(&start, raw_bytes).map(Some);
                    }
                    if rest.is_empty() {
                        break;
                    }
                    let (part, behind) = rest.split_at(rest.len().min(missing));
                    start.extend(part);
                    rest = behind;
                }
            }
        }
        Contents::read(&start, raw_bytes).map(Some)
    }
}

impl Reader<'_> {
    /// What pieces with a name say of the tensors of any bytes: neighbours of one name are one tensor. Nothing is decoded.
    ///
    /// # Errors
    /// What [`Reader::frame_bytes`] and [`Reader::parse`] return.
    pub fn pieces(&mut self) -> Result<Contents> {
        let mut tensors: Vec<Tensor> = Vec::new();
        for (frame, record) in self.index.frames.clone().into_iter().enumerate() {
            let bytes = self.frame_bytes(frame)?;
            let parsed = self.parse(frame, &bytes)?;
            let mut at = record.raw_at;
            for piece in parsed.tensors() {
                let (spec, layout) = (piece.spec(), piece.layout());
                let start = at;
                at += layout.bytes;
                if spec.name.is_empty() {
                    continue;
                }
                let dtype = safetensors_name(layout.dtype).to_owned();
                match tensors
                    .last_mut()
                    .filter(|last| last.name == spec.name && last.at + last.bytes == start)
                {
                    Some(last) => {
                        // A part that did not shrink is stored as bytes: the others say what it is.
                        if layout.dtype.is_float() {
                            last.dtype = dtype;
                        }
                        last.bytes += layout.bytes;
                        let size = last.float().map_or(1, |dtype| dtype.bytes() as u64);
                        last.shape = vec![last.bytes / size];
                    }
                    None => tensors.push(Tensor {
                        name: spec.name.clone(),
                        dtype,
                        shape: spec.shape.clone(),
                        at: start,
                        bytes: layout.bytes,
                    }),
                }
            }
        }
        let data_at = tensors.first().map_or(self.header.raw_bytes, |tensor| tensor.at);
        Ok(Contents::new(tensors, data_at))
    }
}

/// The first bytes, without the others.
fn first(bytes: Cow<'_, [u8]>, length: u64) -> Cow<'_, [u8]> {
    let length = length as usize;
    match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..length]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(length);
            Cow::Owned(bytes)
        }
    }
}

/// The bytes behind a frame are zeros.
pub(super) fn check_padding(frame: u64, bytes: &[u8], length: u64) -> Result<()> {
    let padding = bytes.get(length as usize..).unwrap_or(&[]);
    let Some(at) = padding.iter().position(|&byte| byte != 0) else { return Ok(()) };
    let what = format!("byte {at} of the padding of frame {frame}");
    Err(FileError::field(what, padding[at].into(), "0"))
}

/// Bytes of the length field and the header of a safetensors file, as far as `start` tells.
fn needed(start: &[u8], raw_bytes: u64) -> Result<usize> {
    let Some(length) = start.first_chunk::<8>() else { return Ok(8) };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES || length > raw_bytes {
        return Err(FileError::safetensors(format!("its header has {length} bytes")));
    }
    Ok(8 + length as usize)
}

impl<'a> Source<'a> {
    fn read(&mut self, at: u64, bytes: u64) -> Result<Cow<'a, [u8]>> {
        let too_large = |_| Error::TooLarge { what: "a part of the file", bits: usize::BITS };
        let length = usize::try_from(bytes).map_err(too_large)?;
        match self {
            Source::Bytes(all) => {
                let start = usize::try_from(at).map_err(too_large)?;
                let end = start.checked_add(length).filter(|&end| end <= all.len());
                let end = end.ok_or(FileError::Truncated {
                    what: "a part",
                    needed: at.saturating_add(bytes),
                    got: all.len() as u64,
                })?;
                Ok(Cow::Borrowed(&all[start..end]))
            }
            Source::Seek(input) => {
                input.seek(SeekFrom::Start(at))?;
                let mut out = Vec::new();
                input.take(bytes).read_to_end(&mut out)?;
                if out.len() < length {
                    let (needed, got) = (at.saturating_add(bytes), at.saturating_add(out.len() as u64));
                    return Err(FileError::Truncated { what: "a part", needed, got }.into());
                }
                Ok(Cow::Owned(out))
            }
        }
    }
}
