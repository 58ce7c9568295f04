//! Encode: signs and mantissas to one plane, short codes to another, what has no code to a part of variable length.
//!
//! A chunk moves 2048 bytes in and 1536 out; everything is arranged so that the warp has its four loads of 16 bytes in flight at once and
//! touches memory again only where a chunk is special: 82 % of the chunks of real KV have no escape and end after
//! two votes.

use crate::dtype::Dtype;
use crate::kernel;
use crate::launch::Chunks;
use crate::scheme::Scheme;
use crate::stream::{ENTRY_MODE_SHIFT, MODE_CODED, MODE_EQUAL, MODE_RAW, groups};
use crate::tile::{Chunk, Directory, Fill, In, Out, Program, Slot, Slots, Table, Tail, TailArea, Totals, map, raw_words};
use crate::{dtype::Bf16, scheme::W4};

/// Encodes a chunk.
///
/// `table` is the encoder's table of the codebook. Writes the chunk's part of both planes, its entry in the directory, and
/// its variable part, if any, to its slot; [`place`](fn@super::place) brings that to the frame. `totals` must be zero before.
#[kernel(dtype = [Bf16], scheme = [W4], warps = 16, blocks = 4, shared = S::ENCODE_SHARED, block_shared = 64)]
pub fn encode<D: Dtype, S: Scheme>(
    program: &Program,
    chunks: Chunks,
    words: In<D::Words>,
    table: Table<256>,
    residuals: Out<D::Residuals>,
    codes: Out<S::Codes>,
    directory: Directory,
    slots: Slots<D, S>,
    totals: Totals,
    tail: Tail,
) {
    let chunk = Chunk::of(program, chunks, tail);
    // A program without a chunk still counts: its block adds up what all have written.
    let length = match chunk.valid {
        0 => 0,
        _ => encode_chunk::<D, S, LEVEL>(program, &chunk, words, table, residuals, codes, directory, slots.of(&chunk)),
    };
    totals.add(program, groups(chunks.elements), &chunk, length);
}

/// Encodes a chunk that exists; returns the words of its variable part.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn encode_chunk<D: Dtype, S: Scheme, const LEVEL: u32>(
    program: &Program,
    chunk: &Chunk,
    words: In<D::Words>,
    table: Table<256>,
    residuals: Out<D::Residuals>,
    codes: Out<S::Codes>,
    directory: Directory,
    slot: Slot,
) -> u32 {
    let input = words.chunk(program, chunk, Fill::FirstElement, TailArea::Words);
    let elements = input.load();
    let table = program.stage(table);
    residuals.store(program, chunk, TailArea::Residuals, &map(&elements, D::split));

    // A chunk of equal elements differs from its first one nowhere; nearly all others do so in the first word of a lane.
    let first = program.pick(&map(&elements, D::first), 0);
    let suspicious = !program.any(&map(&elements, |e| D::first_differences(e, first)));
    let (mut coded, marks) = S::code(program, table, &map(&elements, D::exponents));

    // What follows is rare. It reads the elements again (from the cache), so that no register holds them until here.
    let (mut mode, mut length) = (MODE_CODED, 0);
    if suspicious && !program.any(&map(&input.load(), |e| D::differences(e, first))) {
        slot.store_uniform(first);
        (mode, length) = (MODE_EQUAL, 1);
    } else if program.any(&map(&marks, S::suspect)) {
        let escaped = chunk.within(&map(&marks, S::escaped));
        let (before, count) = program.scan(&map(&escaped, u32::count_ones));
        let raw = raw_words(chunk.valid, D::EXPONENT_BITS - S::CODE_BITS);
        if count < raw {
            slot.store_words(program, &escaped, &before, |element| {
                let exponent = input.element(element) >> D::MANTISSA_BITS & ((1 << D::EXPONENT_BITS) - 1);
                element | exponent << 16
            });
            length = count;
        } else {
            let (low, high) = map(&input.load(), |e| S::cut(D::exponents(e)));
            slot.store(&chunk.cleared_past_end(&high));
            coded = low;
            (mode, length) = (MODE_RAW, raw);
        }
    }
    codes.store(program, chunk, TailArea::Codes, &chunk.cleared_past_end(&coded));
    directory.store_entry(chunk, length | mode << ENTRY_MODE_SHIFT);
    length
}
