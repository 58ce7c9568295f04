//! `w4`: 4 bits, the index in a codebook of 16 calibrated exponents. Others escape, with their position.
//!
//! The encoder looks exponents up in a table of 256 bytes: the code, or [`ESCAPE`]. Codes and marks come out of one look-up. An escape is a
//! whole word, so that lanes write and read them without a bit string.

use super::{Coded, Scheme, Shape, Spread};
use crate::dtype::Dtype;
use crate::stream::MODE_CODED;
use crate::tile::bits::{high_bits, pack_nibbles, unpack_nibbles};
use crate::tile::{
    Chunk, GroupSums, InChunk, Part, Parts, Program, StagedTable, Table, Tile, count_before, map,
};
use crate::unroll;

/// The scheme `w4`.
#[derive(Clone, Copy, Debug)]
pub struct W4;

/// What the encoder's table holds for an exponent that is not in the codebook: code 0, and a mark.
pub const ESCAPE: u8 = 0x80;

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
    const PACKED: bool = true;
    const CHANNELS: bool = false;
    const EQUAL_SHOWS: bool = false;
    const ENCODE_SHARED: u32 = 256;
    const DECODE_SHARED: u32 = 1024;
    type Codes = [u32; 4];
    type Second = [u32; 0];
    type Third = [u32; 0];
    type Decoded<D: Dtype> = [u32; 8];
    type Given = Table<256>;
    type Known = Table<16>;
    type Book = StagedTable;

    #[inline(always)]
    fn stage(program: &Program, table: Table<256>) -> StagedTable {
        program.stage(table, 0)
    }

    #[inline(always)]
    fn first_book<D: Dtype, const LEVEL: u32>(
        _: &Program,
        _: &Chunk,
        staged: StagedTable,
        _: u32,
        _: GroupSums,
        _: &Tile<D::Spread>,
        _: impl Fn() -> u32,
    ) -> StagedTable {
        staged
    }

    #[inline(always)]
    fn code<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        table: StagedTable,
        spread: &Tile<D::Spread>,
    ) -> Coded<W4> {
        let exponents = map(spread, |s| s.bytes::<D>());
        let values = program.look_up_256(table, &exponents);
        let (codes, escaped) = map(&values, |v| (pack_nibbles(v), high_bits(v)));
        let none = map(spread, |_| 0u32);
        let nothing = map(spread, |_| []);
        let escaped = chunk.within(&escaped);
        Coded { codes, second: nothing, third: nothing, marked: none, twice_marked: none, escaped }
    }

    #[inline(always)]
    fn is_bad(_: &Shape, _: u32) -> bool {
        false
    }

    #[inline(always)]
    fn second_book<D: Dtype>(_: &Program, _: &Chunk, book: StagedTable, _: u32, _: u32) -> StagedTable {
        book
    }

    #[inline(always)]
    fn is_same(_: StagedTable, _: StagedTable) -> bool {
        true
    }

    #[inline(always)]
    fn shape<D: Dtype>(program: &Program, _: StagedTable, coded: &Coded<W4>) -> Shape {
        // Most chunks have no escape: one vote, and nothing to count.
        if !program.any(&coded.escaped) {
            return Shape::with_totals(coded.escaped, 0, 0, 0, 0, [0, 0], 32);
        }
        let (before, escaped) = count_before(program, &coded.escaped);
        Shape::with_totals(before, 0, 0, escaped, 0, [0, 0], 32)
    }

    #[inline(always)]
    fn mode(_: StagedTable) -> u32 {
        MODE_CODED
    }

    #[inline(always)]
    fn write<D: Dtype, const LEVEL: u32>(
        program: &Program,
        _: StagedTable,
        coded: &Coded<W4>,
        shape: &Shape,
        input: InChunk<D::Words>,
        part: Part,
    ) {
        if shape.escaped != 0 {
            part.store_words(program, &coded.escaped, &shape.plain_counts(), |element| {
                element | exponent_at::<D>(input, element) << 16
            });
        }
    }

    #[inline(always)]
    fn raw_codes<D: Dtype>(spread: D::Spread) -> [u32; 4] {
        pack_nibbles(spread.bytes::<D>())
    }

    #[inline(always)]
    fn raw_exponents<D: Dtype>(codes: [u32; 4], mut high: [u32; 8]) -> [u32; 8] {
        let low = unpack_nibbles(codes);
        unroll!(i < 8 => high[i] |= low[i]);
        high
    }

    #[inline(always)]
    fn decode_alone<D: Dtype, const LEVEL: u32>(
        program: &Program,
        _: &Chunk,
        codebook: Table<16>,
        _: u32,
        codes: &Tile<[u32; 4]>,
    ) -> Tile<[u32; 8]> {
        program.look_up_16(codebook.words(), codes)
    }

    #[inline(always)]
    fn decoded<D: Dtype>(bytes: [u32; 8]) -> [u32; 8] {
        bytes
    }

    #[inline(always)]
    fn decode<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        _: Table<16>,
        _: u32,
        _: &Tile<[u32; 4]>,
        alone: &Tile<[u32; 8]>,
        mode: u32,
        part: Parts,
        length: u32,
    ) -> (Tile<[u32; 8]>, bool) {
        // The exponents go through the memory of the program, in element order, so that no register is indexed at run time.
        let (bytes, valid, mut ok, mut at) = (program.share_bytes(alone), chunk.valid, mode == MODE_CODED, 0);
        while at < length {
            let records = part.words(at, length, !0);
            let bad = map(&records, |r| {
                (r != !0 && ((r & 0xffff) >= valid || (r >> 16) >= 1 << D::EXPONENT_BITS)) as u32
            });
            ok &= !program.any(&bad);
            bytes.patch(&map((&records, &bad), |(r, bad)| if bad != 0 { !0 } else { r }));
            at += 32;
        }
        (bytes.load(program), ok)
    }

    #[inline(always)]
    fn join<D: Dtype>(exponents: [u32; 8], residuals: D::Residuals, upper: D::UpperResiduals) -> D::Words {
        D::join(exponents, residuals, upper)
    }
}

/// The exponent of an element that is still in memory.
#[inline(always)]
pub(super) fn exponent_at<D: Dtype>(input: InChunk<D::Words>, element: u32) -> u32 {
    input.element(element) >> D::MANTISSA_BITS & ((1 << D::EXPONENT_BITS) - 1)
}
