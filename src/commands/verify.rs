//! `verify`.

use super::open;
use crate::arguments::Verify;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, size};
use crate::progress::Bar;
use serde::Serialize;
use splitzip_host::file::{self, Reader};
use std::time::Instant;

pub fn run(arguments: &Verify) -> Result {
    let input = open(&arguments.input)?;
    let original = arguments.against.as_deref().map(open).transpose()?;
    let mut reader = Reader::from_bytes(&input).map_err(Failure::at(&arguments.input))?;
    let executor = device::choose(arguments.work.device, arguments.work.threads, |_| true)?;

    let started = Instant::now();
    let raw_bytes = reader.header().raw_bytes;
    let mut bar = Bar::new("verify", raw_bytes);
    let mut progress = |done| bar.at(done);
    match &original {
        Some(original) => file::verify_against(&*executor, &mut reader, original, &mut progress),
        None => file::verify(&*executor, &mut reader, &mut progress),
    }
    .map_err(Failure::at(&arguments.input))?;
    drop(bar);
    let speed = Speed::new(raw_bytes, started.elapsed());

    let device = executor.name();
    let sha256 = file::hexadecimal(reader.sha256());
    if arguments.json.json {
        return output::json(&Object {
            schema: SCHEMA,
            command: "verify",
            input: arguments.input.display().to_string(),
            against: arguments.against.as_ref().map(|path| path.display().to_string()),
            device: &device,
            raw_bytes,
            coded_bytes: reader.file_bytes(),
            ratio: raw_bytes as f64 / reader.file_bytes() as f64,
            frames: reader.frames().len() as u64,
            sha256: &sha256,
            verify: speed,
        });
    }
    let (raw, coded) = (size(raw_bytes), size(reader.file_bytes()));
    let mut text = format!("verified  {coded} to {raw}, {} ({device})\n", speed.text());
    text += &format!("restores  byte for byte, SHA-256 {sha256}\n");
    if let Some(original) = &arguments.against {
        text += &format!("equals    {}\n", original.display());
    }
    output::text(&text)
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    input: String,
    against: Option<String>,
    device: &'a str,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    frames: u64,
    sha256: &'a str,
    verify: Speed,
}
