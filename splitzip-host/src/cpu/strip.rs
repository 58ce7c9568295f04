//! Elements that lie in pages, on their way into a frame and out of it: group by group, 32 KiB or less, through a buffer that stays in the cache.
//!
//! A copy of a whole tensor would double its traffic. A group is copied while its chunks are coded anyway, and one that lies in one piece (large
//! pages, pages that follow each other) is not copied at all.

use super::{
    Cpu, Error, Executor, GROUP, Memory, PIECE, Pieces, Reference, computes_bases, count, decode_run,
    encode_run, pieces,
};
use crate::format::{Frame, add_to_tensor_checksum, chunk_checksum, tensor_checksum};
use crate::paged::{PageIds, PagedTensor, Runs};
use crate::steps::{Decoding, Placing, Steps};
use crate::workspace::Workspace;
use crate::{Bases, Codebook, Histogram, Result, sampled_chunks};
use rayon::prelude::*;
use splitzip_kernels::tile::TAIL_BYTES;
use std::ops::Range;

/// The bytes of a tensor in a pool.
///
/// # Safety
/// Whoever makes one vouches that all its pages lie in the pool, which outlives it; to write to it, also that the pool is theirs alone and that no two runs
/// share bytes.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a> {
    runs: Runs,
    ids: PageIds<'a>,
    pool: u64,
}

impl<'a> Strip<'a> {
    /// A tensor whose pool starts at an address: see the contract of the type.
    pub(super) fn new(tensor: &PagedTensor<'a>, pool: u64) -> Strip<'a> {
        Strip { runs: *tensor.runs(), ids: tensor.table().ids(), pool }
    }

    /// Bytes that lie in one piece at an address: see the contract of the type.
    pub(super) fn one_piece(address: u64, bytes: u64) -> Strip<'static> {
        let (run_bytes, ids) = (bytes.max(1), PageIds::Consecutive { first: 0, count: 1 });
        let runs = Runs { run_bytes, bytes, runs_in_row: 1, rows_in_page: 1, ..Runs::default() };
        Strip { runs, ids, pool: address }
    }

    /// Where a range of it lies, if in one piece.
    fn piece(&self, range: Range<u64>) -> Option<u64> {
        self.runs.piece(&self.ids, range).map(|at| self.pool + at)
    }

    /// Copies a range of it to the start of `to`.
    fn load(&self, range: Range<u64>, to: &mut [u8]) {
        let mut done = 0;
        self.runs.segments(&self.ids, range, |at, bytes| {
            let (bytes, from) = (bytes as usize, (self.pool + at) as *const u8);
            // SAFETY: the contract of the type.
            to[done..done + bytes].copy_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
            done += bytes;
            true
        });
    }

    /// Copies `from` to a range of it.
    ///
    /// # Safety
    /// It may be written to, and nobody else reads or writes the range.
    unsafe fn store(&self, range: Range<u64>, from: &[u8]) {
        let mut rest = from;
        self.runs.segments(&self.ids, range, |at, bytes| {
            let (part, behind) = rest.split_at(bytes as usize);
            // SAFETY: by contract, and that of the type.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), (self.pool + at) as *mut u8, part.len()) };
            rest = behind;
            true
        });
    }

    /// The address of a range, which is copied to the buffer unless it lies in one piece.
    fn loaded(&self, range: Range<u64>, buffer: &mut [u8]) -> u64 {
        self.piece(range.clone()).unwrap_or_else(|| {
            self.load(range, buffer);
            buffer.as_ptr() as u64
        })
    }
}

/// Room for a group.
fn buffer(steps: &Steps<'_>) -> Vec<u8> {
    vec![0; (GROUP * steps.tensor().chunk_bytes()) as usize]
}

/// Chunks of a group that exist, and their bytes.
fn of_group(steps: &Steps<'_>, group: u64) -> (Range<u64>, Range<u64>) {
    let tensor = steps.tensor();
    let chunks = group * GROUP..tensor.chunks.min((group + 1) * GROUP);
    let byte = |chunk: u64| (chunk * tensor.chunk_bytes()).min(tensor.bytes);
    let bytes = byte(chunks.start)..byte(chunks.end);
    (chunks, bytes)
}

impl Cpu {
    /// The codebook of a sample of the tensor.
    pub(super) fn sampled_codebook_of(&self, steps: Steps<'_>, from: &Strip<'_>) -> Result<Codebook> {
        let tensor = steps.tensor();
        let mut sample = Vec::new();
        for chunk in sampled_chunks(tensor.chunks) {
            let (start, length) = (chunk * tensor.chunk_bytes(), tensor.chunk_len(chunk));
            let at = sample.len();
            sample.resize(at + length, 0);
            from.load(start..start + length as u64, &mut sample[at..]);
        }
        let counts = count(tensor.dtype, &sample)?;
        Codebook::from_histogram(&Histogram::from_counts(tensor.dtype, &counts[..tensor.dtype.exponents()])?)
    }

    /// Stores a tensor: its bytes go to its plane. Returns its checksum, or 0 without the flag.
    pub(super) fn store_strip(&self, steps: Steps<'_>, from: &Strip<'_>, out: &mut [u8]) -> u64 {
        let (tensor, flags) = (steps.tensor(), steps.layout.flags);
        let (plane, piece) = (tensor.planes[0].at as usize, (PIECE * tensor.chunk_bytes()) as usize);
        let stored = &mut out[plane..plane + tensor.bytes as usize];
        stored.par_chunks_mut(piece).enumerate().for_each(|(number, to)| {
            let start = (number * piece) as u64;
            from.load(start..start + to.len() as u64, to);
        });
        let mut sum = 0;
        if flags.tensor_checksums || flags.chunk_checksums {
            for chunk in 0..tensor.chunks {
                let at = plane + (chunk * tensor.chunk_bytes()) as usize;
                let of_chunk = chunk_checksum(tensor.dtype, &out[at..at + tensor.chunk_len(chunk)]);
                sum = add_to_tensor_checksum(sum, chunk, of_chunk);
                if flags.chunk_checksums {
                    let at = (tensor.checksums_at + 4 * chunk) as usize;
                    out[at..at + 4].copy_from_slice(&of_chunk.to_le_bytes());
                }
            }
        }
        if flags.tensor_checksums { sum } else { 0 }
    }

    /// Encodes a tensor with elements, channel bases and checksums of chunks as well, and returns its checksum (which means nothing without the flag).
    pub(super) fn encode_strip(&self, steps: Steps<'_>, from: &Strip<'_>) -> Result<u64> {
        let tensor = steps.tensor();
        let mut sum = [0u64; 1];
        let sum_at = sum.as_mut_ptr() as u64;
        if rayon::current_num_threads() == 1 || tensor.chunks <= PIECE {
            let frame_end = steps.frame + steps.layout.max_frame_bytes;
            encode_groups(&steps, steps.placing(), frame_end, 0..tensor.groups * GROUP, from, sum_at)?;
        } else {
            let work = |to, end, programs: Range<u64>| encode_groups(&steps, to, end, programs, from, sum_at);
            Pieces::new(&steps)?.encode(&steps, work)?;
        }
        Ok(sum[0])
    }

    /// Decodes a range of bytes of a tensor of a frame with fixed planes. Checksums of its chunks are verified, and that of the tensor if it is all of it.
    ///
    /// # Safety
    /// `to` may be written to, and has as many bytes as the range, which lies in the tensor.
    pub(super) unsafe fn decode_strip(
        &self,
        frame: &Frame<'_>,
        number: usize,
        bytes: Range<u64>,
        to: &Strip<'_>,
    ) -> Result<()> {
        let (of, layout) = (frame.tensor(number)?, frame.layout());
        let tensor = &layout.tensors[number];
        let whole = bytes == (0..tensor.bytes) && of.checksum().is_some();
        if bytes.is_empty() {
            return if whole { of.verify_checksum(0) } else { Ok(()) };
        }
        let chunk_bytes = tensor.chunk_bytes();
        let chunks = bytes.start / chunk_bytes..bytes.end.div_ceil(chunk_bytes);
        if let Some(stored) = of.stored() {
            let piece = PIECE * chunk_bytes;
            pieces(bytes.end - bytes.start, piece, |range| {
                let at = (bytes.start + range.start) as usize..(bytes.start + range.end) as usize;
                // SAFETY: by contract; ranges are disjoint.
                unsafe { to.store(range, &stored[at]) }
            });
            let held =
                (chunks.start * chunk_bytes) as usize..stored.len().min((chunks.end * chunk_bytes) as usize);
            of.verify_chunks(chunks.start, &stored[held])?;
            return if whole { of.verify_checksum(tensor_checksum(tensor.dtype, stored)) } else { Ok(()) };
        }

        let (mut memory, mut status, mut sum) = (Memory::new(TAIL_BYTES)?, [0u32; 1], [0u64; 1]);
        let steps = Steps {
            layout,
            number,
            frame: frame.bytes().as_ptr() as u64,
            workspace: memory.address(),
            places: Workspace::tail_only(),
            elements: 0,
            table: 0,
        };
        let (status_at, sum_at) = (status.as_mut_ptr() as u64, sum.as_mut_ptr() as u64);
        let has_member = crate::steps::has_member(tensor.dtype, tensor.scheme, tensor.bases);
        let groups = chunks.start / GROUP..chunks.end.div_ceil(GROUP);
        let in_piece = PIECE / GROUP;
        (0..(groups.end - groups.start).div_ceil(in_piece)).into_par_iter().try_for_each(|piece| {
            let first = groups.start + piece * in_piece;
            let mut buffer = buffer(&steps);
            for group in first..groups.end.min(first + in_piece) {
                let chunks = chunks.start.max(group * GROUP)..chunks.end.min((group + 1) * GROUP);
                let held = chunks.start * chunk_bytes..tensor.bytes.min(chunks.end * chunk_bytes);
                let wanted = held.start.max(bytes.start)..held.end.min(bytes.end);
                let place = wanted.start - bytes.start..wanted.end - bytes.start;
                let direct = if wanted == held { to.piece(place.clone()) } else { None };
                let address = direct.unwrap_or(buffer.as_mut_ptr() as u64);
                let length = (held.end - held.start) as usize;
                if has_member {
                    // So that the first chunk of the range lands at the address.
                    let steps = Steps { elements: address.wrapping_sub(held.start), ..steps };
                    let decode =
                        steps.decode(Decoding { words: frame.words(), status: status_at, sum: 0 })?;
                    decode.check()?;
                    // SAFETY: the frame was checked against its layout; these chunks have room at the address, which is ours alone.
                    unsafe { decode_run(&steps, frame.words(), &*decode, chunks.clone()) };
                    if whole {
                        let checksum = steps.checksum_to(sum_at, false)?;
                        checksum.check()?;
                        // SAFETY: the chunks lie at the address; additions to the sum are atomic.
                        unsafe { checksum.run(chunks.clone()) };
                    }
                }
                // SAFETY: so many bytes are at the address, in the pool or in the buffer, and nobody else writes them.
                let decoded = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) };
                if has_member {
                    of.verify_chunks(chunks.start, decoded)?;
                } else {
                    Reference.decode_range(frame, number, chunks.clone(), decoded)?;
                }
                if direct.is_none() {
                    let from = (wanted.start - held.start) as usize..(wanted.end - held.start) as usize;
                    // SAFETY: by contract; groups are disjoint.
                    unsafe { to.store(place, &decoded[from]) };
                }
            }
            Ok::<_, Error>(())
        })?;
        if status[0] != 0 {
            // Something is damaged: the reference knows what.
            let mut again = buffer(&steps);
            for group in groups {
                let chunks = chunks.start.max(group * GROUP)..chunks.end.min((group + 1) * GROUP);
                let held = chunks.clone().map(|chunk| tensor.chunk_len(chunk)).sum::<usize>();
                Reference.decode_range(frame, number, chunks, &mut again[..held])?;
            }
            return Err(Error::Chunk { tensor: number, chunk: 0, reason: "a chunk is damaged".to_owned() });
        }
        if whole && has_member { of.verify_checksum(sum[0]) } else { Ok(()) }
    }
}

/// Encodes the chunks of a range of programs: whole groups, one after the other.
fn encode_groups(
    steps: &Steps<'_>,
    to: Placing,
    parts_end: u64,
    programs: Range<u64>,
    from: &Strip<'_>,
    sum_at: u64,
) -> Result<()> {
    let (tensor, flags) = (steps.tensor(), steps.layout.flags);
    let own_bases = tensor.bases == Bases::Channel && !computes_bases(steps);
    let mut buffer = buffer(steps);
    for group in programs.start / GROUP..programs.end / GROUP {
        let (chunks, bytes) = of_group(steps, group);
        let elements = from.loaded(bytes.clone(), &mut buffer).wrapping_sub(bytes.start);
        let steps = Steps { elements, ..*steps };
        if own_bases {
            let bases = steps.bases(0)?;
            bases.check()?;
            // SAFETY: as below.
            unsafe { bases.run(group..group + 1) };
        }
        let step = steps.encode(to)?;
        step.check()?;
        // SAFETY: checked; frame, workspace and parts are as long as the layout says; of the elements those of the group are there, and its programs read no others.
        unsafe { encode_run(&steps, to, parts_end, &*step, group * GROUP..(group + 1) * GROUP) };
        if flags.tensor_checksums || flags.chunk_checksums {
            let checksum = steps.checksum_to(sum_at, flags.chunk_checksums)?;
            checksum.check()?;
            // SAFETY: as above; additions to the sum are atomic, checksums of chunks disjoint.
            unsafe { checksum.run(chunks) };
        }
    }
    Ok(())
}
