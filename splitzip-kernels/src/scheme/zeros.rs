//! The zeros of a chunk and the sum of its exponents, for a second try.
//!
//! Run by run from memory, where the words still are: it takes ten registers, while the first coding is kept. Mostly it says that the second try would
//! code as the first one did (nothing is 0), and the chunk goes on. (512 MiB with 5 % random exponents: see `docs/performance.md`.)

use crate::arch::{multiply_add, not_unrolled, rarely, sum_bytes};
use crate::dtype::Dtype;
use crate::tile::{Chunk, InChunk, Program, Words, generate};
use crate::unroll;

/// How many exponents of the elements that exist are 0, and the sum of all.
#[inline(always)]
pub fn zeros_and_sum<D: Dtype>(program: &Program, chunk: &Chunk, input: InChunk<D::Words>) -> (u32, u32) {
    let counted = if chunk.is_whole() {
        generate(|lane| count::<D>(input, lane, |_| [!0, !0]))
    } else {
        generate(|lane| count::<D>(input, lane, |run| first_bytes(chunk.run_elements(lane, run))))
    };
    let counted = program.sum(&counted);
    (chunk.valid - (counted >> OTHERS_AT), counted & ((1 << OTHERS_AT) - 1))
}

/// The sum of a lane's exponents, of those that `exist`, and how many are not 0.
#[inline(always)]
fn count<D: Dtype>(input: InChunk<D::Words>, lane: u32, exist: impl Fn(u32) -> [u32; 2]) -> u32 {
    let (mut sum, mut others, mut run) = (0, 0, 0);
    while run < 4 {
        not_unrolled();
        // Two are under way at once.
        let words = [input.run(lane, run), input.run(lane, run + 1)];
        unroll!(i < 2 => {
            let word = |w: u32| if w < 4 { words[i][w as usize & 3] } else { 0 };
            let exponents = D::exponents(<D::Words as Words>::from_fn(word));
            let exist = exist(run + i as u32);
            unroll!(half < 2 => {
                sum = sum_bytes(exponents[half] & exist[half], sum);
                others = sum_bytes(nonzero_high_bits(exponents[half]) & exist[half], others)
            })
        });
        run = rarely(run + 2);
    }
    // High bits are 128 each.
    multiply_add(others, 1 << (OTHERS_AT - 7), sum)
}

/// Exponents of 1024 elements that are not 0 are counted in the same word as all are summed up, which is up to 1024 x 255.
const OTHERS_AT: u32 = 20;

/// All bits of the first of eight bytes.
#[inline(always)]
fn first_bytes(bytes: u32) -> [u32; 2] {
    let below = |bytes: u32| ((1u64 << (8 * bytes)) - 1) as u32;
    [below(bytes.min(4)), below(bytes.max(4) - 4)]
}

/// The high bit of every byte that is not 0.
#[inline(always)]
fn nonzero_high_bits(bytes: u32) -> u32 {
    const LOW: u32 = 0x7f7f_7f7f;
    (((bytes & LOW) + LOW) | bytes) & !LOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_have_their_high_bit() {
        for byte in 0..=255u32 {
            for at in 0..4 {
                let word = 0x0101_0101u32 & !(255 << (8 * at)) | byte << (8 * at);
                assert_eq!(
                    nonzero_high_bits(word),
                    0x8080_8080 & !if byte == 0 { 0x80 << (8 * at) } else { 0 },
                    "{word:#x}"
                );
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
