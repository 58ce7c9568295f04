//! Builds Rust kernel crates to PTX: finds the toolchain, splits, stamps and checks the output.
#![deny(missing_docs)]

pub mod arch;
pub mod compile;
pub mod config;
pub mod error;
pub mod hash;
pub mod home;
pub mod occupancy;
pub mod pins;
mod process;
pub mod ptx;
pub mod toolchain;

pub use compile::{Build, Entry};
pub use error::{Error, Result};
pub use toolchain::Toolchain;
