//! Saves to a file and reloads from one, beside a plain copy between page-locked memory and a file of the same raw bytes.
//!
//! A save is timed until the file is on disk (fsync) under its name; a reload from opening the file until all is on the device. Before bytes are read through the cache of
//! the system, that is asked to drop what it has of the file. What a drive, or the host of a virtual machine, keeps in memory of its own is out of reach.

use super::{LAYER, TOKEN_BYTES, TransferSubject, pools, times_of};
use crate::cuda::offload::{DeviceKv, Direct, FileIo, KvFile, OffloadOptions, Offloader, PinnedBlock};
use crate::cuda::{DevicePool, StreamHandle};
use crate::file::{FileError, Target};
use crate::measure::{Effort, Times};
use crate::paged::Paged;
use crate::{Bases, CodebookChoice, FrameSpec, Result, Scheme};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

/// Direct I/O wants places, lengths and addresses to be multiples of this.
const PAGE: u64 = 4096;

/// Tokens of a part are one in so many.
const PARTS: u64 = 8;

/// The times of a way to move a request to a file and back.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct MeasuredFile {
    /// Bytes in front of the codec.
    pub raw_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Raw bytes of the part.
    pub part_bytes: u64,
    /// Raw bytes of a slice, or of what is copied at once.
    pub slice_bytes: u64,
    /// From the device to the file.
    pub save: Times,
    /// From the file to the device.
    pub reload: Times,
    /// The same of an eighth of the tokens.
    pub part: Times,
}

impl MeasuredFile {
    /// Raw bytes by bytes of the file.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.file_bytes.max(1) as f64
    }
}

/// A folder for the files that are measured. It is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct FileFolder {
    folder: TempDir,
    has_direct_io: bool,
    is_in_memory: bool,
}

impl FileFolder {
    /// Makes a folder in another one, where files can be written that hold so many raw bytes, one at a time.
    ///
    /// # Errors
    /// [`FileError::NoDirectory`], [`FileError::NoRoom`]; what the file system says where nothing can be written.
    pub fn new(parent: &Path, raw_bytes: u64) -> Result<FileFolder> {
        if !parent.exists() {
            return Err(FileError::NoDirectory { path: parent.to_owned() }.into());
        }
        let folder = tempfile::Builder::new().prefix(".splitzip-bench-").tempdir_in(parent);
        // What the crate says has the name of a folder that is not there; its kind says why.
        let folder =
            folder.map_err(|error| FileError::io("create a folder in", parent)(error.kind().into()))?;
        // However badly it is coded: raw chunks, directories, headers.
        let needed = raw_bytes.saturating_add(raw_bytes / 16).saturating_add(1 << 20);
        let (free, is_in_memory) = file_system(parent)?;
        if let Some(free) = free.filter(|&free| free < needed) {
            return Err(FileError::NoRoom { path: parent.to_owned(), needed, free }.into());
        }
        let has_direct_io = writes_directly(&folder.path().join("page"))?;
        Ok(FileFolder { folder, has_direct_io, is_in_memory })
    }

    /// Whether its file system has direct I/O.
    pub fn has_direct_io(&self) -> bool {
        self.has_direct_io
    }

    /// Whether its file system lies in memory, as far as the system tells.
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
}

/// Bytes that are free where a folder lies, and whether that is memory.
#[cfg(target_os = "linux")]
fn file_system(folder: &Path) -> Result<(Option<u64>, bool)> {
    // tmpfs and ramfs, by their numbers in the kernel.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let failed = |error: rustix::io::Errno| FileError::io("look at the file system of", folder)(error.into());
    let room = rustix::fs::statvfs(folder).map_err(failed)?;
    let kind = rustix::fs::statfs(folder).map_err(failed)?.f_type;
    let is_in_memory = u64::try_from(kind).is_ok_and(|kind| IN_MEMORY.contains(&kind));
    Ok((Some(room.f_bavail.saturating_mul(room.f_frsize)), is_in_memory))
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &Path) -> Result<(Option<u64>, bool)> {
    Ok((None, false))
}

/// Whether a page can be written past the cache of the system: some file systems open such files and refuse what is written.
fn writes_directly(path: &Path) -> Result<bool> {
    File::create(path).map_err(FileError::io("create", path))?;
    let memory = vec![0; 2 * PAGE as usize];
    let start = memory.as_ptr().align_offset(PAGE as usize);
    let page = memory.get(start..start + PAGE as usize);
    let direct = Direct::beside(path, FileIo::Direct);
    Ok(direct.zip(page).is_some_and(|(mut file, page)| file.write(0, page).is_ok()))
}

/// Asks the system to drop what it has of a file that is on disk.
fn forget(path: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let file = File::open(path).map_err(FileError::io("open", path))?;
        let advised = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        advised.map_err(|error| FileError::io("empty the cache of", path)(error.into()))?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = path;
    Ok(())
}

/// How slices are coded. Where there is none of this, bytes are copied as they are.
struct Coding {
    spec: FrameSpec,
    codebooks: Vec<CodebookChoice>,
}

/// A request that is moved to a file and back, in one way after the other.
struct FileMover<'s> {
    of: &'s TransferSubject,
    path: PathBuf,
    io: FileIo,
    offloader: Offloader,
    /// Where the request is, where it comes back to, and the part of that.
    from: Paged<'s>,
    to: Paged<'s>,
    to_part: Paged<'s>,
    pools: [Vec<DevicePool>; 2],
    part: Range<u64>,
    /// The request as it is, tensor by tensor.
    block: PinnedBlock,
    /// Bytes of it that are written or read at once.
    piece: u64,
}

impl TransferSubject {
    /// Tokens of a part of the request: an eighth, but at least a page.
    fn part(&self) -> Range<u64> {
        let tokens = self.tokens.div_ceil(PARTS).next_multiple_of(LAYER.page_tokens).min(self.tokens);
        let start = tokens.min(self.tokens - tokens);
        start..start + tokens
    }

    /// Saves the request to a file and reloads it, in whole and [an eighth of its tokens](MeasuredFile::part): the first result is that of a plain copy between page-locked memory and
    /// a file, the others are those of the codings. All are measured in turns: whatever else the machine does meets them alike. What comes back is compared, of every way once.
    ///
    /// Slices have at most an eighth of a tensor, so that little else is read with a part; plain copies are made in pieces as large. `progress` is called after
    /// every turn of a way, one more of each than there are runs; its error ends the work.
    ///
    /// # Errors
    /// What the offloader and the file system say; [`Error::Differs`](crate::Error::Differs); a pool without room for the request as it is.
    pub fn files(
        &self,
        folder: &FileFolder,
        io: FileIo,
        codings: &[(Scheme, Bases)],
        options: OffloadOptions,
        effort: &Effort,
        progress: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<MeasuredFile>> {
        let part = self.part();
        let slice_bytes = options.slice_bytes.min((part.end - part.start) * TOKEN_BYTES / 2);
        let to = self.bind(true)?;
        let mut mover = FileMover {
            of: self,
            path: folder.folder.path().join("kv.spzkv"),
            io,
            offloader: Offloader::new(&self.cuda, &self.pool, options.with_slice_bytes(slice_bytes))?,
            from: self.bind(false)?,
            to_part: to.slice(part.clone())?,
            to,
            pools: [pools(&self.source), pools(&self.target)],
            part,
            block: self.block()?,
            piece: slice_bytes.max(1).next_multiple_of(PAGE),
        };
        mover.fill()?;
        let coding = |&(scheme, keys): &(Scheme, Bases)| {
            let spec = self.spec(scheme, keys)?;
            Ok(Some(Coding { codebooks: self.codebooks(&spec), spec }))
        };
        let codings = std::iter::once(Ok(None)).chain(codings.iter().map(coding));
        let codings: Vec<Option<Coding>> = codings.collect::<Result<_>>()?;
        let mut file_bytes = Vec::new();
        for coding in &codings {
            file_bytes.push(mover.check(coding.as_ref())?);
            progress()?;
        }
        let mut seconds = vec![[const { Vec::new() }; 3]; codings.len()];
        for _ in 0..effort.runs.max(1) {
            for (coding, [saves, reloads, parts]) in codings.iter().zip(&mut seconds) {
                saves.push(mover.save(coding.as_ref())?.0);
                reloads.push(mover.reload(coding.as_ref(), false)?);
                parts.push(mover.reload(coding.as_ref(), true)?);
                progress()?;
            }
        }
        tracing::debug!(counters = ?mover.offloader.counters(), "saves and reloads");
        let part_bytes = self.layers * TOKEN_BYTES * (mover.part.end - mover.part.start);
        let measured = |(file_bytes, [saves, reloads, parts]): (u64, [Vec<f64>; 3])| {
            Ok(MeasuredFile {
                raw_bytes: self.raw_bytes(),
                file_bytes,
                part_bytes,
                slice_bytes,
                save: times_of(&saves)?,
                reload: times_of(&reloads)?,
                part: times_of(&parts)?,
            })
        };
        file_bytes.into_iter().zip(seconds).map(measured).collect()
    }
}

impl FileMover<'_> {
    fn stream(&self) -> StreamHandle {
        StreamHandle::from(&*self.of.stream)
    }

    /// Fills the block with the request.
    fn fill(&self) -> Result<()> {
        self.of.copies(&self.block, &self.of.runs(false)?, true)
    }

    /// Saves and reloads, in whole and in part, and compares what came back; returns the bytes of the file.
    fn check(&mut self, coding: Option<&Coding>) -> Result<u64> {
        let bytes = self.save(coding)?.1;
        for is_part in [false, true] {
            self.of.spoil()?;
            if coding.is_none() {
                // SAFETY: every copy was waited for.
                unsafe { self.block.as_mut_slice() }.fill(0xa5);
            }
            self.reload(coding, is_part)?;
            if coding.is_none() {
                self.of.copies(&self.block, &self.of.runs(true)?, false)?;
            }
            self.of.compare(if is_part { self.part.clone() } else { 0..self.of.tokens })?;
        }
        if coding.is_none() {
            // Only the part is in it.
            self.fill()?;
        }
        Ok(bytes)
    }

    /// Writes the file; returns how long that took, and its bytes. The one before is removed first, which takes long as well and is no part of it.
    fn save(&self, coding: Option<&Coding>) -> Result<(f64, u64)> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(FileError::io("remove", &self.path)(error));
            }
            _ => {}
        }
        let start = Instant::now();
        let bytes = match coding {
            Some(Coding { spec, codebooks }) => {
                let from = DeviceKv::Pages { of: &self.from, pools: &self.pools[0] };
                // SAFETY: the subject keeps the memory, and nobody writes to it.
                let offloading = unsafe { self.offloader.offload(spec, codebooks, from, self.stream()) }?;
                offloading.save_with(&self.path, false, self.io)?
            }
            None => self.write()?,
        };
        Ok((start.elapsed().as_secs_f64(), bytes))
    }

    /// Reads the file, or the part of it; returns how long that took.
    fn reload(&mut self, coding: Option<&Coding>, is_part: bool) -> Result<f64> {
        if self.io == FileIo::Cached {
            forget(&self.path)?;
        }
        let start = Instant::now();
        if coding.is_some() {
            let file = KvFile::open(&self.path)?.with_io(self.io);
            let (of, tokens) =
                if is_part { (&self.to_part, Some(self.part.clone())) } else { (&self.to, None) };
            let to = DeviceKv::Pages { of, pools: &self.pools[1] };
            // SAFETY: the subject keeps the memory, and nobody else uses it.
            unsafe { self.offloader.reload_file(&file, tokens, to, self.stream()) }?;
        } else {
            self.read(is_part)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Writes the block to the file.
    fn write(&self) -> Result<u64> {
        let failed = |error| FileError::io("write", &self.path)(error);
        let mut out = Target::create(&self.path, false)?;
        let mut direct = Direct::beside(out.temporary(), self.io);
        // SAFETY: it is full, and every copy was waited for.
        let bytes = unsafe { self.block.as_slice() };
        let mut at = 0;
        for piece in bytes.chunks(self.piece as usize) {
            let written = match &mut direct {
                Some(file) => file.write(at, piece),
                None => out.file().write_all(piece),
            };
            written.map_err(failed)?;
            at += piece.len() as u64;
        }
        out.commit()?;
        Ok(at)
    }

    /// Reads the file, or those pages that hold the part, to where its bytes were in the block.
    fn read(&mut self, is_part: bool) -> Result<()> {
        let failed = |error| FileError::io("read", &self.path)(error);
        let mut file = File::open(&self.path).map_err(FileError::io("open", &self.path))?;
        let mut direct = Direct::beside(&self.path, self.io);
        let (tokens, tensors) = (self.of.tokens, self.from.tensors().len() as u64);
        let part = if is_part { self.part.clone() } else { 0..tokens };
        // SAFETY: every copy was waited for.
        let block = unsafe { self.block.as_mut_slice() };
        for range in (0..tensors).map(|tensor| part_of(tensor, tokens, &part)) {
            for at in range.clone().step_by(self.piece as usize) {
                let to = &mut block[at as usize..(at + self.piece).min(range.end) as usize];
                let read = match &mut direct {
                    Some(file) => file.read(at, to),
                    None => file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(to)),
                };
                read.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The pages of a file of tensors of so many tokens, one behind the other, in which some tokens of one of them lie.
fn part_of(tensor: u64, tokens: u64, part: &Range<u64>) -> Range<u64> {
    let at = |token: u64| (tensor * tokens + token) * (TOKEN_BYTES / 2);
    at(part.start) / PAGE * PAGE..at(part.end).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_folder_is_gone_with_its_files() {
        let parent = tempfile::tempdir().unwrap();
        let folder = FileFolder::new(parent.path(), 1 << 20).unwrap();
        std::fs::write(folder.folder.path().join("kv.spzkv"), b"KV").unwrap();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
        drop(folder);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_without_room_is_refused_and_left_empty() {
        let parent = tempfile::tempdir().unwrap();
        let error = FileFolder::new(parent.path(), u64::MAX / 2).unwrap_err();
        // Elsewhere nobody says how much room there is.
        if cfg!(target_os = "linux") {
            let Error::File(FileError::NoRoom { needed, free, .. }) = &error else { panic!("{error}") };
            assert!(needed > &(u64::MAX / 2) && free < needed, "{error}");
        }
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let error = FileFolder::new(&parent.path().join("missing"), 1).unwrap_err();
        assert!(matches!(error, Error::File(FileError::NoDirectory { .. })), "{error}");
        let file = parent.path().join("file");
        std::fs::write(&file, b"text").unwrap();
        let error = FileFolder::new(&file, 1).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot create a folder in") && error.ends_with("not a directory"),
            "{error}"
        );
    }

    #[test]
    fn parts_are_whole_pages() {
        // Tokens have half a page, so of an odd number every second tensor starts inside of one.
        assert_eq!(part_of(0, 21, &(4..8)), 8 << 10..16 << 10);
        assert_eq!(part_of(1, 21, &(4..8)), 48 << 10..60 << 10);
        assert_eq!(part_of(1, 21, &(0..21)), 40 << 10..84 << 10);
    }
}
