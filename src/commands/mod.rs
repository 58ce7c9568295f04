//! One module a command.

pub mod bench;
pub mod calibrate;
pub mod compress;
pub mod decompress;
pub mod devices;
mod exponents;
pub mod inspect;
pub mod manual;
mod part;
pub mod plan;
mod ratios;
pub mod report;
mod several;
mod tree;
pub mod verify;

use crate::failure::{Failure, Result};
use crate::output::shown;
use crate::pipe::{Stdin, is_pipe};
use crate::progress::Bar;
use splitzip_host::file::{Chunks, Contents, Mapped, Original, Reader, Report, TensorReport};
use splitzip_host::{Bases, Dtype, Scheme};
use std::path::Path;

/// Refuses to write to a file that is read, under whatever name or link.
fn refuse_same(input: &Path, output: &Path) -> Result {
    if is_pipe(input) || is_pipe(output) {
        return Ok(());
    }
    // Comparing opens both, and opening a pipe would wait for its other end: whoever makes the target refuses those.
    if !std::fs::metadata(output).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    match same_file::is_same_file(input, output) {
        Ok(true) => Err(Failure::Failed(format!(
            "{} and {} are the same file; write to another one",
            shown(input),
            shown(output)
        ))),
        // The input cannot be opened: whoever reads it says so.
        Ok(false) | Err(_) => Ok(()),
    }
}

/// Maps a file. What comes through stdin is kept in a temporary file without a name first, as a file that is read twice has to be.
fn open(path: &Path) -> Result<Mapped> {
    let opened = if is_pipe(path) { Mapped::spooled(Stdin::open()?, path) } else { Mapped::open(path) };
    opened.map_err(Failure::at(path))
}

/// Progress of work through all frames of a mapped file, and through its original where that is mapped too: the bar goes on, and what is behind
/// it is released, so that files larger than memory do not fill it with what the system could drop.
fn behind<'a>(
    bar: &'a mut Bar,
    reader: &Reader<'_>,
    packed: &'a Mapped,
    original: Option<&'a Mapped>,
) -> impl FnMut(u64) -> splitzip_host::Result<()> + use<'a> {
    let ends: Vec<(u64, u64)> = reader
        .frames()
        .iter()
        .map(|frame| (frame.raw_at + frame.raw_bytes, frame.at + frame.bytes))
        .collect();
    let (mut raw, mut coded) = (0, 0);
    move |done| {
        if let Some(original) = original {
            original.release(raw..done);
            raw = done;
        }
        let frames = ends.partition_point(|&(end, _)| end <= done);
        if let Some(&(_, end)) = frames.checked_sub(1).and_then(|last| ends.get(last)) {
            packed.release(coded..end);
            coded = end;
        }
        bar.at(done)
    }
}

/// The tensors of an original. `dtype` is that of elements without a header.
fn contents(input: &[u8], path: &Path, dtype: Option<Dtype>) -> Result<Contents> {
    let original = Original::read(input, input.len() as u64, dtype);
    original.map(|original| original.contents).map_err(Failure::at(path))
}

/// What JSON objects say about a tensor.
#[derive(serde::Serialize)]
struct TensorObject<'a> {
    name: &'a str,
    dtype: &'a str,
    shape: &'a [u64],
    coded_as: Option<Dtype>,
    scheme: Scheme,
    bases: Option<Bases>,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    chunks: Chunks,
    escapes: Option<u64>,
    note: Option<&'a str>,
}

impl<'a> TensorObject<'a> {
    fn new(tensor: &'a TensorReport) -> TensorObject<'a> {
        TensorObject {
            name: &tensor.name,
            dtype: &tensor.dtype,
            shape: &tensor.shape,
            coded_as: tensor.coded_as,
            scheme: tensor.scheme,
            bases: tensor.bases,
            raw_bytes: tensor.raw_bytes,
            coded_bytes: tensor.coded_bytes,
            ratio: tensor.ratio(),
            chunks: tensor.chunks,
            escapes: tensor.escapes,
            note: tensor.note.as_deref(),
        }
    }
}

/// Raw and coded bytes that belong to no tensor: the header, gaps, and what frames and index take.
fn rest(report: &Report) -> (u64, u64) {
    let raw: u64 = report.tensors.iter().map(|tensor| tensor.raw_bytes).sum();
    let coded: u64 = report.tensors.iter().map(|tensor| tensor.coded_bytes).sum();
    (report.raw_bytes.saturating_sub(raw), report.coded_bytes.saturating_sub(coded))
}

/// The dtype of a tensor, with that as which it is coded where it is another one: `U8 as e4m3`.
fn dtype_text(tensor: &TensorReport) -> String {
    let name = match tensor.dtype.as_str() {
        "BF16" => "bf16",
        "F16" => "fp16",
        "F8_E4M3" => "e4m3",
        "F8_E5M2" => "e5m2",
        other => other,
    };
    match tensor.coded_as {
        Some(dtype) if dtype.name() != name => format!("{} as {dtype}", tensor.dtype),
        _ => tensor.dtype.clone(),
    }
}

fn bases_text(tensor: &TensorReport) -> String {
    tensor.bases.map_or("-", Bases::name).to_owned()
}

/// Why tensors are stored although they could be coded: a line a reason.
fn notes(report: &Report) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for note in report.tensors.iter().filter_map(|tensor| tensor.note.as_deref()) {
        match counts.iter_mut().find(|of| of.0 == note) {
            Some(of) => of.1 += 1,
            None => counts.push((note, 1)),
        }
    }
    let line = |&(note, count): &(&str, usize)| {
        format!("{count} {} stored: {note}\n", if count == 1 { "tensor is" } else { "tensors are" })
    };
    counts.iter().map(line).collect()
}

/// Escapes of all tensors that count them.
fn escapes(tensors: &[TensorReport]) -> u64 {
    tensors.iter().filter_map(|tensor| tensor.escapes).sum()
}

/// The share of escapes among the elements of tensors that count them, in percent; a dash when there are none.
fn escape_share<'a>(tensors: impl IntoIterator<Item = &'a TensorReport>) -> String {
    let counted = tensors
        .into_iter()
        .filter_map(|tensor| tensor.escapes.map(|escapes| (escapes, tensor.shape.iter().product::<u64>())));
    let (escapes, elements) = counted.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    if elements == 0 { "-".to_owned() } else { crate::output::percent(escapes as f64 / elements as f64) }
}

fn ratio_text(raw: u64, coded: u64) -> String {
    if coded == 0 { "-".to_owned() } else { format!("{:.3}", raw as f64 / coded as f64) }
}
