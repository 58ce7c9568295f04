//! What was measured, read from the JSON of `splitzip bench`.
//!
//! A row is one size. Time is near enough a time of the call and a time of every byte, so the smallest and the largest row of a scheme give
//! its [`Rate`]. Where rows have times of a captured graph, those are taken: events around one short call measure how fast the host queues, and on a
//! busy host twice or five times what the device takes. On an H200 no row between them is off by more than a factor of 1.3 (8 MiB fit the second
//! cache and take 0.8 of it), and those that take 50 microseconds and more by less than 1.1.

use super::{Codec, PolicyError, Rate};
use crate::{Bases, Dtype, Scheme};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Rates of devices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rates {
    /// One entry a device and dtype.
    pub devices: Vec<DeviceRates>,
}

/// What was measured on one device, of tensors of one dtype.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceRates {
    /// What `splitzip bench` calls it: `cuda:0`, `cpu`.
    pub device: String,
    /// The dtype of the elements.
    pub dtype: Dtype,
    /// One entry for each way to code.
    pub schemes: Vec<SchemeRates>,
}

/// What was measured of one way to code on one device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SchemeRates {
    /// How exponents are coded.
    pub scheme: Scheme,
    /// Whose mean places the window.
    pub bases: Bases,
    /// Raw bytes by coded bytes, of the largest row.
    pub ratio: f64,
    /// How fast it encodes.
    pub encode: Rate,
    /// How fast it decodes.
    pub decode: Rate,
}

impl Rates {
    /// The rates in what `splitzip bench --json` writes: rows of canonical frames of the first data of every dtype; of a CPU those with the most threads.
    /// Rows of other compressors are passed over, and those of frames whose tensors have different bases.
    ///
    /// # Errors
    /// [`PolicyError::Rates`] for anything else, or without a row.
    pub fn from_bench_json(text: &str) -> Result<Rates, PolicyError> {
        let refuse = |reason: String| PolicyError::Rates { reason };
        let bench: Bench = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if bench.command != "bench" || bench.schema != 1 {
            let (command, schema) = (bench.command, bench.schema);
            return Err(refuse(format!(
                "this is schema {schema} of {command:?}, and not schema 1 of \"bench\""
            )));
        }
        let alike = |row: &Row| !matches!(row.bases, Some(RowBases::Other(_)));
        let ours =
            |row: &&Row| row.codec == "splitzip" && row.placement.as_deref() != Some("arrival") && alike(row);
        let rows: Vec<&Row> = bench.rows.iter().filter(ours).collect();
        let mut rates = Rates::default();
        for row in &rows {
            let known = rates.devices.iter().any(|of| of.device == row.device && of.dtype == row.dtype);
            if !known {
                let same = |other: &&&Row| other.device == row.device && other.dtype == row.dtype;
                let threads = rows.iter().filter(same).filter_map(|row| row.threads).max();
                let of = rows.iter().filter(same).filter(|of| of.data == row.data && of.threads == threads);
                let schemes = schemes(of.copied())?;
                rates.devices.push(DeviceRates { device: row.device.clone(), dtype: row.dtype, schemes });
            }
        }
        if rates.devices.is_empty() {
            return Err(refuse("there is no row of a canonical frame in it".to_owned()));
        }
        Ok(rates)
    }

    /// The devices, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for of in &self.devices {
            if !names.contains(&of.device.as_str()) {
                names.push(&of.device);
            }
        }
        names
    }

    /// Codecs for transfers of `dtype` that are encoded on one device and decoded on another one, or the same: those that both have. Ratios
    /// are those of the first.
    ///
    /// # Errors
    /// [`PolicyError::NotMeasured`] when there is no such device, dtype, or common scheme.
    pub fn codecs(&self, encode_on: &str, decode_on: &str, dtype: Dtype) -> Result<Vec<Codec>, PolicyError> {
        let (sender, receiver) = (self.of(encode_on, dtype)?, self.of(decode_on, dtype)?);
        let mut codecs = Vec::new();
        for from in &sender.schemes {
            let to = receiver.schemes.iter().find(|to| (to.scheme, to.bases) == (from.scheme, from.bases));
            if let Some(to) = to {
                codecs.push(Codec::new(from.scheme, from.bases, from.ratio, from.encode, to.decode)?);
            }
        }
        if codecs.is_empty() {
            return Err(PolicyError::NotMeasured {
                what: format!("a scheme that both {encode_on} and {decode_on} have"),
                available: format!("{} schemes of the first", sender.schemes.len()),
            });
        }
        Ok(codecs)
    }

    fn of(&self, device: &str, dtype: Dtype) -> Result<&DeviceRates, PolicyError> {
        if let Some(of) = self.devices.iter().find(|of| of.device == device && of.dtype == dtype) {
            return Ok(of);
        }
        let dtypes: Vec<&str> =
            self.devices.iter().filter(|of| of.device == device).map(|of| of.dtype.name()).collect();
        Err(match dtypes.is_empty() {
            true => PolicyError::NotMeasured { what: device.to_owned(), available: self.names().join(", ") },
            false => PolicyError::NotMeasured {
                what: format!("{dtype} on {device}"),
                available: format!("{} there", dtypes.join(", ")),
            },
        })
    }
}

/// One entry for every way to code in these rows, in the order of schemes and bases.
fn schemes<'r>(rows: impl Iterator<Item = &'r Row>) -> Result<Vec<SchemeRates>, PolicyError> {
    let mut of: BTreeMap<(Scheme, Bases), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        // The codebook is found before, or else a small call takes as long as finding it does: the shorter one is meant for transfers.
        if let Some(scheme) = row.scheme {
            of.entry((scheme, row.bases())).or_default().push(row);
        }
    }
    let mut schemes = Vec::new();
    for ((scheme, bases), rows) in of {
        let calibrated = rows.iter().any(|row| row.codebook.as_deref() == Some("calibrated"));
        let rows: Vec<&Row> = rows
            .into_iter()
            .filter(|row| !calibrated || row.codebook.as_deref() == Some("calibrated"))
            .collect();
        let ends = (rows.iter().min_by_key(|row| row.raw_bytes), rows.iter().max_by_key(|row| row.raw_bytes));
        let (Some(small), Some(large)) = ends else { continue };
        let points = |of: fn(&Row) -> f64| [small, large].map(|row| (row.raw_bytes as f64, of(row)));
        schemes.push(SchemeRates {
            scheme,
            bases,
            ratio: large.ratio,
            encode: line(points(Row::encode_seconds))?,
            decode: line(points(Row::decode_seconds))?,
        });
    }
    Ok(schemes)
}

/// The rate through two points of bytes and seconds; through the second one alone where the first does not lie above the line to 0.
fn line([(small, fast), (large, slow)]: [(f64, f64); 2]) -> Result<Rate, PolicyError> {
    let slope = (slow - fast) / (large - small);
    let call = fast - small * slope;
    if slope > 0.0 && call > 0.0 {
        return Rate::new(1.0 / slope, call);
    }
    Rate::new(large / slow, 0.0)
}

#[derive(Deserialize)]
struct Bench {
    schema: u32,
    command: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    device: String,
    threads: Option<u64>,
    data: String,
    dtype: Dtype,
    codec: String,
    scheme: Option<Scheme>,
    bases: Option<RowBases>,
    codebook: Option<String>,
    placement: Option<String>,
    raw_bytes: u64,
    ratio: f64,
    encode: Seconds,
    decode: Seconds,
    graph: Option<Graph>,
}

/// The bases of all tensors of a row, or something else that `bench` says.
#[derive(Deserialize)]
#[serde(untagged)]
enum RowBases {
    All(Bases),
    #[allow(dead_code)] // only that it is no name of bases counts
    Other(String),
}

impl Row {
    fn bases(&self) -> Bases {
        match self.bases {
            Some(RowBases::All(bases)) => bases,
            _ => Bases::default(),
        }
    }

    fn encode_seconds(&self) -> f64 {
        self.graph.as_ref().map_or(&self.encode, |graph| &graph.encode).seconds
    }

    fn decode_seconds(&self) -> f64 {
        self.graph.as_ref().map_or(&self.decode, |graph| &graph.decode).seconds
    }
}

/// Of one call, without the host.
#[derive(Deserialize)]
struct Graph {
    encode: Seconds,
    decode: Seconds,
}

#[derive(Deserialize)]
struct Seconds {
    seconds: f64,
}
