//! Decode: the way back. A chunk without a variable part is a look-up; all others are found through the directory.
//!
//! A frame may come from anywhere: every length and position that is read from it is checked before it is used, and a chunk
//! that does not hold together is reported in `status` instead of followed.

use crate::dtype::Dtype;
use crate::kernel;
use crate::launch::Chunks;
use crate::scheme::Scheme;
use crate::stream::{ENTRY_MODE_SHIFT, ENTRY_WORDS, MODE_CODED, MODE_EQUAL, MODE_RAW};
use crate::tile::{
    Chunk, DirectoryIn, Fill, In, Out, Parts, Program, Status, Table, Tail, TailArea, Tile, map, raw_words,
};
use crate::{dtype::Bf16, scheme::W4};

/// Decodes a chunk.
///
/// `parts` are all variable parts of the frame, `part_words` words of them; `codebook` is that of the tensor. A damaged
/// chunk sets `status` (0 before) and gives some elements; nothing outside of `words` is written.
#[kernel(dtype = [Bf16], scheme = [W4], warps = 8, blocks = 6, shared = S::DECODE_SHARED)]
pub fn decode<D: Dtype, S: Scheme>(
    program: &Program,
    chunks: Chunks,
    words: Out<D::Words>,
    residuals: In<D::Residuals>,
    codes: In<S::Codes>,
    directory: DirectoryIn,
    parts: Parts,
    part_words: u64,
    codebook: Table<16>,
    status: Status,
    tail: Tail,
) {
    let chunk = Chunk::of(program, chunks, tail);
    if chunk.valid == 0 {
        return;
    }
    let entry = directory.entry(&chunk);
    let codes = codes.chunk(program, &chunk, Fill::Zeros, TailArea::Codes).load();
    let residuals = residuals.chunk(program, &chunk, Fill::Zeros, TailArea::Residuals).load();
    let codebook = codebook.words();
    let entry = program.after(entry, &codes, &residuals);

    let mut exponents = S::decode(program, codebook, &codes);
    let mut equal = None;
    if entry != 0 {
        let (mode, length) = (entry >> ENTRY_MODE_SHIFT, entry & ENTRY_WORDS);
        let start = directory.start(program, &chunk);
        let raw = raw_words(chunk.valid, D::EXPONENT_BITS - S::CODE_BITS);
        let inside = start <= part_words && length as u64 <= part_words - start;
        let part = parts.at(start);
        if inside && mode == MODE_CODED && length < raw {
            exponents = patched::<D>(program, &chunk, &exponents, part, length, status);
        } else if inside && mode == MODE_RAW && length == raw {
            exponents = map((&codes, &part.plane::<S::Rest>(length)), |(c, r)| S::uncut(c, r));
        } else if inside && mode == MODE_EQUAL && length == 1 {
            equal = Some(part.word(0));
        } else {
            status.report(Status::DAMAGED);
        }
    }
    let elements = match equal {
        Some(word) => map(&residuals, |_| D::repeat(word)),
        None => map((&exponents, &residuals), |(e, r)| D::join(e, r)),
    };
    words.store(program, &chunk, TailArea::Words, &elements);
}

/// The exponents with the escaped ones in their places. They go through the memory of the program, in element order, so that no
/// register is indexed at run time.
#[inline(always)]
fn patched<D: Dtype>(
    program: &Program,
    chunk: &Chunk,
    exponents: &Tile<[u32; 8]>,
    part: Parts,
    length: u32,
    status: Status,
) -> Tile<[u32; 8]> {
    let (bytes, valid) = (program.share_bytes(exponents), chunk.valid);
    let mut at = 0;
    while at < length {
        let records = part.words(at, length, !0);
        let bad = map(&records, |r| {
            (r != !0 && ((r & 0xffff) >= valid || (r >> 16) >= 1 << D::EXPONENT_BITS)) as u32
        });
        if program.any(&bad) {
            status.report(Status::DAMAGED);
        }
        bytes.patch(&map((&records, &bad), |(r, bad)| if r == !0 || bad != 0 { !0 } else { r }));
        at += 32;
    }
    bytes.load(program)
}
