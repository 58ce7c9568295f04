//! The SplitZip kernels, and the tile language they are written in.
//!
//! One source, two machines: for `nvptx64-nvidia-cuda` this crate compiles to the PTX that ships in `snapshots/`, for
//! the host the same kernel bodies are the CPU codec and the tests. Where things are:
//!
//! | module | what |
//! | --- | --- |
//! | [`tile`] | the language: [`tile::Tile`], [`tile::map`], [`tile::Program`] with its collectives, planes and tensors in memory, [`tile::Block`] |
//! | [`arch`] | every machine instruction, once for the GPU and once for the CPU |
//! | [`dtype`] | where sign, exponent and mantissa are |
//! | [`scheme`] | how exponents become codes |
//! | [`stream`] | the numbers of the frame format that kernels know |
//! | [`kernels`] | the kernels |
//! | [`launch`] | what `#[kernel]` builds on: descriptions of entries, checked arguments |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features, unstable_features))]

extern crate self as splitzip_kernels;

pub mod arch;
pub mod dtype;
pub mod kernels;
pub mod launch;
pub mod scheme;
pub mod stream;
pub mod tile;

/// The attribute that makes entries, launchers and CPU runs of a kernel.
pub use splitzip_macros::kernel;

/// The examples of the page about the language are tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel-language.md")]
struct KernelLanguage;

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
