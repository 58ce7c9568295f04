//! Encode, for the tensors of a batch: as [`encode`](super::encode()), with a look into the batch before every chunk.

use super::encode_chunk::{Coding, Frame, encode_chunk, keep_short_checksum};
use super::encode_kernel::turn_bytes;
use crate::dtype::*;
use crate::kernel;
use crate::launch::BatchQueue;
use crate::scheme::*;
use crate::stream::{CHUNK, GROUP};
use crate::tile::{
    BatchFrame, BatchGroup, BatchOf, BatchRecords, BatchTensor, BatchWorkspace, InBatch, InOrder, OfBatch,
    Order, Out, PartsOut, Placement, Program, Seats, Status, SumsWanted, TensorSums, Turns, Update, Words,
};

/// Encodes the tensors of a batch into a frame, with the variable parts of all of them in chunk order, from word `start` of `parts` on.
///
/// `order` must be prepared. `end` gets the word where the parts end, and so do
/// `behind_places` places of the frame from `behind` on; where those of each tensor start goes to the places that the batch says. A page that
/// the pool does not have sets `status`. The checksums of the tensors are added to `sums`, and those of chunks go where the batch says: what of it is `wanted`
/// ([`SumsWanted`]).
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [
        (Fp16, W4), (Fp16, W3), (Fp16, W2x2x3), (Fp16, W3Channel), (Fp16, W2x3Channel), (Fp16, W2x2x3Channel),
        (E4m3, W4), (E4m3, W3), (E4m3, W2x2x3), (E4m3, W3Channel), (E4m3, W2x3Channel), (E4m3, W2x2x3Channel),
        (E5m2, W4), (E5m2, W3), (E5m2, W2x2x3), (E5m2, W3Channel), (E5m2, W2x3Channel), (E5m2, W2x2x3Channel),
    ],
    warps = seats::<D, S>().0.warps::<InOrder>(),
    blocks = seats::<D, S>().1,
    shared = seats::<D, S>().0.bytes::<InOrder>(),
    block_shared = turn_bytes::<S>() + 3 * BatchGroup::BYTES
)]
pub fn encode_batch<D: Dtype, S: Scheme>(
    program: &Program,
    queue: BatchQueue,
    batch: BatchOf<D, S>,
    frame: BatchFrame,
    workspace: BatchWorkspace,
    parts: PartsOut,
    order: Order,
    start: Update<8>,
    end: Update<8>,
    behind: u64,
    behind_places: u64,
    status: Status,
    sums: TensorSums<{ BatchTensor::WORDS_STRIDE as usize }>,
    wanted: u32,
) {
    let (seats, groups) = (seats::<D, S>().0, queue.groups as u32);
    let chunk_bytes = <D::Words as Words>::CHUNK_BYTES;
    let records =
        BatchRecords { batch: batch.tensors(), frame, chunk_bytes, sums, wanted: SumsWanted(wanted) };
    let mut turns = <InOrder as Placement>::Turns::enter(program, groups, seats, order, start, records);
    if turns.keeps_books() {
        turns.keep_books(program, records, parts);
        let ended = turns.ended();
        if ended.here != 0 {
            end.store64(0, ended.words);
            frame.store_words(behind, behind_places, ended.words);
        }
        turns.leave(program);
    } else {
        while turns.has_group() {
            let (group, seat) = turns.seat();
            let mut is_coded = false;
            if group < groups {
                let group = BatchGroup::prepared(turns.prepared(program, records));
                let (tensor, number) = (group.tensor(), group.number());
                let (chunk, place) = group.chunk(seat, workspace);
                is_coded = chunk.valid != 0;
                if is_coded {
                    let input = tensor.load::<D::Words>(program, &chunk, place, workspace, status);
                    if !chunk.is_whole() {
                        keep_short_checksum::<D, _, _>(program, &chunk, input, records, &turns);
                    }
                    let is_whole_group =
                        S::CHANNELS && (number as u64 + 1) * (CHUNK * GROUP) as u64 <= tensor.elements();
                    let coding = Coding::<S> {
                        staged: S::stage(program, S::Given::of_batch(tensor, frame)),
                        channels: if S::CHANNELS { tensor.channels() } else { 0 },
                        is_whole_group,
                    };
                    let planes = BatchPlanes { tensor, records };
                    encode_chunk::<D, S, _, _, LEVEL>(program, &chunk, input, coding, planes, &mut turns);
                }
            }
            if !is_coded {
                // A program without a chunk (behind the last one) has part in what the block does together.
                turns.count(program, records, 0);
            }
            turns.next(program, records, parts, end);
        }
    }
}

/// The planes of a tensor, found when they are wanted.
#[derive(Clone, Copy)]
struct BatchPlanes {
    tensor: InBatch,
    records: BatchRecords,
}

impl<D: Dtype, S: Scheme> Frame<D, S> for BatchPlanes {
    type Records = BatchRecords;
    #[inline(always)]
    fn residuals(self) -> Out<D::Residuals> {
        Out::from_start(self.records.frame.at(self.tensor.residuals()))
    }
    #[inline(always)]
    fn upper_residuals(self) -> Out<D::UpperResiduals> {
        // Most dtypes have none: nobody asks the batch then.
        let at = if <D::UpperResiduals as Words>::COUNT == 0 { 0 } else { self.tensor.upper_residuals() };
        Out::from_start(self.records.frame.at(at))
    }
    #[inline(always)]
    fn codes(self) -> Out<S::Codes> {
        Out::from_start(self.records.frame.at(self.tensor.codes()))
    }
    #[inline(always)]
    fn records(self) -> BatchRecords {
        self.records
    }
}

/// Programs that code in a block, and blocks of a multiprocessor.
const fn seats<D: Dtype, S: Scheme>() -> (Seats, u32) {
    // `w3` with 8 programs spills, `w4` needs its table in the memory of every program.
    let eight = D::EXPONENT_BITS == 8 && !S::CHANNELS && !S::PACKED && S::Second::COUNT != 0;
    let programs = if eight { 8 } else { 16 };
    let blocks = match (cfg!(feature = "sm80"), programs) {
        (false, 8) => 4,
        (false, _) => 2,
        (true, 8) => 3,
        (true, _) => 1,
    };
    (Seats { programs, parts_at: S::ENCODE_SHARED, channels: S::CHANNELS }, blocks)
}
