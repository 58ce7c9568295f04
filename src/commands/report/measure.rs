//! The numbers of a report: what `inspect` says of a file, for every scheme and kind of bases, and how escapes spread over chunks.

use super::parts::{Part, layer};
use crate::commands::contents;
use crate::commands::inspect::ExponentsObject;
use crate::commands::plan::links::bases;
use crate::failure::{Failure, Result};
use crate::output::shown;
use serde::Serialize;
use splitzip_host::file::{self, Chunks, Options, Tensor};
use splitzip_host::format::{MAX_RANK, Mode};
use splitzip_host::select::{candidates, chunk_sizes};
use splitzip_host::{Bases, BasesChoice, Dtype, Executor, Histogram, Scheme, SchemeChoice, TensorSpec};
use std::path::Path;

/// One file.
#[derive(Serialize)]
pub struct FileReport {
    pub input: String,
    pub raw_bytes: u64,
    pub sha256: String,
    /// The dtype that has most of the bytes.
    pub dtype: Dtype,
    /// Those that can be coded, by part and layer.
    pub tensors: Vec<TensorNumbers>,
    pub codings: Vec<Coding>,
}

#[derive(Serialize)]
pub struct TensorNumbers {
    pub name: String,
    pub part: Part,
    pub layer: Option<u64>,
    pub coded_as: Dtype,
    pub shape: Vec<u64>,
    pub raw_bytes: u64,
    pub exponents: ExponentsObject,
    #[serde(skip)]
    pub histogram: Histogram,
}

/// One scheme with one kind of bases: what `inspect --scheme --bases` says.
#[derive(Serialize)]
pub struct Coding {
    pub scheme: Scheme,
    /// Of schemes with a window.
    pub bases: Option<Bases>,
    pub coded_bytes: u64,
    pub ratio: f64,
    /// In the order of the tensors of the report.
    pub tensors: Vec<Coded>,
    /// One entry a part that the file has.
    pub escapes: Vec<EscapeCounts>,
}

#[derive(Serialize)]
pub struct Coded {
    pub name: String,
    pub scheme: Scheme,
    pub coded_bytes: u64,
    pub ratio: f64,
    pub chunks: Chunks,
}

/// Chunks by how many of their elements have no code.
#[derive(Serialize)]
pub struct EscapeCounts {
    pub part: Part,
    /// Chunks with at most [`BUCKETS`] escapes, and more than the bucket before.
    pub chunks: [u64; BUCKETS.len()],
    /// Chunks that are raw because coding does not shrink them.
    pub raw: u64,
    /// Chunks of one value, which have no codes at all.
    pub equal: u64,
    pub escapes: u64,
}

/// The most escapes of a bucket.
pub const BUCKETS: [u64; 12] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

impl Coding {
    pub fn name(&self) -> String {
        match self.bases {
            Some(Bases::Channel) => format!("{}, channel bases", self.scheme),
            _ => self.scheme.to_string(),
        }
    }
}

/// Every way to code.
fn codings() -> impl Iterator<Item = (Scheme, Bases)> {
    let all = Scheme::coded().flat_map(|scheme| Bases::ALL.map(|bases| (scheme, bases)));
    all.filter(|(scheme, bases)| scheme.has_window() || *bases == Bases::Chunk)
}

/// How often a file is gone through, for its progress bar.
pub fn passes() -> u64 {
    codings().count() as u64
}

/// Measures one file of these bytes.
pub fn measure(
    executor: &dyn Executor,
    path: &Path,
    input: &[u8],
    dtype: Option<Dtype>,
    progress: &mut dyn FnMut(u64) -> splitzip_host::Result<()>,
) -> Result<FileReport> {
    let at = |error| Failure::at(path)(error);
    let contents = contents(input, path, dtype)?;
    let mut order: Vec<(usize, &Tensor, Dtype)> = Vec::new();
    for (number, tensor) in contents.tensors().iter().enumerate() {
        if let Some(dtype) = tensor.coded(dtype).filter(|_| tensor.bytes != 0) {
            order.push((number, tensor, dtype));
        }
    }
    order.sort_by_key(|(number, tensor, _)| (Part::of(&tensor.name), layer(&tensor.name), *number));
    let most = Dtype::floats()
        .max_by_key(|&dtype| order.iter().filter(|of| of.2 == dtype).map(|of| of.1.bytes).sum::<u64>());
    let (Some(most), false) = (most, order.is_empty()) else {
        let reason =
            "no tensor has a dtype that is coded, so there is nothing to report; say which with --dtype";
        return Err(Failure::Failed(format!("{}: {reason}", shown(path))));
    };

    let mut report = FileReport {
        input: shown(path),
        raw_bytes: input.len() as u64,
        sha256: String::new(),
        dtype: most,
        tensors: Vec::new(),
        codings: Vec::new(),
    };
    for (done, (scheme, bases)) in codings().enumerate() {
        let options = Options { scheme: scheme.into(), bases: bases.into(), dtype, ..Options::default() };
        let before = done as u64 * input.len() as u64;
        let mut progress = |at| progress(before + at);
        let told = match report.tensors.is_empty() {
            true => file::inspect_safetensors(executor, input, &options, &mut progress).map(
                |(told, exponents)| {
                    report.tensors = numbers(&order, exponents);
                    told
                },
            ),
            false => file::compress(executor, input, std::io::sink(), &options, &mut progress),
        };
        let told = match told {
            // A scheme that no tensor can have: fp8 has too few exponents for w4.
            Err(splitzip_host::Error::Pointless { .. }) => continue,
            told => told.map_err(at)?,
        };
        let coded = |&(number, ..): &(usize, &Tensor, Dtype)| {
            let of = &told.tensors[number];
            Coded {
                name: of.name.clone(),
                scheme: of.scheme,
                coded_bytes: of.coded_bytes,
                ratio: of.ratio(),
                chunks: of.chunks,
            }
        };
        report.codings.push(Coding {
            scheme,
            bases: self::bases(scheme, bases),
            coded_bytes: told.coded_bytes,
            ratio: told.ratio(),
            tensors: order.iter().map(coded).collect(),
            escapes: escapes(input, &order, scheme, bases).map_err(at)?,
        });
        report.sha256 = told.sha256;
    }
    Ok(report)
}

fn numbers(order: &[(usize, &Tensor, Dtype)], exponents: file::Exponents) -> Vec<TensorNumbers> {
    let of = |&(number, tensor, dtype): &(usize, &Tensor, Dtype)| {
        let histogram = exponents[number].clone().unwrap_or_else(|| Histogram::new(dtype));
        TensorNumbers {
            name: tensor.name.clone(),
            part: Part::of(&tensor.name),
            layer: layer(&tensor.name),
            coded_as: dtype,
            shape: tensor.shape.clone(),
            raw_bytes: tensor.bytes,
            exponents: ExponentsObject::new(&histogram),
            histogram,
        }
    };
    order.iter().map(of).collect()
}

/// Counts chunks by their escapes, for every part.
fn escapes(
    input: &[u8],
    order: &[(usize, &Tensor, Dtype)],
    scheme: Scheme,
    bases: Bases,
) -> splitzip_host::Result<Vec<EscapeCounts>> {
    let mut parts: Vec<EscapeCounts> = Vec::new();
    for &(_, tensor, dtype) in order {
        let part = Part::of(&tensor.name);
        let flat = [tensor.bytes / dtype.bytes() as u64];
        let shape = if tensor.shape.len() <= MAX_RANK { &tensor.shape[..] } else { &flat };
        let given = (SchemeChoice::Given(scheme), BasesChoice::Given(bases));
        let Some(&(scheme, bases)) = candidates(dtype, shape, given.0, given.1).first() else { continue };
        let at = parts.iter().position(|of| of.part == part).unwrap_or_else(|| {
            parts.push(EscapeCounts { part, chunks: [0; BUCKETS.len()], raw: 0, equal: 0, escapes: 0 });
            parts.len() - 1
        });
        let counts = &mut parts[at];
        let bytes = &input[tensor.at as usize..(tensor.at + tensor.bytes) as usize];
        let spec = TensorSpec::new(&tensor.name, dtype, scheme, shape).with_bases(bases);
        for size in chunk_sizes(&spec, bytes, None)? {
            match size.mode {
                Mode::Raw => counts.raw += 1,
                Mode::Equal => counts.equal += 1,
                _ => {
                    counts.chunks
                        [BUCKETS.partition_point(|&most| most < size.escapes).min(BUCKETS.len() - 1)] += 1
                }
            }
            counts.escapes += size.escapes;
        }
    }
    Ok(parts)
}
