//! The one error type. A message says what was wrong, what is allowed, and what to do.

use crate::{Dtype, Scheme};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is not one of a fixed list.
    #[error("there is no {what} {given:?}; it must be one of {allowed}")]
    UnknownName {
        /// What kind of name: "dtype", "scheme", "bases".
        what: &'static str,
        /// What was given.
        given: String,
        /// The list, with commas.
        allowed: String,
    },
    /// A pair of dtype and scheme that cannot shrink anything.
    #[error("{scheme} is pointless for {dtype}: {reason}; use one of {allowed}")]
    Pointless {
        /// The dtype.
        dtype: Dtype,
        /// The scheme.
        scheme: Scheme,
        /// Why, from the properties of both.
        reason: String,
        /// Schemes that this dtype can have.
        allowed: String,
    },
    /// A description of a tensor that no frame can hold.
    #[error("tensor {tensor}: {reason}")]
    Spec {
        /// The name of the tensor, or its number if it has none.
        tensor: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// Sizes or offsets that do not fit.
    #[error("{what} does not fit into {bits} bits; split the tensors over several frames")]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// The width of the field.
        bits: u32,
    },
    /// Another number of buffers or codebooks than tensors.
    #[error("{got} {what} for {expected} tensors; give one for each tensor, in the order of the frame")]
    Count {
        /// "inputs", "outputs" or "codebooks".
        what: &'static str,
        /// Tensors of the frame.
        expected: usize,
        /// How many were given.
        got: usize,
    },
    /// A buffer of the wrong size.
    #[error("{what} has {got} bytes, but needs {expected}")]
    BufferSize {
        /// Which buffer.
        what: String,
        /// What it must have.
        expected: u64,
        /// What it has.
        got: u64,
    },
    /// A tensor number or range of chunks outside of a frame.
    #[error("{what} {given} is out of range: there are {count}")]
    OutOfRange {
        /// "tensor" or "chunk".
        what: &'static str,
        /// What was asked for.
        given: u64,
        /// How many there are.
        count: u64,
    },
    /// Bytes that are no frame at all.
    #[error("this is not a SplitZip frame: it does not start with SPZFRAME")]
    NotAFrame,
    /// A version that this reader does not know.
    #[error("frame version {major}.{minor} is unknown; this reader knows 1.0, so use a newer splitzip")]
    Version {
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// Bytes that end before they should.
    #[error("the frame ends too early: {what} needs {needed} bytes and there are {got}")]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Bytes from the start of the frame that it needs.
        needed: u64,
        /// Bytes that there are.
        got: u64,
    },
    /// A CRC or check of the frame itself that does not match.
    #[error(
        "the {what} of the frame does not match its check ({found:#010x}, computed {computed:#010x}): it is damaged"
    )]
    FrameCheck {
        /// "static part" or "dynamic part".
        what: &'static str,
        /// What the frame says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A field of a frame with a value that it must not have.
    #[error("invalid frame: {what} is {found}, but {allowed}")]
    Field {
        /// Which field, of which tensor.
        what: String,
        /// Its value.
        found: u64,
        /// "must be ...".
        allowed: String,
    },
    /// The encoder that wrote the frame says that it failed.
    #[error("the encoder of this frame failed with status {status}; encode it again")]
    EncoderFailed {
        /// The status word.
        status: u32,
    },
    /// A chunk whose bits cannot be decoded.
    #[error("tensor {tensor}, chunk {chunk}: {reason}")]
    Chunk {
        /// Number of the tensor.
        tensor: usize,
        /// Number of the chunk in the tensor.
        chunk: u64,
        /// What is wrong.
        reason: String,
    },
    /// Decoded bits that are not those that were encoded.
    #[error("tensor {tensor}: the decoded bits have checksum {computed:#x}, but {found:#x} is stored{}", chunk_text(*.chunk))]
    Checksum {
        /// Number of the tensor.
        tensor: usize,
        /// Number of the chunk, when the checksum is that of a chunk.
        chunk: Option<u64>,
        /// The stored checksum.
        found: u64,
        /// The checksum of the decoded bits.
        computed: u64,
    },
    /// Exponents that are no codebook.
    #[error("invalid codebook: {reason}")]
    Codebook {
        /// What is wrong.
        reason: String,
    },
    /// A codebook, histogram or table entry of another dtype than the tensor.
    #[error("{what} is for {found}, but the tensor is {expected}; calibrate one for {expected} or use auto")]
    CodebookDtype {
        /// Which one.
        what: String,
        /// The dtype of the tensor.
        expected: Dtype,
        /// The dtype that it is for.
        found: Dtype,
    },
    /// A codebook file without a codebook for a tensor.
    #[error("the codebook file has no codebook for {name:?} and no default; calibrate again or use auto")]
    CodebookMissing {
        /// Name of the tensor.
        name: String,
    },
    /// A codebook file that cannot be read.
    #[error("invalid codebook file: {reason}")]
    CodebookFile {
        /// What is wrong.
        reason: String,
    },
    /// No usable CUDA driver or device.
    #[error("CUDA is not available: {reason}; use the cpu executor")]
    CudaUnavailable {
        /// What was missing.
        reason: String,
    },
    /// Less free memory on a device than something needs.
    #[error(
        "{device} has {free} bytes of memory free, and {what} needs {needed}; use smaller sizes, or a device with more memory"
    )]
    DeviceMemory {
        /// Which device: `cuda:0`.
        device: String,
        /// What is to be done.
        what: String,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Less free memory on the host than something needs.
    #[error("the system does not give {bytes} bytes of memory; use smaller sizes")]
    HostMemory {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// A frame that describes more than its reader allows.
    #[error(
        "{what} has {needed} bytes decoded, and at most {allowed} are allowed; allow more if you trust where it comes from"
    )]
    Limit {
        /// What: "the frame", "the original".
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// Bytes that are not what they must be: an executor with a fault.
    #[error("{what}: byte {at} is not what it must be; no number of it means anything, please report this")]
    Differs {
        /// What was compared.
        what: String,
        /// The first byte that differs.
        at: u64,
    },
    /// Something that a device or its driver refused.
    #[error("{what}: {reason}")]
    Device {
        /// What was tried.
        what: String,
        /// What the driver says, or what is allowed.
        reason: String,
    },
    /// Something that an executor does not have.
    #[error("the {executor} executor does not support {what}; use one of {instead}")]
    Unsupported {
        /// Name of the executor.
        executor: String,
        /// What was asked for.
        what: String,
        /// Executors that have it.
        instead: String,
    },
    /// A buffer that a kernel would not survive.
    #[error("{0}")]
    Argument(#[from] splitzip_kernels::launch::ArgumentError),
    /// Numbers that no plan of a transfer can be made with.
    #[error(transparent)]
    Policy(#[from] crate::policy::PolicyError),
    /// Something wrong with pages, layouts or their pairing.
    #[error(transparent)]
    Paged(#[from] crate::paged::PagedError),
    /// Something wrong with an offload or a reload.
    #[error(transparent)]
    Offload(#[from] crate::cuda::offload::OffloadError),
    /// Something wrong with a file around the frames.
    #[error(transparent)]
    File(#[from] crate::file::FileError),
    /// An error of the operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    pub(crate) fn unknown_name(what: &'static str, given: &str, allowed: &[&str]) -> Error {
        Error::UnknownName { what, given: given.to_owned(), allowed: allowed.join(", ") }
    }

    pub(crate) fn field(what: impl Into<String>, found: u64, allowed: impl Into<String>) -> Error {
        Error::Field { what: what.into(), found, allowed: allowed.into() }
    }
}

fn chunk_text(chunk: Option<u64>) -> String {
    chunk.map(|chunk| format!(" for chunk {chunk}")).unwrap_or_default()
}
