//! `w4`: 4 bits, the index in a codebook of 16 calibrated exponents. Others escape, with their position.
//!
//! The encoder looks exponents up in a table of 256 bytes: the code, or [`ESCAPE`]. Codes and escapes come out of one look-up, and
//! only a chunk that has an escape pays for finding out which elements they are (82 % of the chunks of real KV have none).

use super::Scheme;
use crate::arch::{even_bytes, select};
use crate::tile::{Program, StagedTable, Tile, map};
use crate::unroll;

/// The scheme `w4`.
#[derive(Clone, Copy, Debug)]
pub struct W4;

/// What the encoder's table holds for an exponent that is not in the codebook: code 0, and a mark.
pub const ESCAPE: u8 = 0x80;

const MARKS: u32 = 0x8080_8080;
const NIBBLES: u32 = 0x0f0f_0f0f;

/// The encoder's table of a codebook (16 different exponents, ascending).
pub fn encode_table(codebook: &[u8; 16]) -> [u8; 256] {
    let mut table = [ESCAPE; 256];
    for (code, &exponent) in codebook.iter().enumerate() {
        table[exponent as usize] = code as u8;
    }
    table
}

/// The encoder's table, piecewise.
pub struct W4Table;

impl W4Table {
    /// The table of 8 exponents in a row: `chosen` says which are in the codebook, `first` is the code of the first of those.
    #[inline(always)]
    pub fn eight(chosen: u32, first: u32) -> [u32; 2] {
        let mut out = [0; 2];
        unroll!(i < 8 => {
            let code = first + (chosen & ((1 << i) - 1)).count_ones();
            let value = if chosen >> i & 1 != 0 { code } else { ESCAPE as u32 };
            out[i / 4] |= value << (8 * (i % 4));
        });
        out
    }
}

impl Scheme for W4 {
    const NAME: &'static str = "w4";
    const CODE_BITS: u32 = 4;
    const ENCODE_SHARED: u32 = 256;
    const DECODE_SHARED: u32 = 1024;
    type Codes = [u32; 4];
    type Marks = [u32; 8];
    type Rest = [u32; 4];

    #[inline(always)]
    fn code(program: &Program, table: StagedTable, exponents: &Tile<[u32; 8]>) -> (Tile<[u32; 4]>, Tile<[u32; 8]>) {
        let values = program.look_up_256(table, exponents);
        (map(&values, nibbles), values)
    }

    #[inline(always)]
    fn suspect(marks: [u32; 8]) -> u32 {
        let mut all = 0;
        unroll!(i < 8 => all |= marks[i]);
        all & MARKS
    }

    #[inline(always)]
    fn escaped(marks: [u32; 8]) -> u32 {
        let mut mask = 0;
        // A mark is bit 7 of its byte; the bits of a run are 8 apart, its second half 4 higher.
        unroll!(g < 4 => mask |= ((marks[2 * g] & MARKS) >> 7 | (marks[2 * g + 1] & MARKS) >> 3) << g);
        mask
    }

    #[inline(always)]
    fn decode(program: &Program, codebook: [u32; 4], codes: &Tile<[u32; 4]>) -> Tile<[u32; 8]> {
        program.look_up_16(codebook, codes)
    }

    #[inline(always)]
    fn cut(exponents: [u32; 8]) -> ([u32; 4], [u32; 4]) {
        let mut high = [0; 8];
        unroll!(i < 8 => high[i] = exponents[i] >> 4 & NIBBLES);
        (nibbles(exponents), nibbles(high))
    }

    #[inline(always)]
    fn uncut(codes: [u32; 4], rest: [u32; 4]) -> [u32; 8] {
        let (low, high, mut out) = (from_nibbles(codes), from_nibbles(rest), [0; 8]);
        unroll!(i < 8 => out[i] = low[i] | high[i] << 4);
        out
    }
}

/// The low nibbles of the bytes of a run, in order: eight of them are a word.
#[inline(always)]
fn nibbles(bytes: [u32; 8]) -> [u32; 4] {
    let mut out = [0; 4];
    unroll!(g < 4 => {
        let pairs = |x: u32| select(NIBBLES, x, x >> 4);
        out[g] = even_bytes(pairs(bytes[2 * g]), pairs(bytes[2 * g + 1]));
    });
    out
}

/// The way back.
#[inline(always)]
fn from_nibbles(words: [u32; 4]) -> [u32; 8] {
    let mut out = [0; 8];
    unroll!(g < 4 => {
        out[2 * g] = spread_nibbles(words[g]);
        out[2 * g + 1] = spread_nibbles(words[g] >> 16);
    });
    out
}

/// Four nibbles to four bytes.
#[inline(always)]
fn spread_nibbles(word: u32) -> u32 {
    let halves = (word & 0xff) | (word & 0xff00) << 8;
    (halves | halves << 4) & NIBBLES
}
