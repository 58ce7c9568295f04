//! Encode: signs and mantissas to one plane, short codes to another, what has no code to a part of variable length.
//!
//! A chunk of bf16 moves 2048 bytes in and about 1450 out; everything is arranged so that the warp has its four loads of 16 bytes in flight at
//! once, and touches memory again only for the part. What is special about a chunk (all elements equal, raw, a second try) is rare, uniform, and
//! reads the elements again from the cache, so that no register holds them until then.

use crate::dtype::*;
use crate::kernel;
use crate::launch::Chunks;
use crate::scheme::*;
use crate::stream::{ENTRY_MODE_SHIFT, MODE_EQUAL, MODE_RAW, groups};
use crate::tile::{
    Chunk, Directory, Fill, In, InChunk, Out, Program, Slots, Tail, TailArea, Totals, map, raw_words,
};

/// Encodes a chunk.
///
/// `given` is what the scheme wants for the tensor: the encoder's table of a codebook, channel bases (`channels` of them a group), or nothing.
/// Writes the chunk's part of all planes, its entry in the directory, and its variable part, if any, to its slot;
/// [`place`](fn@super::place) brings that to the frame. `totals` must be zero before.
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [(E4m3, W4)],
    warps = 16,
    blocks = resident_blocks::<D, S>(),
    shared = S::ENCODE_SHARED,
    block_shared = 64
)]
pub fn encode<D: Dtype, S: Scheme>(
    program: &Program,
    chunks: Chunks,
    words: In<D::Words>,
    given: S::Given,
    channels: u32,
    residuals: Out<D::Residuals>,
    upper_residuals: Out<D::UpperResiduals>,
    codes: Out<S::Codes>,
    directory: Directory,
    slots: Slots<D, S>,
    totals: Totals,
    tail: Tail,
) {
    let chunk = Chunk::of(program, chunks, tail);
    let mut length = 0;
    // A program without a chunk still counts: its block adds up what all have written.
    if chunk.valid != 0 {
        let input = words.chunk(program, &chunk, Fill::FirstElement, TailArea::Words);
        let (raw, slot) = (raw_words(chunk.valid, D::EXPONENT_BITS - S::CODE_BITS), slots.of(&chunk));
        let staged = S::stage(program, given);
        let (mut book, mut other_book) = (staged, staged);
        let (mut first, mut equal, mut words_before, mut attempt) = (0, false, 0, 0);
        // One turn for nearly all chunks. A bad one is tried again in another way, and the third turn goes back to the first way.
        let (coded, shape) = loop {
            let elements = input.load();
            let spread = map(&elements, D::spread);
            if attempt == 0 {
                let (low, high) = map(&elements, D::split);
                residuals.store(program, &chunk, TailArea::Residuals, &low);
                upper_residuals.store(program, &chunk, TailArea::UpperResiduals, &high);
                // A chunk of equal elements differs from its first one nowhere; nearly all others do so at once.
                first = program.pick(&map(&elements, D::first), 0);
                equal = !program.any(&map(&elements, |e| D::first_differences(e, first)));
                book = S::first_book::<D, LEVEL>(program, &chunk, staged, channels, &spread, first);
            } else if attempt == 1 {
                book = S::second_book::<D, LEVEL>(program, &chunk, book, &spread, first);
            } else {
                book = other_book;
            }
            let coded = S::code::<D, LEVEL>(program, &chunk, book, &spread);
            let shape = S::shape::<D>(program, book, &coded);
            if attempt == 0 && equal {
                equal = is_equal::<D, LEVEL>(program, input, first);
            }
            if equal {
                break (coded, shape);
            }
            if attempt == 0 && S::is_bad(&shape, raw) {
                (other_book, words_before) = (book, shape.words);
            } else if attempt != 1 || shape.words < words_before {
                break (coded, shape);
            }
            attempt += 1;
        };

        if equal {
            slot.store_uniform(first);
            length = 1;
            codes.store(program, &chunk, TailArea::Codes, &coded.codes);
            directory.store_entry(&chunk, 1 | MODE_EQUAL << ENTRY_MODE_SHIFT);
        } else if shape.words < raw {
            length = shape.words;
            codes.store(program, &chunk, TailArea::Codes, &coded.codes);
            directory.store_entry(&chunk, length | S::mode(book) << ENTRY_MODE_SHIFT);
            S::write::<D, LEVEL>(program, book, &coded, &shape, input, slot);
        } else {
            length = raw;
            let low = map(&input.load(), |e| S::raw_codes(D::exponents(e)));
            codes.store(program, &chunk, TailArea::Codes, &low);
            directory.store_entry(&chunk, raw | MODE_RAW << ENTRY_MODE_SHIFT);
            slot.store_raw::<D, S, LEVEL>(program, &chunk, &map(&input.load(), D::exponents));
        }
    }
    totals.add(program, groups(chunks.elements), &chunk, length);
}

/// Blocks that must fit on a multiprocessor: as many as the member's registers allow without a spill. (Of 64 Ki registers, 3 blocks of 512 threads
/// get 40 each, 2 get 64; 32 warps have 64 KiB of loads in flight, more than twice what memory needs.)
const fn resident_blocks<D: Dtype, S: Scheme>() -> u32 {
    if S::PACKED && D::EXPONENT_BITS == 8 {
        3
    } else if cfg!(feature = "sm80") && S::CHANNELS {
        1 // limited sums of halves are six instructions there
    } else {
        2
    }
}

/// Are all elements of a chunk the one in `first`? Of a short one, whatever fills it up is.
#[inline(always)]
fn is_equal<D: Dtype, const LEVEL: u32>(program: &Program, input: InChunk<D::Words>, first: u32) -> bool {
    !program.any(&map(&input.load(), |e| D::differences(e, first)))
}
