//! Machine instructions: one function each, with the same list for the GPU and for the CPU.
//!
//! Everything above this module is written once. A function here that exists on one machine only is a bug; `list.rs` in
//! the tests compares the two.

#[cfg(not(target_arch = "nvptx64"))]
mod cpu;
#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(all(not(target_arch = "nvptx64"), target_arch = "x86_64"))]
mod x86;

#[cfg(not(target_arch = "nvptx64"))]
pub use cpu::*;
#[cfg(target_arch = "nvptx64")]
pub use nvptx::*;
