//! Checksums of the raw bits: position-mixed, 32 bits a chunk and 64 bits a tensor, independent of the order of chunks.
//!
//! A warp needs 3 instructions a word and one sum over its lanes. Every lane's step is a bijection, so a change within
//! one lane always shows; the sum over lanes, and over chunks, needs no order.

use super::CHUNK;
use crate::Dtype;

const LANES: usize = 32;
const TURNS: usize = 4;

/// Bytes an element has in a chunk and for the checksum: bytes are read as 16-bit elements.
pub(super) const fn element_bytes(dtype: Dtype) -> usize {
    if dtype.is_float() { dtype.bytes() } else { 2 }
}

/// The checksum of a chunk, word by word as the specification says it. `bytes` may be short; bytes behind a chunk are
/// ignored.
pub fn chunk_checksum_naive(dtype: Dtype, bytes: &[u8]) -> u32 {
    let per_lane = 8 * element_bytes(dtype);
    let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let mut sum = 0u32;
    for lane in 0..LANES {
        let mut h = (lane as u32 + 1).wrapping_mul(0x9E37_79B9);
        for turn in 0..TURNS {
            for word in 0..per_lane / 4 {
                let at = (turn * LANES + lane) * per_lane + 4 * word;
                let word = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
                h = h.rotate_left(13).wrapping_mul(0x85EB_CA6B).wrapping_add(word);
            }
        }
        sum = sum.wrapping_add(mix_32(h));
    }
    sum
}

/// The checksum of a chunk, all lanes side by side: what [`chunk_checksum_naive`] gives, several GB/s.
pub fn chunk_checksum(dtype: Dtype, bytes: &[u8]) -> u32 {
    let size = CHUNK * element_bytes(dtype);
    let mut filled = [0u8; 2 * CHUNK];
    let bytes = match bytes.get(..size) {
        Some(bytes) => bytes,
        None => {
            filled[..bytes.len()].copy_from_slice(bytes);
            &filled[..size]
        }
    };
    let mut h: [u32; LANES] = std::array::from_fn(|lane| (lane as u32 + 1).wrapping_mul(0x9E37_79B9));
    for turn in bytes.chunks_exact(size / TURNS) {
        for word in (0..size / TURNS / LANES).step_by(4) {
            for (h, part) in h.iter_mut().zip(turn.chunks_exact(size / TURNS / LANES)) {
                let word = u32::from_le_bytes([part[word], part[word + 1], part[word + 2], part[word + 3]]);
                *h = h.rotate_left(13).wrapping_mul(0x85EB_CA6B).wrapping_add(word);
            }
        }
    }
    h.into_iter().fold(0, |sum, h| sum.wrapping_add(mix_32(h)))
}

/// Adds chunk `chunk` to the checksum of its tensor, which starts at 0.
pub const fn add_to_tensor_checksum(sum: u64, chunk: u64, chunk_checksum: u32) -> u64 {
    let x = (chunk.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(chunk_checksum as u64);
    sum.wrapping_add(mix_64(x))
}

/// The checksum of a tensor.
pub fn tensor_checksum(dtype: Dtype, bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks(CHUNK * element_bytes(dtype)).zip(0..);
    chunks.fold(0, |sum, (bytes, chunk)| add_to_tensor_checksum(sum, chunk, chunk_checksum(dtype, bytes)))
}

/// The `lowbias32` finalizer.
const fn mix_32(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x7FEB_352D);
    h ^= h >> 15;
    h = h.wrapping_mul(0x846C_A68B);
    h ^ h >> 16
}

/// The `splitmix64` finalizer.
const fn mix_64(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}
