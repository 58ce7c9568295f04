//! Reading offloaded KV from files, slice by slice while it goes back to the device: of a part of the tokens those slices that hold some of them.
//!
//! A file is trusted with nothing: the index is under a checksum and must say what follows from it, frames are compared with it, and kernels check what they decode.

use super::kept::{Offloaded, OffloadedSlice};
use super::pinned::PinnedPool;
use super::saved::{ALIGNMENT, Direct, END_MAGIC, FOOTER_BYTES, FileIo, MAGIC, PIECE, RECORD};
use super::slices::Piece;
use super::{DeviceKv, OffloadError, Offloader, StreamHandle, work};
use crate::file::{FileError, join};
use crate::format::sealed_words;
use crate::{Error, FrameSpec, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Slices that are read, or on their way to the device, at a time.
const AHEAD: usize = 2;

/// A file of offloaded KV, of which the index was read.
#[derive(Debug)]
pub struct KvFile {
    path: PathBuf,
    file: File,
    spec: FrameSpec,
    slices: Vec<FileSlice>,
    io: FileIo,
}

/// A slice in a file.
#[derive(Clone, Debug)]
struct FileSlice {
    at: u64,
    bytes: u64,
    pieces: Vec<Piece>,
}

fn refuse(reason: impl Into<String>) -> Error {
    OffloadError::File { reason: reason.into() }.into()
}

impl KvFile {
    /// Opens a file and reads its index.
    ///
    /// # Errors
    /// [`OffloadError::File`] for anything that is not a whole file; what the file system says.
    pub fn open(path: &Path) -> Result<KvFile> {
        let failed = |error| FileError::io("read", path)(error);
        let mut file = File::open(path).map_err(FileError::io("open", path))?;
        let size = file.metadata().map_err(failed)?.len();
        let mut read = |at: u64, bytes: u64| {
            let mut out = vec![0; bytes as usize];
            file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut out)).map_err(failed)?;
            Ok::<_, Error>(out)
        };
        if size < ALIGNMENT + FOOTER_BYTES || read(0, 8)? != MAGIC {
            return Err(refuse("it does not start as one"));
        }
        let version = read(8, 4)?;
        if version != [1, 0, 0, 0] {
            return Err(refuse(format!(
                "version {}.{} is unknown; this reader knows 1.0",
                version[0], version[2]
            )));
        }
        let footer = read(size - FOOTER_BYTES, FOOTER_BYTES)?;
        if footer[40..] != END_MAGIC || crc32fast::hash(&footer[..36]).to_le_bytes() != footer[36..40] {
            return Err(refuse("its end is missing or damaged; it was not written to the end"));
        }
        let [index_at, index_bytes, spec_bytes, count] = [0, 8, 16, 24].map(|at| word(&footer, at));
        if index_at.checked_add(index_bytes) != Some(size - FOOTER_BYTES) || spec_bytes > index_bytes {
            return Err(refuse("its end does not fit its size"));
        }
        let index = read(index_at, index_bytes)?;
        if crc32fast::hash(&index).to_le_bytes() != footer[32..36] {
            return Err(refuse("its index is damaged"));
        }
        let (spec, records) = index.split_at(spec_bytes as usize);
        let spec = FrameSpec::read(spec)?;
        let slices = read_slices(records, count, index_at, &spec)?;
        Ok(KvFile { path: path.to_owned(), file, spec, slices, io: FileIo::default() })
    }

    /// The same file, its slices read another way.
    pub fn with_io(mut self, io: FileIo) -> KvFile {
        self.io = io;
        self
    }

    /// The tensors.
    pub fn spec(&self) -> &FrameSpec {
        &self.spec
    }

    /// Its slices.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Reads a slice into page-locked memory, and looks at its frame.
    fn read(
        &self,
        of: &FileSlice,
        direct: &mut Option<Direct>,
        pool: &PinnedPool,
        patience: Duration,
    ) -> Result<OffloadedSlice> {
        let mut block = pool.take("a slice of a file", of.bytes, patience, &[])?;
        let failed = |error| FileError::io("read", &self.path)(error);
        // A file ends with its index: what fills the last page of a slice is there as well.
        let read = match direct {
            // SAFETY: the block is new.
            Some(file) => file.read(of.at, unsafe { block.pages_mut() }),
            None => {
                let mut file = &self.file;
                // SAFETY: as above.
                file.seek(SeekFrom::Start(of.at))
                    .and_then(|_| file.read_exact(unsafe { block.as_mut_slice() }))
            }
        };
        read.map_err(failed)?;
        // SAFETY: it is full.
        let spec = slice_spec(unsafe { block.as_slice() }, of, &self.spec)?;
        Ok(OffloadedSlice { block: Arc::new(block), spec, pieces: of.pieces.clone() })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The records of an index, which lies at `index_at`.
fn read_slices(mut records: &[u8], count: u64, index_at: u64, spec: &FrameSpec) -> Result<Vec<FileSlice>> {
    let mut next = |bytes: usize| {
        let (record, rest) =
            records.split_at_checked(bytes).ok_or_else(|| refuse("its index is too short"))?;
        records = rest;
        Ok::<_, Error>(record)
    };
    let mut slices = Vec::new();
    let mut end = ALIGNMENT;
    for _ in 0..count {
        let record = next(RECORD)?;
        let [at, bytes, pieces] = [0, 8, 16].map(|at| word(record, at));
        let slice_end = at.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        if at != end || slice_end.is_none_or(|end| end > index_at) {
            return Err(refuse("a slice is not where it has to be"));
        }
        end = slice_end.unwrap_or(end);
        let mut slice = FileSlice { at, bytes, pieces: Vec::new() };
        for _ in 0..pieces {
            let record = next(PIECE)?;
            let [tensor, start, rows_end, row_bytes] = [0, 8, 16, 24].map(|at| word(record, at));
            let of = usize::try_from(tensor).ok().and_then(|tensor| spec.tensors.get(tensor));
            let of = of.ok_or_else(|| refuse("a slice has a tensor that is not there"))?;
            let bytes = of.elements()?.saturating_mul(of.dtype.bytes() as u64);
            let inside = rows_end.checked_mul(row_bytes).is_some_and(|end| end <= bytes);
            if start > rows_end || !inside || row_bytes == 0 {
                return Err(refuse("a slice has rows that its tensor has not"));
            }
            slice.pieces.push(Piece { tensor: tensor as usize, rows: start..rows_end, row_bytes });
        }
        slices.push(slice);
    }
    if end != index_at || !records.is_empty() {
        return Err(refuse("its index does not end where it has to"));
    }
    Ok(slices)
}

/// What the frame of a slice holds, after comparing it with what the index says; `None` for tensors as they are.
fn slice_spec(bytes: &[u8], of: &FileSlice, whole: &FrameSpec) -> Result<Option<FrameSpec>> {
    if !bytes.starts_with(&crate::format::MAGIC) {
        let raw = super::raw::places(&of.pieces).1;
        return if raw == of.bytes {
            Ok(None)
        } else {
            Err(refuse("a slice is neither a frame nor its tensors"))
        };
    }
    let spec = FrameSpec::read(bytes)?;
    let layout = spec.layout()?;
    let words = sealed_words(bytes, &layout)?;
    if layout.variable_parts(words)?.end != of.bytes || spec.tensors.len() != of.pieces.len() {
        return Err(refuse("a frame has another size than the index says"));
    }
    for ((tensor, piece), layout) in spec.tensors.iter().zip(&of.pieces).zip(&layout.tensors) {
        let expected = &whole.tensors[piece.tensor];
        let bytes = piece.bytes();
        let is_it = tensor.name == expected.name && tensor.dtype == expected.dtype;
        if !is_it || layout.bytes != bytes.end - bytes.start {
            return Err(refuse(format!("a frame has another tensor than {:?}", expected.name)));
        }
    }
    Ok(Some(spec))
}

impl Offloader {
    /// Reads KV from a file to the device: all tensors, or those tensors and tokens that `to` has in pages, and of the file nothing else. One slice is read while
    /// the ones before are copied and decoded. Returns when all is there; later work on `stream` finds it.
    ///
    /// # Errors
    /// As [`Offloader::reload`] and [`Reloading::wait`](super::Reloading::wait); [`OffloadError::File`]; what the file system says.
    ///
    /// # Safety
    /// As [`Offloader::reload`].
    pub unsafe fn reload_file(
        &self,
        file: &KvFile,
        tokens: Option<Range<u64>>,
        to: DeviceKv<'_>,
        stream: StreamHandle,
    ) -> Result<()> {
        let wanted = work::wanted(&file.spec, tokens.clone(), to)?;
        let is_wanted = |slice: &&FileSlice| match to {
            DeviceKv::Tensors(_) => true,
            DeviceKv::Pages { .. } => slice.pieces.iter().any(|piece| {
                wanted.iter().any(|(tensor, tokens)| {
                    let (row, bytes) = (work::token_bytes(&file.spec, *tensor), piece.bytes());
                    *tensor == piece.tensor
                        && tokens.start * row < bytes.end
                        && bytes.start < tokens.end * row
                })
            }),
        };
        let slices: Vec<&FileSlice> = file.slices.iter().filter(is_wanted).collect();
        std::thread::scope(|scope| {
            let (ready, arrived) = sync_channel(AHEAD);
            let thread = std::thread::Builder::new().name("splitzip-read".to_owned());
            let reader = thread.spawn_scoped(scope, || {
                let ready = ready;
                let mut direct = Direct::beside(&file.path, file.io);
                for slice in slices {
                    let read = file.read(slice, &mut direct, &self.pool, self.options.patience);
                    let failed = read.is_err();
                    // Nobody takes it when an earlier one could not be reloaded.
                    if ready.send(read).is_err() || failed {
                        break;
                    }
                }
            })?;
            let mut in_flight = std::collections::VecDeque::new();
            let mut reload = || {
                while let Ok(slice) = arrived.recv() {
                    let part = Offloaded { spec: file.spec.clone(), slices: vec![slice?] };
                    // SAFETY: by contract.
                    in_flight.push_back(unsafe { self.reload(&Arc::new(part), tokens.clone(), to, stream) }?);
                    if in_flight.len() > AHEAD
                        && let Some(first) = in_flight.pop_front()
                    {
                        first.wait()?;
                    }
                }
                in_flight.drain(..).try_for_each(super::Reloading::wait)
            };
            let result = reload();
            drop(arrived);
            join(reader);
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::saved::file_of;
    use super::super::slices::{Rows, cut};
    use super::*;
    use crate::conformance::Content;
    use crate::{Dtype, Executor, Flags, Reference, Scheme, TensorSpec};

    /// A file of two tensors in three slices.
    fn file() -> (FrameSpec, Vec<u8>) {
        let tensor = |name, tokens| TensorSpec::new(name, Dtype::Bf16, Scheme::W2x3, &[tokens, 2, 64]);
        let spec = FrameSpec::new(vec![tensor("k", 300), tensor("v", 40)], Flags::default());
        let inputs = [300, 40].map(|tokens| Content::Mixed.bytes(Dtype::Bf16, tokens * 128, 64));
        let slices = cut(&spec, Rows::Tokens, 40 << 10).unwrap().into_iter().map(|slice| {
            let bytes = |piece: &Piece| {
                &inputs[piece.tensor][piece.bytes().start as usize..piece.bytes().end as usize]
            };
            let pieces: Vec<&[u8]> = slice.pieces.iter().map(bytes).collect();
            (Reference.encode_to_vec(&slice.spec, &[], &pieces).unwrap(), slice.pieces)
        });
        let slices: Vec<_> = slices.collect();
        assert_eq!(slices.len(), 3);
        let bytes = file_of(&spec, &slices);
        (spec, bytes)
    }

    fn open(bytes: &[u8]) -> Result<KvFile> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        KvFile::open(file.path())
    }

    #[test]
    fn the_index_says_what_was_written() {
        let (spec, bytes) = file();
        let opened = open(&bytes).unwrap();
        assert_eq!((opened.spec(), opened.len(), opened.is_empty()), (&spec, 3, false));
        for slice in &opened.slices {
            let frame = &bytes[slice.at as usize..][..slice.bytes as usize];
            let of = slice_spec(frame, slice, &spec).unwrap().unwrap();
            assert_eq!(of.tensors.len(), slice.pieces.len());
        }
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_refused() {
        let (_, bytes) = file();
        for end in (0..bytes.len()).step_by(61).chain([bytes.len() - 1]) {
            let error = open(&bytes[..end]).unwrap_err().to_string();
            assert!(error.starts_with("this is no offloaded KV"), "{end}: {error}");
        }
    }

    #[test]
    fn every_flipped_bit_of_index_and_footer_is_found() {
        let (_, bytes) = file();
        let index_at = word(&bytes, bytes.len() - FOOTER_BYTES as usize) as usize;
        for at in (0..12).chain(index_at..bytes.len()) {
            for bit in [0, 3, 7] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(open(&damaged).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn slices_are_compared_with_the_index() {
        let (spec, bytes) = file();
        let opened = open(&bytes).unwrap();
        let frame = |slice: &FileSlice| &bytes[slice.at as usize..][..slice.bytes as usize];
        let [first, second, third] = &opened.slices[..] else { panic!("three slices") };
        // Frames of other slices, of other tensors, cut off, and none.
        assert!(slice_spec(frame(third), first, &spec).is_err());
        assert!(slice_spec(frame(second), third, &spec).is_err());
        assert!(slice_spec(&frame(first)[..200], first, &spec).is_err());
        assert!(slice_spec(&vec![7; first.bytes as usize], first, &spec).is_err());
        // Tensors as they are have just their bytes.
        let raw = FileSlice { bytes: super::super::raw::places(&first.pieces).1, ..first.clone() };
        assert_eq!(slice_spec(&vec![7; raw.bytes as usize], &raw, &spec).unwrap(), None);
    }
}
