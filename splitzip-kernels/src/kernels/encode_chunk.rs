//! How a chunk is encoded, wherever its elements are and its parts go.

use super::checksum_kernel::{chunk_sum, short_sum};
use crate::dtype::Dtype;
use crate::scheme::{Coded, Scheme, Shape, Spread, zeros_and_sum};
use crate::stream::{ENTRY_MODE_SHIFT, MODE_EQUAL, MODE_RAW};
use crate::tile::{
    Chunk, InChunk, Out, Program, Records, TailArea, Tile, Turns, Words, each_run, generate, map, raw_words,
};

/// Where a tensor is written to. (Asked for each when it is wanted: who has the answer in memory need not hold it in registers.)
pub(super) trait Frame<D: Dtype, S: Scheme>: Copy {
    type Records: Records;
    fn residuals(self) -> Out<D::Residuals>;
    fn upper_residuals(self) -> Out<D::UpperResiduals>;
    fn codes(self) -> Out<S::Codes>;
    fn records(self) -> Self::Records;
}

/// What a chunk is coded with.
#[derive(Clone, Copy)]
pub(super) struct Coding<S: Scheme> {
    /// What the scheme was given for the tensor.
    pub staged: S::Book,
    /// Channels of a group, with channel bases.
    pub channels: u32,
    /// Has the group all of its elements?
    pub is_whole_group: bool,
}

/// Encodes a chunk. (The checksum of a short one is left [before](keep_short_checksum).)
#[inline(always)]
pub(super) fn encode_chunk<D: Dtype, S: Scheme, T: Turns, F: Frame<D, S>, const LEVEL: u32>(
    program: &Program,
    chunk: &Chunk,
    input: InChunk<D::Words>,
    tensor: Coding<S>,
    frame: F,
    turns: &mut T,
) {
    let Coding { staged, channels, is_whole_group } = tensor;
    let part = turns.part(program);
    let (records, is_whole) = (frame.records(), chunk.is_whole());
    let elements = input.load();
    if records.want_checksums() && is_whole {
        turns.keep_checksum(program, records, chunk_sum::<D>(program, &elements));
    }
    let (low, high) = map(&elements, D::split);
    if D::EXPONENT_BITS == 5 && S::CODE_BITS != 3 && S::Third::COUNT == 0 && !S::CHANNELS {
        frame.residuals().store_apart(program, chunk, TailArea::Residuals, &low);
    } else {
        frame.residuals().store(program, chunk, TailArea::Residuals, &low);
    }
    frame.upper_residuals().store(program, chunk, TailArea::UpperResiduals, &high);
    let spread = map(&elements, D::spread);
    let first = || first_of::<D, S>(program, input);
    // A chunk of equal elements differs from its first one nowhere; nearly all others do so at once.
    let mut equal = !S::EQUAL_SHOWS && {
        let first = program.pick(&map(&elements, D::first), 0);
        !program.any(&map(&elements, |e| D::first_differences(e, first)))
    };
    let sums = turns.sums(program, is_whole_group, channels);
    if S::CHANNELS && sums.are_wanted() {
        turns.sum_up(program, sums, &map(&spread, |s| s.sums_of_runs::<D>()));
    }
    let mut book = S::first_book::<D, LEVEL>(program, chunk, staged, channels, sums, &spread, first);
    let mut coded = S::code::<D, LEVEL>(program, chunk, book, &spread);
    let mut shape = S::shape::<D>(program, book, &coded);
    let store_codes = |codes: &Tile<S::Codes>| frame.codes().store(program, chunk, TailArea::Codes, codes);
    let early = stores_codes_early::<D, S, T>();
    if early {
        store_codes(&coded.codes);
    }
    if S::EQUAL_SHOWS {
        let unusual = if S::Second::COUNT == 0 { shape.escaped } else { shape.marked };
        equal = unusual == 0 || unusual == chunk.valid;
    }
    let (mut entry, mut is_coded) = (shape.words | S::mode(book) << ENTRY_MODE_SHIFT, 1);
    let raw = raw_words(chunk.valid, D::EXPONENT_BITS - S::CODE_BITS);
    if !asks_once::<D, S>() || equal || S::is_bad(&shape, raw) || shape.words >= raw {
        equal = equal && codes_are_alike::<S>(program, &coded.codes) && is_equal::<D>(program, input);
        if !equal && S::is_bad(&shape, raw) {
            let (zeros, sum) = zeros_and_sum::<D>(program, chunk, input);
            let second = S::second_book::<D>(program, chunk, book, zeros, sum);
            // Two levels are kept until here. Of one, it is rare to come here, and a register decides, as with fp16 (on sm_100).
            let two =
                S::Second::COUNT != 0 && !(D::MANTISSA_BITS == 10 && S::Third::COUNT == 0 && !S::CHANNELS);
            if !two || !S::is_same(book, second) {
                (coded, shape, book) =
                    code_again::<D, S, LEVEL>(program, chunk, input, second, book, shape.words);
                if early {
                    store_codes(&coded.codes);
                }
            }
        }
        entry = shape.words | S::mode(book) << ENTRY_MODE_SHIFT;
        if equal {
            (entry, is_coded) = (1 | MODE_EQUAL << ENTRY_MODE_SHIFT, 0);
            part.store_uniform(first());
        } else if shape.words >= raw {
            (entry, is_coded) = (raw | MODE_RAW << ENTRY_MODE_SHIFT, 0);
            part.store_raw::<D, S, LEVEL>(program, chunk, &map(&again::<D, S>(program, input, 1), D::spread));
            coded.codes = map(&again::<D, S>(program, input, 1), |e| S::raw_codes::<D>(D::spread(e)));
            if early {
                store_codes(&coded.codes);
            }
        }
    }
    if !early {
        store_codes(&coded.codes);
    }
    turns.count(program, frame.records(), entry);
    if is_coded != 0 {
        S::write::<D, LEVEL>(program, book, &coded, &shape, input, part);
    }
}

/// Leaves the checksum of a short chunk, if it is wanted: before any register holds anything else.
#[inline(always)]
pub(super) fn keep_short_checksum<D: Dtype, T: Turns, R: Records>(
    program: &Program,
    chunk: &Chunk,
    input: InChunk<D::Words>,
    records: R,
    turns: &T,
) {
    if records.want_checksums() {
        turns.keep_checksum(program, records, short_sum::<D>(program, chunk, input));
    }
}

/// Is there one question for all that is rare, before those for each? (Up to 7 instructions less.) Two members fit their registers only without.
const fn asks_once<D: Dtype, S: Scheme>() -> bool {
    D::EXPONENT_BITS != 5 || S::CODE_BITS != 3 || D::BITS == 16 && S::CHANNELS
}

/// Are codes stored before it is known whether the chunk is a rare one, and then once more? Members that fit their registers only so.
const fn stores_codes_early<D: Dtype, S: Scheme, T: Turns>() -> bool {
    let (levels, three) = (S::Second::COUNT != 0, S::Third::COUNT != 0);
    match (D::EXPONENT_BITS, D::BITS) {
        (4, _) => levels && (S::CHANNELS && three || T::STAYS),
        (5, 16) => S::PACKED || levels && S::CHANNELS,
        (8, _) => three && !S::CHANNELS,
        _ => false,
    }
}

/// The elements, where they are rarely wanted. With channel bases there is no register for what others may hold until then: their addresses, and those of
/// the first element.
#[inline(always)]
fn again<D: Dtype, S: Scheme>(program: &Program, input: InChunk<D::Words>, time: u32) -> Tile<D::Words> {
    if S::CHANNELS { input.load_again(program, time) } else { input.load() }
}

/// The first element.
#[inline(always)]
fn first_of<D: Dtype, S: Scheme>(program: &Program, input: InChunk<D::Words>) -> u32 {
    if S::CHANNELS { input.element(0) } else { program.pick(&map(&input.load(), D::first), 0) }
}

/// Codes a bad chunk in another way, and if that is no better, in the first way again: cheaper than to keep what the first try gave.
#[inline(always)]
fn code_again<D: Dtype, S: Scheme, const LEVEL: u32>(
    program: &Program,
    chunk: &Chunk,
    input: InChunk<D::Words>,
    second_book: S::Book,
    first_book: S::Book,
    first_words: u32,
) -> (Coded<S>, Shape, S::Book) {
    let (mut book, mut attempt) = (second_book, 1);
    loop {
        let spread = map(&again::<D, S>(program, input, attempt), D::spread);
        let coded = S::code::<D, LEVEL>(program, chunk, book, &spread);
        let shape = S::shape::<D>(program, book, &coded);
        if attempt == 2 || shape.words < first_words {
            return (coded, shape, book);
        }
        book = first_book;
        attempt = 2;
    }
}

/// May all elements be the same one, by their codes? Without a second level, chunks of other elements that have no escapes come here often. (With channel
/// bases an element has many codes.)
#[inline(always)]
fn codes_are_alike<S: Scheme>(program: &Program, codes: &Tile<S::Codes>) -> bool {
    let width = if S::PACKED { S::CODE_BITS } else { 1 };
    S::Second::COUNT != 0
        || S::CHANNELS
        || !program.any(&map(codes, |c| c.word(0) ^ c.word(0).rotate_left(width)))
}

/// Are all elements of a chunk the first one? Of a short one, whatever fills it up is.
#[inline(always)]
fn is_equal<D: Dtype>(program: &Program, input: InChunk<D::Words>) -> bool {
    let first = input.element(0);
    let differences = generate(|lane| {
        let mut differences = 0;
        each_run!(run => differences |= D::run_differences(input.run(lane, run), first));
        differences
    });
    !program.any(&differences)
}
