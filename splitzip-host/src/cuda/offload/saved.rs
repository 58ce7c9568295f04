//! Writing offloaded KV to files, slice by slice while it comes from the device. `docs/files.md` specifies the bytes.
//!
//! Slices start at multiples of 4096, so that they can go past the cache of the system, which holds nothing that is read again soon and costs a copy by the CPU. The index is at
//! the end; a file without it was not written to the end.

use super::Offloading;
use super::counters::Sizes;
use super::slices::Piece;
use crate::file::{FileError, Target};
use crate::format::write;
use crate::{FrameSpec, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// The first bytes of a file of offloaded KV.
pub(super) const MAGIC: [u8; 8] = [0x89, b'S', b'P', b'Z', b'K', b'V', b'\r', b'\n'];
/// The last bytes of one.
pub(super) const END_MAGIC: [u8; 8] = *b"SPZKVEND";
/// Major and minor version.
pub(super) const VERSION: (u16, u16) = (1, 0);
/// Slices start at multiples of this; the header has so many bytes.
pub(super) const ALIGNMENT: u64 = super::extents::ALIGNMENT;
/// Bytes of the footer.
pub(super) const FOOTER_BYTES: u64 = 48;
/// Bytes of the record of a slice.
pub(super) const RECORD: usize = 24;
/// Bytes of one of its pieces.
pub(super) const PIECE: usize = 32;

/// How a file is written or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileIo {
    /// Past the cache of the system (direct I/O), which costs the CPU no copy; as [`FileIo::Cached`] where the file system does not have that.
    #[default]
    Direct,
    /// Through the cache of the system: for what is read again soon, while there is memory for it.
    Cached,
}

/// The header.
fn header() -> Vec<u8> {
    let mut header = vec![0; ALIGNMENT as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&VERSION.0.to_le_bytes());
    header[10..12].copy_from_slice(&VERSION.1.to_le_bytes());
    header
}

/// Where slices lie, for the index.
struct Records {
    bytes: Vec<u8>,
    slices: u64,
    /// Where the next slice starts.
    at: u64,
}

impl Records {
    fn new() -> Records {
        Records { bytes: Vec::new(), slices: 0, at: ALIGNMENT }
    }

    /// Adds a slice of so many bytes.
    fn push(&mut self, bytes: u64, pieces: &[Piece]) {
        self.words(&[self.at, bytes, pieces.len() as u64]);
        for piece in pieces {
            self.words(&[piece.tensor as u64, piece.rows.start, piece.rows.end, piece.row_bytes]);
        }
        self.slices += 1;
        self.at = (self.at + bytes).next_multiple_of(ALIGNMENT);
    }

    fn words(&mut self, words: &[u64]) {
        self.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    /// Index and footer: what a file ends with, from where the next slice would start.
    fn end(self, spec: &FrameSpec) -> Result<Vec<u8>> {
        let mut index = write::static_bytes(spec, &spec.layout()?);
        let spec_bytes = index.len() as u64;
        index.extend(self.bytes);
        let mut footer = Vec::with_capacity(FOOTER_BYTES as usize);
        let words = [self.at, index.len() as u64, spec_bytes, self.slices];
        footer.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        footer.extend(crc32fast::hash(&index).to_le_bytes());
        footer.extend(crc32fast::hash(&footer).to_le_bytes());
        footer.extend(END_MAGIC);
        index.extend(footer);
        Ok(index)
    }
}

impl Offloading {
    /// Writes the KV to a file while it arrives, and gives the memory of the host back slice by slice; returns the bytes of the file. The file gets its name when it is
    /// complete and on disk; `replace` allows one that exists.
    ///
    /// # Errors
    /// As [`Offloading::wait`]; what the file system says.
    pub fn save(self, path: &Path, replace: bool) -> Result<u64> {
        self.save_with(path, replace, FileIo::default())
    }

    /// The same, written another way.
    ///
    /// # Errors
    /// As [`Offloading::save`].
    pub fn save_with(self, path: &Path, replace: bool, io: FileIo) -> Result<u64> {
        let mut out = Target::create(path, replace)?;
        let failed = |error| FileError::io("write", path)(error);
        out.file().write_all(&header()).map_err(failed)?;
        let mut direct = Direct::beside(out.temporary(), io);
        let (mut records, mut sizes) = (Records::new(), Vec::new());
        while let Some(mut slice) = self.next()? {
            let at = records.at;
            // Who shares it with the thread of the offloader has the end cleared already.
            if let Some(block) = Arc::get_mut(&mut slice.block) {
                block.clear_padding();
            }
            match &mut direct {
                // SAFETY: its copy is over.
                Some(file) => file.write(at, unsafe { slice.block.pages() }).map_err(failed)?,
                None => {
                    out.file().seek(SeekFrom::Start(at)).map_err(failed)?;
                    // SAFETY: as above.
                    out.file().write_all(unsafe { slice.block.as_slice() }).map_err(failed)?;
                }
            }
            records.push(slice.block.bytes(), &slice.pieces);
            sizes.push(Sizes::of(&slice));
        }
        let at = records.at;
        let end = records.end(&self.spec())?;
        out.file().seek(SeekFrom::Start(at)).map_err(failed)?;
        out.file().write_all(&end).map_err(failed)?;
        out.commit()?;
        self.count_sizes(sizes);
        Ok(at + end.len() as u64)
    }
}

/// The file past the cache of the system, where the file system has that.
pub(crate) struct Direct(File);

impl Direct {
    /// `None` where it is not wanted, or not to be had.
    #[cfg(target_os = "linux")]
    pub fn beside(path: &Path, io: FileIo) -> Option<Direct> {
        use std::os::unix::fs::OpenOptionsExt;
        if io == FileIo::Cached {
            return None;
        }
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
        File::options().read(true).write(true).custom_flags(flags).open(path).ok().map(Direct)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn beside(_: &Path, _: FileIo) -> Option<Direct> {
        None
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.seek(SeekFrom::Start(at))?;
        self.0.write_all(bytes)
    }

    pub fn read(&mut self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.0.seek(SeekFrom::Start(at))?;
        self.0.read_exact(bytes)
    }
}

/// A file of frames that were encoded elsewhere, for tests without a device.
#[cfg(test)]
pub(super) fn file_of(spec: &FrameSpec, slices: &[(Vec<u8>, Vec<Piece>)]) -> Vec<u8> {
    let (mut out, mut records) = (header(), Records::new());
    for (bytes, pieces) in slices {
        records.push(bytes.len() as u64, pieces);
        out.extend(bytes);
        out.resize(records.at as usize, 0);
    }
    out.extend(records.end(spec).unwrap());
    out
}
