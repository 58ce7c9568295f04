//! Output files: written beside their target, and renamed when all is well.
//!
//! So a target is either what it was before or complete and on disk, whatever happens in between.

use super::FileError;
use super::mapped::check_regular;
use crate::Result;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// A file that is being written, under another name, in the directory of its target. Dropped without
/// [`Target::commit`], it is removed and the target is as it was.
#[derive(Debug)]
pub struct Target {
    file: NamedTempFile,
    directory: PathBuf,
    path: PathBuf,
    replace: bool,
}

impl Target {
    /// Starts a file. A link is followed, so that what it points to is replaced. `replace` allows an existing target.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::NotRegular`], [`FileError::NoDirectory`], [`FileError::Io`].
    pub fn create(path: &Path, replace: bool) -> Result<Target> {
        let (given, existing) = (path, fs::metadata(path));
        let permissions = existing.as_ref().ok().map(fs::Metadata::permissions);
        let path = match existing {
            Ok(metadata) => {
                check_regular(path, &metadata)?;
                if !replace {
                    return Err(FileError::Exists { path: path.to_owned() }.into());
                }
                fs::canonicalize(path).map_err(FileError::io("open", path))?
            }
            // A dangling link exists too; renaming would replace the link itself.
            Err(_) if !replace && fs::symlink_metadata(path).is_ok() => {
                return Err(FileError::Exists { path: path.to_owned() }.into());
            }
            Err(_) => {
                refuse_directory_name(path)?;
                path.to_owned()
            }
        };
        let (directory, prefix) = beside(&path)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        // An ordinary file, as the umask wants it, and not a private one.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(&directory).map_err(|error| FileError::Io {
            action: "create",
            path: given.to_owned(),
            source: plain(error),
        })?;
        // Who may read what was there may read what replaces it, and nobody else. (Written to it is through the handle, also where nobody may.)
        if let Some(permissions) = permissions {
            file.as_file().set_permissions(permissions).map_err(FileError::io("create", given))?;
        }
        Ok(Target { file, directory, path, replace })
    }

    /// The file to write to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Where it is until it is committed.
    pub fn temporary(&self) -> &Path {
        self.file.path()
    }

    /// Waits until everything is on disk, and gives the file the name of its target.
    ///
    /// # Errors
    /// [`FileError::Exists`] when somebody else made the target meanwhile, [`FileError::Io`].
    pub fn commit(self) -> Result<()> {
        self.file.as_file().sync_all().map_err(FileError::io("write", &self.path))?;
        let persisted = if self.replace {
            self.file.persist(&self.path)
        } else {
            self.file.persist_noclobber(&self.path)
        };
        persisted.map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: self.path.clone() },
            _ => FileError::Io {
                action: "rename the finished file to",
                path: self.path.clone(),
                source: error.error,
            },
        })?;
        sync(&self.directory);
        Ok(())
    }
}

/// A directory that is being filled, under another name, beside its target. Dropped without [`TargetDirectory::commit`], it is removed
/// with all that is in it. It never replaces anything: a directory cannot be replaced in one step.
#[derive(Debug)]
pub struct TargetDirectory {
    staging: TempDir,
    parent: PathBuf,
    path: PathBuf,
}

impl TargetDirectory {
    /// Starts a directory.
    ///
    /// # Errors
    /// [`FileError::DirectoryExists`] for a target that is there, whatever it is; [`FileError::NoDirectory`], [`FileError::Io`].
    pub fn create(path: &Path) -> Result<TargetDirectory> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(FileError::DirectoryExists { path: path.to_owned() }.into());
        }
        let (parent, prefix) = beside(path)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        // An ordinary directory, as the umask wants it, and not a private one.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let staging = builder.tempdir_in(&parent).map_err(|error| FileError::Io {
            action: "create",
            path: path.to_owned(),
            source: plain(error),
        })?;
        Ok(TargetDirectory { staging, parent, path: path.to_owned() })
    }

    /// The directory to fill.
    pub fn staging(&self) -> &Path {
        self.staging.path()
    }

    /// Gives the directory the name of its target. What is in it is on disk already.
    ///
    /// # Errors
    /// [`FileError::DirectoryExists`] when somebody else made the target meanwhile, [`FileError::Io`].
    pub fn commit(self) -> Result<()> {
        if fs::symlink_metadata(&self.path).is_ok() {
            return Err(FileError::DirectoryExists { path: self.path.clone() }.into());
        }
        sync(self.staging.path());
        let renamed = fs::rename(self.staging.path(), &self.path);
        renamed.map_err(FileError::io("rename the finished directory to", &self.path))?;
        sync(&self.parent);
        // Nothing is there under the old name any more.
        let _ = self.staging.keep();
        Ok(())
    }
}

/// Names must survive a power failure as well. Some file systems cannot do this; the files are complete all the same.
fn sync(directory: &Path) {
    #[cfg(unix)]
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
    #[cfg(not(unix))]
    let _ = directory;
}

/// What the system said, without the name of the temporary that the crate adds: what counts is the directory.
fn plain(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((said, _)) => io::Error::new(error.kind(), said.to_owned()),
        None => error,
    }
}

/// `out/` is the name of a directory, whether there is one or not; a file must not be made under the name in front of the slash.
fn refuse_directory_name(path: &Path) -> Result<()> {
    let ends = path.as_os_str().as_encoded_bytes().last().copied();
    if ends.is_some_and(|byte| std::path::is_separator(byte.into())) {
        return Err(FileError::NotRegular { path: path.to_owned(), what: "the name of a directory" }.into());
    }
    Ok(())
}

/// The directory of a target, and how the name of a temporary beside it starts.
fn beside(path: &Path) -> Result<(PathBuf, OsString)> {
    let Some(name) = path.file_name() else {
        return Err(FileError::NotRegular { path: path.to_owned(), what: "a directory" }.into());
    };
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    };
    if !directory.exists() {
        return Err(FileError::NoDirectory { path: directory }.into());
    }
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    Ok((directory, prefix))
}
