//! `inspect`.

use super::tree::is_compressed;
use super::{
    TensorObject, bases_text, dtype_text, escape_share, escapes, exponents, notes, open, ratio_text, rest,
};
use crate::arguments::Inspect;
use crate::bars::{full_bar, painted};
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, percent, size};
use crate::progress::Bar;
use crate::table::Table;
use serde::Serialize;
use splitzip_host::Histogram;
use splitzip_host::file::{self, Reader, Report};

pub fn run(arguments: &Inspect) -> Result {
    let input = open(&arguments.input)?;
    let work = &arguments.work;
    let compressed = input.starts_with(&file::MAGIC) || is_compressed(&arguments.input);
    let mut bar = Bar::new("inspect", input.len() as u64);
    let (report, exponents) = if compressed {
        if !arguments.coding.is_empty() {
            let reason = "--scheme, --bases and --dtype are for originals; an .spz file has them already";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let mut reader = Reader::from_bytes(&input).map_err(Failure::at(&arguments.input))?;
        let executor = device::choose(work.device, work.threads, |_| true)?;
        file::inspect_file(&*executor, &mut reader, &mut |done| bar.at(done))
    } else {
        let options = arguments.coding.options();
        let executor = device::choose_with_scheme(work.device, work.threads, options.scheme)?;
        file::inspect_safetensors(&*executor, &input, &options, &mut |done| bar.at(done))
    }
    .map_err(Failure::at(&arguments.input))?;
    drop(bar);

    if arguments.json.json {
        let objects = report.tensors.iter().zip(&exponents).map(|(tensor, exponents)| InspectedObject {
            tensor: TensorObject::new(tensor),
            exponents: exponents.as_ref().map(ExponentsObject::new),
        });
        return output::json(&Object {
            schema: SCHEMA,
            command: "inspect",
            input: arguments.input.display().to_string(),
            compressed,
            raw_bytes: report.raw_bytes,
            coded_bytes: report.coded_bytes,
            ratio: report.ratio(),
            escapes: escapes(&report.tensors),
            frames: report.frames,
            sha256: &report.sha256,
            tensors: objects.collect(),
        });
    }
    let histogram = exponents::histogram(&report.tensors, &exponents);
    let gap = if histogram.is_empty() { "" } else { "\n" };
    output::text(&painted(&format!("{}{gap}{histogram}", table(&report, &exponents))))
}

fn table(report: &Report, exponents: &[Option<Histogram>]) -> String {
    let titles = [
        "tensor", "dtype", "scheme", "bases", "shape", "raw", "entropy", "top 8", "top 16", "escapes",
        "coded", "ratio", "size",
    ];
    let mut table = Table::new(4, &titles);
    let numbers = |exponents: Option<&Histogram>| match exponents {
        Some(of) => [format!("{:.3}", of.entropy()), percent(of.coverage(8)), percent(of.coverage(16))],
        None => ["-", "-", "-"].map(str::to_owned),
    };
    for (tensor, exponents) in report.tensors.iter().zip(exponents) {
        let shape = tensor.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let what = [
            tensor.name.clone(),
            dtype_text(tensor),
            tensor.scheme.to_string(),
            bases_text(tensor),
            shape,
            size(tensor.raw_bytes),
        ];
        let (raw, coded) = (tensor.raw_bytes, tensor.coded_bytes);
        let result = [escape_share([tensor]), size(coded), ratio_text(raw, coded), share_bar(raw, coded)];
        table.row(what.into_iter().chain(numbers(exponents.as_ref())).chain(result));
    }
    let (raw, coded) = rest(report);
    let row = |name: &str, raw, escapes, coded, ratio, bar| {
        let empty = String::new;
        let what = [name.to_owned(), empty(), empty(), empty(), empty(), size(raw)];
        what.into_iter().chain([empty(), empty(), empty()]).chain([escapes, size(coded), ratio, bar])
    };
    table.row(row("headers, index", raw, String::new(), coded, String::new(), String::new()));
    table.line();
    let (raw, coded) = (report.raw_bytes, report.coded_bytes);
    let (escapes, bar) = (escape_share(&report.tensors), share_bar(raw, coded));
    table.row(row("total", raw, escapes, coded, ratio_text(raw, coded), bar));
    table.text() + &notes(report)
}

/// What is left of a tensor.
fn share_bar(raw: u64, coded: u64) -> String {
    if raw == 0 { String::new() } else { full_bar(coded as f64 / raw as f64, 8) }
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    input: String,
    compressed: bool,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    escapes: u64,
    frames: u64,
    sha256: &'a str,
    tensors: Vec<InspectedObject<'a>>,
}

#[derive(Serialize)]
struct InspectedObject<'a> {
    #[serde(flatten)]
    tensor: TensorObject<'a>,
    exponents: Option<ExponentsObject>,
}

/// Numbers about the exponents of a tensor, for its own dtype.
#[derive(Serialize)]
pub struct ExponentsObject {
    entropy: f64,
    top_8: f64,
    top_16: f64,
    different: usize,
    counts: Vec<(usize, u64)>,
}

impl ExponentsObject {
    pub fn new(of: &Histogram) -> ExponentsObject {
        let counts: Vec<(usize, u64)> =
            of.counts().iter().copied().enumerate().filter(|&(_, count)| count != 0).collect();
        ExponentsObject {
            entropy: of.entropy(),
            top_8: of.coverage(8),
            top_16: of.coverage(16),
            different: counts.len(),
            counts,
        }
    }
}
