//! Why the program ends, and with which exit code.

use crate::output::{printable, shown};
use crate::pipe::is_pipe;
use splitzip_host::Error;
use splitzip_host::file::FileError;
use std::fmt;
use std::path::Path;

#[derive(Debug)]
pub enum Failure {
    /// The work failed: exit code 1.
    Failed(String),
    /// The arguments cannot be right, whatever the files hold: exit code 2.
    Usage(String),
    /// Whoever read stdout has gone. That is no failure: `| head` does it.
    NobodyReads,
}

pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::NobodyReads => 0,
        }
    }

    /// An error about the file at `path`; one that names a file itself is left as it is.
    pub fn at(path: &Path) -> impl FnOnce(Error) -> Failure {
        move |error| match &error {
            Error::File(FileError::Options { reason }) => Failure::Usage(reason.clone()),
            Error::File(FileError::Convert { what, code }) => {
                let (from, to) = (word(path), word(&path.with_extension("safetensors")));
                Failure::Failed(format!(
                    "{} is {what}; convert it first: python3 -c \"{code}\" {from} {to}",
                    shown(path)
                ))
            }
            Error::File(
                FileError::Io { .. }
                | FileError::NotRegular { .. }
                | FileError::Exists { .. }
                | FileError::DirectoryExists { .. }
                | FileError::Input(_)
                | FileError::NoDirectory { .. }
                | FileError::NoRoom { .. }
                | FileError::Changed { .. }
                | FileError::Interrupted,
            )
            | Error::CudaUnavailable { .. } => Failure::Failed(error.to_string()),
            _ => Failure::Failed(format!("{}: {error}", shown(path))),
        }
    }

    /// An error of work that reads one file and writes another: what the system says is about the written one.
    pub fn between(input: &Path, output: &Path) -> impl FnOnce(Error) -> Failure {
        move |error| match error {
            Error::Io(source) if is_pipe(output) => {
                Failure::Failed(format!("cannot write to stdout: {source}; what was written is not whole"))
            }
            Error::Io(source) => Failure::Failed(format!("cannot write {}: {source}", shown(output))),
            Error::File(FileError::Interrupted) if is_pipe(output) => {
                Failure::Failed("interrupted; what was written is not whole".to_owned())
            }
            error => Failure::at(input)(error),
        }
    }

    /// An error in writing to stdout.
    pub fn stdout(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::Failed(format!("cannot write to stdout: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Messages have names of files in them, and those may have escape codes for terminals.
            Failure::Failed(message) | Failure::Usage(message) => f.write_str(&printable(message)),
            Failure::NobodyReads => f.write_str("nobody reads stdout"),
        }
    }
}

/// A path as a word of a shell, quoted where that is needed.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |part: char| part.is_alphanumeric() || "/._-+=:@%,".contains(part);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
