//! Why the program ends, and with which exit code.

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
            Error::File(
                FileError::Io { .. }
                | FileError::NotRegular { .. }
                | FileError::Exists { .. }
                | FileError::NoDirectory { .. }
                | FileError::Changed { .. }
                | FileError::Interrupted,
            )
            | Error::CudaUnavailable { .. } => Failure::Failed(error.to_string()),
            _ => Failure::Failed(format!("{}: {error}", path.display())),
        }
    }

    /// An error of work that reads one file and writes another: what the system says is about the written one.
    pub fn between(input: &Path, output: &Path) -> impl FnOnce(Error) -> Failure {
        move |error| match error {
            Error::Io(source) => Failure::Failed(format!("cannot write {}: {source}", output.display())),
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
            Failure::Failed(message) | Failure::Usage(message) => f.write_str(message),
            Failure::NobodyReads => f.write_str("nobody reads stdout"),
        }
    }
}
