//! `.spz` files: a safetensors file, a NumPy array, or elements without a header, as frames with an index. `docs/files.md` is the
//! specification.
//!
//! The original is cut into **pieces**, in file order and without gaps: a piece is a whole tensor that is coded, a part of a large
//! one, or everything between two of them (the header, tensors of other dtypes, padding), stored as it is.
//! Frames of a bounded size hold the pieces. So the restored file is the decoded pieces one after the other, byte for byte,
//! and neither side ever holds more than two frames in memory.
//!
//! ```
//! use splitzip_host::file::{self, Options, Reader};
//! use splitzip_host::Reference;
//!
//! # fn main() -> splitzip_host::Result<()> {
//! # let mut original = Vec::new();
//! # let header = br#"{"k":{"dtype":"BF16","shape":[64,64],"data_offsets":[0,8192]}}"#;
//! # original.extend((header.len() as u64).to_le_bytes());
//! # original.extend(header);
//! # original.extend((0..4096u32).flat_map(|i| (0x3f80 + (i * 37 % 512) as u16).to_le_bytes()));
//! let mut compressed = Vec::new();
//! file::compress(&Reference, &original, &mut compressed, &Options::default(), &mut |_| Ok(()))?;
//! let mut restored = Vec::new();
//! let mut reader = Reader::from_bytes(&compressed)?;
//! file::decompress(&Reference, &mut reader, &mut restored, &mut |_| Ok(()))?;
//! assert_eq!(restored, original);
//! # Ok(())
//! # }
//! ```

mod calibrate;
mod compress;
mod container;
mod decompress;
mod error;
mod inspect;
mod mapped;
mod npy;
mod original;
mod part;
mod plan;
mod reader;
mod report;
mod stream;
mod target;
mod tensors;
mod writer;

pub use calibrate::{Calibration, calibrate};
pub(crate) use compress::join;
pub use compress::{Options, compress, compress_stream, schemes_of};
pub use container::{Content, FrameRecord, Header, Index};
pub use decompress::{decompress, hexadecimal, verify, verify_against};
pub use error::FileError;
pub use inspect::{Exponents, inspect_file, inspect_safetensors};
pub use mapped::Mapped;
pub use original::Original;
pub use part::{Part, PartReport, PartTensor, Tokens, decompress_part};
pub use reader::Reader;
pub use report::{Chunks, Report, TensorReport};
pub use stream::{OriginalStream, StreamReport, decompress_stream, decompress_stream_within, verify_stream};
pub use target::{Target, TargetDirectory};
pub use tensors::{Contents, MAX_HEADER_BYTES, Tensor};
pub use writer::Writer;

use crate::Result;
use crate::format::Flags;

/// The first bytes of an `.spz` file. The first has its high bit set, and line ends follow: a transfer that changes text shows.
pub const MAGIC: [u8; 8] = [0x89, b'S', b'P', b'Z', b'\r', b'\n', 0x1a, b'\n'];
/// Major and minor version.
pub const VERSION: (u16, u16) = (1, 0);
/// Bytes of the header.
pub const HEADER_BYTES: u64 = 128;
/// Bytes of the footer.
pub const FOOTER_BYTES: u64 = 32;
/// Frames and the index start at multiples of this, so that the planes of a mapped file are aligned.
pub const ALIGNMENT: u64 = crate::format::PLANE_ALIGNMENT;
/// The most raw bytes that a frame of a file may hold.
pub const MAX_FRAME_BYTES: u64 = 256 << 20;
/// The raw bytes that a frame holds at most unless one asks for another limit: the next frame is encoded while this one is
/// written, and no bytes are saved above it.
pub const DEFAULT_FRAME_BYTES: u64 = 64 << 20;
/// The flags of every frame in a file.
pub const FRAME_FLAGS: Flags =
    Flags { arrival: false, packed: true, tensor_checksums: true, chunk_checksums: false };

/// Is told, frame by frame, how many raw bytes are done. An error that it returns stops the work.
pub type Progress<'p> = &'p mut dyn FnMut(u64) -> Result<()>;
