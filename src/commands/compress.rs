//! `compress`.

use super::{
    TensorObject, bases_text, dtype_text, escape_share, escapes, notes, open, ratio_text, refuse_same, rest,
};
use crate::arguments::Compress;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, size};
use crate::progress::{Bar, catch_interrupts};
use crate::table::Table;
use serde::Serialize;
use splitzip_host::file::{self, Mapped, Options, Reader, Report, Target, TensorReport};
use splitzip_host::{CodebookFile, Dtype, Executor, Scheme};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn run(arguments: &Compress) -> Result {
    let output = arguments.output.clone().unwrap_or_else(|| with_extension(&arguments.input));
    let input = open(&arguments.input)?;
    refuse_same(&arguments.input, &output)?;
    arguments.codebook.iter().try_for_each(|codebook| refuse_same(codebook, &output))?;
    let codebooks = arguments.codebook.as_deref().map(read_codebooks).transpose()?;
    let work = &arguments.work;
    let options = Options { codebooks, ..arguments.coding.options() };
    let executor = device::choose_with_scheme(work.device, work.threads, options.scheme)?;

    catch_interrupts();
    let mut target = Target::create(&output, arguments.target.force).map_err(Failure::at(&output))?;
    let started = Instant::now();
    let mut bar = Bar::new("compress", input.len() as u64);
    let report = file::compress(&*executor, &input, target.file(), &options, &mut |done| bar.at(done));
    let report = report.map_err(Failure::between(&arguments.input, &output))?;
    drop(bar);
    let speed = Speed::new(report.raw_bytes, started.elapsed());
    let verified = arguments.verify.then(|| verify(&*executor, target.temporary(), &input)).transpose()?;
    input.check_unchanged().map_err(Failure::at(&arguments.input))?;
    target.commit().map_err(Failure::at(&output))?;

    let device = executor.name();
    if arguments.json.json {
        return output::json(&Object::new(arguments, &output, &device, &options, &report, speed, verified));
    }
    let mut text = table(&report) + &notes(&report);
    text += &format!("\ncompressed  {} ({device})\n", speed.text());
    if let Some(speed) = verified {
        text += &format!("verified    {}: restores byte for byte, SHA-256 {}\n", speed.text(), report.sha256);
    }
    text += &format!("written     {}\n", output.display());
    output::text(&text)
}

/// `IN.spz`, whatever extension IN has: two inputs never share a default.
fn with_extension(input: &Path) -> PathBuf {
    let mut name = input.as_os_str().to_owned();
    name.push(".spz");
    name.into()
}

fn read_codebooks(path: &Path) -> Result<CodebookFile> {
    let file = open(path)?;
    let text = std::str::from_utf8(&file).map_err(|_| {
        Failure::Failed(format!("{}: invalid codebook file: it is not UTF-8", path.display()))
    })?;
    CodebookFile::from_json(text).map_err(Failure::at(path))
}

/// Decodes the finished temporary and compares it with the input.
fn verify(executor: &dyn Executor, temporary: &Path, input: &Mapped) -> Result<Speed> {
    let written = open(temporary)?;
    let started = Instant::now();
    let mut bar = Bar::new("verify", input.len() as u64);
    let verified = Reader::from_bytes(&written)
        .and_then(|mut reader| file::verify_against(executor, &mut reader, input, &mut |done| bar.at(done)));
    verified.map_err(|error| {
        let input = input.path().display();
        Failure::Failed(format!(
            "the compressed file does not restore to {input}, so it was not written: {error}"
        ))
    })?;
    Ok(Speed::new(input.len() as u64, started.elapsed()))
}

/// Tensors whose names differ in numbers only.
struct Group<'a> {
    name: String,
    dtype: String,
    scheme: Scheme,
    bases: String,
    tensors: Vec<&'a TensorReport>,
}

impl Group<'_> {
    fn row(&self) -> [String; 9] {
        let raw: u64 = self.tensors.iter().map(|tensor| tensor.raw_bytes).sum();
        let coded: u64 = self.tensors.iter().map(|tensor| tensor.coded_bytes).sum();
        [
            self.name.clone(),
            self.dtype.clone(),
            self.scheme.to_string(),
            self.bases.clone(),
            self.tensors.len().to_string(),
            size(raw),
            size(coded),
            ratio_text(raw, coded),
            escape_share(self.tensors.iter().copied()),
        ]
    }
}

/// One row a group, in the order of the file.
fn table(report: &Report) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for tensor in &report.tensors {
        let (name, dtype, scheme) = (pattern(&tensor.name), dtype_text(tensor), tensor.scheme);
        let bases = bases_text(tensor);
        let same = |of: &&mut Group<'_>| {
            of.name == name && of.dtype == dtype && of.scheme == scheme && of.bases == bases
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.tensors.push(tensor),
            None => groups.push(Group { name, dtype, scheme, bases, tensors: vec![tensor] }),
        }
    }
    let titles = ["tensors", "dtype", "scheme", "bases", "count", "raw", "coded", "ratio", "escapes"];
    let mut table = Table::new(4, &titles);
    groups.iter().for_each(|group| table.row(group.row()));
    let (raw, coded) = rest(report);
    let empty = String::new;
    table.row([
        "headers, index".to_owned(),
        empty(),
        empty(),
        empty(),
        empty(),
        size(raw),
        size(coded),
        empty(),
        empty(),
    ]);
    table.line();
    let (raw, coded) = (report.raw_bytes, report.coded_bytes);
    table.row([
        "total".to_owned(),
        empty(),
        empty(),
        empty(),
        report.tensors.len().to_string(),
        size(raw),
        size(coded),
        ratio_text(raw, coded),
        escape_share(&report.tensors),
    ]);
    table.text()
}

/// The name with a star for every number in it.
fn pattern(name: &str) -> String {
    let mut out = String::new();
    for part in name.chars() {
        match part {
            '0'..='9' if out.ends_with('*') => {}
            '0'..='9' => out.push('*'),
            part => out.push(part),
        }
    }
    out
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    input: String,
    output: String,
    device: &'a str,
    scheme: String,
    bases: String,
    dtype: Option<Dtype>,
    codebook: String,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    escapes: u64,
    frames: u64,
    sha256: &'a str,
    compress: Speed,
    verify: Option<Speed>,
    tensors: Vec<TensorObject<'a>>,
}

impl<'a> Object<'a> {
    fn new(
        arguments: &Compress,
        output: &Path,
        device: &'a str,
        options: &Options,
        report: &'a Report,
        compress: Speed,
        verify: Option<Speed>,
    ) -> Object<'a> {
        let codebook = arguments.codebook.as_deref();
        Object {
            schema: SCHEMA,
            command: "compress",
            input: arguments.input.display().to_string(),
            output: output.display().to_string(),
            device,
            scheme: options.scheme.to_string(),
            bases: options.bases.to_string(),
            dtype: options.dtype,
            codebook: codebook.map_or_else(|| "auto".to_owned(), |path| path.display().to_string()),
            raw_bytes: report.raw_bytes,
            coded_bytes: report.coded_bytes,
            ratio: report.ratio(),
            escapes: escapes(&report.tensors),
            frames: report.frames,
            sha256: &report.sha256,
            compress,
            verify,
            tensors: report.tensors.iter().map(TensorObject::new).collect(),
        }
    }
}
