//! Which rows are measured, before any of them is: what cannot be measured is said at once, not after minutes.

use super::data::{Data, Kind, Source};
use crate::arguments::Bench;
use crate::failure::{Failure, Result};
use clap::ValueEnum;
use serde::Serialize;
use splitzip_host::{Bases, Dtype, Flags, FrameSpec, Scheme, TensorSpec};
use std::str::FromStr;

/// The sizes of a GPU: where launches count, where its cache does, and where only its memory does.
pub const DEVICE_SIZES: [u64; 9] =
    [64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20, 2 << 30];
/// The sizes of a CPU.
pub const HOST_SIZES: [u64; 7] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
/// The sizes of `--record`.
pub const RECORD_SIZES: [u64; 6] = [1 << 20, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20];

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let units = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("kB", 1000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("B", 1u64),
            ("", 1),
        ];
        let (digits, unit) = units
            .iter()
            .find_map(|(name, unit)| text.strip_suffix(name).map(|digits| (digits.trim_end(), unit)))
            .unwrap_or((text, &1));
        let number = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let bytes = number.and_then(|digits| digits.parse::<u64>().ok()).and_then(|n| n.checked_mul(*unit));
        bytes.filter(|&bytes| bytes != 0 && bytes < 1 << 48).map(Size).ok_or_else(|| {
            "it must be a whole number of bytes, kB, MB, GB, KiB, MiB or GiB, at least 1 and below 256 TiB, as in 64KiB".to_owned()
        })
    }
}

/// Order of the variable parts of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    Canonical,
    Arrival,
}

/// Where the codebook of `w4` comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CodebookKind {
    Auto,
    Calibrated,
}

/// One row to measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    pub data: Data,
    pub dtype: Dtype,
    pub scheme: Scheme,
    pub bases: Bases,
    /// Of schemes that have one.
    pub codebook: Option<CodebookKind>,
    pub placement: Placement,
    pub bytes: u64,
    pub spec: FrameSpec,
}

/// All rows of a device, and what is left out.
#[derive(Debug, Default)]
pub struct Plan {
    pub cases: Vec<Case>,
    pub notes: Vec<String>,
}

/// A part of the rows: all combinations of these.
struct Product<'a> {
    data: &'a [Data],
    dtypes: &'a [Dtype],
    schemes: &'a [Scheme],
    /// Whether they were typed: then what they cannot have is refused, not left out.
    asked: bool,
    bases: &'a [Bases],
    placements: &'a [Placement],
    codebooks: &'a [CodebookKind],
    sizes: &'a [u64],
}

impl Plan {
    /// The rows that are asked for, on a device with these sizes.
    ///
    /// # Errors
    /// What cannot be combined, tensors that are not in the file, a size below one row of a tensor.
    pub fn new(arguments: &Bench, source: &Source, default_sizes: &[u64]) -> Result<Plan> {
        let mut plan = Plan::default();
        let sizes: Vec<u64> = arguments.sizes.iter().map(|size| size.0).collect();
        let all: Vec<Scheme> = Scheme::coded().collect();
        let base = source.data();
        if arguments.record {
            let sizes = or(&sizes, &RECORD_SIZES);
            plan.record(source, &sizes, &all)?;
            return Ok(plan);
        }
        let mut data: Vec<Data> = arguments.generate.iter().map(|&kind| source.derived(kind)).collect();
        if arguments.data.is_some() || data.is_empty() {
            data.insert(0, base);
        }
        plan.add(
            source,
            &Product {
                data: &unique(&data),
                dtypes: &or(&arguments.dtypes, &source.dtypes()),
                schemes: &or(&arguments.schemes, &all),
                asked: !arguments.schemes.is_empty(),
                bases: &or(&arguments.bases, &Bases::ALL),
                placements: &unique(&arguments.placement),
                codebooks: &unique(&arguments.codebook),
                sizes: &or(&sizes, default_sizes),
            },
        )?;
        Ok(plan)
    }

    /// The rows of `docs/performance.md`.
    fn record(&mut self, source: &Source, sizes: &[u64], schemes: &[Scheme]) -> Result {
        let largest = [sizes.iter().copied().max().unwrap_or_default()];
        let small = sizes.iter().copied().filter(|&size| size >= 2 << 20).min();
        let (data, dtypes) = ([source.data()], source.dtypes());
        let first = &dtypes[..dtypes.len().min(1)];
        let others: Vec<Dtype> = Dtype::floats().filter(|dtype| !first.contains(dtype)).collect();
        let both = [Placement::Canonical, Placement::Arrival];
        let whole = Product {
            data: &data,
            dtypes: first,
            schemes,
            asked: false,
            bases: &Bases::ALL,
            placements: &both,
            codebooks: &[CodebookKind::Calibrated],
            sizes,
        };
        self.add(source, &whole)?;
        let with_codebook: Vec<Scheme> = schemes.iter().copied().filter(|of| of.has_codebook()).collect();
        let auto_sizes: Vec<u64> = small.into_iter().chain(largest).collect();
        self.add(
            source,
            &Product {
                schemes: &with_codebook,
                placements: &both[..1],
                codebooks: &[CodebookKind::Auto],
                sizes: &unique(&auto_sizes),
                ..whole
            },
        )?;
        let kinds = [Kind::Random5, Kind::Incompressible, Kind::Zeros, Kind::HalfZeros];
        self.add(
            source,
            &Product {
                data: &kinds.map(|kind| source.derived(kind)),
                bases: &[Bases::Chunk],
                placements: &both[..1],
                sizes: &largest,
                ..whole
            },
        )?;
        self.add(source, &Product { dtypes: &others, sizes: &largest, ..whole })
    }

    fn add(&mut self, source: &Source, product: &Product<'_>) -> Result {
        for &dtype in product.dtypes {
            source.check(dtype)?;
        }
        for data in product.data {
            for &dtype in product.dtypes {
                for (scheme, bases) in self.members(source, product, dtype)? {
                    let codebooks: Vec<Option<CodebookKind>> = match scheme.has_codebook() {
                        true => product.codebooks.iter().copied().map(Some).collect(),
                        false => vec![None],
                    };
                    for codebook in codebooks {
                        for &placement in product.placements {
                            for &bytes in product.sizes {
                                let case = Case {
                                    data: data.clone(),
                                    dtype,
                                    scheme,
                                    bases,
                                    codebook,
                                    placement,
                                    bytes,
                                    spec: FrameSpec::default(),
                                };
                                self.cases.push(case.shaped(source.channels(dtype))?);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Schemes and bases that tensors of this dtype can have.
    fn members(
        &mut self,
        source: &Source,
        product: &Product<'_>,
        dtype: Dtype,
    ) -> Result<Vec<(Scheme, Bases)>> {
        let channels = source.channels(dtype);
        let mut members = Vec::new();
        for &scheme in product.schemes {
            if let Err(error) = scheme.check(dtype) {
                self.refuse_or_note(product.asked, error.to_string())?;
                continue;
            }
            let has = |bases: Bases| bases == Bases::Chunk || scheme.has_window() && channels.is_some();
            let found: Vec<Bases> = product.bases.iter().copied().filter(|&bases| has(bases)).collect();
            if found.is_empty() {
                // Only channel bases were asked for.
                let tensor = TensorSpec::new("kv", dtype, scheme, &[8, 8]).with_bases(Bases::Channel);
                let reason = match tensor.check() {
                    Err(error) => error.to_string(),
                    Ok(()) => source.why_no_channels(),
                };
                self.refuse_or_note(product.asked, reason)?;
            } else if scheme.has_window() && found.len() < product.bases.len() {
                self.note(source.why_no_channels());
            }
            members.extend(found.into_iter().map(|bases| (scheme, bases)));
        }
        if members.is_empty() {
            let notes = self.notes.join("; ");
            return Err(Failure::Usage(format!("nothing is left to measure for {dtype}: {notes}")));
        }
        Ok(members)
    }

    fn refuse_or_note(&mut self, asked: bool, reason: String) -> Result {
        if asked {
            return Err(Failure::Usage(reason));
        }
        self.note(reason);
        Ok(())
    }

    /// Says once what is left out.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl Case {
    /// The same case with whole rows of so many channels.
    fn shaped(self, channels: Option<u64>) -> Result<Case> {
        let element = self.dtype.bytes() as u64;
        let row = channels.unwrap_or(1) * element;
        let rows = self.bytes / row;
        if rows == 0 {
            let (size, dtype) = (self.bytes, self.dtype);
            return Err(Failure::Usage(format!(
                "--sizes has {size} B, less than one row of the tensors, which takes {row} B in {dtype}; use a larger size"
            )));
        }
        let shape = channels.map_or(vec![rows], |channels| vec![rows, channels]);
        let tensor = TensorSpec::new("kv", self.dtype, self.scheme, &shape).with_bases(self.bases);
        let flags = Flags { arrival: self.placement == Placement::Arrival, ..Flags::default() };
        Ok(Case { bytes: rows * row, spec: FrameSpec::new(vec![tensor], flags), ..self })
    }
}

/// The list, or the other one when it is empty.
fn or<T: Clone + PartialEq>(list: &[T], default: &[T]) -> Vec<T> {
    unique(if list.is_empty() { default } else { list })
}

/// Each once, where it comes first.
pub fn unique<T: Clone + PartialEq>(list: &[T]) -> Vec<T> {
    let mut found: Vec<T> = Vec::new();
    list.iter().for_each(|item| {
        if !found.contains(item) {
            found.push(item.clone())
        }
    });
    found
}
