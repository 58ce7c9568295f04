//! Channel bases: the mean exponent of every channel of a group.
//!
//! Plain loops, of which LLVM makes vectors: a row of exponents is added to a row of sums. Rows are at least 1024 long (as many rows of channels as that takes
//! are one), so that the start and the end of a loop cost little, and 16 bits hold the 17 exponents at most that a sum gets. A group is done right before its chunks are
//! coded, which then find their elements in the cache.

use super::dtype::Dtype;
use splitzip_kernels::stream::{CHUNK, GROUP};

/// The most channels of a tensor with channel bases.
const CHANNELS: usize = 1024;
/// The shortest row of sums; the longest one is shorter than twice that.
const ROW: usize = 1024;

/// A tensor whose channel bases are computed.
#[derive(Clone, Copy)]
pub(super) struct Bases {
    pub words: *const u8,
    pub elements: u64,
    /// Channels, 8 to 1024, a multiple of 8.
    pub channels: usize,
    /// A byte for each of them and each group.
    pub bases: *mut u8,
    /// The value of the mean exponent, and how many values the window has.
    pub window: [u8; 2],
}

/// The low end of the window around the mean of exponents: the stored base.
#[inline(always)]
pub(super) fn low_of<D: Dtype>(mean: u8, [mean_value, values]: [u8; 2]) -> u8 {
    match D::EXPONENT_BITS {
        8 => mean.saturating_sub(mean_value).min(255 - values),
        bits => mean.wrapping_sub(mean_value) & ((1 << bits) - 1),
    }
}

/// Computes the bases of a group.
///
/// # Safety
/// The tensor is as large as it says, and nobody else writes the bases of this group.
#[inline(always)]
pub(super) unsafe fn compute<D: Dtype>(of: &Bases, group: u64) {
    let channels = of.channels.clamp(1, CHANNELS);
    let rows = ROW.div_ceil(channels);
    let start = group * u64::from(GROUP * CHUNK);
    let count = of.elements.saturating_sub(start).min(u64::from(GROUP * CHUNK)) as usize;
    let first = (start % channels as u64) as usize;
    let (mut sums, mut done) = ([0u16; 2 * ROW], 0);
    let mut at = first;
    while done < count {
        let length = (channels * rows - at).min(count - done);
        // SAFETY: elements `done` to `done + length` of the group exist.
        let words = unsafe { of.words.add((start as usize + done) * D::BYTES) };
        // SAFETY: as above.
        unsafe { add_row::<D>(&mut sums[at..at + length], words) };
        done += length;
        at = 0;
    }
    let mut folded = [0u32; CHANNELS];
    for row in 0..rows {
        let sums = &sums[row * channels..(row + 1) * channels];
        folded.iter_mut().zip(sums).for_each(|(folded, &sum)| *folded += u32::from(sum));
    }
    // SAFETY: the bases of this group, which nobody else has.
    let bases = unsafe { std::slice::from_raw_parts_mut(of.bases.add(group as usize * channels), channels) };
    // The first `more` channels, from where the group starts, have an element more than the others.
    let (least, more) = ((count / channels) as u32, count % channels);
    for (channel, (base, &sum)) in bases.iter_mut().zip(&folded).enumerate() {
        let before = if channel >= first { channel - first } else { channel + channels - first };
        let elements = (least + u32::from(before < more)).max(1);
        // Exact: both are below 2^24, and a quotient that is no integer is at least 1/2048 away from the next one.
        *base = low_of::<D>((sum as f32 / elements as f32) as u8, of.window);
    }
}

/// Adds the exponents of neighbouring elements to sums.
///
/// # Safety
/// There are as many elements at `words` as there are sums.
#[inline(always)]
unsafe fn add_row<D: Dtype>(sums: &mut [u16], words: *const u8) {
    let (mantissa, mask) = (8 * D::BYTES as u32 - 1 - D::EXPONENT_BITS, (1u16 << D::EXPONENT_BITS) - 1);
    // SAFETY: by contract.
    let bytes = unsafe { std::slice::from_raw_parts(words, sums.len() * D::BYTES) };
    if D::BYTES == 2 {
        for (sum, word) in sums.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *sum += u16::from_le_bytes(*word) >> mantissa & mask;
        }
    } else {
        for (sum, &word) in sums.iter_mut().zip(bytes) {
            *sum += u16::from(word) >> mantissa & mask;
        }
    }
}
