//! The bytes that are measured: tensors of a file, or what is generated.
//!
//! Everything is a *tile* of at most some tens of megabytes, which the subject repeats up to the size of a row: making gigabytes would take longer
//! than measuring them. The tile is longer than the caches of a CPU, and a GPU's copy of it is repeated in device memory.

use super::convert;
use crate::commands::open;
use crate::commands::report::Part;
use crate::failure::{Failure, Result};
use crate::output::shown;
use crate::pipe::is_pipe;
use clap::ValueEnum;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use splitzip_host::file::{Contents, FileError, MAGIC, Mapped, Original};
use splitzip_host::select::has_channels;
use splitzip_host::{Dtype, Error};
use std::ops::Range;
use std::path::Path;

/// The most bytes that are generated.
const GENERATED_BYTES: usize = 32 << 20;
/// Elements of half a chunk: what `half-zeros` clears, and keeps.
const HALF_CHUNK: usize = splitzip_host::format::CHUNK / 2;

/// Exponents of the tensors of the committed KV cache. A test compares it with what `inspect` says about that.
const EXPONENTS: &str = include_str!("exponents.json");

/// Data that is generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    Histogram,
    Random5,
    Incompressible,
    Zeros,
    HalfZeros,
}

/// What a row is measured on: what the source has, or what is made of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(into = "String")]
pub struct Data {
    name: String,
    kind: Option<Kind>,
}

impl Data {
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl From<Data> for String {
    fn from(data: Data) -> String {
        data.name
    }
}

/// Exponents of one tensor.
#[derive(Deserialize)]
struct Exponents {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    counts: Vec<(u8, u64)>,
}

/// A tensor whose elements are floats.
struct Tensor {
    part: Part,
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: Range<usize>,
}

/// Where the numbers come from.
pub struct Source {
    name: String,
    tensors: Vec<Tensor>,
    bytes: Bytes,
}

enum Bytes {
    File(Mapped),
    Generated(Vec<u8>),
}

impl Source {
    /// The float tensors of a safetensors file, or the array of a `.npy` file.
    ///
    /// # Errors
    /// A file that is none, or that has no such tensors.
    pub fn open(path: &Path) -> Result<Source> {
        let file = open(path)?;
        let bytes = file.len() as u64;
        let read = Original::read(&file, bytes, None).map(|original| original.contents);
        let read = read.or_else(|error| match error {
            // Its hint is about elements without a header, which are nothing for `bench`.
            Error::File(FileError::Safetensors { .. }) if !file.starts_with(&MAGIC) => {
                Contents::read(&file, bytes)
            }
            error => Err(error),
        });
        let contents = read.map_err(Failure::at(path))?;
        let tensors: Vec<Tensor> = contents
            .tensors()
            .iter()
            .filter(|tensor| tensor.bytes != 0)
            .filter_map(|tensor| {
                let bytes = tensor.at as usize..(tensor.at + tensor.bytes) as usize;
                tensor.float().map(|dtype| Tensor {
                    part: Part::of(&tensor.name),
                    dtype,
                    shape: tensor.shape.clone(),
                    bytes,
                })
            })
            .collect();
        if tensors.is_empty() {
            let (path, names) = (shown(path), float_names());
            return Err(Failure::Failed(format!(
                "{path} has no tensors of {names}: there is nothing to measure"
            )));
        }
        let name = match is_pipe(path) {
            true => shown(path),
            false => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        Ok(Source { name, tensors, bytes: Bytes::File(file) })
    }

    /// Tensors with the exponents of the committed KV cache, each count exactly, in random order; signs and mantissas are random. Keys and
    /// values, and as many bytes as that, up to a limit; the same ones whenever it is called.
    ///
    /// # Errors
    /// None, as long as the embedded file is right.
    pub fn generated(bytes: u64) -> Result<Source> {
        let all: Vec<Exponents> =
            serde_json::from_str(EXPONENTS).map_err(|error| Failure::Failed(error.to_string()))?;
        let limit = usize::try_from(bytes).unwrap_or(usize::MAX).min(GENERATED_BYTES);
        let mut random = fastrand::Rng::with_seed(1);
        let (mut out, mut tensors) = (Vec::new(), Vec::new());
        'filled: loop {
            for of in &all {
                let start = out.len();
                let mut exponents: Vec<u8> = of
                    .counts
                    .iter()
                    .flat_map(|&(exponent, count)| std::iter::repeat_n(exponent, count as usize))
                    .collect();
                random.shuffle(&mut exponents);
                for exponent in exponents {
                    let word = of.dtype.join(exponent, random.u16(..));
                    out.extend_from_slice(&word.to_le_bytes()[..of.dtype.bytes()]);
                }
                tensors.push(Tensor {
                    part: Part::of(&of.name),
                    dtype: of.dtype,
                    shape: of.shape.clone(),
                    bytes: start..out.len(),
                });
                // A layer has two: frames of keys and values need both.
                if out.len() >= limit && tensors.len() > 1 {
                    break 'filled;
                }
            }
        }
        Ok(Source { name: name_of(Kind::Histogram), tensors, bytes: Bytes::Generated(out) })
    }

    /// What the source itself is.
    pub fn data(&self) -> Data {
        Data { name: self.name.clone(), kind: None }
    }

    /// What is generated, from the source where it takes one.
    pub fn derived(&self, kind: Kind) -> Data {
        let own = kind == Kind::Histogram && matches!(self.bytes, Bytes::Generated(_));
        if own { self.data() } else { Data { name: name_of(kind), kind: Some(kind) } }
    }

    /// The dtypes that are measured unless one says which: bf16, from which all others can be made, or those that there are.
    pub fn dtypes(&self) -> Vec<Dtype> {
        let has = |dtype: &Dtype| self.has(*dtype);
        if has(&Dtype::Bf16) { vec![Dtype::Bf16] } else { Dtype::floats().filter(has).collect() }
    }

    fn has(&self, dtype: Dtype) -> bool {
        self.tensors.iter().any(|tensor| tensor.dtype == dtype)
    }

    /// Says whether there are elements of this dtype, or ones that can be converted.
    ///
    /// # Errors
    /// With what there is.
    pub fn check(&self, dtype: Dtype) -> Result {
        if self.has(dtype) || self.has(Dtype::Bf16) {
            return Ok(());
        }
        let has: Vec<&str> = self.dtypes().into_iter().map(Dtype::name).collect();
        Err(Failure::Usage(format!(
            "{} has no tensors of {dtype}, and none of bf16 that could be converted; use --dtypes with one of {}",
            self.name,
            has.join(", ")
        )))
    }

    /// The tensors that a tile of this dtype is made of.
    fn tensors(&self, dtype: Dtype) -> impl Iterator<Item = &Tensor> {
        let of = if self.has(dtype) { dtype } else { Dtype::Bf16 };
        self.tensors.iter().filter(move |tensor| tensor.dtype == of)
    }

    /// The last dimension of all tensors of a dtype, if it is the same and can have bases.
    pub fn channels(&self, dtype: Dtype) -> Option<u64> {
        let mut last = self.tensors(dtype).map(|tensor| {
            let fits = has_channels(&tensor.shape);
            tensor.shape.last().copied().filter(|_| fits)
        });
        let first = last.next()??;
        last.all(|other| other == Some(first)).then_some(first)
    }

    pub fn why_no_channels(&self) -> String {
        format!(
            "the tensors of {} do not have one last dimension in common that channel bases can have; use chunk bases",
            self.name
        )
    }

    /// Why there is no frame of keys and values of one dtype.
    pub fn why_no_keys(&self, dtype: Dtype) -> Option<String> {
        let has = |part: Part| self.tensors(dtype).any(|tensor| tensor.part == part);
        if !(has(Part::K) && has(Part::V)) {
            return Some(format!(
                "the tensors of {} are not keys and values by their names (as layers.0.k and layers.0.v are); use chunk or channel bases",
                self.name
            ));
        }
        self.channels(dtype).is_none().then(|| self.why_no_channels())
    }

    /// The tile of some data, of all tensors or those of one part, of at most `limit` bytes where the source is larger.
    ///
    /// # Errors
    /// As [`Source::check`].
    pub fn tile(&self, data: &Data, dtype: Dtype, part: Option<Part>, limit: u64) -> Result<Vec<u8>> {
        self.check(dtype)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let short = limit.min(GENERATED_BYTES);
        let mut random = fastrand::Rng::with_seed(2);
        Ok(match data.kind {
            None => self.numbers(dtype, part, limit),
            Some(Kind::Histogram) => Source::generated(short as u64)?.numbers(dtype, part, short),
            Some(Kind::Random5) => {
                let mut bytes = self.numbers(dtype, part, short);
                for element in bytes.chunks_exact_mut(dtype.bytes()) {
                    if random.u8(..20) == 0 {
                        let (_, residual) = dtype.split(dtype.word(element, 0));
                        let exponent = random.u16(..dtype.exponents() as u16) as u8;
                        let word = dtype.join(exponent, residual);
                        element.copy_from_slice(&word.to_le_bytes()[..dtype.bytes()]);
                    }
                }
                bytes
            }
            Some(Kind::Incompressible) => {
                let mut bytes = vec![0; short];
                random.fill(&mut bytes);
                bytes
            }
            Some(Kind::Zeros) => vec![0; short.min(1 << 20)],
            Some(Kind::HalfZeros) => {
                let mut bytes = self.numbers(dtype, part, short);
                let halves = bytes.chunks_mut(HALF_CHUNK * dtype.bytes());
                halves.step_by(2).for_each(|half| half.fill(0));
                bytes
            }
        })
    }

    /// The elements, converted where there are none of this dtype. Whole chunks, unless there is less than one.
    fn numbers(&self, dtype: Dtype, part: Option<Part>, limit: usize) -> Vec<u8> {
        let source: &[u8] = match &self.bytes {
            Bytes::File(file) => file,
            Bytes::Generated(bytes) => bytes,
        };
        let mut taken = Vec::new();
        let mut bytes = 0;
        for tensor in self.tensors(dtype).filter(|tensor| part.is_none_or(|part| tensor.part == part)) {
            if bytes >= limit {
                break;
            }
            bytes += tensor.bytes.len() / tensor.dtype.bytes() * dtype.bytes();
            taken.push(tensor);
        }
        let convert =
            |tensor: &&Tensor| convert::elements(&source[tensor.bytes.clone()], tensor.dtype, dtype);
        let parts: Vec<Vec<u8>> = taken.par_iter().map(convert).collect();
        let mut out = parts.concat();
        out.truncate(limit);
        out
    }
}

fn name_of(kind: Kind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn float_names() -> String {
    Dtype::floats().map(Dtype::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use splitzip_host::{Executor, Reference};

    #[test]
    fn generated_tensors_have_the_exponents_of_the_file() {
        let source = Source::generated(1 << 22).unwrap();
        let all: Vec<Exponents> = serde_json::from_str(EXPONENTS).unwrap();
        assert!(all.len() >= 60, "{}", all.len());
        let Bytes::Generated(bytes) = &source.bytes else { panic!("a file") };
        for (tensor, of) in source.tensors.iter().zip(&all) {
            let histogram = Reference.histogram(tensor.dtype, &bytes[tensor.bytes.clone()]).unwrap();
            assert_eq!(histogram.total(), tensor.shape.iter().product::<u64>());
            for &(exponent, count) in &of.counts {
                assert_eq!(histogram.counts()[usize::from(exponent)], count);
            }
        }
        // The same each time, and not sorted.
        let Bytes::Generated(again) = Source::generated(1 << 22).unwrap().bytes else { panic!("a file") };
        assert!(*bytes == again);
        assert_eq!(source.channels(Dtype::Bf16), Some(64));
    }

    #[test]
    fn parts_are_the_tensors_of_their_name() {
        // Little, and yet keys and values.
        for limit in [1, 1 << 20] {
            let source = Source::generated(limit).unwrap();
            assert_eq!(source.why_no_keys(Dtype::Bf16), None);
            let Bytes::Generated(bytes) = &source.bytes else { panic!("a file") };
            let tile = |part| source.tile(&source.data(), Dtype::Bf16, Some(part), limit).unwrap();
            for part in [Part::K, Part::V] {
                let of = source.tensors.iter().filter(|tensor| tensor.part == part);
                let all: Vec<u8> = of.flat_map(|tensor| &bytes[tensor.bytes.clone()]).copied().collect();
                let tile = tile(part);
                assert!(!tile.is_empty() && tile == all[..all.len().min(limit as usize)], "{part:?}");
            }
        }
    }

    #[test]
    fn kinds_are_what_they_say() {
        let source = Source::generated(1 << 20).unwrap();
        for dtype in Dtype::floats() {
            let tile = |kind| source.tile(&source.derived(kind), dtype, None, 1 << 18).unwrap();
            let base = tile(Kind::Histogram);
            assert_eq!(base.len(), 1 << 18);
            let random = tile(Kind::Random5);
            let words = |bytes: &[u8]| -> Vec<(u8, u16)> {
                (0..bytes.len() / dtype.bytes()).map(|i| dtype.split(dtype.word(bytes, i))).collect()
            };
            let (old, new) = (words(&base), words(&random));
            assert!(old.iter().zip(&new).all(|(old, new)| old.1 == new.1), "{dtype}: residuals differ");
            let changed = old.iter().zip(&new).filter(|(old, new)| old.0 != new.0).count();
            let share = changed as f64 / old.len() as f64;
            assert!((0.04..0.055).contains(&share), "{dtype}: {share}");
            let half = words(&tile(Kind::HalfZeros));
            for (number, element) in half.iter().enumerate() {
                let zero = (number / HALF_CHUNK).is_multiple_of(2);
                assert_eq!(*element, if zero { (0, 0) } else { old[number] }, "{dtype} {number}");
            }
            let histogram = Reference.histogram(dtype, &tile(Kind::Incompressible)).unwrap();
            assert!(histogram.entropy() > f64::from(dtype.exponent_bits()) - 0.01);
            assert!(tile(Kind::Zeros).iter().all(|&byte| byte == 0));
        }
    }
}
