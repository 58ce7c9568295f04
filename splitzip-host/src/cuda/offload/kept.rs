//! What was offloaded: frames in page-locked memory.

use super::pinned::{PinnedBlock, PinnedBuffer};
use super::raw;
use super::slices::Piece;
use crate::format::sealed_words;
use crate::{Error, FrameSpec, Result, TensorSpec};
use std::sync::Arc;

/// KV in the memory of the host. Dropping it gives the memory back to its pool.
#[derive(Debug)]
pub struct Offloaded {
    pub(super) spec: FrameSpec,
    pub(super) slices: Vec<OffloadedSlice>,
}

/// A frame, or tensors as they are.
#[derive(Clone, Debug)]
pub(super) struct OffloadedSlice {
    pub block: Arc<PinnedBlock>,
    /// What its frame holds; `None` for tensors as they are.
    pub spec: Option<FrameSpec>,
    pub pieces: Vec<Piece>,
}

impl OffloadedSlice {
    pub fn raw_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes().end - piece.bytes().start).sum()
    }
}

impl Offloaded {
    /// Slices whose copies are over: frames are looked at, and give back what they did not need.
    pub(super) fn new(spec: FrameSpec, mut slices: Vec<OffloadedSlice>) -> Result<Offloaded> {
        for slice in &mut slices {
            let Some(spec) = &slice.spec else { continue };
            let layout = spec.layout()?;
            // SAFETY: the copy is over.
            let words = sealed_words(unsafe { slice.block.as_slice() }, &layout)?;
            let bytes = layout.variable_parts(words)?.end;
            if let Some(block) = Arc::get_mut(&mut slice.block) {
                block.shrink(bytes);
            }
        }
        Ok(Offloaded { spec, slices })
    }

    /// A frame that came from elsewhere, in the memory that it was received into, so that it can be reloaded: what is behind its end is given back.
    ///
    /// # Errors
    /// What [`FrameSpec::read`] refuses, a frame that is cut off or damaged at its start, and one that is packed ([`Error::Unsupported`]: unpack it first).
    pub fn from_frame(buffer: PinnedBuffer) -> Result<Offloaded> {
        let spec = FrameSpec::read(&buffer)?;
        if spec.flags.packed {
            let (what, instead) = ("packed frames".to_owned(), "format::unpack first".to_owned());
            return Err(Error::Unsupported { executor: "cuda".to_owned(), what, instead });
        }
        let layout = spec.layout()?;
        let end = layout.variable_parts(sealed_words(&buffer, &layout)?)?.end;
        if end > buffer.len() as u64 {
            return Err(Error::Truncated { what: "the frame", needed: end, got: buffer.len() as u64 });
        }
        let piece = |(tensor, of): (usize, &TensorSpec)| {
            // A row as tokens have it.
            let row: u64 = of.shape.get(1..).unwrap_or_default().iter().product();
            let (row, elements) = (row.max(1), of.elements()?);
            let row = if elements.is_multiple_of(row) { row } else { 1 };
            Ok(Piece { tensor, rows: 0..elements / row, row_bytes: row * of.dtype.bytes() as u64 })
        };
        let pieces = spec.tensors.iter().enumerate().map(piece).collect::<Result<_>>()?;
        let slice = OffloadedSlice { block: Arc::new(buffer.0), spec: Some(spec.clone()), pieces };
        Offloaded::new(spec, vec![slice])
    }

    /// Tensors as they are, one behind the other in the order of `spec`, each from a multiple of 256 bytes on: what [`Offloaded::slices`] gives when it is
    /// [raw](Offloaded::is_raw).
    ///
    /// # Errors
    /// [`Error::BufferSize`] for another number of bytes.
    pub fn from_raw(buffer: PinnedBuffer, spec: FrameSpec) -> Result<Offloaded> {
        let pieces = raw::pieces(&spec)?;
        let (expected, got) = (raw::places(&pieces).1, buffer.len() as u64);
        if expected != got {
            return Err(Error::BufferSize { what: "the tensors as they are".to_owned(), expected, got });
        }
        let slices = vec![OffloadedSlice { block: Arc::new(buffer.0), spec: None, pieces }];
        Ok(Offloaded { spec, slices })
    }

    /// The tensors.
    pub fn spec(&self) -> &FrameSpec {
        &self.spec
    }

    /// Whether it is the tensors as they are, without frames.
    pub fn is_raw(&self) -> bool {
        !self.slices.is_empty() && self.slices.iter().all(|slice| slice.spec.is_none())
    }

    /// Bytes of the tensors.
    pub fn raw_bytes(&self) -> u64 {
        self.slices.iter().map(OffloadedSlice::raw_bytes).sum()
    }

    /// Bytes that they take here.
    pub fn coded_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.block.bytes()).sum()
    }

    /// The bytes of every slice: a frame each, unless they are [raw](Offloaded::is_raw).
    pub fn slices(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        // SAFETY: they are full, and nobody writes to them any more.
        self.slices.iter().map(|slice| unsafe { slice.block.as_slice() })
    }
}
