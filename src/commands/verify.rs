//! `verify`: one file or stream, several files, or a directory of them.

use super::several::{self, Job, Outcome};
use super::tree::{Tree, is_compressed};
use super::{behind, open};
use crate::arguments::Verify;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, shown, size};
use crate::pipe::{Stdin, is_pipe, refuse_twice};
use crate::progress::{Bar, catch_interrupts};
use serde::Serialize;
use splitzip_host::Executor;
use splitzip_host::file::{self, Reader, StreamReport};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn run(arguments: &Verify) -> Result {
    let directory = several::directory(&arguments.inputs)?;
    if arguments.against.is_some() && (directory.is_some() || arguments.inputs.len() > 1) {
        let reason = "--against compares one file with one other; name one .spz file";
        return Err(Failure::Usage(reason.to_owned()));
    }
    refuse_twice(arguments.inputs.iter().chain(&arguments.against))?;
    let inputs = match directory {
        Some(directory) => {
            let tree = Tree::read(directory)?;
            tree.check_compressed(directory)?;
            tree.split(is_compressed).0.into_iter().map(|file| directory.join(file)).collect()
        }
        None => arguments.inputs.clone(),
    };
    let executor = device::choose(arguments.work.device, arguments.work.threads, |_| true)?;
    let verify = Work { arguments, executor: &*executor };
    match &inputs[..] {
        [input] if directory.is_none() => verify.one(input),
        inputs => {
            catch_interrupts();
            // Nothing is written: the name stands for itself.
            let job = |input: &PathBuf| Job {
                input: input.clone(),
                output: PathBuf::new(),
                written: PathBuf::new(),
            };
            let jobs: Vec<Job> = inputs.iter().map(job).collect();
            let batch = several::run("verify", &jobs, false, |job| verify.outcome(&job.input))?;
            batch.print(&executor.name(), arguments.json.json, None)
        }
    }
}

/// The work on every file.
struct Work<'a> {
    arguments: &'a Verify,
    executor: &'a dyn Executor,
}

impl Work<'_> {
    fn file(&self, input: &Path) -> Result<(StreamReport, Speed)> {
        let started = Instant::now();
        let against = self.arguments.against.as_deref();
        if is_pipe(input) && against.is_none() {
            let mut bar = Bar::new("verify", 0);
            let report = file::verify_stream(self.executor, Stdin::open()?, &mut |done| bar.at(done));
            let report = report.map_err(Failure::at(input))?;
            return Ok((report, Speed::new(report.raw_bytes, started.elapsed())));
        }
        let mapped = open(input)?;
        let original = against.map(open).transpose()?;
        let mut reader = Reader::from_bytes(&mapped).map_err(Failure::at(input))?;
        let raw_bytes = reader.header().raw_bytes;
        let mut bar = Bar::new("verify", raw_bytes);
        let mut progress = behind(&mut bar, &reader, &mapped, original.as_ref());
        match &original {
            Some(original) => file::verify_against(self.executor, &mut reader, original, &mut progress),
            None => file::verify(self.executor, &mut reader, &mut progress),
        }
        .map_err(Failure::at(input))?;
        drop(progress);
        drop(bar);
        let (coded_bytes, frames) = (reader.file_bytes(), reader.frames().len() as u64);
        let report = StreamReport { raw_bytes, coded_bytes, frames, sha256: *reader.sha256() };
        Ok((report, Speed::new(raw_bytes, started.elapsed())))
    }

    fn one(&self, input: &Path) -> Result {
        let (report, speed) = self.file(input)?;
        if self.arguments.json.json {
            return output::json(&self.object(input, &report, speed));
        }
        let (raw, coded) = (size(report.raw_bytes), size(report.coded_bytes));
        let device = self.executor.name();
        let mut text = format!("verified  {coded} to {raw}, {} ({device})\n", speed.text());
        text += &format!("restores  byte for byte, SHA-256 {}\n", file::hexadecimal(&report.sha256));
        if let Some(original) = &self.arguments.against {
            text += &format!("equals    {}\n", shown(original));
        }
        output::text(&text)
    }

    fn outcome(&self, input: &Path) -> Result<Outcome> {
        let (report, speed) = self.file(input)?;
        Outcome::new(report.raw_bytes, report.coded_bytes, &self.object(input, &report, speed))
    }

    fn object(&self, input: &Path, report: &StreamReport, verify: Speed) -> Object {
        Object {
            schema: SCHEMA,
            command: "verify",
            input: input.display().to_string(),
            against: self.arguments.against.as_ref().map(|path| path.display().to_string()),
            device: self.executor.name(),
            raw_bytes: report.raw_bytes,
            coded_bytes: report.coded_bytes,
            ratio: report.raw_bytes as f64 / report.coded_bytes as f64,
            frames: report.frames,
            sha256: file::hexadecimal(&report.sha256),
            verify,
        }
    }
}

#[derive(Serialize)]
struct Object {
    schema: u32,
    command: &'static str,
    input: String,
    against: Option<String>,
    device: String,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    frames: u64,
    sha256: String,
    verify: Speed,
}
