//! Some tensors of an `.spz` file, or some of their tokens, as a safetensors file: only the frames that hold them are read, only the chunks that hold
//! them decoded.

use super::{FileError, Progress, Reader, Tensor};
use crate::cpu::with_fixed_planes;
use crate::format::Frame;
use crate::{Executor, Result};
use std::io::Write;
use std::ops::Range;

/// Which tokens of a tensor: `start..end`, or from `start` to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    /// The first.
    pub start: u64,
    /// The one behind the last; `None` for all that there are.
    pub end: Option<u64>,
}

/// Pieces of the original that a part may be made of: a list of 64 MiB.
const MOST_RANGES: u64 = 1 << 22;

/// Which part of a file is wanted.
pub struct Part<'p> {
    /// Is the tensor wanted?
    pub keep: &'p dyn Fn(&Tensor) -> bool,
    /// Its tokens; `None` for all of it.
    pub tokens: Option<Tokens>,
    /// The dimension that counts tokens, negative ones from the last. `None` is the last but one, or the only one: as in `[heads, tokens, dim]`,
    /// `[2, layers, tokens, hidden]` and `[tokens, hidden]`.
    pub token_axis: Option<i32>,
}

/// A tensor of a part.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PartTensor {
    /// Its name.
    pub name: String,
    /// The name of its dtype: `BF16`.
    pub dtype: String,
    /// Its dimensions, the one of tokens cut to those that were wanted.
    pub shape: Vec<u64>,
    /// Its bytes.
    pub bytes: u64,
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartReport {
    /// The tensors, in the order of the file.
    pub tensors: Vec<PartTensor>,
    /// Frames that were read.
    pub frames: u64,
    /// Bytes of the tensors.
    pub raw_bytes: u64,
}

/// A part that is ready to be restored.
struct Plan {
    tensors: Vec<PartTensor>,
    /// Bytes of the original, ascending.
    ranges: Vec<Range<u64>>,
    metadata: Option<String>,
}

/// Writes some tensors of a file, or some of their tokens, as a safetensors file with the metadata of the original.
///
/// The CRC of every frame that is read is compared, and the checksums of tensors that are decoded in whole. The SHA-256 of the original is not: it is that of all.
///
/// # Errors
/// [`FileError::Options`] for a part that no tensor is in, tokens that a tensor does not have, tensors whose numbers of tokens differ; a file
/// that is no safetensors file; damage of any kind, what the executor does not have, what the output returns, what `progress` returns.
pub fn decompress_part(
    executor: &dyn Executor,
    reader: &mut Reader<'_>,
    part: &Part<'_>,
    mut output: impl Write,
    progress: Progress<'_>,
) -> Result<PartReport> {
    let plan = plan(reader, part)?;
    output.write_all(&header(&plan)?)?;
    let (mut rest, mut frames) = (&plan.ranges[..], 0);
    for (number, record) in reader.frames().to_vec().into_iter().enumerate() {
        let end = record.raw_at + record.raw_bytes;
        let count = rest.partition_point(|range| range.start < end);
        let within: Vec<Range<u64>> = rest[..count]
            .iter()
            .map(|range| range.start.max(record.raw_at) - record.raw_at..range.end.min(end) - record.raw_at)
            .collect();
        // The last one may go on in the next frame.
        rest = &rest[rest.partition_point(|range| range.end <= end)..];
        if within.is_empty() {
            continue;
        }
        let bytes = reader.frame_bytes(number)?;
        let frame = reader.parse(number, &bytes)?;
        let decoded = with_fixed_planes(&frame, |frame| {
            let mut out = Vec::new();
            decode(executor, frame, &within, &mut out)?;
            Ok(out)
        });
        let wrap = |source| FileError::Frame { frame: number as u64, source: Box::new(source) };
        output.write_all(&decoded.map_err(wrap)?)?;
        frames += 1;
        progress(end)?;
    }
    output.flush()?;
    let raw_bytes = plan.tensors.iter().map(|tensor| tensor.bytes).sum();
    Ok(PartReport { tensors: plan.tensors, frames, raw_bytes })
}

fn plan(reader: &mut Reader<'_>, part: &Part<'_>) -> Result<Plan> {
    let refuse = |reason: String| FileError::Options { reason }.into();
    let contents = reader.contents()?;
    let contents = contents.ok_or_else(|| {
        refuse(
            "this .spz file holds no safetensors file, so it has no tensors to choose from; restore all of it"
                .to_owned(),
        )
    })?;
    let kept: Vec<&Tensor> = contents.tensors().iter().filter(|tensor| (part.keep)(tensor)).collect();
    if kept.is_empty() {
        let some: Vec<_> = contents.tensors().iter().take(3).map(|tensor| tensor.name.as_str()).collect();
        return Err(refuse(format!(
            "no tensor has such a name; the file has {}, as {some:?}",
            contents.tensors().len()
        )));
    }
    let mut plan =
        Plan { tensors: Vec::new(), ranges: Vec::new(), metadata: contents.metadata().map(str::to_owned) };
    let mut first: Option<(&str, u64)> = None;
    for tensor in kept {
        let mut shape = tensor.shape.clone();
        match part.tokens {
            None => plan.ranges.push(tensor.at..tensor.at + tensor.bytes),
            Some(tokens) => {
                let axis = axis(tensor, part.token_axis).map_err(refuse)?;
                let all = shape[axis];
                let (of, expected) = *first.get_or_insert((&tensor.name, all));
                if all != expected {
                    return Err(refuse(format!(
                        "dimension {axis} of {:?} has {all} tokens and that of {of:?} {expected}; choose tensors with equally \
                         many, or say with a token axis which dimension counts them",
                        tensor.name
                    )));
                }
                let (start, end) = (tokens.start, tokens.end.unwrap_or(all));
                if start > end || end > all {
                    return Err(refuse(format!(
                        "{:?} has no tokens {start} to {end}: dimension {axis} of its shape {shape:?} has {all}",
                        tensor.name
                    )));
                }
                ranges_of(tensor, axis, start..end, &mut plan.ranges).map_err(refuse)?;
                shape[axis] = end - start;
            }
        }
        let elements = |shape: &[u64]| shape.iter().map(|&size| u128::from(size)).product::<u128>().max(1);
        // All of it, or a whole number of its items: the division leaves nothing.
        let bytes = if part.tokens.is_some() && shape.contains(&0) {
            0
        } else {
            (u128::from(tensor.bytes) * elements(&shape) / elements(&tensor.shape)) as u64
        };
        let (name, dtype) = (tensor.name.clone(), tensor.dtype.clone());
        plan.tensors.push(PartTensor { name, dtype, shape, bytes });
    }
    plan.ranges.retain(|range| !range.is_empty());
    Ok(plan)
}

/// The dimension of a tensor that counts tokens.
fn axis(tensor: &Tensor, given: Option<i32>) -> std::result::Result<usize, String> {
    let rank = tensor.shape.len() as i64;
    let axis = match given {
        None => (rank - 2).max(0),
        Some(axis) if axis < 0 => rank + i64::from(axis),
        Some(axis) => axis.into(),
    };
    if (0..rank).contains(&axis) {
        return Ok(axis as usize);
    }
    let (name, shape) = (&tensor.name, &tensor.shape);
    Err(match given {
        Some(axis) => format!("{name:?} of shape {shape:?} has no dimension {axis} to count tokens"),
        None => format!("{name:?} is a single number and has no tokens; leave it out"),
    })
}

/// Where the tokens of a tensor lie in the original.
fn ranges_of(
    tensor: &Tensor,
    axis: usize,
    tokens: Range<u64>,
    ranges: &mut Vec<Range<u64>>,
) -> std::result::Result<(), String> {
    if tensor.bytes == 0 || tokens.is_empty() {
        return Ok(());
    }
    // None of them is 0, and their product has been compared with the bytes; unknown dtypes have any number.
    let outer: u64 = tensor.shape[..axis].iter().product();
    let items = outer * tensor.shape[axis];
    if !tensor.bytes.is_multiple_of(items) {
        return Err(format!(
            "a token of {:?} ({}, {:?}) is no whole number of bytes; restore all of it",
            tensor.name, tensor.dtype, tensor.shape
        ));
    }
    let item = tensor.bytes / items;
    if tokens == (0..tensor.shape[axis]) {
        ranges.push(tensor.at..tensor.at + tensor.bytes);
        return Ok(());
    }
    if ranges.len() as u64 + outer > MOST_RANGES {
        return Err(format!(
            "these tokens of {:?} ({}, {:?}) lie in {outer} pieces, and a part has at most {MOST_RANGES} of all tensors; restore \
             all of it",
            tensor.name, tensor.dtype, tensor.shape
        ));
    }
    for number in 0..outer {
        let at = tensor.at + number * tensor.shape[axis] * item;
        ranges.push(at + tokens.start * item..at + tokens.end * item);
    }
    Ok(())
}

/// The start of the safetensors file.
fn header(plan: &Plan) -> Result<Vec<u8>> {
    #[derive(serde::Serialize)]
    struct Entry<'a> {
        dtype: &'a str,
        shape: &'a [u64],
        data_offsets: (u64, u64),
    }
    let failed = |error: serde_json::Error| FileError::safetensors(error.to_string());
    let mut entries = Vec::new();
    if let Some(metadata) = &plan.metadata {
        entries.push(format!("\"__metadata__\":{metadata}"));
    }
    let mut at = 0;
    for tensor in &plan.tensors {
        let entry =
            Entry { dtype: &tensor.dtype, shape: &tensor.shape, data_offsets: (at, at + tensor.bytes) };
        let name = serde_json::to_string(&tensor.name).map_err(failed)?;
        let entry = serde_json::to_string(&entry).map_err(failed)?;
        entries.push(format!("{name}:{entry}"));
        at += tensor.bytes;
    }
    let mut text = format!("{{{}}}", entries.join(","));
    // Blanks, so that the data is aligned.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    Ok([&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat())
}

/// Decodes ranges of the raw bytes of a frame, ascending, one behind the other.
fn decode(
    executor: &dyn Executor,
    frame: &Frame<'_>,
    ranges: &[Range<u64>],
    out: &mut Vec<u8>,
) -> Result<()> {
    let (mut at, mut rest) = (0, ranges);
    for (number, piece) in frame.layout().tensors.iter().enumerate() {
        let end = at + piece.bytes;
        let count = rest.partition_point(|range| range.start < end);
        let within: Vec<Range<u64>> = rest[..count]
            .iter()
            .map(|range| range.start.max(at) - at..range.end.min(end) - at)
            .filter(|range| !range.is_empty())
            .collect();
        rest = &rest[rest.partition_point(|range| range.end <= end)..];
        at = end;
        // Ranges with a chunk in common are decoded at once: no chunk twice.
        let chunk = piece.chunk_bytes();
        let touch = |a: &Range<u64>, b: &Range<u64>| b.start / chunk <= (a.end - 1) / chunk;
        for together in within.chunk_by(touch) {
            let start = together[0].start;
            let end = together[together.len() - 1].end;
            let size = piece.dtype.bytes() as u64;
            // Ranges of a file with a forged header may cut an element in two.
            let elements = start / size..end.div_ceil(size);
            let first = elements.start * size;
            let mut decoded = vec![0; (elements.end * size - first) as usize];
            executor.decode_elements(frame, number, elements, &mut decoded)?;
            for range in together {
                out.extend(&decoded[(range.start - first) as usize..(range.end - first) as usize]);
            }
        }
    }
    Ok(())
}
