//! What was measured of transfers: as a JSON object, and as tables.

use super::super::machine::{Device, Machine};
use super::tcp::Speed;
use crate::failure::{Failure, Result};
use crate::output::binary;
use crate::table::Table;
use serde::Serialize;
use splitzip_host::measure::Times;
use splitzip_host::measure::transfer::{KvPlace, MeasuredFile, MeasuredTransfer};
use splitzip_host::{Bases, Scheme};

#[derive(Serialize)]
pub struct Object {
    pub schema: u32,
    pub command: &'static str,
    pub machine: Machine,
    pub device: Device,
    pub data: String,
    /// Between a GPU and its host.
    pub rows: Vec<Row>,
    /// Of short transfers.
    pub short: Vec<ShortRow>,
    /// Between two processes.
    pub wire: Vec<WireRow>,
    /// Where files were written.
    pub folder: Option<String>,
    /// Between a GPU and a file.
    pub files: Vec<FileRow>,
    /// What was left out or decided, and why.
    pub notes: Vec<String>,
}

impl Object {
    /// # Errors
    /// None: all of it can be written.
    pub fn json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self);
        json.map(|json| json + "\n").map_err(|error| Failure::Failed(error.to_string()))
    }
}

/// The name of a place.
pub fn name(place: KvPlace) -> &'static str {
    match place {
        KvPlace::OnePiece => "one piece",
        KvPlace::Pages => "pages of 16",
    }
}

/// One direction of a row.
#[derive(Serialize)]
pub struct Way {
    /// The median.
    pub seconds: f64,
    pub quartiles: [f64; 2],
    pub runs: usize,
    /// How many times as fast as the best without a codec; 1 for that.
    pub speedup: f64,
}

impl Way {
    fn new(times: &Times, plain: Option<f64>) -> Way {
        let (low, high) = times.quartiles();
        let seconds = times.median();
        Way {
            seconds,
            quartiles: [low, high],
            runs: times.runs(),
            speedup: plain.map_or(1.0, |plain| plain / seconds),
        }
    }
}

/// A way to move a request out and back.
#[derive(Serialize)]
pub struct Row {
    pub place: &'static str,
    pub how: String,
    pub is_plain: bool,
    pub scheme: Option<Scheme>,
    pub key_bases: Option<Bases>,
    pub raw_bytes: u64,
    pub coded_bytes: u64,
    pub ratio: f64,
    pub out: Way,
    pub back: Way,
}

impl Row {
    /// `plain` are the best seconds out and back of the same KV without a codec.
    pub fn new(
        place: KvPlace,
        how: String,
        coding: Option<(Scheme, Bases)>,
        measured: &MeasuredTransfer,
        plain: (Option<f64>, Option<f64>),
    ) -> Row {
        Row {
            place: name(place),
            how,
            is_plain: coding.is_none(),
            scheme: coding.map(|(scheme, _)| scheme),
            key_bases: coding.map(|(_, bases)| bases),
            raw_bytes: measured.raw_bytes,
            coded_bytes: measured.coded_bytes,
            ratio: measured.ratio(),
            out: Way::new(&measured.out, plain.0),
            back: Way::new(&measured.back, plain.1),
        }
    }
}

/// Seconds of a short transfer, out and back.
#[derive(Serialize)]
pub struct ShortRow {
    pub raw_bytes: u64,
    /// A copy and nothing else.
    pub copy: [f64; 2],
    /// Through an offloader, as it is.
    pub raw: [f64; 2],
    /// With `w2x3`.
    pub coded: [f64; 2],
    /// As the policy decides.
    pub decided: [f64; 2],
    /// Whether it decides to code.
    pub is_coded: bool,
}

impl ShortRow {
    pub fn new(
        copy: &MeasuredTransfer,
        raw: &MeasuredTransfer,
        coded: &MeasuredTransfer,
        decided: &MeasuredTransfer,
    ) -> ShortRow {
        let both = |of: &MeasuredTransfer| [of.out.median(), of.back.median()];
        ShortRow {
            raw_bytes: copy.raw_bytes,
            copy: both(copy),
            raw: both(raw),
            coded: both(coded),
            decided: both(decided),
            is_coded: decided.coded_bytes < decided.raw_bytes,
        }
    }
}

/// A transfer between two processes.
#[derive(Serialize)]
pub struct WireRow {
    pub link: String,
    /// `None` for raw.
    pub scheme: Option<Scheme>,
    pub key_bases: Option<Bases>,
    pub raw_bytes: u64,
    pub sent_bytes: u64,
    pub ratio: f64,
    /// Seconds until the first layer was decoded.
    pub first: Way,
    /// Seconds until the last one was.
    pub last: Way,
}

impl WireRow {
    pub fn new(
        link: Speed,
        (scheme, keys): (Scheme, Bases),
        (raw_bytes, sent_bytes): (u64, u64),
        (first, last): (&Times, &Times),
        plain: f64,
    ) -> WireRow {
        let coded = scheme != Scheme::Stored;
        WireRow {
            link: link.to_string(),
            scheme: coded.then_some(scheme),
            key_bases: coded.then_some(keys),
            raw_bytes,
            sent_bytes,
            ratio: raw_bytes as f64 / sent_bytes.max(1) as f64,
            first: Way::new(first, None),
            last: Way::new(last, Some(plain)),
        }
    }
}

/// A way to move a request to a file and back.
#[derive(Serialize)]
pub struct FileRow {
    /// `direct`, or `cached` by the system.
    pub io: &'static str,
    /// Coded bytes are those of the file.
    #[serde(flatten)]
    pub row: Row,
    /// Raw bytes of an eighth of the tokens.
    pub part_bytes: u64,
    /// Raw bytes of a slice, or of what is copied at once.
    pub slice_bytes: u64,
    /// These alone from the file.
    pub part: Way,
}

/// The rows of a plain copy, and of codings of which the first one stores tensors.
pub fn file_rows(io: &'static str, codings: &[(Scheme, Bases)], measured: &[MeasuredFile]) -> Vec<FileRow> {
    let without_codec = &measured[..measured.len().min(2)];
    let best = |of: fn(&MeasuredFile) -> &Times| {
        without_codec.iter().map(|measured| of(measured).median()).min_by(f64::total_cmp)
    };
    let way = |times: &Times, of: fn(&MeasuredFile) -> &Times| Way::new(times, best(of));
    let codings = std::iter::once(None).chain(codings.iter().copied().map(Some));
    let row = |(coding, measured): (Option<(Scheme, Bases)>, &MeasuredFile)| {
        let (place, how) = match coding {
            None => ("memory of the host", "copied"),
            Some((Scheme::Stored, _)) => (name(KvPlace::Pages), "gathered"),
            Some(_) => (name(KvPlace::Pages), "staged"),
        };
        let coding = coding.filter(|&(scheme, _)| scheme != Scheme::Stored);
        let row = Row {
            place,
            how: how.to_owned(),
            is_plain: coding.is_none(),
            scheme: coding.map(|(scheme, _)| scheme),
            key_bases: coding.map(|(_, bases)| bases),
            raw_bytes: measured.raw_bytes,
            coded_bytes: measured.file_bytes,
            ratio: measured.ratio(),
            out: way(&measured.save, |of| &of.save),
            back: way(&measured.reload, |of| &of.reload),
        };
        FileRow {
            io,
            row,
            part_bytes: measured.part_bytes,
            slice_bytes: measured.slice_bytes,
            part: way(&measured.part, |of| &of.part),
        }
    };
    codings.zip(measured).map(row).collect()
}

pub fn text(object: &Object) -> String {
    told(object, Table::text)
}

pub fn markdown(object: &Object) -> String {
    told(object, Table::markdown)
}

fn told(object: &Object, write: fn(&Table) -> String) -> String {
    let mut out = object.device.text() + "\n";
    if object.machine.debug_build {
        out += "This is a debug build: its speeds say nothing. Build with --release.\n";
    }
    if let Some(first) = object.rows.first() {
        let size = binary(first.raw_bytes);
        out +=
            &format!("\n{size} of {}, between the GPU and page-locked memory of its host.\n\n", object.data);
        out += &write(&rows(&object.rows));
        out += "\nGB/s: raw bytes, median. gain: beside the best without a codec. of ratio: the gain over the ratio; 1 is all that the link can give.\n";
    }
    if !object.short.is_empty() {
        out += "\nShort transfers, microseconds out / back.\n\n";
        out += &write(&short(&object.short));
    }
    if let Some(first) = object.wire.first() {
        let size = binary(first.raw_bytes);
        out +=
            &format!("\n{size} of {} to another process over loopback TCP, layer by layer.\n\n", object.data);
        out += &write(&wire(&object.wire));
        out += "\nms: until the first and the last layer were decoded. of ratio: as above, beside raw on the same link.\n";
    }
    if let (Some(first), Some(folder)) = (object.files.first(), &object.folder) {
        let [size, part, slice] = [first.row.raw_bytes, first.part_bytes, first.slice_bytes].map(binary);
        out += &format!(
            "\n{size} of {}, in pages of 16, between the GPU and a file in {folder}; slices of {slice}.\n\n",
            object.data
        );
        out += &write(&files(&object.files));
        out += &format!(
            "\nGB/s: raw bytes, median. copied: from page-locked memory to a file and back, the same raw bytes. out: until the file is on disk under its name. back: from opening it until all is on the GPU. part: {part}, an eighth of the tokens, read alone. cached: through the cache of the system, which is asked to drop the file before it is read. gain, of ratio: beside the best without a codec with the same I/O.\n"
        );
    }
    out += "\nEverything was compared with what was sent.\n";
    object.notes.iter().for_each(|note| out += &format!("Note: {note}\n"));
    out
}

/// A scheme, and the bases of keys where they are of channels.
fn coding(scheme: Option<Scheme>, keys: Option<Bases>) -> String {
    match (scheme, keys) {
        (None, _) => "-".to_owned(),
        (Some(scheme), Some(Bases::Channel)) => format!("{scheme}, channel keys"),
        (Some(scheme), _) => scheme.to_string(),
    }
}

/// Columns of what is moved both ways, behind a first one.
const BOTH_WAYS: [&str; 9] =
    ["moved", "scheme", "ratio", "out GB/s", "gain", "of ratio", "back GB/s", "gain", "of ratio"];

impl Row {
    /// The cells of [`BOTH_WAYS`], speeds with so many digits.
    fn cells(&self, digits: usize) -> impl Iterator<Item = String> {
        let way = |of: &Way| way(of, digits, self.raw_bytes, self.ratio);
        let start = [self.how.clone(), coding(self.scheme, self.key_bases), format!("{:.3}", self.ratio)];
        start.into_iter().chain(way(&self.out)).chain(way(&self.back))
    }
}

fn rows(rows: &[Row]) -> Table {
    let mut table = Table::new(3, &[&["KV in"], &BOTH_WAYS[..]].concat());
    for row in rows {
        table.row([row.place.to_owned()].into_iter().chain(row.cells(1)));
    }
    table
}

/// Speed with so many digits, gain, and what that is of the ratio.
fn way(way: &Way, digits: usize, raw_bytes: u64, ratio: f64) -> [String; 3] {
    [
        format!("{:.digits$}", raw_bytes as f64 / way.seconds / 1e9),
        format!("{:.2}", way.speedup),
        format!("{:.3}", way.speedup / ratio),
    ]
}

fn files(rows: &[FileRow]) -> Table {
    // Files are slower than links: one digit would say little.
    const DIGITS: usize = 2;
    let part = ["part GB/s", "gain", "of ratio"];
    let mut table = Table::new(3, &[&["I/O"], &BOTH_WAYS[..], &part].concat());
    for of in rows {
        let part = way(&of.part, DIGITS, of.part_bytes, of.row.ratio);
        table.row([of.io.to_owned()].into_iter().chain(of.row.cells(DIGITS)).chain(part));
    }
    table
}

fn short(rows: &[ShortRow]) -> Table {
    let mut table = Table::new(0, &["size", "copy", "raw", "w2x3", "policy", "decides"]);
    for row in rows {
        let both = |[out, back]: [f64; 2]| format!("{:.1} / {:.1}", out * 1e6, back * 1e6);
        let decides = if row.is_coded { "w2x3" } else { "raw" };
        let times = [row.copy, row.raw, row.coded, row.decided].map(both);
        table.row([binary(row.raw_bytes)].into_iter().chain(times).chain([decides.to_owned()]));
    }
    table
}

fn wire(rows: &[WireRow]) -> Table {
    let mut table =
        Table::new(2, &["link", "scheme", "ratio", "first ms", "last ms", "GB/s", "gain", "of ratio"]);
    for row in rows {
        table.row([
            row.link.clone(),
            coding(row.scheme, row.key_bases),
            format!("{:.3}", row.ratio),
            format!("{:.1}", row.first.seconds * 1e3),
            format!("{:.1}", row.last.seconds * 1e3),
            format!("{:.2}", row.raw_bytes as f64 / row.last.seconds / 1e9),
            format!("{:.2}", row.last.speedup),
            format!("{:.3}", row.last.speedup / row.ratio),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(seconds: f64, speedup: f64) -> Way {
        Way { seconds, quartiles: [seconds; 2], runs: 3, speedup }
    }

    #[test]
    fn every_speed_of_a_file_is_that_of_its_bytes() {
        let row = Row {
            place: name(KvPlace::Pages),
            how: "staged".to_owned(),
            is_plain: false,
            scheme: Some(Scheme::W2x2x3),
            key_bases: Some(Bases::Channel),
            raw_bytes: 8_000_000_000,
            coded_bytes: 5_000_000_000,
            ratio: 1.6,
            out: way(4.0, 1.2),
            back: way(2.0, 1.4),
        };
        let coded = FileRow {
            io: "direct",
            row,
            part_bytes: 1_000_000_000,
            slice_bytes: 8 << 20,
            part: way(0.2, 1.6),
        };
        let table = files(&[coded]).text();
        let cells: Vec<&str> = table.lines().last().unwrap_or_default().split_whitespace().collect();
        let numbers = ["1.600", "2.00", "1.20", "0.750", "4.00", "1.40", "0.875", "5.00", "1.60", "1.000"];
        assert_eq!(cells, [&["direct", "staged", "w2x2x3,", "channel", "keys"][..], &numbers].concat());
    }
}
