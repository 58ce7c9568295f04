//! What became of every tensor: sizes, chunks by mode, escapes.

use super::tensors::Contents;
use crate::format::{
    DYNAMIC_BYTES, Frame, FrameTensor, GROUP, HEADER_BYTES, Mode, PLANE_ALIGNMENT, RECORD_BYTES,
};
use crate::{Bases, Dtype, Result, Scheme};

/// Chunks of a tensor by mode. A stored tensor has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Chunks {
    /// Coded, and coded with zeros.
    pub coded: u64,
    /// Raw: would not have shrunk.
    pub raw: u64,
    /// All elements equal.
    pub equal: u64,
}

/// What became of one tensor.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// The name of its dtype in the safetensors header.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// The float format as which it is coded; `None` when it is stored.
    pub coded_as: Option<Dtype>,
    /// How it is coded: most of its bytes, where its pieces in several frames differ.
    pub scheme: Scheme,
    /// Whose mean places the window, as for the scheme; `None` for schemes without one.
    pub bases: Option<Bases>,
    /// Its bytes in the original.
    pub raw_bytes: u64,
    /// Its bytes in frames: its planes, variable parts, directory and entries.
    pub coded_bytes: u64,
    /// Its chunks by mode.
    pub chunks: Chunks,
    /// Escapes; `None` where a frame does not count them (stored tensors, schemes with windows).
    pub escapes: Option<u64>,
    /// Why it is stored although it could be coded with another scheme.
    pub note: Option<String>,
}

/// What became of a whole file.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Report {
    /// Size of the original.
    pub raw_bytes: u64,
    /// Size of the `.spz` file.
    pub coded_bytes: u64,
    /// SHA-256 of the original, in hexadecimal digits.
    pub sha256: String,
    /// Frames.
    pub frames: u64,
    /// The tensors, in the order in which they lie in the file.
    pub tensors: Vec<TensorReport>,
}

/// Raw bytes by coded bytes; 1 when there are none.
pub(crate) fn ratio(raw: u64, coded: u64) -> f64 {
    if coded == 0 { 1.0 } else { raw as f64 / coded as f64 }
}

impl TensorReport {
    /// Raw bytes by coded bytes.
    pub fn ratio(&self) -> f64 {
        ratio(self.raw_bytes, self.coded_bytes)
    }
}

impl Report {
    /// Raw bytes by coded bytes of the whole files.
    pub fn ratio(&self) -> f64 {
        ratio(self.raw_bytes, self.coded_bytes)
    }
}

/// Books the pieces of frames on the tensors that they are of.
pub(crate) struct Accounts<'c> {
    contents: &'c Contents,
    tensors: Vec<TensorReport>,
    /// For every tensor: raw bytes by the way in which they are coded.
    ways: Vec<Vec<(Way, u64)>>,
}

/// How a piece is coded.
type Way = (Dtype, Scheme, Bases);

impl<'c> Accounts<'c> {
    pub(crate) fn new(contents: &'c Contents) -> Accounts<'c> {
        let of = |tensor: &super::Tensor| TensorReport {
            name: tensor.name.clone(),
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            coded_as: None,
            scheme: Scheme::Stored,
            bases: None,
            raw_bytes: tensor.bytes,
            coded_bytes: 0,
            chunks: Chunks::default(),
            escapes: None,
            note: None,
        };
        let tensors: Vec<TensorReport> = contents.tensors().iter().map(of).collect();
        Accounts { contents, ways: vec![Vec::new(); tensors.len()], tensors }
    }

    /// Books a frame whose raw bytes start at `raw_at`.
    pub(crate) fn add(&mut self, frame: &Frame<'_>, raw_at: u64) -> Result<()> {
        let mut at = raw_at;
        for piece in frame.tensors() {
            let end = at + piece.layout().bytes;
            let tensors = self.contents.tensors();
            let first = tensors.partition_point(|tensor| tensor.at + tensor.bytes <= at);
            let reports = self.tensors.iter_mut().zip(&mut self.ways);
            for (tensor, (report, ways)) in tensors.iter().zip(reports).skip(first) {
                if tensor.at >= end {
                    break;
                }
                if piece.layout().scheme == Scheme::Stored {
                    report.coded_bytes += end.min(tensor.at + tensor.bytes).saturating_sub(at.max(tensor.at));
                } else {
                    book(report, ways, &piece);
                }
            }
            at = end;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<TensorReport> {
        self.tensors
    }
}

fn book(report: &mut TensorReport, ways: &mut Vec<(Way, u64)>, piece: &FrameTensor<'_, '_>) {
    let layout = piece.layout();
    let way = (layout.dtype, layout.scheme, layout.bases);
    match ways.iter_mut().find(|(other, _)| *other == way) {
        Some((_, bytes)) => *bytes += layout.bytes,
        None => ways.push((way, layout.bytes)),
    }
    let most = ways.iter().rev().max_by_key(|(_, bytes)| *bytes);
    let (dtype, scheme, bases) = most.map_or(way, |(most, _)| *most);
    report.coded_as = Some(dtype);
    report.scheme = scheme;
    report.bases = Some(bases).filter(|_| scheme.has_window());
    let mut escapes = 0;
    for group in 0..layout.groups {
        let entries = piece.group(group).entries;
        for (entry, _) in entries.iter().zip(group * GROUP as u64..layout.chunks) {
            match crate::format::Entry::from_bits(*entry) {
                Some(entry) if entry.mode == Mode::Raw => report.chunks.raw += 1,
                Some(entry) if entry.mode == Mode::Equal => report.chunks.equal += 1,
                Some(entry) => {
                    report.chunks.coded += 1;
                    escapes += u64::from(entry.words);
                }
                None => {}
            }
        }
    }
    if layout.scheme == Scheme::W4 {
        report.escapes = Some(report.escapes.unwrap_or(0) + escapes);
    }
    report.coded_bytes += coded_bytes(piece);
}

/// The bytes of a frame that are there for one of its tensors.
pub(crate) fn coded_bytes(piece: &FrameTensor<'_, '_>) -> u64 {
    let (layout, spec) = (piece.layout(), piece.spec());
    let entry = HEADER_BYTES + 8 * spec.shape.len() as u64 + spec.name.len() as u64 + DYNAMIC_BYTES;
    let words: u64 = (0..layout.groups).map(|group| piece.group(group).words()).sum();
    let planes: u64 = layout.planes.iter().map(|plane| plane.bytes.next_multiple_of(PLANE_ALIGNMENT)).sum();
    entry + layout.groups * (RECORD_BYTES + layout.channels) + planes + 4 * words
}
