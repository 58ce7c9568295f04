//! Encode: signs and mantissas to one plane, short codes to another, what has no code to a part of variable length.
//!
//! A chunk of bf16 moves 2048 bytes in and about 1450 out; everything is arranged so that the warp has its four loads of 16 bytes in flight at
//! once, and touches memory again only for the part. What is special about a chunk (all elements equal, raw, a second try) is rare, uniform, and
//! reads the elements again from the cache, so that no register holds them until then.
//!
//! It is one launch: the parts are placed by [`Turn`]s, and the last block that leaves seals the frame.

use super::seal_kernel::seal_dynamic;
use crate::dtype::*;
use crate::kernel;
use crate::launch::Queue;
use crate::scheme::*;
use crate::stream::{ENTRY_MODE_SHIFT, MODE_EQUAL, MODE_RAW};
use crate::tile::{
    Arrival, Chunk, Directory, Dynamic, Fill, Header, In, InChunk, InOrder, Order, Out, PartsOut, Placement,
    Program, TURN_BYTES, Tail, TailArea, Turn, Update, Words, map, raw_words,
};

/// Encodes a tensor, with its variable parts in chunk order.
///
/// `given` is what the scheme wants for the tensor: the encoder's table of a codebook, channel bases (`channels` of them a group), or nothing.
/// Writes the planes, the directory and the variable parts, from word `start` of `parts` on; `end` gets the word where they end. `order` must be
/// prepared. In the end the frame is completed: `prologue_bytes` bytes of `prologue` are what it starts with (but for the words), and the check of
/// `dynamic_bytes` bytes of `dynamic` is computed; each unless it is 0.
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [(E4m3, W4)],
    warps = 17,
    blocks = resident_blocks::<D, S>(),
    shared = S::ENCODE_SHARED,
    block_shared = TURN_BYTES
)]
pub fn encode<D: Dtype, S: Scheme>(
    program: &Program,
    queue: Queue,
    words: In<D::Words>,
    given: S::Given,
    channels: u32,
    residuals: Out<D::Residuals>,
    upper_residuals: Out<D::UpperResiduals>,
    codes: Out<S::Codes>,
    directory: Directory,
    parts: PartsOut,
    order: Order,
    prologue: Dynamic,
    prologue_bytes: u64,
    header: Header,
    start: Update<8>,
    end: Update<8>,
    dynamic: Dynamic,
    dynamic_bytes: u64,
    check: Update<4>,
    tail: Tail,
) {
    let tensor = Tensor::<D, S> { queue, words, given, channels, tail };
    let frame = Frame::<D, S> { residuals, upper_residuals, codes, directory, parts };
    let books = Books { order, prologue, prologue_bytes, header, start, end, dynamic, dynamic_bytes, check };
    encode_groups::<D, S, InOrder, LEVEL>(program, tensor, frame, books);
}

/// The same, with variable parts as they come: for frames that live as long as a transfer.
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [(E4m3, W4)],
    warps = 17,
    blocks = resident_blocks::<D, S>(),
    shared = S::ENCODE_SHARED,
    block_shared = TURN_BYTES
)]
pub fn encode_arrival<D: Dtype, S: Scheme>(
    program: &Program,
    queue: Queue,
    words: In<D::Words>,
    given: S::Given,
    channels: u32,
    residuals: Out<D::Residuals>,
    upper_residuals: Out<D::UpperResiduals>,
    codes: Out<S::Codes>,
    directory: Directory,
    parts: PartsOut,
    order: Order,
    prologue: Dynamic,
    prologue_bytes: u64,
    header: Header,
    start: Update<8>,
    end: Update<8>,
    dynamic: Dynamic,
    dynamic_bytes: u64,
    check: Update<4>,
    tail: Tail,
) {
    let tensor = Tensor::<D, S> { queue, words, given, channels, tail };
    let frame = Frame::<D, S> { residuals, upper_residuals, codes, directory, parts };
    let books = Books { order, prologue, prologue_bytes, header, start, end, dynamic, dynamic_bytes, check };
    encode_groups::<D, S, Arrival, LEVEL>(program, tensor, frame, books);
}

/// What is written of a tensor.
#[derive(Clone, Copy)]
struct Frame<D: Dtype, S: Scheme> {
    residuals: Out<D::Residuals>,
    upper_residuals: Out<D::UpperResiduals>,
    codes: Out<S::Codes>,
    directory: Directory,
    parts: PartsOut,
}

/// What is read of a tensor.
#[derive(Clone, Copy)]
struct Tensor<D: Dtype, S: Scheme> {
    queue: Queue,
    words: In<D::Words>,
    given: S::Given,
    channels: u32,
    tail: Tail,
}

/// What the bookkeepers need.
#[derive(Clone, Copy)]
struct Books {
    order: Order,
    prologue: Dynamic,
    prologue_bytes: u64,
    header: Header,
    start: Update<8>,
    end: Update<8>,
    dynamic: Dynamic,
    dynamic_bytes: u64,
    check: Update<4>,
}

impl Books {
    /// Keeps the books of a block. Who learns where the parts end completes the frame.
    #[inline(always)]
    fn keep<P: Placement>(self, program: &Program, turn: &mut Turn<P>, directory: Directory) {
        let ended = turn.keep_books(program, directory);
        if P::IN_ORDER && ended.here != 0 {
            self.complete(program, ended.words);
        }
        let ended = turn.leave(program);
        if !P::IN_ORDER && ended.here != 0 {
            self.complete(program, ended.words);
        }
    }

    #[inline(always)]
    fn complete(self, program: &Program, words: u64) {
        self.header.copy(self.prologue, self.prologue_bytes);
        program.sync();
        self.end.store64(0, words);
        program.sync();
        if self.dynamic_bytes != 0 {
            seal_dynamic(program, self.dynamic, self.dynamic_bytes, self.check);
        }
    }
}

/// Encodes groups as long as there are any.
#[inline(always)]
fn encode_groups<D: Dtype, S: Scheme, P: Placement, const LEVEL: u32>(
    program: &Program,
    tensor: Tensor<D, S>,
    frame: Frame<D, S>,
    books: Books,
) {
    let Tensor { queue, words, given, channels, tail } = tensor;
    let mut turn = Turn::<P>::enter(program, queue, books.order, books.start);
    if turn.keeps_books() {
        return books.keep(program, &mut turn, frame.directory);
    }
    let staged = S::stage(program, given);
    while turn.has_group() {
        let (chunk, part) = (turn.chunk(queue, tail), turn.part(program));
        let (mut entry, mut is_coded) = (0, 0);
        let input = words.chunk(program, &chunk, Fill::FirstElement, TailArea::Words);
        let (mut coded, mut shape, mut book) = (Coded::<S>::nothing(), Shape::nothing(), staged);
        // A program without a chunk (behind the last one) has part in what the block does together.
        if chunk.valid != 0 {
            let elements = input.load();
            let (low, high) = map(&elements, D::split);
            frame.residuals.store(program, &chunk, TailArea::Residuals, &low);
            frame.upper_residuals.store(program, &chunk, TailArea::UpperResiduals, &high);
            let spread = map(&elements, D::spread);
            let first = || program.pick(&map(&input.load(), D::first), 0);
            // A chunk of equal elements differs from its first one nowhere; nearly all others do so at once.
            let mut equal = !S::EQUAL_SHOWS && {
                let first = program.pick(&map(&elements, D::first), 0);
                !program.any(&map(&elements, |e| D::first_differences(e, first)))
            };
            book = S::first_book::<D, LEVEL>(program, &chunk, staged, channels, &spread, first);
            coded = S::code::<D, LEVEL>(program, &chunk, book, &spread);
            shape = S::shape::<D>(program, book, &coded);
            if S::EQUAL_SHOWS {
                let unusual = if S::Second::COUNT == 0 { shape.escaped } else { shape.marked };
                equal = unusual == 0 || unusual == chunk.valid;
            }
            let raw = raw_words(chunk.valid, D::EXPONENT_BITS - S::CODE_BITS);
            equal = equal && is_equal::<D, LEVEL>(program, input);
            if !equal && S::is_bad(&shape, raw) {
                (coded, shape, book) = code_again::<D, S, LEVEL>(program, &chunk, input, book, shape.words);
            }
            if equal {
                entry = 1 | MODE_EQUAL << ENTRY_MODE_SHIFT;
                part.store_uniform(first());
            } else if shape.words < raw {
                is_coded = 1;
                entry = shape.words | S::mode(book) << ENTRY_MODE_SHIFT;
            } else {
                entry = raw | MODE_RAW << ENTRY_MODE_SHIFT;
                coded.codes = map(&input.load(), |e| S::raw_codes(D::exponents(e)));
                part.store_raw::<D, S, LEVEL>(program, &chunk, &map(&input.load(), D::exponents));
            }
            frame.codes.store(program, &chunk, TailArea::Codes, &coded.codes);
        }
        turn.count(program, frame.directory, entry);
        if is_coded != 0 {
            S::write::<D, LEVEL>(program, book, &coded, &shape, input, part);
        }
        turn.next(program, frame.directory, frame.parts, books.end);
    }
}

/// Codes a bad chunk in another way, and if that is no better, in the first way again: cheaper than to keep what the first try gave.
#[inline(always)]
fn code_again<D: Dtype, S: Scheme, const LEVEL: u32>(
    program: &Program,
    chunk: &Chunk,
    input: InChunk<D::Words>,
    first_book: S::Book,
    first_words: u32,
) -> (Coded<S>, Shape, S::Book) {
    let mut book = first_book;
    let mut attempt = 0;
    loop {
        let spread = map(&input.load(), D::spread);
        if attempt == 0 {
            let first = || program.pick(&map(&input.load(), D::first), 0);
            book = S::second_book::<D, LEVEL>(program, chunk, book, &spread, first);
        }
        let coded = S::code::<D, LEVEL>(program, chunk, book, &spread);
        let shape = S::shape::<D>(program, book, &coded);
        if attempt != 0 || shape.words < first_words {
            return (coded, shape, book);
        }
        book = first_book;
        attempt += 1;
    }
}

/// Blocks that must fit on a multiprocessor: as many as the member's registers allow without a spill. Of 64 Ki registers, 3 blocks of 17 warps
/// get 32 each, 2 get 56. (`w2x3` of bf16 with 3 instead of 2: 0.889 instead of 0.839 of a copy.)
const fn resident_blocks<D: Dtype, S: Scheme>() -> u32 {
    let two_levels = S::Third::COUNT == 0;
    let bf16 = D::EXPONENT_BITS == 8 && two_levels && !S::CHANNELS && !cfg!(feature = "sm80");
    if S::PACKED || bf16 {
        3
    } else if cfg!(feature = "sm80") && S::CHANNELS {
        1 // limited sums of halves are six instructions there
    } else {
        2
    }
}

/// Are all elements of a chunk the first one? Of a short one, whatever fills it up is.
#[inline(always)]
fn is_equal<D: Dtype, const LEVEL: u32>(program: &Program, input: InChunk<D::Words>) -> bool {
    let elements = input.load();
    let first = program.pick(&map(&elements, D::first), 0);
    !program.any(&map(&elements, |e| D::differences(e, first)))
}
