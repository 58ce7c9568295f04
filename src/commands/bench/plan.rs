//! Which rows are measured, before any of them is: what cannot be measured is said at once, not after minutes.

use super::data::{Data, Kind, Source};
use crate::arguments::Bench;
use crate::commands::report::Part;
use crate::failure::{Failure, Result};
use clap::ValueEnum;
use serde::Serialize;
use splitzip_host::{Bases, Dtype, Flags, FrameSpec, Scheme, TensorSpec};
use std::fmt;
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

/// Whose mean places the window of a scheme that has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(into = "&'static str")]
pub enum RowBases {
    /// The same in all tensors.
    All(Bases),
    /// A frame of two tensors, half of the bytes each: keys with channel bases, values with chunk bases.
    Keys,
}

impl RowBases {
    /// What is measured unless one says which.
    const DEFAULT: [RowBases; 2] = [RowBases::All(Bases::Chunk), RowBases::All(Bases::Channel)];

    /// The tensors of a frame: which part of the data, its name, its bases.
    pub fn tensors(self) -> Vec<(Option<Part>, &'static str, Bases)> {
        match self {
            RowBases::All(bases) => vec![(None, "kv", bases)],
            RowBases::Keys => {
                vec![(Some(Part::K), "k", Bases::Channel), (Some(Part::V), "v", Bases::Chunk)]
            }
        }
    }
}

impl From<RowBases> for &'static str {
    fn from(bases: RowBases) -> &'static str {
        match bases {
            RowBases::All(bases) => bases.name(),
            RowBases::Keys => "keys",
        }
    }
}

impl fmt::Display for RowBases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad((*self).into())
    }
}

impl FromStr for RowBases {
    type Err = String;

    fn from_str(text: &str) -> Result<RowBases, String> {
        let all = [RowBases::All(Bases::Chunk), RowBases::All(Bases::Channel), RowBases::Keys];
        let found = all.into_iter().find(|&bases| <&str>::from(bases) == text);
        found.ok_or_else(|| {
            format!(
                "there are no bases {text:?} to measure; it must be one of {}",
                all.map(<&str>::from).join(", ")
            )
        })
    }
}

/// One row to measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    pub data: Data,
    pub dtype: Dtype,
    pub scheme: Scheme,
    pub bases: RowBases,
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
    bases: &'a [RowBases],
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
                bases: &or(&arguments.bases, &RowBases::DEFAULT),
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
            bases: &RowBases::DEFAULT,
            placements: &both,
            codebooks: &[CodebookKind::Calibrated],
            sizes,
        };
        self.add(source, &whole)?;
        let ends: Vec<u64> = unique(&small.into_iter().chain(largest).collect::<Vec<_>>());
        let windows: Vec<Scheme> = schemes.iter().copied().filter(|of| of.has_window()).collect();
        // What a cache really has. Files without keys and values have no such rows.
        for &dtype in first {
            match source.why_no_keys(dtype) {
                Some(reason) => self.note(reason),
                None => {
                    let keys = Product { schemes: &windows, bases: &[RowBases::Keys], sizes: &ends, ..whole };
                    self.add(source, &keys)?;
                }
            }
        }
        let with_codebook: Vec<Scheme> = schemes.iter().copied().filter(|of| of.has_codebook()).collect();
        self.add(
            source,
            &Product {
                schemes: &with_codebook,
                placements: &both[..1],
                codebooks: &[CodebookKind::Auto],
                sizes: &ends,
                ..whole
            },
        )?;
        let kinds = [Kind::Random5, Kind::Incompressible, Kind::Zeros, Kind::HalfZeros];
        self.add(
            source,
            &Product {
                data: &kinds.map(|kind| source.derived(kind)),
                bases: &RowBases::DEFAULT[..1],
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
    ) -> Result<Vec<(Scheme, RowBases)>> {
        let mut members = Vec::new();
        for &scheme in product.schemes {
            if let Err(error) = scheme.check(dtype) {
                self.refuse_or_note(product.asked, error.to_string())?;
                continue;
            }
            let mut reasons = Vec::new();
            let before = members.len();
            for &bases in product.bases {
                match why_not(source, dtype, scheme, bases) {
                    Some(reason) => reasons.push(reason),
                    None => members.push((scheme, bases)),
                }
            }
            // That schemes without a window have chunk bases only is worth a word only if those were not asked for.
            if members.len() == before {
                reasons.truncate(1);
                reasons.into_iter().try_for_each(|reason| self.refuse_or_note(product.asked, reason))?;
            } else if scheme.has_window() {
                reasons.into_iter().for_each(|reason| self.note(reason));
            }
        }
        // Frames of keys and values have inputs of their own, which are loaded once.
        members.sort_by_key(|&(_, bases)| bases == RowBases::Keys);
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

/// Why tensors of the source cannot have these bases.
fn why_not(source: &Source, dtype: Dtype, scheme: Scheme, bases: RowBases) -> Option<String> {
    if bases == RowBases::All(Bases::Chunk) {
        return None;
    }
    let tensor = TensorSpec::new("kv", dtype, scheme, &[8, 8]).with_bases(Bases::Channel);
    match (tensor.check(), bases) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(()), RowBases::Keys) => source.why_no_keys(dtype),
        (Ok(()), _) => source.channels(dtype).is_none().then(|| source.why_no_channels()),
    }
}

impl Case {
    /// The same case with whole rows of so many channels.
    fn shaped(self, channels: Option<u64>) -> Result<Case> {
        let element = self.dtype.bytes() as u64;
        let row = channels.unwrap_or(1) * element;
        let tensors = self.bases.tensors();
        let rows = self.bytes / row / tensors.len() as u64;
        if rows == 0 {
            let (size, dtype) = (self.bytes, self.dtype);
            let tensors = if tensors.len() == 1 { "the tensors" } else { "each of the two tensors" };
            return Err(Failure::Usage(format!(
                "--sizes has {size} B, less than one row of {tensors}, which takes {row} B in {dtype}; use a larger size"
            )));
        }
        let shape = channels.map_or(vec![rows], |channels| vec![rows, channels]);
        let tensor = |&(_, name, bases): &(_, &str, Bases)| {
            TensorSpec::new(name, self.dtype, self.scheme, &shape).with_bases(bases)
        };
        let bytes = rows * row * tensors.len() as u64;
        let tensors = tensors.iter().map(tensor).collect();
        let flags = Flags { arrival: self.placement == Placement::Arrival, ..Flags::default() };
        Ok(Case { bytes, spec: FrameSpec::new(tensors, flags), ..self })
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
