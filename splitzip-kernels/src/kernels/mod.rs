//! The kernels: ordinary Rust over tiles, one body for the GPU and for the CPU.
//!
//! | kernel | one program a | what |
//! | --- | --- | --- |
//! | [`histogram`](fn@histogram) | share of the tensor | counts exponents, of all chunks or of a sample |
//! | [`pick`](fn@pick) | tensor | the codebook of a histogram, and the encoder's table |
//! | [`bases`](fn@bases) | group | the channel bases of a group |
//! | [`encode`](fn@encode) | chunk, and a bookkeeper a block | residuals, codes, entries, variable parts in chunk order |
//! | [`encode_arrival`](fn@encode_arrival) | the same | with variable parts as they come |
//! | [`encode_batch`](fn@encode_batch) | the same | of many tensors, wherever their pages are |
//! | [`decode`](fn@decode) | chunk | the way back |
//! | [`decode_batch`](fn@decode_batch) | chunk | of many tensors, into their pages |
//! | [`checksum`](fn@checksum) | chunk | checksums of the raw bits |
//! | [`begin`](fn@begin) | 2048 bytes, or gap | what a frame starts with, and zeros between its parts |
//! | [`copy_pages`](fn@copy_pages) | 2048 bytes | stored tensors of a batch, between pages and frame |
//! | [`seal`](fn@seal) | frame | the check of the dynamic part, where encoding cannot compute it |

// A kernel and its generated module share their name, so the files go by another one.
#[path = "bases.rs"]
mod bases_kernel;
#[path = "begin.rs"]
mod begin_kernel;
#[path = "checksum.rs"]
mod checksum_kernel;
#[path = "copy_pages.rs"]
mod copy_pages_kernel;
#[path = "decode_batch.rs"]
mod decode_batch_kernel;
#[path = "decode.rs"]
mod decode_kernel;
#[path = "encode_batch.rs"]
mod encode_batch_kernel;
mod encode_chunk;
#[path = "encode.rs"]
mod encode_kernel;
#[path = "histogram.rs"]
mod histogram_kernel;
#[path = "pick.rs"]
mod pick_kernel;
#[path = "seal.rs"]
mod seal_kernel;

pub use bases_kernel::*;
pub use begin_kernel::*;
pub use checksum_kernel::*;
pub use copy_pages_kernel::*;
pub use decode_batch_kernel::*;
pub use decode_kernel::*;
pub use encode_batch_kernel::*;
pub use encode_kernel::*;
pub use histogram_kernel::*;
pub use pick_kernel::*;
pub use seal_kernel::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::launch::Entry;

/// All entries of this crate.
#[cfg(not(target_arch = "nvptx64"))]
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    [
        histogram::ENTRIES,
        pick::ENTRIES,
        bases::ENTRIES,
        encode::ENTRIES,
        encode_arrival::ENTRIES,
        encode_batch::ENTRIES,
        decode::ENTRIES,
        decode_batch::ENTRIES,
        checksum::ENTRIES,
        seal::ENTRIES,
        begin::ENTRIES,
        copy_pages::ENTRIES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
