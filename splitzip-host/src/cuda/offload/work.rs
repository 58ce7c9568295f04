//! The work of a slice, from tensors in one piece or from pages.

use super::lane::Work;
use super::slices::{Piece, Slice};
use super::{DeviceKv, OffloadError};
use crate::batch::begin_bytes;
use crate::cuda::paged::{DecodePagedWork, EncodePagedWork};
use crate::cuda::plan::{DecodeWork, EncodeWork, Queue};
use crate::format::Layout;
use crate::paged::Paged;
use crate::steps::Step;
use crate::{CodebookChoice, FrameSpec, Result};
use splitzip_kernels::launch::Entry;
use std::ops::Range;

/// Where a slice is encoded from.
pub(super) enum EncodeSlice {
    /// Tensors in one piece, and their addresses.
    Tensors(EncodeWork, Vec<u64>),
    /// Pages.
    Pages(EncodePagedWork),
}

impl EncodeSlice {
    /// The work of a slice; `codebooks` are those of all tensors, or none.
    pub fn new(
        slice: &Slice,
        codebooks: &[CodebookChoice],
        from: DeviceKv<'_>,
        multiprocessors: u32,
    ) -> Result<EncodeSlice> {
        let codebooks: Vec<CodebookChoice> =
            slice.pieces.iter().filter_map(|piece| codebooks.get(piece.tensor)).copied().collect();
        match from {
            DeviceKv::Tensors(addresses) => {
                let work = EncodeWork::new("cuda", &slice.spec, &codebooks)?;
                Ok(EncodeSlice::Tensors(
                    work,
                    slice.pieces.iter().map(|piece| address(addresses, piece)).collect(),
                ))
            }
            DeviceKv::Pages { of, pools } => {
                let of = of.part(slice.pieces.iter().map(|piece| (piece.tensor, piece.rows.clone())))?;
                of.check_spec(&slice.spec)?;
                let work = EncodePagedWork::of_checked(
                    "cuda",
                    &slice.spec,
                    &codebooks,
                    &of,
                    pools,
                    multiprocessors,
                )?;
                Ok(EncodeSlice::Pages(work))
            }
        }
    }

    pub fn layout(&self) -> &Layout {
        match self {
            EncodeSlice::Tensors(work, _) => work.layout(),
            EncodeSlice::Pages(work) => work.layout(),
        }
    }

    /// Makes the workspace ready and encodes.
    ///
    /// # Safety
    /// As [`EncodeWork::run`].
    pub unsafe fn run(&self, queue: &dyn Queue, memory: u64, frame: u64, workspace: u64) -> Result<()> {
        // SAFETY: by contract.
        unsafe {
            match self {
                EncodeSlice::Tensors(work, inputs) => {
                    work.prepare(queue, memory, workspace)?;
                    work.run(queue, memory, inputs, frame, workspace)
                }
                EncodeSlice::Pages(work) => {
                    work.prepare(queue, memory, workspace)?;
                    work.run(queue, memory, frame, workspace)
                }
            }
        }
    }
}

impl Work for EncodeSlice {
    fn entries(&self) -> &[&'static Entry] {
        match self {
            EncodeSlice::Tensors(work, _) => work.entries(),
            EncodeSlice::Pages(work) => work.entries(),
        }
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            EncodeSlice::Tensors(work, _) => work.start().len() as u64,
            EncodeSlice::Pages(work) => work.memory_bytes(),
        }
    }

    fn memory(&self, address: u64) -> Vec<u8> {
        match self {
            EncodeSlice::Tensors(work, _) => work.start().to_vec(),
            EncodeSlice::Pages(work) => work.memory(address),
        }
    }

    fn workspace_bytes(&self) -> u64 {
        match self {
            EncodeSlice::Tensors(work, _) => work.workspace_bytes(),
            EncodeSlice::Pages(work) => work.workspace_bytes(),
        }
    }
}

/// Queues a kernel that writes how many words of variable parts a frame has to page-locked memory. A copy of 8 bytes would wait for the copy engine, which is busy
/// with the slices before.
///
/// # Safety
/// The frame is valid on the device, the place for the device and the host.
pub(super) unsafe fn tell_words(queue: &dyn Queue, layout: &Layout, frame: u64, to: u64) -> Result<()> {
    // SAFETY: by contract.
    unsafe { queue.launch(&begin_bytes(frame + layout.words_at(), 8, to).launch()?) }
}

/// The entry of [`tell_words`].
pub(super) fn tell_words_entry() -> &'static Entry {
    begin_bytes(0, 8, 0).entry()
}

/// Where a slice is decoded to.
pub(super) enum DecodeSlice {
    Tensors(DecodeWork, Vec<u64>),
    Pages(Box<DecodePagedWork>),
}

impl DecodeSlice {
    /// The work of a slice that goes to tensors in one piece, whose addresses are those of all tensors.
    pub fn to_tensors(spec: &FrameSpec, pieces: &[Piece], addresses: &[u64]) -> Result<DecodeSlice> {
        let outputs = pieces.iter().map(|piece| address(addresses, piece)).collect();
        Ok(DecodeSlice::Tensors(DecodeWork::new("cuda", spec)?, outputs))
    }

    /// The work of a slice of which some goes to pages; `None` when nothing of it is wanted. `wanted` has a number for every tensor of `to`, that of all tensors
    /// that were offloaded, and the tokens that are wanted of it.
    pub fn to_pages(
        spec: &FrameSpec,
        pieces: &[Piece],
        wanted: &[(usize, Range<u64>)],
        to: (&Paged<'_>, &[crate::cuda::DevicePool]),
    ) -> Result<Option<DecodeSlice>> {
        let (paged, pools) = to;
        let (mut parts, mut tokens, mut whole) = (Vec::new(), 0..0, true);
        for piece in pieces {
            let Some((here, (_, of))) =
                wanted.iter().enumerate().find(|(_, (tensor, _))| *tensor == piece.tensor)
            else {
                continue;
            };
            let token_bytes = paged.tensors()[here].form().token_bytes()?;
            if piece.row_bytes != token_bytes {
                return Err(crate::Error::Unsupported {
                    executor: "cuda".to_owned(),
                    what: format!(
                        "pages for tensor {:?}, which was cut inside of its tokens",
                        paged.tensors()[here].form().name
                    ),
                    instead: "tensors in one piece, or larger slices".to_owned(),
                });
            }
            let (start, end) = (of.start.max(piece.rows.start), of.end.min(piece.rows.end));
            if start < end {
                parts.push((here, start - of.start..end - of.start));
                // Tensors share a slice only in whole, and of all the same tokens are wanted.
                tokens = start - piece.rows.start..end - piece.rows.start;
                whole &= start == piece.rows.start && end == piece.rows.end;
            }
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let part = paged.part(parts.into_iter())?;
        let tokens = if whole { None } else { Some(tokens) };
        let work = DecodePagedWork::of_pairs("cuda", spec, part.pair(spec, tokens)?, &part, pools)?;
        Ok(Some(DecodeSlice::Pages(Box::new(work))))
    }

    /// Decodes a frame of so many bytes.
    ///
    /// # Safety
    /// As [`DecodeWork::run`].
    pub unsafe fn run(
        &self,
        queue: &dyn Queue,
        memory: u64,
        (frame, frame_bytes): (u64, u64),
        workspace: u64,
        status: u64,
    ) -> Result<()> {
        // SAFETY: by contract.
        unsafe {
            match self {
                DecodeSlice::Tensors(work, outputs) => {
                    work.run(queue, frame, frame_bytes, outputs, workspace, status, 0)
                }
                DecodeSlice::Pages(work) => work.run(queue, memory, frame, frame_bytes, workspace, status, 0),
            }
        }
    }
}

impl Work for DecodeSlice {
    fn entries(&self) -> &[&'static Entry] {
        match self {
            DecodeSlice::Tensors(work, _) => work.entries(),
            DecodeSlice::Pages(work) => work.entries(),
        }
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            DecodeSlice::Tensors(..) => 0,
            DecodeSlice::Pages(work) => work.memory_bytes(),
        }
    }

    fn memory(&self, address: u64) -> Vec<u8> {
        match self {
            DecodeSlice::Tensors(..) => Vec::new(),
            DecodeSlice::Pages(work) => work.memory(address),
        }
    }

    fn workspace_bytes(&self) -> u64 {
        match self {
            DecodeSlice::Tensors(work, _) => work.workspace_bytes(),
            DecodeSlice::Pages(work) => work.workspace_bytes(),
        }
    }
}

/// Where a piece lies on the device. There is an address for every tensor.
fn address(addresses: &[u64], piece: &Piece) -> u64 {
    addresses.get(piece.tensor).map_or(0, |address| address + piece.bytes().start)
}

/// Says whether there are as many addresses as tensors.
pub(super) fn check_addresses(what: &'static str, spec: &FrameSpec, addresses: &[u64]) -> Result<()> {
    if spec.tensors.len() == addresses.len() {
        return Ok(());
    }
    Err(crate::Error::Count { what, expected: spec.tensors.len(), got: addresses.len() })
}

/// The tensors of a request by their numbers in what was offloaded, and the tokens that are wanted of each.
pub(super) fn wanted(
    spec: &FrameSpec,
    tokens: Option<Range<u64>>,
    to: DeviceKv<'_>,
) -> Result<Vec<(usize, Range<u64>)>> {
    match to {
        DeviceKv::Tensors(_) if tokens.is_some() => Err(OffloadError::TokensOfTensors.into()),
        DeviceKv::Tensors(addresses) => {
            check_addresses("outputs", spec, addresses)?;
            Ok(Vec::new())
        }
        DeviceKv::Pages { of, .. } => {
            let pairs = of.pair(spec, tokens)?;
            let of_tokens = |(number, bytes): (usize, Range<u64>)| {
                let row = token_bytes(spec, number);
                (number, bytes.start / row..bytes.end / row)
            };
            Ok(pairs.into_iter().map(of_tokens).collect())
        }
    }
}

/// Bytes of a token of a tensor.
pub(super) fn token_bytes(spec: &FrameSpec, number: usize) -> u64 {
    let tensor = &spec.tensors[number];
    let row: u64 = tensor.shape.get(1..).unwrap_or_default().iter().product();
    (row * tensor.dtype.bytes() as u64).max(1)
}
