//! Cuts an original into pieces, and deals the pieces to frames. The plan follows from the header, the scheme and the frame limit
//! alone, so every executor writes the same file.

use super::tensors::Contents;
use crate::format::{CHUNK, FrameSpec, TensorSpec};
use crate::{Dtype, Scheme};

/// Cuts are at multiples of a chunk of every dtype.
pub(crate) const CUT: u64 = 2 * CHUNK as u64;

/// A run of bytes of the original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Where it starts in the original.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What it is in its frame. The id is `at`.
    pub spec: TensorSpec,
}

impl Piece {
    pub(crate) fn stored(at: u64, bytes: u64) -> Piece {
        Piece { at, bytes, spec: TensorSpec::new("", Dtype::Bytes, Scheme::Stored, &[bytes]).with_id(at) }
    }
}

/// The pieces of one frame after the other.
pub(crate) fn frames(contents: &Contents, file_bytes: u64, scheme: Scheme, limit: u64) -> Vec<Vec<Piece>> {
    let mut dealer = Dealer { limit, frames: Vec::new(), open: Vec::new(), left: limit };
    let mut at = 0;
    for tensor in contents.tensors() {
        // What has not even one chunk would not shrink by more than its entry in the frame takes.
        let coded = tensor.coded().filter(|_| tensor.bytes >= CUT && scheme != Scheme::Stored);
        let Some(dtype) = coded else { continue };
        dealer.deal(at, tensor.at - at, Piece::stored);
        dealer.deal(tensor.at, tensor.bytes, |at, bytes| {
            let elements = bytes / dtype.bytes() as u64;
            let whole = bytes == tensor.bytes && tensor.shape.len() <= crate::format::MAX_RANK;
            let shape = if whole { &tensor.shape[..] } else { &[elements] };
            Piece { at, bytes, spec: TensorSpec::new(&tensor.name, dtype, scheme, shape).with_id(at) }
        });
        at = tensor.at + tensor.bytes;
    }
    dealer.deal(at, file_bytes - at, Piece::stored);
    dealer.close();
    dealer.frames
}

/// The description of a frame of these pieces.
pub(crate) fn spec(pieces: &[Piece]) -> FrameSpec {
    let flags = crate::format::Flags { packed: false, ..super::FRAME_FLAGS };
    FrameSpec::new(pieces.iter().map(|piece| piece.spec.clone()).collect(), flags)
}

struct Dealer {
    limit: u64,
    frames: Vec<Vec<Piece>>,
    open: Vec<Piece>,
    left: u64,
}

impl Dealer {
    /// Deals a run of bytes: into the open frame if it fits, else into the next, and cut at multiples of the limit when it fits no
    /// frame.
    fn deal(&mut self, mut at: u64, mut bytes: u64, piece: impl Fn(u64, u64) -> Piece) {
        while bytes != 0 {
            if bytes > self.left {
                self.close();
            }
            let part = bytes.min(self.limit);
            self.open.push(piece(at, part));
            self.left -= part;
            at += part;
            bytes -= part;
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.frames.push(std::mem::take(&mut self.open));
        }
        self.left = self.limit;
    }
}
