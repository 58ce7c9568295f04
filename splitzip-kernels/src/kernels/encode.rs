//! Encode: signs and mantissas to one plane, short codes to another, what has no code to a part of variable length.
//!
//! A chunk of bf16 moves 2048 bytes in and about 1450 out; everything is arranged so that the warp has its four loads of 16 bytes in flight at
//! once, and touches memory again only for the part. What is special about a chunk (all elements equal, raw, a second try) is rare, uniform, and
//! reads the elements again from the cache, so that no register holds them until then.
//!
//! It is one launch: the parts are placed by [`Turn`]s, and the last block that leaves seals the frame.

use super::encode_chunk::{Coding, Frame, encode_chunk, keep_short_checksum};
use super::seal_kernel::seal_dynamic;
use crate::dtype::*;
use crate::kernel;
use crate::launch::{BlockForGroup, Queue};
use crate::scheme::*;
use crate::stream::{CHUNK, GROUP};
use crate::tile::{
    Arrival, Chunk, ChunkSums, Directory, Dynamic, Fill, Header, In, InOrder, Order, Out, PartsOut,
    Placement, Program, Records, Seats, SumsWanted, TURN_BYTES, TURN_SUMS_BYTES, Tail, TailArea,
    TensorRecords, TensorSums, Turns, Update, Words,
};

/// Encodes a tensor, with its variable parts in chunk order.
///
/// `given` is what the scheme wants for the tensor: the encoder's table of a codebook, channel bases (`channels` of them a group), or nothing.
/// Writes the planes, the directory and the variable parts, from word `start` of `parts` on; `end` gets the word where they end. `order` must be
/// prepared. In the end the frame is completed: `prologue_bytes` bytes of `prologue` are what it starts with (but for the words), and the check of
/// `dynamic_bytes` bytes of `dynamic` is computed; each unless it is 0. The checksum of the elements is added to `sum`, those of chunks go to `chunk_sums`: what of
/// it is `wanted` ([`SumsWanted`]).
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [(E4m3, W4)],
    warps = in_order::<D, S>().0.warps::<InOrder>(),
    blocks = in_order::<D, S>().1,
    shared = in_order::<D, S>().0.bytes::<InOrder>(),
    block_shared = turn_bytes::<S>()
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
    sum: TensorSums<8>,
    chunk_sums: ChunkSums,
    wanted: u32,
    tail: Tail,
) {
    let tensor = Tensor::<D, S> { queue, words, given, channels, tail };
    let records =
        TensorRecords { elements: queue.elements, directory, sum, chunk_sums, wanted: SumsWanted(wanted) };
    let frame = Planes::<D, S> { residuals, upper_residuals, codes, records, parts };
    let books = Books { order, prologue, prologue_bytes, header, start, end, dynamic, dynamic_bytes, check };
    encode_groups::<D, S, InOrder, LEVEL>(program, in_order::<D, S>().0, tensor, frame, books);
}

/// The same, with variable parts as they come: for frames that live as long as a transfer.
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [(E4m3, W4)],
    warps = arrival::<S>().0.warps::<Arrival>(),
    blocks = arrival::<S>().1,
    shared = arrival::<S>().0.bytes::<Arrival>(),
    block_shared = turn_bytes::<S>()
)]
pub fn encode_arrival<D: Dtype, S: Scheme>(
    program: &Program,
    groups: BlockForGroup,
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
    sum: TensorSums<8>,
    chunk_sums: ChunkSums,
    wanted: u32,
    tail: Tail,
) {
    let queue = Queue { elements: groups.elements };
    let tensor = Tensor::<D, S> { queue, words, given, channels, tail };
    let records =
        TensorRecords { elements: queue.elements, directory, sum, chunk_sums, wanted: SumsWanted(wanted) };
    let frame = Planes::<D, S> { residuals, upper_residuals, codes, records, parts };
    let books = Books { order, prologue, prologue_bytes, header, start, end, dynamic, dynamic_bytes, check };
    encode_groups::<D, S, Arrival, LEVEL>(program, arrival::<S>().0, tensor, frame, books);
}

/// What is written of a tensor.
#[derive(Clone, Copy)]
struct Planes<D: Dtype, S: Scheme> {
    residuals: Out<D::Residuals>,
    upper_residuals: Out<D::UpperResiduals>,
    codes: Out<S::Codes>,
    records: TensorRecords,
    parts: PartsOut,
}

impl<D: Dtype, S: Scheme> Frame<D, S> for Planes<D, S> {
    type Records = TensorRecords;
    #[inline(always)]
    fn residuals(self) -> Out<D::Residuals> {
        self.residuals
    }
    #[inline(always)]
    fn upper_residuals(self) -> Out<D::UpperResiduals> {
        self.upper_residuals
    }
    #[inline(always)]
    fn codes(self) -> Out<S::Codes> {
        self.codes
    }
    #[inline(always)]
    fn records(self) -> TensorRecords {
        self.records
    }
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
    seats: Seats,
    tensor: Tensor<D, S>,
    frame: Planes<D, S>,
    books: Books,
) {
    let Tensor { queue, words, given, channels, tail } = tensor;
    let mut turns = P::Turns::enter(program, queue.groups(), seats, books.order, books.start, frame.records);
    if turns.keeps_books() {
        turns.keep_books(program, frame.records, frame.parts);
    } else {
        let staged = S::stage(program, given);
        while turns.has_group() {
            let (group, seat) = turns.seat();
            // The planes of fp16 and channel bases take all uniform registers.
            let few = S::CHANNELS
                && (D::EXPONENT_BITS == 5 && D::BITS == 16 || D::EXPONENT_BITS == 4 && S::Third::COUNT != 0);
            let tail = if few { tail.of_one_chunk() } else { tail };
            let chunk = Chunk::at(group * GROUP + seat, queue.chunks(), tail);
            if chunk.valid != 0 {
                let keep =
                    |input| keep_short_checksum::<D, _, _>(program, &chunk, input, frame.records, &turns);
                let asks_twice = asks_twice::<D, S>();
                let of_short = |input| {
                    if !asks_twice {
                        keep(input)
                    }
                };
                let input =
                    words.chunk_or_short(program, &chunk, Fill::FirstElement, TailArea::Words, of_short);
                if asks_twice && frame.records.want_checksums() && !chunk.is_whole() {
                    keep(input);
                }
                let is_whole_group = (group as u64 + 1) * (CHUNK * GROUP) as u64 <= queue.elements;
                let coding = Coding::<S> { staged, channels, is_whole_group };
                encode_chunk::<D, S, P::Turns, _, LEVEL>(program, &chunk, input, coding, frame, &mut turns);
            } else {
                // A program without a chunk (behind the last one) has part in what the block does together.
                turns.count(program, frame.records, 0);
            }
            turns.next(program, frame.records, frame.parts, books.end);
        }
    }
    let ended = turns.ended();
    if ended.here != 0 {
        books.complete(program, ended.words);
    }
    turns.leave(program);
}

/// Is every chunk asked whether it is a short one whose checksum is wanted? Others are asked anyway, where a short one is copied; for these that takes
/// a register too many.
const fn asks_twice<D: Dtype, S: Scheme>() -> bool {
    match (D::EXPONENT_BITS, D::BITS) {
        (8, _) => S::CHANNELS,
        (4, _) => S::CHANNELS && S::Third::COUNT != 0,
        (_, bits) => bits == 16 && (S::CHANNELS || S::Third::COUNT == 0),
    }
}

/// Chunk order: share of a copy of 512 MiB on an H200, by programs that code in a block and blocks on a multiprocessor. Registers: of 16 Ki a quarter
/// of a multiprocessor, 3 blocks of 18 warps get 32 each, 4 blocks of 10 get 48, 2 of 18 get 56. A member gets what it needs without a spill. Those with
/// channel bases are summed up by 16 programs with a chunk each.
///
/// | | 16, 3 | 8, 4 | 16, 2 |
/// | --- | --- | --- | --- |
/// | `w4` | **0.957** | 0.952 | |
/// | `w3` | **0.912** | 0.863 | |
/// | `w2x3` | **0.938** | 0.911 | |
/// | `w2x2x3` | 0.855, spills | **0.883** | 0.837 |
/// | `w3`, channel bases | **0.927** | | 0.848 |
/// | `w2x3`, channel bases | **0.900** | | 0.818 |
/// | `w2x2x3`, channel bases | **0.761** | | 0.698 |
/// | fp16 `w2x3` | **0.917** | 0.760 | 0.863 |
/// | e4m3 `w2x3` | **0.646** | 0.504 | 0.509 |
/// | e5m2 `w2x3` | **0.590** | 0.409 | 0.473 |
///
/// (fp16, e4m3, e5m2 with 16, 2 are from before their exponents were bit planes.)
const fn in_order<D: Dtype, S: Scheme>() -> (Seats, u32) {
    let (bf16, three_levels) = (D::EXPONENT_BITS == 8, S::Third::COUNT != 0);
    // The same for all targets: whoever launches knows the entry, not its text.
    let programs = if bf16 && three_levels && !S::CHANNELS { 8 } else { 16 };
    let blocks = match (cfg!(feature = "sm80"), programs) {
        (false, 8) => 4,
        // These two spill with 32 registers.
        (false, _) if !bf16 && D::MANTISSA_BITS % 8 == 2 && three_levels && !S::CHANNELS => 2,
        (false, _) => 3,
        (true, 8) => 3,
        (true, _) if S::CHANNELS => 1,
        (true, _) => 2,
    };
    (Seats { programs, parts_at: S::ENCODE_SHARED, channels: S::CHANNELS }, blocks)
}

/// As they come: six blocks of 8 programs have 40 registers, four 64. With channel bases, four blocks of 16 programs have 32 and two 64: 0.939, 0.963 and
/// 0.838 of a copy for `w3`, `w2x3` and `w2x2x3` with four, 0.892, 0.895 and 0.741 with three. (8 programs that read their second chunk twice, five blocks:
/// 0.922, 0.904, 0.829.)
const fn arrival<S: Scheme>() -> (Seats, u32) {
    let (programs, blocks) = match (S::CHANNELS, cfg!(feature = "sm80")) {
        (false, false) => (8, 6),
        (false, true) => (8, 4),
        (true, false) => (16, 4),
        (true, true) => (16, 2),
    };
    (Seats { programs, parts_at: S::ENCODE_SHARED, channels: S::CHANNELS }, blocks)
}

/// Bytes of block memory of a member.
pub(super) const fn turn_bytes<S: Scheme>() -> u32 {
    if S::CHANNELS { TURN_BYTES + TURN_SUMS_BYTES } else { TURN_BYTES }
}
