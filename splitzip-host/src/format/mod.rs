//! The frame format, version 1, as `docs/format.md` specifies it.
//!
//! [`FrameSpec`] describes a frame, [`Layout`] is where everything lies in it (before anything is encoded: a device
//! encoder needs every offset up front), [`Frame`] is a checked view of bytes, [`write`](mod@write) holds what every encoder
//! does around the coding itself, [`pack`]/[`unpack`] take equal chunks out of the planes and put them back.

mod checksum;
mod directory;
mod frame;
mod layout;
mod pack;
mod planes;
mod spec;
mod table;
pub mod write;

pub use checksum::{add_to_tensor_checksum, chunk_checksum, chunk_checksum_naive, tensor_checksum};
pub use directory::{Entry, Group, Mode};
pub(crate) use frame::sealed_words;
pub use frame::{ChunkPlace, Frame, FrameTensor};
pub(crate) use layout::raw_words;
pub use layout::{Layout, Plane, TensorLayout};
pub use pack::{pack, unpack};
pub use planes::{PlaneKind, coding_order, coding_place};
pub use spec::{Flags, FrameSpec, TensorSpec};

/// Elements of a whole chunk.
pub const CHUNK: usize = 1024;
/// Chunks of a whole group.
pub const GROUP: usize = 16;
/// Bytes of the header, and of an entry of the tensor table.
pub const HEADER_BYTES: u64 = 64;
/// Bytes at the start of the dynamic part, and for every tensor in it.
pub const DYNAMIC_BYTES: u64 = 32;
/// Bytes of a directory record: where a group starts, and an entry for each of its chunks.
pub const RECORD_BYTES: u64 = 8 + 2 * GROUP as u64;
/// Planes and variable parts start at multiples of this.
pub const PLANE_ALIGNMENT: u64 = 128;
/// The most channels that a tensor with channel bases may have.
pub const MAX_CHANNELS: u64 = 1024;
/// The most dimensions of a shape.
pub const MAX_RANK: usize = 8;
/// The first bytes of a frame.
pub const MAGIC: [u8; 8] = *b"SPZFRAME";
/// Major and minor version.
pub const VERSION: (u16, u16) = (1, 0);
