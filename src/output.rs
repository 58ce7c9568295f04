//! Results on stdout: one JSON object, or text with numbers that people can read.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The version of all JSON objects. A field is never taken away or given another meaning without a new one.
pub const SCHEMA: u32 = 1;

/// Writes text to stdout; its styles only where stdout is a terminal and `NO_COLOR` is not set.
pub fn text(text: &str) -> Result {
    let mut out = anstream::AutoStream::auto(std::io::stdout().lock());
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::stdout)
}

/// Writes a message to stderr. When even this cannot be written, the exit code still says it.
pub fn error(failure: &Failure) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let _ = writeln!(anstream::stderr(), "{red}error:{red:#} {failure}");
}

/// A path in a message or in a table: stdin and stdout by name, and without what would move the cursor.
pub fn shown(path: &Path) -> String {
    match path.to_str() {
        Some("-") => "stdin".to_owned(),
        _ => printable(&path.display().to_string()),
    }
}

/// The text with its control characters written out.
pub fn printable(text: &str) -> String {
    let part = |part: char| {
        let escaped = part.is_control().then(|| part.escape_default());
        escaped.into_iter().flatten().chain((!part.is_control()).then_some(part))
    };
    text.chars().flat_map(part).collect()
}

/// Writes a JSON object to stdout.
pub fn json(object: &impl Serialize) -> Result {
    let object = serde_json::to_string_pretty(object).map_err(|error| Failure::Failed(error.to_string()))?;
    text(&(object + "\n"))
}

/// How long something took, and raw bytes per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Speed {
    pub seconds: f64,
    pub bytes_per_second: f64,
}

impl Speed {
    pub fn new(raw_bytes: u64, time: Duration) -> Speed {
        let seconds = time.as_secs_f64();
        Speed { seconds, bytes_per_second: raw_bytes as f64 / seconds.max(1e-9) }
    }

    /// `0.12 s, 1.23 GB/s`.
    pub fn text(&self) -> String {
        let time = if self.seconds < 1.0 {
            format!("{:.1} ms", 1e3 * self.seconds)
        } else {
            format!("{:.2} s", self.seconds)
        };
        format!("{time}, {}/s", size(self.bytes_per_second as u64))
    }
}

/// A size in decimal units, three or four digits: `3.691 MB`.
pub fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if value < 999.95 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    match value {
        _ if unit == "B" => format!("{bytes} B"),
        value if value < 10.0 => format!("{value:.3} {unit}"),
        value if value < 100.0 => format!("{value:.2} {unit}"),
        value => format!("{value:.1} {unit}"),
    }
}

/// A size in binary units where that is a short number: `2 MiB`.
pub fn binary(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = units.iter().find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    fits.map_or_else(|| size(bytes), |(unit, shift)| format!("{} {unit}", bytes >> shift))
}

/// A share (0 to 1) in percent: `0.123 %`.
pub fn percent(share: f64) -> String {
    format!("{:.3} %", 100.0 * share)
}
