//! What was measured, for people. What is the same in all rows is said once, above the table.

use super::object::{Measure, Object, Row};
use super::plan::RowBases;
use crate::output::binary;
use crate::table::Table;

/// A column: its title, whether it is text, and its cell.
struct Column {
    title: &'static str,
    text: bool,
    cell: fn(&Row) -> String,
}

const COLUMNS: [Column; 16] = [
    Column { title: "device", text: true, cell: |row| row.device.clone() },
    Column { title: "threads", text: true, cell: |row| row.threads.map_or_else(dash, |n| n.to_string()) },
    Column { title: "data", text: true, cell: |row| row.data.clone() },
    Column { title: "dtype", text: true, cell: |row| row.dtype.to_string() },
    Column {
        title: "codec",
        text: true,
        cell: |row| row.scheme.map_or(row.codec, |scheme| scheme.name()).to_owned(),
    },
    Column { title: "bases", text: true, cell: |row| row.bases.map_or_else(dash, |bases| bases.to_string()) },
    Column { title: "codebook", text: true, cell: |row| row.codebook.map_or_else(dash, lower) },
    Column { title: "order", text: true, cell: |row| row.placement.map_or_else(dash, lower) },
    Column { title: "size", text: false, cell: |row| binary(row.raw_bytes) },
    Column { title: "ratio", text: false, cell: |row| format!("{:.4}", row.ratio) },
    Column { title: "encode GB/s", text: false, cell: |row| speed(row.raw_bytes, row.encode.seconds) },
    Column { title: "quartiles", text: false, cell: |row| quartiles(row.raw_bytes, &row.encode) },
    Column { title: "share", text: false, cell: |row| share(&row.encode) },
    Column { title: "decode GB/s", text: false, cell: |row| speed(row.raw_bytes, row.decode.seconds) },
    Column { title: "quartiles", text: false, cell: |row| quartiles(row.raw_bytes, &row.decode) },
    Column { title: "share", text: false, cell: |row| share(&row.decode) },
];

/// Columns of rows of a GPU: encoding and decoding with checksums, microseconds of a call in a graph, and of the host outside of one.
const DEVICE_COLUMNS: [Column; 7] = [
    Column {
        title: "checked encode GB/s",
        text: false,
        cell: |row| row.checked_encode.as_ref().map_or_else(dash, |of| speed(row.raw_bytes, of.seconds)),
    },
    Column {
        title: "checked decode GB/s",
        text: false,
        cell: |row| row.checked_decode.as_ref().map_or_else(dash, |of| speed(row.raw_bytes, of.seconds)),
    },
    Column {
        title: "graph us: copy",
        text: false,
        cell: |row| row.graph.as_ref().map_or_else(dash, |of| micro(of.copy.seconds)),
    },
    Column {
        title: "encode",
        text: false,
        cell: |row| row.graph.as_ref().map_or_else(dash, |of| micro(of.encode.seconds)),
    },
    Column {
        title: "decode",
        text: false,
        cell: |row| row.graph.as_ref().map_or_else(dash, |of| micro(of.decode.seconds)),
    },
    Column {
        title: "call us: encode",
        text: false,
        cell: |row| row.call.as_ref().map_or_else(dash, |of| micro(of.encode.seconds)),
    },
    Column {
        title: "decode",
        text: false,
        cell: |row| row.call.as_ref().map_or_else(dash, |of| micro(of.decode.seconds)),
    },
];

/// An aligned table.
pub fn text(object: &Object) -> String {
    told(object, Table::text)
}

/// A table in Markdown.
pub fn markdown(object: &Object) -> String {
    told(object, Table::markdown)
}

fn told(object: &Object, write: fn(&Table) -> String) -> String {
    let rows = &object.rows;
    let on_device = rows.iter().any(|row| row.graph.is_some());
    let all = COLUMNS.iter().chain(DEVICE_COLUMNS.iter().filter(|_| on_device));
    let same = |column: &&Column| {
        column.text && rows.windows(2).all(|two| (column.cell)(&two[0]) == (column.cell)(&two[1]))
    };
    let (same, different): (Vec<&Column>, Vec<&Column>) = all.partition(same);
    let titles: Vec<&str> = different.iter().map(|column| column.title).collect();
    let mut table = Table::new(different.iter().filter(|column| column.text).count(), &titles);
    rows.iter().for_each(|row| table.row(different.iter().map(|column| (column.cell)(row))));

    let mut out: String = object.devices.iter().map(|device| device.text() + "\n").collect();
    let machine = &object.machine;
    if let Some(cpu) = &machine.cpu {
        out += &format!("{cpu}, {} cores\n", machine.cores);
    }
    if machine.debug_build {
        out += "This is a debug build: its speeds say nothing. Build with --release.\n";
    }
    if let Some(first) = rows.first() {
        let said = same.iter().filter(|column| !["device", "threads"].contains(&column.title));
        let cells =
            said.map(|column| (column.title, (column.cell)(first))).filter(|(_, cell)| *cell != dash());
        let cells: Vec<String> = cells.map(|(title, cell)| format!("{title} {cell}")).collect();
        if !cells.is_empty() {
            out += &(cells.join(", ") + "\n");
        }
    }
    out += &format!("\n{}\n", write(&table));
    out += "GB/s: raw bytes, median and quartiles. share: bytes moved by a codec (raw and coded) over those of a copy (read and written), beside it.\n";
    if on_device {
        out += "checked: encoding with checksums of the tensors, decoding with those of what is decoded, which are cleared before.\n";
        out += "graph us: of one call in a captured graph. call us: of the host, for one call on an idle stream.\n";
    }
    if rows.iter().any(|row| row.bases == Some(RowBases::Keys)) {
        out += "keys: one frame of K with channel bases and V with chunk bases, half of the bytes each.\n";
    }
    let compared = rows.iter().filter(|row| row.same_frame_as.is_some()).count();
    out += &format!(
        "Every row was decoded and compared; the frames of {compared} of {} with those of another executor.\n",
        rows.len()
    );
    object.notes.iter().for_each(|note| out += &format!("Left out: {note}\n"));
    out
}

fn dash() -> String {
    "-".to_owned()
}

fn lower(of: impl std::fmt::Debug) -> String {
    format!("{of:?}").to_lowercase()
}

/// Four digits at most.
fn speed(bytes: u64, seconds: f64) -> String {
    let speed = bytes as f64 / seconds / 1e9;
    let digits = if speed >= 99.95 {
        0
    } else if speed >= 9.995 {
        1
    } else {
        2
    };
    format!("{speed:.digits$}")
}

fn quartiles(bytes: u64, of: &Measure) -> String {
    let [fast, slow] = of.quartiles;
    format!("{}-{}", speed(bytes, slow), speed(bytes, fast))
}

fn share(of: &Measure) -> String {
    of.share.map_or_else(dash, |share| format!("{share:.3}"))
}

fn micro(seconds: f64) -> String {
    let micro = 1e6 * seconds;
    if micro < 99.95 { format!("{micro:.1}") } else { format!("{micro:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        assert_eq!(
            [1 << 10, 64 << 20, 3 << 30, 1000, 0].map(binary),
            ["1 KiB", "64 MiB", "3 GiB", "1.000 kB", "0 B"]
        );
        assert_eq!(
            [2139e9, 99.97e9, 9.994e9, 0.5e9].map(|bytes| speed(bytes as u64, 1.0)),
            ["2139", "100", "9.99", "0.50"]
        );
        assert_eq!([2.26e-6, 99.96e-6].map(micro), ["2.3", "100"]);
    }
}
