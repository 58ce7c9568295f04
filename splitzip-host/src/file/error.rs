//! What can go wrong with files, as opposed to frames. A message says what was wrong, what is allowed, what to do.

use crate::Error;
use std::ops::Range;
use std::path::PathBuf;

/// Everything that can go wrong with files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// An operating system error, with what was being done to which file.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// "open", "create a file in", ...
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An error in reading a stream.
    #[error("cannot read the input: {0}")]
    Input(#[source] std::io::Error),
    /// Something that is no regular file: a directory, a device, a pipe.
    #[error("{} is {what}, not a regular file; name a file, or - for stdin or stdout", .path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// "a directory", "a device, pipe or socket", "the name of a directory".
        what: &'static str,
    },
    /// A target that exists already.
    #[error("{} exists already; choose another name or replace it with --force", .path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// A target of a whole directory that exists already.
    #[error("{} exists already, and a directory is never replaced; choose another name or remove it", .path.display())]
    DirectoryExists {
        /// The target.
        path: PathBuf,
    },
    /// A target in a directory that does not exist.
    #[error("the directory {} does not exist; create it first", .path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory on a file system with too little space.
    #[error(
        "{} has {free} bytes free, and {needed} are needed; make room there, or name another directory or fewer bytes", .path.display()
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// A file whose size or time changed while it was read.
    #[error("{} was changed while it was read; run again when nothing writes to it", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Bytes that are no `.spz` file.
    #[error("this is not an .spz file: it does not start with the bytes 89 53 50 5a 0d 0a 1a 0a{hint}")]
    NotSpz {
        /// What it may be instead.
        hint: &'static str,
    },
    /// A version that this reader does not know.
    #[error(".spz version {major}.{minor} is unknown; this splitzip reads version 1.0, so use a newer one")]
    Version {
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// A file that ends before it should.
    #[error(
        "the file ends too early: {what} needs {needed} bytes and there are {got}; it was cut off, so get it again"
    )]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Bytes from the start of the file that it needs.
        needed: u64,
        /// Bytes that there are.
        got: u64,
    },
    /// A file without the footer of a finished one.
    #[error(
        "the file does not end with the footer of an .spz file: it was cut off or never finished, so get it again"
    )]
    NoFooter,
    /// A part whose CRC-32 does not match.
    #[error(
        "the {what} is damaged: its bytes have CRC-32 {computed:#010x}, and {found:#010x} is stored; get the file again"
    )]
    Check {
        /// "header", "index", "footer", "frame 3".
        what: String,
        /// What the file says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A field with a value that it must not have.
    #[error("invalid .spz file: {what} is {found}, but must be {allowed}")]
    Field {
        /// Which field.
        what: String,
        /// Its value.
        found: u64,
        /// What it must be.
        allowed: String,
    },
    /// A frame of the file that cannot be read.
    #[error("frame {frame}: {source}")]
    Frame {
        /// Its number.
        frame: u64,
        /// Why.
        source: Box<Error>,
    },
    /// A frame that is damaged, and what of the original that is.
    #[error("{source}; the first damaged {}", damaged(.tensor.as_deref(), *.chunk, .bytes))]
    Damaged {
        /// What was found of the frame.
        source: Box<Error>,
        /// The tensor, where the original has tensors.
        tensor: Option<String>,
        /// The chunk, where one is found: counted from the start of its piece of the tensor, which `bytes` tells.
        chunk: Option<u64>,
        /// Bytes of the original: those of the chunk, or those of all that one checksum is for.
        bytes: Range<u64>,
    },
    /// Restored bytes with another SHA-256 than those that were compressed.
    #[error(
        "the restored bytes have SHA-256 {computed}, but those that were compressed had {found}: do not use them"
    )]
    Digest {
        /// The stored digest, in hexadecimal digits.
        found: String,
        /// That of the restored bytes.
        computed: String,
    },
    /// Restored bytes that are not those of another file.
    #[error("the files differ at byte {at}{}: {reason}", .tensor.as_ref().map(|name| format!(", in tensor {name:?}")).unwrap_or_default())]
    Differs {
        /// The first byte that differs.
        at: u64,
        /// The tensor it belongs to, if any.
        tensor: Option<String>,
        /// The two values, or the two lengths.
        reason: String,
    },
    /// Bytes that are no safetensors file, or one that breaks its rules.
    #[error("not a valid safetensors file: {reason}")]
    Safetensors {
        /// What is wrong, what is allowed.
        reason: String,
    },
    /// A `.npy` file that breaks its rules.
    #[error("not a valid .npy file: {reason}")]
    Npy {
        /// What is wrong, what is allowed.
        reason: String,
    },
    /// Something that Python reads, and only Python.
    #[error("this is {what}; convert it first: python3 -c \"{code}\" IN OUT.safetensors")]
    Convert {
        /// "a pickle of Python objects".
        what: &'static str,
        /// The program of one line that does; its arguments are the two files.
        code: &'static str,
    },
    /// A stream that goes on behind the last tensor.
    #[error(
        "more bytes follow behind the {expected} that the header tells of; the size stands in front of a compressed file, \
         so compress this from a file and not from a stream"
    )]
    StreamGoesOn {
        /// The bytes that were expected.
        expected: u64,
    },
    /// Options that do not go together.
    #[error("{reason}")]
    Options {
        /// What is wrong, what is allowed.
        reason: String,
    },
    /// The caller's progress function stopped the work.
    #[error("interrupted; nothing was written")]
    Interrupted,
}

impl FileError {
    pub(crate) fn field(what: impl Into<String>, found: u64, allowed: impl Into<String>) -> Error {
        FileError::Field { what: what.into(), found, allowed: allowed.into() }.into()
    }

    /// An error of an input. What the input itself says of an interrupt is one.
    pub(crate) fn input(error: std::io::Error) -> Error {
        match error.downcast::<FileError>() {
            Ok(error) => error.into(),
            Err(error) => FileError::Input(error).into(),
        }
    }

    pub(crate) fn safetensors(reason: impl Into<String>) -> Error {
        FileError::Safetensors { reason: reason.into() }.into()
    }

    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| FileError::Io { action, path, source }.into()
    }
}

/// Which tensor, which chunk, which bytes.
fn damaged(tensor: Option<&str>, chunk: Option<u64>, bytes: &Range<u64>) -> String {
    let (start, end) = (bytes.start, bytes.end);
    let tensor = tensor.map(|name| format!("tensor is {name:?}, ")).unwrap_or_else(|| "part is ".to_owned());
    let chunk = chunk.map(|chunk| format!("chunk {chunk}, ")).unwrap_or_default();
    format!("{tensor}{chunk}in bytes {start} to {end} of the original")
}
