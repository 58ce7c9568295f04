//! Cuts an original into pieces, and deals the pieces to frames. Where the cuts are follows from its header and the options alone,
//! so an original can be a stream; how a piece is coded follows from its own bytes. So every executor writes the same file,
//! whether the original is a file or comes through a pipe.

use super::Options;
use super::original::Original;
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

/// A tensor that is coded, or what lies between two of them.
struct Run {
    at: u64,
    bytes: u64,
    /// Number and float format of the tensor.
    tensor: Option<(usize, Dtype)>,
}

/// A part of a run that a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub at: u64,
    pub bytes: u64,
    tensor: Option<(usize, Dtype)>,
}

/// What becomes of a file. As an iterator it deals the parts of one frame after the other: a header may tell of more frames than memory
/// has room for.
pub(crate) struct Plan {
    runs: Vec<Run>,
    limit: u64,
    /// The run that is dealt, and how much of it is.
    run: usize,
    dealt: u64,
    /// Why a tensor is stored although it could be coded with another scheme, for every tensor.
    pub notes: Vec<Option<String>>,
}

impl Plan {
    /// Cuts the file into runs.
    pub(crate) fn new(original: &Original, options: &Options) -> Result<Plan> {
        let tensors = original.contents.tensors();
        let mut notes = vec![None; tensors.len()];
        let mut runs = Vec::new();
        let (mut at, mut fits, mut pointless) = (0, false, None);
        for ((number, tensor), note) in tensors.iter().enumerate().zip(&mut notes) {
            // What has not even one chunk would not shrink by more than its entry in the frame takes.
            let stored = tensor.bytes < CUT || options.scheme == Scheme::Stored.into();
            if matches!(tensor.dtype.as_str(), "V1" | "V2") && options.dtype.is_none() && !stored {
                *note = Some("NumPy does not know its elements; with --dtype they are coded".to_owned());
            }
            let Some(dtype) = tensor.coded(options.dtype).filter(|_| !stored) else { continue };
            if let SchemeChoice::Given(scheme) = options.scheme
                && let Err(error) = scheme.check(dtype)
            {
                *note = Some(error.to_string());
                pointless.get_or_insert(error);
                continue;
            }
            fits = true;
            runs.push(Run { at, bytes: tensor.at - at, tensor: None });
            runs.push(Run { at: tensor.at, bytes: tensor.bytes, tensor: Some((number, dtype)) });
            at = tensor.at + tensor.bytes;
        }
        if let Some(error) = pointless.filter(|_| !fits) {
            return Err(error);
        }
        runs.push(Run { at, bytes: original.raw_bytes - at, tensor: None });
        Ok(Plan { runs, limit: options.frame_bytes, run: 0, dealt: 0, notes })
    }
}

impl Iterator for Plan {
    type Item = Vec<Part>;

    /// The parts of the next frame. A run goes into the frame if the rest of it fits, else into the next, and is cut at multiples of the
    /// limit when it fits no frame.
    fn next(&mut self) -> Option<Vec<Part>> {
        let (mut parts, mut left) = (Vec::new(), self.limit);
        while let Some(run) = self.runs.get(self.run) {
            let rest = run.bytes - self.dealt;
            if rest > left && !parts.is_empty() {
                break;
            }
            let bytes = rest.min(self.limit);
            if bytes != 0 {
                parts.push(Part { at: run.at + self.dealt, bytes, tensor: run.tensor });
                left -= bytes;
                self.dealt += bytes;
            }
            if self.dealt == run.bytes {
                (self.run, self.dealt) = (self.run + 1, 0);
            }
        }
        Some(parts).filter(|parts| !parts.is_empty())
    }
}

/// Chooses how a part is coded, from its bytes.
pub(crate) fn piece(part: &Part, contents: &Contents, bytes: &[u8], options: &Options) -> Result<Piece> {
    let stored = Piece::stored(part.at, part.bytes);
    let Some((number, dtype)) = part.tensor else { return Ok(stored) };
    let tensor = &contents.tensors()[number];
    let shapes = Shapes::of(tensor, dtype, part);
    let (scheme, bases) = choose(&tensor.name, dtype, &shapes.rows, bytes, options)?;
    let shape = if bases == Bases::Channel { &shapes.rows } else { &shapes.plain };
    let spec = match scheme {
        Scheme::Stored => TensorSpec { name: tensor.name.clone(), ..stored.spec },
        _ => TensorSpec::new(&tensor.name, dtype, scheme, shape).with_bases(bases).with_id(part.at),
    };
    Ok(Piece { spec, ..stored })
}

/// The shapes that a part of a tensor has in a frame.
struct Shapes {
    plain: Vec<u64>,
    /// With channel bases; the plain one where it cannot have any.
    rows: Vec<u64>,
}

impl Shapes {
    fn of(tensor: &Tensor, dtype: Dtype, part: &Part) -> Shapes {
        let (first, elements) =
            ((part.at - tensor.at) / dtype.bytes() as u64, part.bytes / dtype.bytes() as u64);
        if part.bytes == tensor.bytes && tensor.shape.len() <= MAX_RANK {
            return Shapes { plain: tensor.shape.clone(), rows: tensor.shape.clone() };
        }
        let plain = vec![elements];
        // A part of whole rows can have channel bases.
        let row = tensor.shape.last().copied().filter(|_| select::has_channels(&tensor.shape));
        let rows = match row {
            Some(row) if first % row == 0 && elements.is_multiple_of(row) => vec![elements / row, row],
            _ => plain.clone(),
        };
        Shapes { plain, rows }
    }
}

/// Scheme and bases of a piece.
fn choose(
    name: &str,
    dtype: Dtype,
    shape: &[u64],
    bytes: &[u8],
    options: &Options,
) -> Result<(Scheme, Bases)> {
    let mut candidates = select::candidates(dtype, shape, options.scheme, options.bases);
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let codebook = options.codebooks.as_ref().map(|file| file.get(name, dtype));
    if matches!(codebook, Some(Err(_))) {
        candidates.retain(|(scheme, _)| !scheme.has_codebook());
    }
    select::select(name, dtype, shape, bytes, &candidates, codebook.and_then(Result::ok))
}

/// The description of a frame of these pieces.
pub(crate) fn spec(pieces: &[Piece]) -> FrameSpec {
    let flags = crate::format::Flags { packed: false, ..super::FRAME_FLAGS };
    FrameSpec::new(pieces.iter().map(|piece| piece.spec.clone()).collect(), flags)
}
