//! The kernels: ordinary Rust over tiles, one body for the GPU and for the CPU.
//!
//! | kernel | one program a | what |
//! | --- | --- | --- |
//! | [`histogram`](fn@histogram) | share of the tensor | counts exponents, of all chunks or of a sample |
//! | [`pick`](fn@pick) | tensor | the codebook of a histogram, and the encoder's table |
//! | [`bases`](fn@bases) | group | the channel bases of a group |
//! | [`encode`](fn@encode) | chunk, and a bookkeeper a block | residuals, codes, entries, variable parts in chunk order |
//! | [`encode_arrival`](fn@encode_arrival) | the same | with variable parts as they come |
//! | [`decode`](fn@decode) | chunk | the way back |
//! | [`checksum`](fn@checksum) | chunk | checksums of the raw bits |
//! | [`seal`](fn@seal) | frame | the check of the dynamic part, where encoding cannot compute it |

// A kernel and its generated module share their name, so the files go by another one.
#[path = "bases.rs"]
mod bases_kernel;
#[path = "checksum.rs"]
mod checksum_kernel;
#[path = "decode.rs"]
mod decode_kernel;
#[path = "encode.rs"]
mod encode_kernel;
#[path = "histogram.rs"]
mod histogram_kernel;
#[path = "pick.rs"]
mod pick_kernel;
#[path = "seal.rs"]
mod seal_kernel;

pub use bases_kernel::*;
pub use checksum_kernel::*;
pub use decode_kernel::*;
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
        decode::ENTRIES,
        checksum::ENTRIES,
        seal::ENTRIES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
