//! The zeros of a chunk and the sum of its exponents, for a second try.
//!
//! Run by run from memory, where the words still are: it takes ten registers, while the first coding is kept. Mostly it says that the second try would
//! code as the first one did (nothing is 0), and the chunk goes on. (512 MiB with 5 % random exponents: see `docs/performance.md`.)

use crate::arch::{rarely, sum_bytes};
use crate::dtype::Dtype;
use crate::tile::{Chunk, InChunk, Program, Words, generate};
use crate::unroll;

/// How many exponents of the elements that exist are 0, and the sum of all.
#[inline(always)]
pub fn zeros_and_sum<D: Dtype>(program: &Program, chunk: &Chunk, input: InChunk<D::Words>) -> (u32, u32) {
    let counted = generate(|lane| {
        let (mut counted, mut run) = (0, 0);
        while run < 4 {
            // Two are under way at once.
            let words = [input.run(lane, run), input.run(lane, run + 1)];
            unroll!(i < 2 => {
                let word = |w: u32| if w < 4 { words[i][w as usize & 3] } else { 0 };
                let exponents = D::exponents(<D::Words as Words>::from_fn(word));
                let [exist_low, exist_high] = first_bytes(chunk.run_elements(lane, run + i as u32));
                let mut count = |exponents: u32, exist: u32| {
                    counted = sum_bytes(exponents & exist, counted);
                    counted += (zero_high_bits(exponents) & exist).count_ones() << ZEROS_AT;
                };
                count(exponents[0], exist_low);
                count(exponents[1], exist_high);
            });
            run = rarely(run + 2);
        }
        counted
    });
    let counted = program.sum(&counted);
    (counted >> ZEROS_AT, counted & ((1 << ZEROS_AT) - 1))
}

/// The zeros of 1024 elements are counted in the same word as their exponents are summed up, of which there are up to 1024 x 255.
const ZEROS_AT: u32 = 20;

/// All bits of the first of eight bytes.
#[inline(always)]
fn first_bytes(bytes: u32) -> [u32; 2] {
    let below = |bytes: u32| ((1u64 << (8 * bytes)) - 1) as u32;
    [below(bytes.min(4)), below(bytes.max(4) - 4)]
}

/// The high bit of every byte that is 0.
#[inline(always)]
fn zero_high_bits(bytes: u32) -> u32 {
    const LOW: u32 = 0x7f7f_7f7f;
    !(((bytes & LOW) + LOW) | bytes) & !LOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_have_their_high_bit() {
        for byte in 0..=255u32 {
            for at in 0..4 {
                let word = 0x0101_0101u32 & !(255 << (8 * at)) | byte << (8 * at);
                assert_eq!(zero_high_bits(word), if byte == 0 { 0x80 << (8 * at) } else { 0 }, "{word:#x}");
            }
        }
    }

    #[test]
    fn as_many_bytes_as_there_are_elements() {
        for elements in 0..=8 {
            let [low, high] = first_bytes(elements);
            let bytes = u64::from(high) << 32 | u64::from(low);
            assert_eq!(bytes.count_ones(), 8 * elements);
            assert_eq!(bytes.trailing_ones(), 8 * elements);
        }
    }
}
