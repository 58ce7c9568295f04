//! Input files, mapped into memory: larger than memory is fine, the system reads and drops pages as they are used. A pipe that has to be
//! read as a whole before anything can be done becomes such a file.

use super::FileError;
use crate::Result;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A regular file mapped for reading.
#[derive(Debug)]
pub struct Mapped {
    /// `None` for an empty file, which cannot be mapped.
    map: Option<memmap2::Mmap>,
    file: File,
    path: PathBuf,
    opened: (u64, Option<SystemTime>),
}

impl Mapped {
    /// Opens and maps a file.
    ///
    /// # Errors
    /// [`FileError::Io`], and [`FileError::NotRegular`] for a directory, a device or a pipe.
    pub fn open(path: &Path) -> Result<Mapped> {
        // A pipe would block in open, so look first; look again at what was opened.
        check_regular(path, &std::fs::metadata(path).map_err(FileError::io("open", path))?)?;
        let file = File::open(path).map_err(FileError::io("open", path))?;
        let metadata = file.metadata().map_err(FileError::io("open", path))?;
        check_regular(path, &metadata)?;
        Mapped::map(file, &metadata, path)
    }

    fn map(file: File, metadata: &Metadata, path: &Path) -> Result<Mapped> {
        let map = if metadata.len() == 0 {
            None
        } else {
            // SAFETY: the bytes of a mapped file may change when somebody else writes to it. They are only ever read as
            // bytes, every length is checked against the size of the map, and `check_unchanged` refuses what was made
            // of a file that changed. A file that is made shorter meanwhile ends this process with SIGBUS, before it has
            // replaced any target; a program may catch that, to say so.
            let map = unsafe { memmap2::Mmap::map(&file) }.map_err(FileError::io("map", path))?;
            #[cfg(unix)]
            let _ = map.advise(memmap2::Advice::Sequential);
            Some(map)
        };
        Ok(Mapped { map, opened: stamp(metadata), file, path: path.to_owned() })
    }

    /// Keeps what comes through a pipe in a temporary file without a name, which is gone when this is dropped or the process ends, and
    /// maps it. `path` is what messages call it.
    ///
    /// # Errors
    /// [`FileError::Io`] where the temporary cannot be written, [`FileError::Input`] where the pipe cannot be read.
    pub fn spooled(mut input: impl Read, path: &Path) -> Result<Mapped> {
        let directory = std::env::temp_dir();
        let io = || FileError::io("keep the input in a temporary file in", &directory);
        let mut file = tempfile::tempfile_in(&directory).map_err(io())?;
        let mut block = vec![0; 1 << 20];
        loop {
            match input.read(&mut block) {
                Ok(0) => break,
                Ok(bytes) => file.write_all(&block[..bytes]).map_err(io())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError::input(error)),
            }
        }
        let metadata = file.metadata().map_err(io())?;
        Mapped::map(file, &metadata, path)
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that these bytes are not needed for now. They stay in the system's cache of the file but count as this process's memory no
    /// longer; reading them again maps them again.
    pub fn release(&self, bytes: Range<u64>) {
        #[cfg(unix)]
        if let Some(map) = &self.map {
            let end = bytes.end.min(map.len() as u64) as usize;
            let start = bytes.start.min(end as u64) as usize;
            // SAFETY: the map is shared and read-only, so its pages have no other content than the file, from which the system gets
            // them again.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Says whether size and time of the file are still those that it had when it was opened.
    ///
    /// # Errors
    /// [`FileError::Changed`].
    pub fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(FileError::io("look at", &self.path))?;
        if stamp(&metadata) == self.opened {
            Ok(())
        } else {
            Err(FileError::Changed { path: self.path.clone() }.into())
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

fn stamp(metadata: &Metadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

/// Refuses everything that is no regular file.
pub(crate) fn check_regular(path: &Path, metadata: &Metadata) -> Result<()> {
    let what = match metadata {
        metadata if metadata.is_file() => return Ok(()),
        metadata if metadata.is_dir() => "a directory",
        _ => "a device, pipe or socket",
    };
    Err(FileError::NotRegular { path: path.to_owned(), what }.into())
}
