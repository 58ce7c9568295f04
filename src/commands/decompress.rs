//! `decompress`.

use super::{open, part, refuse_same};
use crate::arguments::Decompress;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, size};
use crate::progress::{Bar, catch_interrupts};
use serde::Serialize;
use splitzip_host::file::{self, Reader, Target};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn run(arguments: &Decompress) -> Result {
    if !arguments.part.is_empty() {
        return part::run(arguments);
    }
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => without_extension(&arguments.input)?,
    };
    let input = open(&arguments.input)?;
    refuse_same(&arguments.input, &output)?;
    let mut reader = Reader::from_bytes(&input).map_err(Failure::at(&arguments.input))?;
    let executor = device::choose(arguments.work.device, arguments.work.threads, |_| true)?;

    catch_interrupts();
    let mut target = Target::create(&output, arguments.target.force).map_err(Failure::at(&output))?;
    let started = Instant::now();
    let raw_bytes = reader.header().raw_bytes;
    let mut bar = Bar::new("decompress", raw_bytes);
    file::decompress(&*executor, &mut reader, target.file(), &mut |done| bar.at(done))
        .map_err(Failure::between(&arguments.input, &output))?;
    drop(bar);
    let speed = Speed::new(raw_bytes, started.elapsed());
    input.check_unchanged().map_err(Failure::at(&arguments.input))?;
    target.commit().map_err(Failure::at(&output))?;

    let device = executor.name();
    if arguments.json.json {
        return output::json(&Object {
            schema: SCHEMA,
            command: "decompress",
            input: arguments.input.display().to_string(),
            output: output.display().to_string(),
            device: &device,
            raw_bytes,
            coded_bytes: reader.file_bytes(),
            frames: reader.frames().len() as u64,
            sha256: file::hexadecimal(reader.sha256()),
            decompress: speed,
        });
    }
    let (raw, coded) = (size(raw_bytes), size(reader.file_bytes()));
    output::text(&format!(
        "decompressed  {coded} to {raw}, {} ({device})\nwritten       {}\n",
        speed.text(),
        output.display()
    ))
}

fn without_extension(input: &Path) -> Result<PathBuf> {
    if input.extension().is_some_and(|extension| extension == "spz") {
        return Ok(input.with_extension(""));
    }
    Err(Failure::Usage(format!("{} does not end in .spz: say with -o where to write", input.display())))
}

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
    sha256: String,
    decompress: Speed,
}
