//! Decode, for the tensors of a batch, into pages.

use super::checksum_kernel::add_shares;
use super::decode_kernel::{self, AHEAD, Planes, decode_chunk};
use crate::dtype::*;
use crate::kernel;
use crate::launch::BatchChunks;
use crate::scheme::*;
use crate::stream::GROUP;
use crate::tile::{
    Batch, BatchFrameIn, BatchGroup, BatchOf, BatchWorkspace, DirectoryIn, In, InBatch, OfBatch, Parts,
    Program, Status, TensorSums, Words,
};

/// Decodes a chunk of a tensor of a batch.
///
/// `parts` are all variable parts of the frame, `part_words` words of them. A damaged chunk, and a page that the pool does not have, set `status` (0 before);
/// nothing outside of the places of the wanted elements is written.
/// The checksum of what was decoded of a tensor is added to its one of `sums`, if anybody wants them.
#[kernel(
    dtype = [Bf16, Fp16, E4m3, E5m2],
    scheme = [W4, W3, W2x3, W2x2x3, W3Channel, W2x3Channel, W2x2x3Channel],
    except = [
        (Fp16, W4), (Fp16, W3), (Fp16, W2x2x3), (Fp16, W3Channel), (Fp16, W2x3Channel), (Fp16, W2x2x3Channel),
        (E4m3, W4), (E4m3, W3), (E4m3, W2x2x3), (E4m3, W3Channel), (E4m3, W2x3Channel), (E4m3, W2x2x3Channel),
        (E5m2, W4), (E5m2, W3), (E5m2, W2x2x3), (E5m2, W3Channel), (E5m2, W2x3Channel), (E5m2, W2x2x3Channel),
    ],
    warps = 8,
    blocks = resident_blocks::<D, S>(),
    shared = chunk_memory::<D, S>() + BatchGroup::BYTES,
    block_shared = Program::GATHERED_BYTES
)]
pub fn decode_batch<D: Dtype, S: Scheme>(
    program: &Program,
    chunks: BatchChunks,
    batch: BatchOf<D, S>,
    frame: BatchFrameIn,
    workspace: BatchWorkspace,
    parts: Parts,
    part_words: u64,
    status: Status,
    sums: TensorSums<8>,
) {
    let batch = batch.tensors();
    let (index, groups) = (program.index(), chunks.groups as u32);
    let group = index / GROUP;
    if group >= groups {
        return;
    }
    let found = batch.describe_to_program(program, group, chunk_memory::<D, S>());
    let tensor = found.tensor();
    let chunk = tensor.chunk(found.number(), index % GROUP, workspace);
    // The programs of a block have chunks of one group, so of one tensor.
    let (checks, sum) = (sums.are_wanted(), || sums.of(tensor.number()));
    if chunk.valid == 0 {
        if checks {
            add_shares::<D>(program, &chunk, None, tensor.elements(), sum);
        }
        return;
    }
    let planes = Planes::<D, S> {
        residuals: In::from_start(frame.at(tensor.residuals())),
        upper_residuals: In::from_start(frame.at(upper_residuals::<D>(tensor))),
        codes: In::from_start(frame.at(tensor.codes())),
        directory: DirectoryIn::from_start(frame.at(tensor.directory())),
    };
    let channels = if S::CHANNELS { tensor.channels() } else { 0 };
    let known = S::Known::of_batch(tensor, frame);
    // The page number is under way together with the planes; then the place waits in memory, not in registers.
    // (Without channel bases it is asked for later: nothing else has to wait for it, and it takes no register until then.)
    let ask = || tensor.ask_for_page::<D::Words>(found, &chunk);
    let asked = if S::CHANNELS { Some(ask()) } else { None };
    let meanwhile = || {
        tensor.keep_place(program, found, asked.unwrap_or_else(ask));
        if index.is_multiple_of(GROUP) {
            prefetch(batch, frame, group, groups, parts, part_words);
        }
    };
    let elements = decode_chunk::<D, S, LEVEL>(
        program, &chunk, planes, parts, part_words, known, channels, status, meanwhile,
    );
    if checks {
        add_shares::<D>(program, &chunk, Some(&elements), tensor.elements(), sum);
    }
    program.sync();
    tensor.store(program, &chunk, found, &elements, status);
}

/// Where the bits that do not fill a packed plane lie. Most dtypes have none: nobody asks the batch then.
#[inline(always)]
fn upper_residuals<D: Dtype>(tensor: InBatch) -> u64 {
    if <D::UpperResiduals as Words>::COUNT == 0 { 0 } else { tensor.upper_residuals() }
}

/// As [`decode`](super::decode()) does: records, then parts, of groups to come.
#[inline(always)]
fn prefetch(batch: Batch, frame: BatchFrameIn, group: u32, groups: u32, parts: Parts, part_words: u64) {
    if group + AHEAD.0 < groups {
        let (directory, number) = frame.directory(batch, group + AHEAD.0);
        directory.prefetch(number);
    }
    if group + AHEAD.1 < groups {
        let (directory, number) = frame.directory(batch, group + AHEAD.1);
        parts.prefetch(directory.start_of_group(number), part_words);
    }
}

/// Bytes of memory of a program for decoding, and for a chunk on its way to its places.
const fn chunk_memory<D: Dtype, S: Scheme>() -> u32 {
    let chunk = <D::Words as Words>::CHUNK_BYTES;
    if S::DECODE_SHARED > chunk { S::DECODE_SHARED } else { chunk }
}

/// As [`decode`](super::decode()) has; less one where the registers do not suffice to look for places.
const fn resident_blocks<D: Dtype, S: Scheme>() -> u32 {
    let blocks = decode_kernel::resident_blocks::<D>();
    let few = S::Second::COUNT == 0 || S::CHANNELS && (S::Third::COUNT != 0 || cfg!(feature = "sm80"));
    if few { blocks - 1 } else { blocks }
}
