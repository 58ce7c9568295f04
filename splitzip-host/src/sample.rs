//! Which chunks `auto` looks at.
//!
//! 64 chunks are 65,536 elements: enough for the 16 most frequent exponents of a tensor, and a constant cost on a GPU. The
//! rule is part of the format's promise that canonical frames are the same everywhere.

/// The most chunks that a sample has.
pub const SAMPLED_CHUNKS: u64 = 64;

/// The chunks of a tensor of `chunks` chunks that `auto` counts: `S = min(chunks, 64)` of them, `i * chunks / S`.
pub fn sampled_chunks(chunks: u64) -> impl Iterator<Item = u64> {
    let sampled = chunks.min(SAMPLED_CHUNKS);
    (0..sampled).map(move |i| (u128::from(i) * u128::from(chunks) / u128::from(sampled)) as u64)
}
