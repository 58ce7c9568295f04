//! Batches: many tensors for one launch, described in memory for the kernels that look there (`encode_batch`, `decode_batch`, `copy_pages`).

use crate::format::{CHUNK, DYNAMIC_BYTES, GROUP, Layout, TensorLayout};
use crate::paged::{PageIds, PagedTensor, Runs};
use crate::steps::{Step, kernel_dtype, kernel_scheme, planes, source, steps, target};
use crate::{Bases, Error, Result, Scheme};
use splitzip_kernels::dtype;
use splitzip_kernels::kernels::{BEGIN_BYTES, begin, copy_pages, decode_batch, encode_batch};
use splitzip_kernels::launch::{ArgumentError, BatchChunks, BatchQueue, Entry, Launch, OnMember, Programs};
use splitzip_kernels::scheme;
use splitzip_kernels::tile::{BatchTensor, Order};
use std::collections::HashMap;
use std::mem::offset_of;
use std::ops::Range;

/// Bytes that the copy of a stored tensor moves at once: a chunk of 2-byte elements.
pub(crate) const PIECE: u64 = 2 * CHUNK as u64;

steps! {
    [] begin, (), begin::Arguments<'static>;
    [] copy_pages, (), copy_pages::Arguments<'static>;
    [D: dtype::Dtype, S: scheme::Scheme] encode_batch, (D, S), encode_batch::Arguments<'static, D, S>;
    [D: dtype::Dtype, S: scheme::Scheme] decode_batch, (D, S), decode_batch::Arguments<'static, D, S>;
}

/// Where the numbers of the pages of a tensor lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ids {
    /// An address, or an offset in the memory of the plan; of pages that follow each other, the first one.
    at: u64,
    entry_bytes: u32,
    in_plan: bool,
}

/// Arrays of page numbers in the memory of a plan: one for all tensors that share a table.
#[derive(Default)]
pub(crate) struct IdArrays(HashMap<(usize, usize), Ids>);

impl IdArrays {
    /// The numbers of a table, uploaded with the plan if they are not on the device yet.
    pub fn place(&mut self, ids: &PageIds<'_>, memory: &mut PlanMemory) -> Ids {
        // Tables that are shared are written once.
        match *ids {
            PageIds::Consecutive { first, .. } => {
                Ids { at: first, entry_bytes: BatchTensor::CONSECUTIVE, in_plan: false }
            }
            PageIds::Device { address, entry_bytes, .. } => Ids { at: address, entry_bytes, in_plan: false },
            PageIds::I32(ids) => self.array(ids, |id| id.to_le_bytes(), memory),
            PageIds::I64(ids) => self.array(ids, |id| id.to_le_bytes(), memory),
        }
    }

    fn array<T: Copy, const N: usize>(
        &mut self,
        ids: &[T],
        bytes: impl Fn(T) -> [u8; N],
        memory: &mut PlanMemory,
    ) -> Ids {
        *self.0.entry((ids.as_ptr() as usize, ids.len())).or_insert_with(|| {
            let at = memory.align(16);
            memory.bytes.extend(ids.iter().flat_map(|&id| bytes(id)));
            Ids { at, entry_bytes: N as u32, in_plan: true }
        })
    }
}

/// Where the bytes `wanted` of a tensor lie, whose chunks have `chunk_bytes` bytes: in the runs of a tensor of a request, whose pool starts at an address.
pub(crate) fn in_pages(
    tensor: &PagedTensor<'_>,
    wanted: Range<u64>,
    pool: u64,
    ids: Ids,
    chunk_bytes: u64,
) -> Result<BatchTensor> {
    let runs: &Runs = tensor.runs();
    let count = |of: u64| {
        u32::try_from(of).map_err(|_| Error::TooLarge { what: "the number of runs of a page", bits: 32 })
    };
    let skew = runs.first_byte.wrapping_sub(wanted.start);
    let strides = (pool + runs.base) | runs.page_stride | runs.row_stride | runs.run_stride;
    let inside = runs.first_byte % runs.run_bytes;
    let is_one_run = inside + runs.bytes <= runs.run_bytes;
    let places = strides | if is_one_run { inside.wrapping_sub(wanted.start) } else { runs.run_bytes | skew };
    let unit = |of: u64| 1 << of.trailing_zeros().min(4);
    let whole = runs.run_bytes.is_multiple_of(chunk_bytes) && skew.is_multiple_of(chunk_bytes);
    Ok(BatchTensor {
        from: wanted.start,
        to: wanted.end,
        skew,
        pool: pool + runs.base,
        pages: tensor.place().pages,
        page_stride: runs.page_stride,
        row_stride: runs.row_stride,
        run_stride: runs.run_stride,
        run_bytes: runs.run_bytes,
        runs_in_row: count(runs.runs_in_row)?,
        rows_in_page: count(runs.rows_in_page)?,
        run_inverse: BatchTensor::inverse(runs.run_bytes),
        row_inverse: BatchTensor::inverse(runs.runs_in_row),
        page_inverse: BatchTensor::inverse(runs.rows_in_page),
        ids: ids.at,
        id_bytes: ids.entry_bytes,
        is_straight: u32::from(unit(places) == 16 && (is_one_run || whole)),
        unit: unit(places),
        edge_unit: unit(places | wanted.start | wanted.end),
        ..BatchTensor::default()
    })
}

/// The same with the places of tensor `number` in a frame, whose encoder's tables start at an offset of the plan's memory.
pub(crate) fn in_frame(batch: BatchTensor, layout: &Layout, number: usize, tables: u64) -> BatchTensor {
    let tensor = &layout.tensors[number];
    let [(residuals, _), (upper_residuals, _), (codes, _)] = planes(tensor, 0);
    let codebook = layout.static_bytes + DYNAMIC_BYTES * (1 + number as u64) + 16;
    BatchTensor {
        elements: tensor.elements,
        channels: tensor.channels as u32,
        number: number as u32,
        residuals,
        upper_residuals,
        codes,
        directory: tensor.directory_at,
        known: if tensor.bases == Bases::Channel { tensor.bases_at } else { codebook },
        table: tables + crate::steps::TABLE_BYTES * number as u64,
        chunk_sums: tensor.checksums_at,
        ..batch
    }
}

/// The same of a stored tensor of so many bytes, whose plane starts at an offset.
pub(crate) fn stored(batch: BatchTensor, bytes: u64, plane: u64) -> BatchTensor {
    BatchTensor { elements: bytes.div_ceil(2), codes: plane, ..batch }
}

/// A tensor of a launch, and the groups of it that are wanted.
#[derive(Clone, Debug)]
struct InLaunch {
    tensor: BatchTensor,
    groups: Range<u64>,
    has_ids_in_plan: bool,
}

/// Tensors of one launch.
#[derive(Clone, Default, Debug)]
pub(crate) struct Batch {
    tensors: Vec<InLaunch>,
}

impl Batch {
    /// Adds a tensor whose chunks have so many bytes, with the groups that are wanted of it.
    pub fn push(&mut self, tensor: BatchTensor, ids: Ids, chunk_bytes: u64) {
        let group_bytes = chunk_bytes * GROUP as u64;
        let groups = tensor.from / group_bytes..tensor.to.div_ceil(group_bytes);
        self.tensors.push(InLaunch { tensor, groups, has_ids_in_plan: ids.in_plan });
    }

    /// Says where short chunks are in the workspace, from which they were counted so far.
    pub fn move_tails(&mut self, by: u64) {
        self.tensors.iter_mut().for_each(|of| of.tensor.tail += by);
    }

    /// Groups of all of them.
    pub fn groups(&self) -> u64 {
        self.tensors.iter().map(|of| of.groups.end - of.groups.start).sum()
    }

    /// Appends what the kernels read to the memory of a plan; returns where it starts.
    pub fn write(&self, memory: &mut PlanMemory) -> u64 {
        let start = memory.align(BatchTensor::ALIGN);
        let bytes = &mut memory.bytes;
        let map_bytes = (8 * self.groups()).next_multiple_of(BatchTensor::ALIGN);
        for (number, InLaunch { groups, .. }) in self.tensors.iter().enumerate() {
            let at = (map_bytes + BatchTensor::BYTES * number as u64) / BatchTensor::ALIGN;
            for group in groups.clone() {
                bytes.extend((at as u32).to_le_bytes());
                bytes.extend((group as u32).to_le_bytes());
            }
        }
        bytes.resize((start + map_bytes) as usize, 0);
        for InLaunch { tensor, has_ids_in_plan, .. } in &self.tensors {
            let at = bytes.len();
            bytes.extend(tensor.words().iter().flat_map(|word| word.to_le_bytes()));
            bytes.resize(at + BatchTensor::BYTES as usize, 0);
            memory.relocated.push(at + offset_of!(BatchTensor, table));
            if *has_ids_in_plan {
                memory.relocated.push(at + offset_of!(BatchTensor, ids));
            }
        }
        start
    }
}

/// The memory of a plan on its way to a device: addresses inside of it are known when it has one.
#[derive(Default, Debug)]
pub(crate) struct PlanMemory {
    pub bytes: Vec<u8>,
    relocated: Vec<usize>,
}

impl PlanMemory {
    /// Memory that starts with these bytes.
    pub fn starting_with(bytes: &[u8]) -> PlanMemory {
        PlanMemory { bytes: bytes.to_vec(), relocated: Vec::new() }
    }

    /// Fills up to a multiple of `align`; returns where the end is.
    pub fn align(&mut self, align: u64) -> u64 {
        let end = (self.bytes.len() as u64).next_multiple_of(align);
        self.bytes.resize(end as usize, 0);
        end
    }

    /// The bytes, for memory at an address.
    pub fn at(&self, address: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &at in &self.relocated {
            if let Some(field) = bytes[at..].first_chunk_mut::<8>() {
                *field = u64::from_le_bytes(*field).wrapping_add(address).to_le_bytes();
            }
        }
        bytes
    }
}

/// A launch over a batch in memory: addresses of the machine that runs it, as in [`Steps`](crate::steps::Steps).
#[derive(Clone, Copy)]
pub(crate) struct BatchStep {
    pub batch: u64,
    pub groups: u64,
    pub frame: u64,
    pub workspace: u64,
    /// The variable parts of the frame, and how many words there are (to be read).
    pub parts: u64,
    pub words: u64,
    /// A word for what goes wrong.
    pub status: u64,
    /// Where checksums of tensors are added up, or 0: of what is decoded, 8 bytes a tensor of the frame; of what is encoded, in the dynamic part.
    pub sums: u64,
}

/// Where the parts of the tensors of a launch go.
#[derive(Clone, Copy)]
pub(crate) struct BatchPlacing {
    pub order: u64,
    pub start: u64,
    pub end: u64,
    /// The first place of the frame that gets the same word as `end`, and how many there are.
    pub behind: (u64, u64),
    /// Which checksums the frame has: see [`sums_wanted`](crate::steps::sums_wanted).
    pub sums_wanted: u32,
}

/// What kernels call the dtype and the scheme of a tensor.
fn names(tensor: &TensorLayout) -> (&'static str, String) {
    (kernel_dtype(tensor.dtype), kernel_scheme(tensor.scheme, tensor.bases))
}

/// Are there kernels over batches for this tensor?
pub(crate) fn has_batch_member(tensor: &TensorLayout) -> bool {
    let (dtype, scheme) = names(tensor);
    let is_member = |entry: &&Entry| entry.dtype == Some(dtype) && entry.scheme == Some(scheme.as_str());
    tensor.scheme != Scheme::Stored && encode_batch::ENTRIES.iter().any(is_member)
}

struct Encode(BatchStep, BatchPlacing);
struct Decode(BatchStep);

impl<D: dtype::Dtype, S: scheme::Scheme> OnMember<(D, S), Box<dyn Step>> for Encode
where
    encode_batch::Arguments<'static, D, S>: Step,
{
    fn on_member(self) -> Box<dyn Step> {
        let Encode(of, to) = self;
        Box::new(encode_batch::Arguments::<D, S> {
            queue: BatchQueue { groups: of.groups },
            batch: source(of.batch, 0),
            frame: target(of.frame, 0),
            workspace: target(of.workspace, 0),
            parts: target(of.parts, 0),
            order: target(to.order, order_bytes(of.groups)),
            start: target(to.start, 8),
            end: target(to.end, 8),
            behind: to.behind.0,
            behind_places: to.behind.1,
            status: target(of.status, 4),
            sums: target(of.sums, 0),
            wanted: to.sums_wanted,
        })
    }
}

impl<D: dtype::Dtype, S: scheme::Scheme> OnMember<(D, S), Box<dyn Step>> for Decode
where
    decode_batch::Arguments<'static, D, S>: Step,
{
    fn on_member(self) -> Box<dyn Step> {
        let of = self.0;
        Box::new(decode_batch::Arguments::<D, S> {
            chunks: BatchChunks { groups: of.groups },
            batch: source(of.batch, 0),
            frame: source(of.frame, 0),
            workspace: target(of.workspace, 0),
            parts: source(of.parts, of.words * 4),
            part_words: of.words,
            status: target(of.status, 4),
            sums: target(of.sums, 0),
        })
    }
}

impl BatchStep {
    /// Encodes the tensors, which are of the member of `tensor`.
    pub fn encode(self, tensor: &TensorLayout, to: BatchPlacing) -> Option<Box<dyn Step>> {
        let (dtype, scheme) = names(tensor);
        encode_batch::on_member(dtype, &scheme, Encode(self, to))
    }

    /// Decodes the tensors, which are of the member of `tensor`.
    pub fn decode(self, tensor: &TensorLayout) -> Option<Box<dyn Step>> {
        let (dtype, scheme) = names(tensor);
        decode_batch::on_member(dtype, &scheme, Decode(self))
    }

    /// Copies stored tensors to the frame, or back.
    pub fn copy(self, to_frame: bool) -> impl Step + use<> {
        copy_pages::Arguments {
            chunks: BatchChunks { groups: self.groups },
            batch: source(self.batch, 0),
            frame: target(self.frame, 0),
            to_frame: u32::from(to_frame),
            status: target(self.status, 4),
        }
    }
}

/// Bytes of the order of so many groups.
pub(crate) fn order_bytes(groups: u64) -> u64 {
    Order::bytes_for(groups * (CHUNK * GROUP) as u64)
}

/// Copies `bytes` bytes, a multiple of 8 and no more than [`BEGIN_BYTES`], from one address to another, by a kernel.
pub(crate) fn begin_bytes(from: u64, bytes: u64, to: u64) -> impl Step + use<> {
    begin::Arguments {
        programs: Programs { programs: 1 },
        start: source(from, 0),
        start_bytes: bytes,
        frame: target(to, 0),
        gaps: source(0, 0),
        gap_count: 0,
    }
}

/// Copies the start of a frame from an address, and clears gaps that are listed at another one.
pub(crate) fn begin_frame(
    layout: &Layout,
    start: u64,
    frame: u64,
    gaps: u64,
    gap_count: u64,
) -> impl Step + use<> {
    let start_bytes = layout.static_bytes + layout.dynamic_bytes;
    begin::Arguments {
        programs: Programs { programs: start_bytes.div_ceil(BEGIN_BYTES).max(gap_count) },
        start: source(start, 0),
        start_bytes,
        frame: target(frame, 0),
        gaps: source(gaps, 0),
        gap_count,
    }
}
