//! Cuts an original into pieces, and deals the pieces to frames. The plan follows from the file and the options alone, so
//! every executor writes the same file.

use super::Options;
use super::tensors::{Contents, Tensor};
use crate::format::{CHUNK, FrameSpec, MAX_RANK, TensorSpec};
use crate::{Bases, Dtype, Result, Scheme, SchemeChoice, select};

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

/// What becomes of a file.
pub(crate) struct Plan {
    /// The pieces of one frame after the other.
    pub frames: Vec<Vec<Piece>>,
    /// Why a tensor is stored although it could be coded with another scheme, for every tensor.
    pub notes: Vec<Option<String>>,
}

/// Chooses scheme and bases of every tensor, and cuts the file.
pub(crate) fn plan(contents: &Contents, input: &[u8], options: &Options) -> Result<Plan> {
    let mut dealer = Dealer {
        limit: options.frame_bytes,
        frames: Vec::new(),
        open: Vec::new(),
        left: options.frame_bytes,
    };
    let mut notes = vec![None; contents.tensors().len()];
    let (mut at, mut fits, mut pointless) = (0, false, None);
    for (tensor, note) in contents.tensors().iter().zip(&mut notes) {
        // What has not even one chunk would not shrink by more than its entry in the frame takes.
        let stored = tensor.bytes < CUT || options.scheme == Scheme::Stored.into();
        let Some(dtype) = tensor.coded(options.dtype).filter(|_| !stored) else { continue };
        if let SchemeChoice::Given(scheme) = options.scheme
            && let Err(error) = scheme.check(dtype)
        {
            *note = Some(error.to_string());
            pointless.get_or_insert(error);
            continue;
        }
        fits = true;
        let bytes = &input[tensor.at as usize..(tensor.at + tensor.bytes) as usize];
        let (scheme, bases) = choose(tensor, dtype, bytes, options)?;
        if scheme == Scheme::Stored {
            continue;
        }
        dealer.deal(at, tensor.at - at, Piece::stored);
        dealer.deal(tensor.at, tensor.bytes, |at, bytes| {
            let spec = spec_of(tensor, dtype, scheme, bases, at - tensor.at, bytes);
            Piece { at, bytes, spec: spec.with_id(at) }
        });
        at = tensor.at + tensor.bytes;
    }
    if let Some(error) = pointless.filter(|_| !fits) {
        return Err(error);
    }
    dealer.deal(at, input.len() as u64 - at, Piece::stored);
    dealer.close();
    Ok(Plan { frames: dealer.frames, notes })
}

/// Scheme and bases of a tensor.
fn choose(tensor: &Tensor, dtype: Dtype, bytes: &[u8], options: &Options) -> Result<(Scheme, Bases)> {
    let mut candidates = select::candidates(dtype, &tensor.shape, options.scheme, options.bases);
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let codebook = options.codebooks.as_ref().map(|file| file.get(&tensor.name, dtype));
    if matches!(codebook, Some(Err(_))) {
        candidates.retain(|(scheme, _)| !scheme.has_codebook());
    }
    select::select(&tensor.name, dtype, &tensor.shape, bytes, &candidates, codebook.and_then(Result::ok))
}

/// The description of a piece of a tensor that starts `offset` bytes behind its start. A part of whole rows keeps channel bases.
fn spec_of(
    tensor: &Tensor,
    dtype: Dtype,
    scheme: Scheme,
    bases: Bases,
    offset: u64,
    bytes: u64,
) -> TensorSpec {
    let (first, elements) = (offset / dtype.bytes() as u64, bytes / dtype.bytes() as u64);
    let spec = |shape: &[u64]| TensorSpec::new(&tensor.name, dtype, scheme, shape);
    if bytes == tensor.bytes && tensor.shape.len() <= MAX_RANK {
        return spec(&tensor.shape).with_bases(bases);
    }
    match tensor.shape.last() {
        Some(&row) if bases == Bases::Channel && first % row == 0 && elements.is_multiple_of(row) => {
            spec(&[elements / row, row]).with_bases(bases)
        }
        _ => spec(&[elements]),
    }
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
