//! `decompress --tensors --tokens`: some tensors of a file, or some of their tokens.

use super::{open, refuse_same};
use crate::arguments::Decompress;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, shown, size};
use crate::pipe::{Sink, is_pipe, refuse_json};
use crate::progress::{Bar, catch_interrupts};
use serde::Serialize;
use splitzip_host::file::{self, Part, PartTensor, Reader};
use std::io::BufWriter;
use std::time::Instant;

pub fn run(arguments: &Decompress) -> Result {
    let Some(output) = &arguments.output else {
        let reason = "a part of a file is not its original: say with -o where to write";
        return Err(Failure::Usage(reason.to_owned()));
    };
    let [path] = &arguments.inputs[..] else {
        let reason = "--tensors and --tokens take a part of one file; name one .spz file";
        return Err(Failure::Usage(reason.to_owned()));
    };
    refuse_json(output, arguments.json.json)?;
    let input = open(path)?;
    refuse_same(path, output)?;
    let mut reader = Reader::from_bytes(&input).map_err(Failure::at(path))?;
    let executor = device::choose(arguments.work.device, arguments.work.threads, |_| true)?;

    catch_interrupts();
    let mut sink = Sink::create(output, arguments.target.force)?;
    let started = Instant::now();
    let mut bar = Bar::new("decompress", reader.header().raw_bytes);
    let patterns = &arguments.part.tensors;
    let keep =
        |tensor: &file::Tensor| patterns.is_empty() || patterns.iter().any(|of| of.matches(&tensor.name));
    let part = Part { keep: &keep, tokens: arguments.part.tokens, token_axis: arguments.part.token_axis };
    let writer = BufWriter::new(sink.writer());
    let report = file::decompress_part(&*executor, &mut reader, &part, writer, &mut |done| bar.at(done))
        .map_err(Failure::between(path, output))?;
    drop(bar);
    let speed = Speed::new(report.raw_bytes, started.elapsed());
    input.check_unchanged().map_err(Failure::at(path))?;
    sink.commit(output)?;
    if is_pipe(output) {
        return Ok(());
    }

    let device = executor.name();
    if arguments.json.json {
        return output::json(&Object {
            schema: SCHEMA,
            command: "decompress",
            input: path.display().to_string(),
            output: output.display().to_string(),
            device: &device,
            raw_bytes: report.raw_bytes,
            coded_bytes: reader.file_bytes(),
            frames: report.frames,
            sha256: None,
            decompress: speed,
            tensors: &report.tensors,
        });
    }
    let all = reader.frames().len();
    output::text(&format!(
        "decompressed  {} tensors, {} from {} of {all} frames, {} ({device})\nwritten       {}\n",
        report.tensors.len(),
        size(report.raw_bytes),
        report.frames,
        speed.text(),
        shown(output)
    ))
}

/// The fields of a whole file, and the tensors that were restored; the digest of the original says nothing about a part.
#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    input: String,
    output: String,
    device: &'a str,
    raw_bytes: u64,
    coded_bytes: u64,
    frames: u64,
    sha256: Option<&'a str>,
    decompress: Speed,
    tensors: &'a [PartTensor],
}
