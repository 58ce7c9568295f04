//! Errors of the library as exceptions: one class a kind, defined in `splitzip/errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use splitzip_host::Error;
use splitzip_host::file::FileError;

pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// What goes wrong in this crate, before it is an exception.
pub enum Fault {
    /// The library refused something.
    Library(Error),
    /// This crate did: the name of a class in `splitzip.errors`, and the message.
    Own(&'static str, String),
    /// Python raised something.
    Python(PyErr),
}

impl Fault {
    pub fn argument(message: impl Into<String>) -> Fault {
        Fault::Own("ArgumentError", message.into())
    }

    pub fn dtype(message: impl Into<String>) -> Fault {
        Fault::Own("DtypeError", message.into())
    }

    pub fn frame(message: impl Into<String>) -> Fault {
        Fault::Own("CorruptError", message.into())
    }

    pub fn unsupported(message: impl Into<String>) -> Fault {
        Fault::Own("UnsupportedError", message.into())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Library(error)
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Fault {
        Fault::Python(error)
    }
}

impl From<splitzip_host::paged::PagedError> for Fault {
    fn from(error: splitzip_host::paged::PagedError) -> Fault {
        Fault::Library(error.into())
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        match fault {
            Fault::Library(error) => raise(class_of(&error), error.to_string()),
            Fault::Own(class, message) => raise(class, message),
            Fault::Python(error) => error,
        }
    }
}

/// The class of an error. Its message is that of the library.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::NotAFrame => "NotAFrameError",
        Error::Version { .. } => "VersionError",
        Error::Truncated { .. } => "TruncatedError",
        Error::Limit { .. } => "LimitError",
        Error::FrameCheck { .. }
        | Error::Field { .. }
        | Error::EncoderFailed { .. }
        | Error::Chunk { .. } => "CorruptError",
        Error::Checksum { .. } => "ChecksumError",
        Error::Codebook { .. }
        | Error::CodebookDtype { .. }
        | Error::CodebookMissing { .. }
        | Error::CodebookFile { .. } => "CodebookError",
        Error::BufferSize { .. } => "BufferSizeError",
        Error::CudaUnavailable { .. } => "CudaUnavailableError",
        Error::Device { .. } => "CudaError",
        Error::DeviceMemory { .. } | Error::HostMemory { .. } => "OutOfMemoryError",
        Error::Unsupported { .. } => "UnsupportedError",
        Error::Paged(_) => "PagedError",
        Error::Io(error) if error.kind() == std::io::ErrorKind::OutOfMemory => "OutOfMemoryError",
        Error::File(FileError::Truncated { .. }) => "TruncatedError",
        Error::UnknownName { .. }
        | Error::Pointless { .. }
        | Error::Spec { .. }
        | Error::TooLarge { .. }
        | Error::Count { .. }
        | Error::OutOfRange { .. }
        | Error::Argument(_) => "ArgumentError",
        _ => "Error",
    }
}

fn raise(class: &'static str, message: String) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Python::attach(|py| {
        let module = MODULE.get_or_try_init(py, || py.import("splitzip.errors").map(Bound::unbind));
        let class = module.and_then(|module| module.bind(py).getattr(class));
        match class.and_then(|class| Ok(class.cast_into::<pyo3::types::PyType>()?)) {
            Ok(class) => PyErr::from_type(class, message),
            Err(error) => error,
        }
    })
}
