//! Kernels outside of SplitZip, in its tile language: the ones of `docs/tutorial.md`.
//!
//! | kernel | one program a | what |
//! | --- | --- | --- |
//! | [`saxpy`](fn@saxpy), [`saxpy_fused`](fn@saxpy_fused) | strip | `y = a x + y`, with two roundings and with one |
//! | [`split_bytes`](fn@split_bytes), [`join_bytes`](fn@join_bytes) | strip | low and high bytes of bf16, and back |
//! | [`row_maximum`](fn@row_maximum) | row (a block of 8 warps) | the maximum of every row of a matrix |
//! | [`subtract_from_rows`](fn@subtract_from_rows) | strip of a row | subtracts a number of its own from every row |
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, asm_experimental_arch))]

mod planes;
mod rows;
mod vectors;

pub use planes::*;
pub use rows::*;
pub use vectors::*;

/// All entries, for tests and launchers.
#[cfg(not(target_arch = "nvptx64"))]
pub fn entries() -> impl Iterator<Item = &'static splitzip_kernels::launch::Entry> {
    [
        saxpy::ENTRIES,
        saxpy_fused::ENTRIES,
        split_bytes::ENTRIES,
        join_bytes::ENTRIES,
        row_maximum::ENTRIES,
        subtract_from_rows::ENTRIES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
