//! Bits of one lane: 32 elements as bytes, as nibbles, as bit planes. Plain functions on words, for the closures of [`super::map`].
//!
//! A lane holds its elements as 8 words of bytes, words `2 g` and `2 g + 1` for run `g`. *Woven* nibbles put both words of a run
//! into one: the order from which [`transpose`] gets bit planes in coding order (`docs/format.md`, section 1) with 16 instructions.

use crate::arch::{byte2, dot_high, dot_low, even_bytes, multiply_add, pair_bytes, pair_halves, select};
use crate::unroll;

const NIBBLES: u32 = 0x0f0f_0f0f;

/// The low nibbles of 8 words of bytes, woven: nibble `2 b + h` of word `g` is byte `b` of word `2 g + h`.
#[inline(always)]
pub fn weave(bytes: [u32; 8]) -> [u32; 4] {
    let mut out = [0; 4];
    unroll!(g < 4 => out[g] = select(NIBBLES, bytes[2 * g], bytes[2 * g + 1] << 4));
    out
}

/// The way back.
#[inline(always)]
pub fn unweave(nibbles: [u32; 4]) -> [u32; 8] {
    let mut out = [0; 8];
    unroll!(g < 4 => {
        out[2 * g] = nibbles[g] & NIBBLES;
        out[2 * g + 1] = nibbles[g] >> 4 & NIBBLES
    });
    out
}

/// 4 words of nibbles to 4 bit planes, and back: bit `4 n + i` of plane `j` is bit `j` of nibble `n` of word `i`.
#[inline(always)]
pub fn transpose(w: [u32; 4]) -> [u32; 4] {
    const PAIRS: u32 = 0x3333_3333;
    const ONES: u32 = 0x5555_5555;
    let (a, c) = (select(PAIRS, w[0], w[2] << 2), select(PAIRS, w[0] >> 2, w[2]));
    let (b, d) = (select(PAIRS, w[1], w[3] << 2), select(PAIRS, w[1] >> 2, w[3]));
    [select(ONES, a, b << 1), select(ONES, a >> 1, b), select(ONES, c, d << 1), select(ONES, c >> 1, d)]
}

/// The bit planes of 8 words of bytes, the lowest first.
#[inline(always)]
pub fn planes(bytes: [u32; 8]) -> [u32; 8] {
    let mut high = [0; 8];
    unroll!(i < 8 => high[i] = bytes[i] >> 4);
    let (low, high) = (transpose(weave(bytes)), transpose(weave(high)));
    [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]]
}

/// The way back.
#[inline(always)]
pub fn from_planes(planes: [u32; 8]) -> [u32; 8] {
    let low = transpose([planes[0], planes[1], planes[2], planes[3]]);
    let high = transpose([planes[4], planes[5], planes[6], planes[7]]);
    let mut out = [0; 8];
    unroll!(g < 4 => {
        out[2 * g] = select(NIBBLES, low[g], high[g] << 4);
        out[2 * g + 1] = select(NIBBLES, low[g] >> 4, high[g])
    });
    out
}

/// One bit a byte: the byte's bit 7. In coding order.
#[inline(always)]
pub fn high_bits(bytes: [u32; 8]) -> u32 {
    // The bits of a run are 8 apart, its second word's 4 higher: each word fills one bit of every byte.
    let mut mask = bytes[0] >> 7;
    unroll!(i < 8 => {
        let (run, second) = (i as u32 & 3, i as u32 >> 2);
        let below = ((1 << i) - 1) * 0x0101_0101;
        mask = select(below, mask, bytes[(2 * run + second) as usize & 7] >> (7 - i));
    });
    mask
}

/// Which bytes are zero, as a mask in coding order.
#[inline(always)]
pub fn zero_bytes(bytes: [u32; 8]) -> u32 {
    const LOW: u32 = 0x7f7f_7f7f;
    let mut nonzero = [0; 8];
    unroll!(i < 8 => nonzero[i] = ((bytes[i] & LOW) + LOW) | bytes[i]);
    !high_bits(nonzero)
}

/// The low nibbles of the bytes of each run, in element order: eight of them are a word.
#[inline(always)]
pub fn pack_nibbles(bytes: [u32; 8]) -> [u32; 4] {
    let pairs = |x: u32| select(NIBBLES, x, x >> 4);
    let mut out = [0; 4];
    unroll!(g < 4 => out[g] = even_bytes(pairs(bytes[2 * g]), pairs(bytes[2 * g + 1])));
    out
}

/// The way back.
#[inline(always)]
pub fn unpack_nibbles(words: [u32; 4]) -> [u32; 8] {
    let mut out = [0; 8];
    unroll!(g < 4 => {
        out[2 * g] = spread_nibbles(words[g]);
        out[2 * g + 1] = spread_nibbles(words[g] >> 16)
    });
    out
}

/// Four nibbles to four bytes.
#[inline(always)]
fn spread_nibbles(word: u32) -> u32 {
    let halves = (word & 0xff) | (word & 0xff00) << 8;
    (halves | halves << 4) & NIBBLES
}

/// How to move the bits under a mask together: inside each byte by `moves` (Hacker's Delight, section 7-4, three rounds instead of five), then
/// byte to byte.
struct Plan {
    moves: [u32; 3],
    compacted: u32,
}

#[inline(always)]
fn plan(mask: u32) -> Plan {
    let (mut moves, mut compacted, mut gaps) = ([0; 3], mask, (!mask << 1) & 0xfefe_fefe);
    unroll!(i < 2 => {
        let mut odd = gaps ^ (gaps << 1 & 0xfefe_fefe);
        odd ^= odd << 2 & 0xfcfc_fcfc;
        odd ^= odd << 4 & 0xf0f0_f0f0;
        moves[i] = odd & compacted;
        compacted = (compacted & !moves[i]) | moves[i] >> (1 << i);
        gaps &= !odd
    });
    // A byte has one fourth gap at most, in its upper half, and all bits from there on move.
    moves[2] = gaps.wrapping_mul(15) & compacted & 0xf0f0_f0f0;
    compacted = (compacted & !moves[2]) | moves[2] >> 4;
    Plan { moves, compacted }
}

/// The bits of every plane that are under the mask, moved to the low end. One plan serves all planes; about 65 instructions for three.
#[inline(always)]
pub fn compact<const N: usize>(planes: [u32; N], mask: u32) -> [u32; N] {
    let Plan { moves, compacted } = plan(mask);
    // Shifts as products, off the busiest pipe: a byte with its `n` lowest bits set and 1 make 2^n, and a product of two is the shift of two bytes.
    let pair = |byte: u32| multiply_add(byte, 1 << 16, (1 << 16) + 1);
    let (low, high) = (pair(compacted & 0xff), pair(byte2(compacted)));
    let upper = dot_low(low, compacted, 1);
    let mut out = [0; N];
    unroll!(p < N => {
        let mut x = planes[p];
        unroll!(i < 3 => x = select(moves[i] >> (1 << i), x >> (1 << i), x));
        x &= compacted;
        out[p] = multiply_add(dot_high(high, x, 0), upper, dot_low(low, x, 0))
    });
    out
}

/// The way back; bits outside of the mask are anything.
#[inline(always)]
pub fn expand<const N: usize>(planes: [u32; N], mask: u32) -> [u32; N] {
    let Plan { moves, .. } = plan(mask);
    let count = |bits: u32| (mask & bits).count_ones();
    let counts = [count(0xff), count(0xffff), count(0x00ff_ffff)];
    let mut out = [0; N];
    unroll!(p < N => {
        let r = planes[p];
        let low = pair_bytes(r, r >> counts[0]);
        let mut x = pair_halves(low, pair_bytes(r >> counts[1], r >> counts[2]));
        unroll!(i < 3 => x = select(moves[2 - i], x << (1 << (2 - i)), x));
        out[p] = x
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u32) -> u32 {
        *state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        *state ^ *state >> 16
    }

    #[test]
    fn planes_come_back_and_lie_in_coding_order() {
        let mut state = 1;
        for _ in 0..1000 {
            let bytes = [0; 8].map(|_: u32| random(&mut state));
            let planes = planes(bytes);
            assert_eq!(from_planes(planes), bytes);
            for (j, plane) in planes.into_iter().enumerate() {
                for element in 0..32u32 {
                    let (g, i) = (element / 8, element % 8);
                    let byte = bytes[(2 * g + i / 4) as usize] >> (8 * (i % 4)) & 255;
                    assert_eq!(plane >> (8 * (i % 4) + 4 * (i / 4) + g) & 1, byte >> j & 1);
                }
            }
            assert_eq!(high_bits(bytes), planes[7]);
        }
    }

    #[test]
    fn nibbles_come_back() {
        let mut state = 2;
        for _ in 0..1000 {
            let bytes = [0; 8].map(|_: u32| random(&mut state) & NIBBLES);
            assert_eq!(unweave(weave(bytes)), bytes);
            assert_eq!(unpack_nibbles(pack_nibbles(bytes)), bytes);
        }
    }

    #[test]
    fn bits_move_together_and_back() {
        let mut state = 3;
        for round in 0..100_000u32 {
            let mask = match round % 4 {
                0 => random(&mut state),
                1 => random(&mut state) & random(&mut state) & random(&mut state),
                2 => random(&mut state) | random(&mut state) | random(&mut state),
                _ => [0, !0, 1, 1 << 31][(round / 4 % 4) as usize],
            };
            let plane = random(&mut state);
            let mut naive = 0;
            for (rank, bit) in (0..32).filter(|bit| mask >> bit & 1 != 0).enumerate() {
                naive |= (plane >> bit & 1) << rank;
            }
            assert_eq!(compact([plane], mask), [naive]);
            assert_eq!(expand([naive], mask)[0] & mask, plane & mask);
        }
    }

    #[test]
    fn zero_bytes_are_found() {
        let mut state = 4;
        for _ in 0..1000 {
            let bytes = [0; 8].map(|_: u32| random(&mut state) & random(&mut state) & random(&mut state));
            let planes = planes(bytes);
            assert_eq!(zero_bytes(bytes), !planes.into_iter().fold(0, |a, b| a | b));
        }
    }
}
