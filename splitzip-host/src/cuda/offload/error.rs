//! What can go wrong while KV is offloaded or reloaded, besides what encoding and decoding meet.

/// An error of an offload or a reload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// A part of page-locked memory that a pool can never give.
    #[error(
        "{what} needs {needed} bytes of page-locked memory, and the pool has {bytes} in all; make a larger pool, or smaller slices"
    )]
    PoolTooSmall {
        /// What it was for.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// Page-locked memory that is taken at present.
    #[error(
        "{what} needs {needed} bytes of page-locked memory in one piece, and of {bytes} bytes {free} are free, in pieces; drop offloaded KV, or wait longer"
    )]
    PoolFull {
        /// What it was for.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes of the pool.
        bytes: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Work that its owner did not want any more.
    #[error("the offload was cancelled; its memory is free again")]
    Cancelled,
    /// Work that was still waiting when its offloader was dropped.
    #[error("the offloader was dropped before this offload was done; keep it until nothing is in flight")]
    Stopped,
    /// A part of tensors that have no tokens.
    #[error("tokens can be chosen where KV goes to pages; tensors in one piece are reloaded in whole")]
    TokensOfTensors,
    /// Bytes of a file that are no offloaded KV.
    #[error("this is no offloaded KV: {reason}")]
    File {
        /// What is wrong.
        reason: String,
    },
}
