//! Builds Rust kernel crates to PTX: finds the toolchain, splits, stamps and checks the output.
//!
//! A kernel crate is an ordinary `no_std` library with `extern "ptx-kernel"` functions. Compiling it takes a nightly compiler, the
//! sources of `core`, and care; using its PTX should take neither. So the PTX is committed, one entry to a file, and this crate
//! keeps the files honest:
//!
//! | what | how |
//! | --- | --- |
//! | [`doctor`] | says what is here, what is missing, and what to type |
//! | [`setup`] | brings what is missing, without privileges |
//! | [`Build`] | compiles a kernel crate and hands back one text for each entry |
//! | [`check`](check::check) | rebuilds, compares byte for byte, assembles for every architecture, compares the resource table |
//! | [`bless`](check::bless) | writes files and table |
//!
//! The binary `nvptx-builder` is a thin layer over these. The README describes the manifest's table, the bounds comment and the layout
//! on disk.
//!
//! Nothing here prints, and nothing happens before a function is called; commands that are run go to `tracing` at the debug level.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod arch;
pub mod assemble;
pub mod check;
pub mod compile;
pub mod config;
pub mod doctor;
pub mod error;
pub mod hash;
pub mod home;
pub mod interpret;
pub mod occupancy;
pub mod offline;
pub mod pins;
mod process;
pub mod ptx;
pub mod sass;
pub mod setup;
pub mod snapshot;
pub mod toolchain;

pub use compile::{Build, Entry};
pub use config::Package;
pub use error::{Error, Result};
pub use home::Home;
pub use toolchain::{Toolchain, Tools};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
