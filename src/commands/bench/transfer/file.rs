//! Rows of saves to a file and reloads from it, with direct I/O and through the cache of the system.

use super::tcp::Request;
use super::told::{self, Object};
use super::{codings, failed, pool};
use crate::arguments::BenchTransfer;
use crate::failure::{Failure, Result};
use crate::output::shown;
use crate::progress::Bar;
use splitzip_host::Error;
use splitzip_host::cuda::Cuda;
use splitzip_host::cuda::offload::{FileIo, OffloadOptions};
use splitzip_host::file::FileError;
use splitzip_host::measure::Effort;
use splitzip_host::measure::transfer::{FileFolder, KvPlace, LAYERS, TransferSubject};
use splitzip_host::{Bases, Scheme};
use std::path::PathBuf;

/// Where files are written.
pub struct Folder {
    path: PathBuf,
    made: FileFolder,
}

impl Folder {
    /// A folder with room for so many raw bytes.
    pub fn new(arguments: &BenchTransfer, raw_bytes: u64) -> Result<Folder> {
        let path = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
        let made = FileFolder::new(&path, raw_bytes).map_err(|error| {
            let hint = match &error {
                Error::File(FileError::NoRoom { .. }) => "--folder, --size",
                _ => "--folder takes a directory that exists and can be written to",
            };
            Failure::Failed(format!("{error} ({hint})"))
        })?;
        Ok(Folder { path, made })
    }
}

pub fn measure(
    arguments: &BenchTransfer,
    cuda: &Cuda,
    request: &Request,
    folder: &Folder,
    effort: &Effort,
    object: &mut Object,
) -> Result {
    let name = shown(&folder.path);
    let pool = pool(cuda, request)?;
    let shape = (LAYERS, request.tokens);
    let subject = TransferSubject::new(cuda, &pool, KvPlace::Pages, shape, &request.tile).map_err(failed)?;
    let mut codings = codings(&arguments.schemes);
    codings.insert(0, (Scheme::Stored, Bases::Chunk));
    let ios = [(FileIo::Direct, "direct"), (FileIo::Cached, "cached")];
    let ios = &ios[usize::from(!folder.made.has_direct_io())..];
    let options = OffloadOptions::default().with_slice_bytes(arguments.slice.0);
    // A plain copy beside the codings; a round to compare beside the runs.
    let rounds = (ios.len() * (1 + codings.len())) as u64 * (1 + u64::from(effort.runs));
    let mut bar = Bar::new("files", rounds * subject.raw_bytes());
    let mut done = 0;
    let mut progress = || {
        done += subject.raw_bytes();
        bar.at(done)
    };
    for &(io, io_name) in ios {
        let measured = subject.files(&folder.made, io, &codings, options, effort, &mut progress);
        object.files.extend(told::file_rows(io_name, &codings, &measured.map_err(failed)?));
    }
    if arguments.folder.is_none() {
        object
            .notes
            .push(format!("file: {name} is the system's for temporary files; --folder names another"));
    }
    if !folder.made.has_direct_io() {
        object.notes.push(format!("file: the file system of {name} has no direct I/O"));
    }
    if folder.made.is_in_memory() {
        object.notes.push(format!("file: {name} lies in memory, so no drive was measured"));
    }
    if cfg!(not(target_os = "linux")) {
        object
            .notes
            .push("file: the cache of this system was not emptied: reloads may come from it".to_owned());
    }
    object.folder = Some(name);
    Ok(())
}
