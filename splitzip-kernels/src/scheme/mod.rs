//! Schemes: how exponents become codes.

mod w4;
pub use w4::{ESCAPE, W4, W4Table, encode_table};

use crate::tile::{FromParts, Program, StagedTable, Tile, Words};

/// A scheme: a ladder of code widths.
pub trait Scheme: Copy + 'static {
    /// As in entry names: `w4`.
    const NAME: &'static str;
    /// Bits of a code of the first level, the one in the code plane.
    const CODE_BITS: u32;
    /// Bytes of memory that encoding takes a program.
    const ENCODE_SHARED: u32;
    /// Bytes of memory that decoding takes a program.
    const DECODE_SHARED: u32;
    /// 32 codes.
    type Codes: Words;
    /// What encoding remembers of the elements until somebody asks which ones escape.
    type Marks: Words;
    /// What a raw chunk keeps outside of the code plane.
    type Rest: FromParts;

    /// Codes of the exponents.
    fn code(program: &Program, table: StagedTable, exponents: &Tile<[u32; 8]>) -> (Tile<Self::Codes>, Tile<Self::Marks>);
    /// Not 0 if an element of the lane escapes.
    fn suspect(marks: Self::Marks) -> u32;
    /// The elements that have no code.
    fn escaped(marks: Self::Marks) -> u32;
    /// Exponents of the codes; of escaped elements anything.
    fn decode(program: &Program, codebook: [u32; 4], codes: &Tile<Self::Codes>) -> Tile<[u32; 8]>;
    /// Exponents as they are, in the planes of a raw chunk.
    fn cut(exponents: [u32; 8]) -> (Self::Codes, Self::Rest);
    /// The way back.
    fn uncut(codes: Self::Codes, rest: Self::Rest) -> [u32; 8];
}

/// Refuses a member that can gain nothing, when it is compiled.
///
/// # Panics
/// At compile time, if codes are not narrower than exponents.
pub const fn check_member(exponent_bits: u32, code_bits: u32, sentence: &'static str) {
    if code_bits >= exponent_bits {
        panic!("{}", sentence);
    }
}
