//! Decode: the way back. The directory says where the variable part of a chunk is and how long; the codes say what must be in it.
//!
//! A frame may come from anywhere: every length, position and mode that is read from it is checked before it is used, and a chunk
//! that does not hold together is reported in `status` instead of followed.

use super::checksum_kernel::add_shares;
use crate::dtype::*;
use crate::kernel;
use crate::launch::Chunks;
use crate::scheme::*;
use crate::stream::{
    ENTRY_MODE_SHIFT, ENTRY_WORDS, GROUP, MODE_CODED, MODE_EQUAL, MODE_RAW, MODE_ZEROS, groups,
};
use crate::tile::{
    Chunk, DirectoryIn, In, Out, Parts, Program, Status, Tail, TailArea, TensorSums, Tile, Words, map,
};

/// Decodes a chunk.
///
/// `parts` are all variable parts of the frame, `part_words` words of them; `known` is the codebook of the tensor, its channel bases
/// (`channels` of them a group), or nothing. A damaged chunk sets `status` (0 before) and gives some elements; nothing outside of `words` is written.
/// The checksum of what was decoded is added to `sum`, if anybody wants it.
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [(E4m3, W4)],
    warps = 8,
    blocks = resident_blocks::<D>(),
    shared = S::DECODE_SHARED,
    block_shared = Program::GATHERED_BYTES
)]
pub fn decode<D: Dtype, S: Scheme>(
    program: &Program,
    chunks: Chunks,
    words: Out<D::Words>,
    residuals: In<D::Residuals>,
    upper_residuals: In<D::UpperResiduals>,
    codes: In<S::Codes>,
    directory: DirectoryIn,
    parts: Parts,
    part_words: u64,
    known: S::Known,
    channels: u32,
    status: Status,
    sum: TensorSums<8>,
    tail: Tail,
) {
    let chunk = if D::BITS == 16 || S::CODE_BITS == 3 {
        Chunk::of_apart(program, chunks, tail)
    } else {
        Chunk::of(program, chunks, tail)
    };
    let checks = sum.are_wanted();
    if chunk.valid == 0 {
        if checks {
            add_shares::<D>(program, &chunk, None, chunks.elements, || sum.of(0));
        }
        return;
    }
    let planes = Planes { residuals, upper_residuals, codes, directory };
    let elements = decode_chunk::<D, S, LEVEL>(
        program,
        &chunk,
        planes,
        parts,
        part_words,
        known,
        channels,
        status,
        || {},
    );
    words.store_apart(program, &chunk, TailArea::Words, &elements);
    if checks {
        add_shares::<D>(program, &chunk, Some(&elements), chunks.elements, || sum.of(0));
    }
    prefetch(&chunk, chunks, directory, parts, part_words);
}

/// Where the parts of a tensor lie in a frame.
#[derive(Clone, Copy)]
pub(super) struct Planes<D: Dtype, S: Scheme> {
    pub residuals: In<D::Residuals>,
    pub upper_residuals: In<D::UpperResiduals>,
    pub codes: In<S::Codes>,
    pub directory: DirectoryIn,
}

/// The elements of a chunk. `meanwhile` is done while its planes are under way.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub(super) fn decode_chunk<D: Dtype, S: Scheme, const LEVEL: u32>(
    program: &Program,
    chunk: &Chunk,
    planes: Planes<D, S>,
    parts: Parts,
    part_words: u64,
    known: S::Known,
    channels: u32,
    status: Status,
    meanwhile: impl Fn(),
) -> Tile<D::Words> {
    let Planes { residuals, upper_residuals, codes, directory } = planes;
    let entry = directory.entry(chunk);
    let codes = codes.load(program, chunk, TailArea::Codes);
    let mut residuals = if D::BITS == 8 {
        residuals.load_apart(program, chunk, TailArea::Residuals)
    } else {
        residuals.load(program, chunk, TailArea::Residuals)
    };
    let mut upper_residuals = upper_residuals.load(program, chunk, TailArea::UpperResiduals);
    // With channel bases their trip comes first.
    if !S::CHANNELS {
        meanwhile();
    }
    let alone = S::decode_alone::<D, LEVEL>(program, chunk, known, channels, &codes);
    if S::CHANNELS {
        meanwhile();
    }
    let mut exponents =
        map(&alone, |a| if S::PACKED { S::decoded::<D>(a) } else { S::Decoded::<D>::from_fn(|_| 0) });
    let entry = program.after(entry, &codes, &residuals);
    // In a register that is one for all: branches on it need nothing for lanes that differ (10 to 30 instructions a chunk).
    let entry = program.max(&Tile::splat(entry));

    if entry != 0 || !S::PACKED {
        let (mode, length) = (entry >> ENTRY_MODE_SHIFT, entry & ENTRY_WORDS);
        let start = directory.start(program, chunk);
        // As `raw_words`, of short chunks and whole ones alike: few instructions, on what all lanes have.
        let raw = (chunk.valid * (D::EXPONENT_BITS - S::CODE_BITS) + 31) >> 5;
        let inside = start <= part_words && length as u64 <= part_words - start;
        let part = parts.at(start);
        let mut ok = inside;
        if inside && (mode == MODE_CODED || mode == MODE_ZEROS) && length < raw {
            (exponents, ok) =
                S::decode::<D, LEVEL>(program, chunk, known, channels, &codes, &alone, mode, part, length);
        } else if inside && mode == MODE_RAW && length == raw {
            exponents = part.raw_exponents::<D, S, LEVEL>(chunk, &codes);
        } else if inside && mode == MODE_EQUAL && length == 1 {
            // Taken apart to be joined as all others are: a second way to elements cost all chunks 10 instructions.
            let word = part.word(0);
            let words = map(&residuals, |_| D::repeat(word));
            exponents = map(&words, |w| S::decoded::<D>(D::exponents(w)));
            (residuals, upper_residuals) = map(&words, |w| D::split(w));
        } else {
            ok = false;
        }
        if !ok {
            status.report(Status::DAMAGED);
        }
    }
    map((&exponents, &residuals, &upper_residuals), |(e, r, u)| S::join::<D>(e, r, u))
}

/// Groups ahead of a record that is brought to the cache, and of parts (whose record was brought before). All multiprocessors of an H200 work on 396
/// groups at once.
pub(super) const AHEAD: (u32, u32) = (1024, 512);

/// A chunk needs its record, then its part: two trips to memory, or to the cache if somebody has asked before. (512 MiB: `w2x3` 234 us without and 222
/// with, `w2x2x3` 246 and 222; with records alone 233 and 244.)
#[inline(always)]
fn prefetch(chunk: &Chunk, chunks: Chunks, directory: DirectoryIn, parts: Parts, part_words: u64) {
    if chunk.index.is_multiple_of(GROUP) {
        let (group, groups) = (chunk.index / GROUP, groups(chunks.elements) as u32);
        if group + AHEAD.0 < groups {
            directory.prefetch(group + AHEAD.0);
        }
        if group + AHEAD.1 < groups {
            parts.prefetch(directory.start_of_group(group + AHEAD.1), part_words);
        }
    }
}

/// Blocks that must fit on a multiprocessor: as many as the member's registers allow without a spill. The two residual planes of fp16 take some more.
pub(super) const fn resident_blocks<D: Dtype>() -> u32 {
    if D::BITS == 16 && D::EXPONENT_BITS == 5 { 5 } else { 6 }
}
