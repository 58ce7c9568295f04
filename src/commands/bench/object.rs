//! What was measured, as it stands in the JSON object.
//!
//! A record of it is kept in the repository, so every row is one line, and numbers have six digits: that is more than any clock is worth.

use super::data::Data;
use super::machine::{Device, Machine};
use super::plan::{Case, CodebookKind, Placement, RowBases};
use crate::failure::{Failure, Result};
use serde::Serialize;
use splitzip_host::measure::{GRAPH_CALLS, Measured, Times};
use splitzip_host::{Dtype, Scheme};

pub struct Object {
    pub schema: u32,
    pub command: &'static str,
    pub machine: Machine,
    pub devices: Vec<Device>,
    /// What was left out, and why.
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
}

impl Object {
    /// The JSON object, a line for every row.
    ///
    /// # Errors
    /// None: all of it can be written.
    pub fn json(&self) -> Result<String> {
        let lines = |name: &str, lines: Vec<String>| match lines.is_empty() {
            true => format!("  \"{name}\": []"),
            false => format!("  \"{name}\": [\n    {}\n  ]", lines.join(",\n    ")),
        };
        let parts = [
            format!("  \"schema\": {}", self.schema),
            format!("  \"command\": {}", line(self.command)?),
            format!("  \"machine\": {}", line(&self.machine)?),
            lines("devices", self.devices.iter().map(line).collect::<Result<_>>()?),
            lines("notes", self.notes.iter().map(line).collect::<Result<_>>()?),
            lines("rows", self.rows.iter().map(line).collect::<Result<_>>()?),
        ];
        Ok(format!("{{\n{}\n}}\n", parts.join(",\n")))
    }
}

fn line<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))
}

/// A number of six digits.
fn six(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn both((low, high): (f64, f64)) -> [f64; 2] {
    [six(low), six(high)]
}

/// One row.
#[derive(Serialize)]
pub struct Row {
    pub device: String,
    pub threads: Option<usize>,
    pub data: String,
    pub dtype: Dtype,
    /// `splitzip`, or the name of a peer, which has none of the next four.
    pub codec: &'static str,
    pub scheme: Option<Scheme>,
    /// Of schemes with a window: `chunk`, `channel`, or `keys`.
    pub bases: Option<RowBases>,
    /// Of schemes with a codebook.
    pub codebook: Option<CodebookKind>,
    pub placement: Option<Placement>,
    pub raw_bytes: u64,
    pub coded_bytes: u64,
    pub ratio: f64,
    /// A copy of the raw bytes, beside this row. Its bytes per second are those read and those written.
    pub copy: Measure,
    pub encode: Measure,
    pub decode: Measure,
    /// Calls in a captured CUDA graph.
    pub graph: Option<Graph>,
    /// Encoding with checksums of the tensors, on a device.
    pub checked_encode: Option<Measure>,
    /// Decoding with checksums of what is decoded, on a device.
    pub checked_decode: Option<Measure>,
    /// Seconds of the host for a call on an idle stream.
    pub call: Option<Call>,
    /// It was decoded into overwritten memory, and the bytes are the same. There is no row for which that is not so.
    pub verified: bool,
    /// The executor whose frame has the same bytes, where that was compared.
    pub same_frame_as: Option<&'static str>,
}

#[derive(Serialize)]
pub struct Measure {
    /// The median.
    pub seconds: f64,
    /// The quartiles: half of all runs lie between them.
    pub quartiles: [f64; 2],
    pub runs: usize,
    /// Raw bytes, by the median.
    pub bytes_per_second: f64,
    /// The share of the copy's bytes per second that this moves: raw ones and coded ones.
    pub share: Option<f64>,
}

/// Medians of one call.
#[derive(Serialize)]
pub struct Graph {
    /// Calls in the graph that was replayed.
    pub calls: u32,
    pub copy: Measure,
    pub encode: Measure,
    pub decode: Measure,
}

#[derive(Serialize)]
pub struct Call {
    pub encode: HostTime,
    pub decode: HostTime,
}

#[derive(Serialize)]
pub struct HostTime {
    pub seconds: f64,
    pub quartiles: [f64; 2],
    pub runs: usize,
}

impl Row {
    pub fn new(device: &Device, case: &Case, measured: &Measured) -> Row {
        Row {
            scheme: Some(case.scheme),
            bases: case.scheme.has_window().then_some(case.bases),
            codebook: case.codebook,
            placement: Some(case.placement),
            ..Row::peer(device, (&case.data, case.dtype), "splitzip", measured)
        }
    }

    /// The row of something that is no executor.
    pub fn peer(
        device: &Device,
        (data, dtype): (&Data, Dtype),
        codec: &'static str,
        measured: &Measured,
    ) -> Row {
        let of =
            |times: &Times, copy: &Times| Measure::new(measured, times, Some(measured.share(times, copy)));
        let copy = |times: &Times| Measure::new(measured, times, None);
        Row {
            device: device.device.clone(),
            threads: device.threads,
            data: data.name().to_owned(),
            dtype,
            codec,
            scheme: None,
            bases: None,
            codebook: None,
            placement: None,
            raw_bytes: measured.raw_bytes,
            coded_bytes: measured.frame_bytes,
            ratio: six(measured.ratio()),
            copy: copy(&measured.copy),
            encode: of(&measured.encode, &measured.copy),
            decode: of(&measured.decode, &measured.copy),
            graph: measured.device.as_ref().map(|times| Graph {
                calls: GRAPH_CALLS,
                copy: copy(&times.graph_copy),
                encode: of(&times.graph_encode, &times.graph_copy),
                decode: of(&times.graph_decode, &times.graph_copy),
            }),
            checked_encode: measured.device.as_ref().map(|times| of(&times.checked_encode, &measured.copy)),
            checked_decode: measured.device.as_ref().map(|times| of(&times.checked_decode, &measured.copy)),
            call: measured.device.as_ref().map(|times| Call {
                encode: HostTime::new(&times.call_encode),
                decode: HostTime::new(&times.call_decode),
            }),
            verified: true,
            same_frame_as: measured.compared_with,
        }
    }
}

impl Measure {
    /// Without a share: a copy, which reads and writes the raw bytes.
    fn new(measured: &Measured, times: &Times, share: Option<f64>) -> Measure {
        let bytes = measured.raw_bytes as f64 * if share.is_some() { 1.0 } else { 2.0 };
        Measure {
            seconds: six(times.median()),
            quartiles: both(times.quartiles()),
            runs: times.runs(),
            bytes_per_second: six(bytes / times.median()),
            share: share.map(six),
        }
    }
}

impl HostTime {
    fn new(times: &Times) -> HostTime {
        HostTime { seconds: six(times.median()), quartiles: both(times.quartiles()), runs: times.runs() }
    }
}
