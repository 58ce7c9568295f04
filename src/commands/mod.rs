//! One module a command.

pub mod calibrate;
pub mod compress;
pub mod decompress;
pub mod devices;
pub mod inspect;
pub mod verify;

use crate::failure::{Failure, Result};
use splitzip_host::Scheme;
use splitzip_host::file::{Chunks, Mapped, Report, TensorReport};
use std::path::Path;

/// Refuses to write to a file that is read, under whatever name or link.
fn refuse_same(input: &Path, output: &Path) -> Result {
    match same_file::is_same_file(input, output) {
        Ok(true) => Err(Failure::Failed(format!(
            "{} and {} are the same file; write to another one",
            input.display(),
            output.display()
        ))),
        // One of them does not exist: whoever opens it says so.
        Ok(false) | Err(_) => Ok(()),
    }
}

fn open(path: &Path) -> Result<Mapped> {
    Mapped::open(path).map_err(Failure::at(path))
}

/// What JSON objects say about a tensor.
#[derive(serde::Serialize)]
struct TensorObject<'a> {
    name: &'a str,
    dtype: &'a str,
    shape: &'a [u64],
    scheme: Scheme,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    chunks: Chunks,
    escapes: Option<u64>,
}

impl<'a> TensorObject<'a> {
    fn new(tensor: &'a TensorReport) -> TensorObject<'a> {
        TensorObject {
            name: &tensor.name,
            dtype: &tensor.dtype,
            shape: &tensor.shape,
            scheme: tensor.scheme,
            raw_bytes: tensor.raw_bytes,
            coded_bytes: tensor.coded_bytes,
            ratio: tensor.ratio(),
            chunks: tensor.chunks,
            escapes: tensor.escapes,
        }
    }
}

/// Raw and coded bytes that belong to no tensor: the header, gaps, and what frames and index take.
fn rest(report: &Report) -> (u64, u64) {
    let raw: u64 = report.tensors.iter().map(|tensor| tensor.raw_bytes).sum();
    let coded: u64 = report.tensors.iter().map(|tensor| tensor.coded_bytes).sum();
    (report.raw_bytes.saturating_sub(raw), report.coded_bytes.saturating_sub(coded))
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
