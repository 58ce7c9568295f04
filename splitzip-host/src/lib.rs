//! Lossless compression of LLM KV caches.
//!
//! A KV tensor is bf16, fp16 or fp8. Its sign and mantissa look random, its exponents use few values: SplitZip
//! stores the first as they are and gives the second short codes of fixed width (1.33 to 1.49 times smaller on
//! bf16, without losing a bit). This crate holds
//!
//! - the runtime descriptions: [`Dtype`], [`Scheme`], [`Codebook`], [`Histogram`];
//! - the frame format ([`format`](mod@format)), specified in `docs/format.md`;
//! - `.spz` files ([`file`](mod@file)), specified in `docs/files.md`;
//! - whether compression pays for a transfer ([`policy`]);
//! - KV in pages of serving engines ([`paged`]), drawn in `docs/layouts.md`;
//! - the [`Executor`] trait, and [`Reference`], the naive executor that says what is right.
//!
//! ```
//! use splitzip_host::{Dtype, Executor, Flags, Frame, FrameSpec, Reference, Scheme, TensorSpec};
//!
//! # fn main() -> splitzip_host::Result<()> {
//! let words: Vec<u8> = (0..4096u32).flat_map(|i| (0x3f80 + (i * 37 % 512) as u16).to_le_bytes()).collect();
//! let spec = FrameSpec::new(vec![TensorSpec::new("k", Dtype::Bf16, Scheme::W2x3, &[64, 64])], Flags::default());
//! let bytes = Reference.encode_to_vec(&spec, &[], &[&words])?;
//! let frame = Frame::parse(&bytes)?;
//! assert_eq!(Reference.decode_to_vecs(&frame)?, [words]);
//! # Ok(())
//! # }
//! ```

mod batch;
mod codebook;
mod codebook_file;
#[doc(hidden)]
pub mod conformance;
mod cpu;
pub mod cuda;
mod dtype;
mod error;
mod executor;
pub mod file;
pub mod format;
pub mod measure;
pub mod paged;
pub mod policy;
pub mod reference;
mod sample;
mod scheme;
pub mod select;
mod steps;
mod workspace;

pub use codebook::{Codebook, Histogram};
pub use codebook_file::{CodebookFile, CodebookFileEntry};
pub use cpu::Cpu;
pub use dtype::Dtype;
pub use error::{Error, Result};
pub use executor::{CodebookChoice, Executor};
pub use format::{Flags, Frame, FrameSpec, Layout, TensorSpec};
pub use reference::Reference;
pub use sample::{SAMPLED_CHUNKS, sampled_chunks};
pub use scheme::{Bases, Scheme};
pub use select::{BasesChoice, SchemeChoice};

/// The example of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The example of docs/transfers.md, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../docs/transfers.md")]
struct Transfers;
