//! Byte planes: the two bytes of a bf16 are of different kinds (sign and exponent, mantissa), and compress better apart.

use splitzip_kernels::kernel;
use splitzip_kernels::tile::{Elements, ElementsOut, Program, Strips, map_each};

/// Low bytes to one plane, high bytes to another.
#[kernel(warps = 8, blocks = 8)]
pub fn split_bytes(
    program: &Program,
    strips: Strips<8>,
    /// The bits of bf16 (or of anything else with 16 bits).
    words: Elements<u16>,
    low: ElementsOut<u8>,
    high: ElementsOut<u8>,
) {
    let strip = strips.of(program);
    let words = words.load(&strip, 0);
    let (low_bytes, high_bytes) = map_each(&words, |word| (word as u8, (word >> 8) as u8));
    low.store(&strip, &low_bytes);
    high.store(&strip, &high_bytes);
}

/// The way back.
#[kernel(warps = 8, blocks = 8)]
pub fn join_bytes(
    program: &Program,
    strips: Strips<8>,
    low: Elements<u8>,
    high: Elements<u8>,
    words: ElementsOut<u16>,
) {
    let strip = strips.of(program);
    let (low, high) = (low.load(&strip, 0), high.load(&strip, 0));
    words.store(&strip, &map_each((&low, &high), |(low, high)| low as u16 | (high as u16) << 8));
}
