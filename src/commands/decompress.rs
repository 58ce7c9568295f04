//! `decompress`: one file or stream, several files, or a directory of them.

use super::several::{self, Job, Outcome};
use super::tree::{Tree, is_compressed};
use super::{behind, open, part, refuse_same};
use crate::arguments::Decompress;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, shown, size};
use crate::pipe::{Sink, Stdin, is_pipe, refuse_json};
use crate::progress::{Bar, catch_interrupts};
use serde::Serialize;
use splitzip_host::Executor;
use splitzip_host::file::{self, Reader, StreamReport, TargetDirectory};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn run(arguments: &Decompress) -> Result {
    if !arguments.part.is_empty() {
        return part::run(arguments);
    }
    let output = arguments.output.as_deref();
    let directory = several::directory(&arguments.inputs)?;
    let jobs = match directory {
        Some(_) => Vec::new(),
        None => several::jobs(&arguments.inputs, output, without_extension)?,
    };
    let executor = device::choose(arguments.work.device, arguments.work.threads, |_| true)?;
    let decompress = Work { arguments, executor: &*executor };
    match (directory, &jobs[..]) {
        (Some(directory), _) => decompress.directory(directory),
        (None, [job]) => decompress.one(job),
        (None, jobs) => {
            let batch = several::run("decompress", jobs, false, |job| decompress.outcome(job))?;
            batch.print(&executor.name(), arguments.json.json, None)
        }
    }
}

fn without_extension(input: &Path) -> Result<PathBuf> {
    if is_compressed(input) {
        return Ok(input.with_extension(""));
    }
    if input.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".spz")) {
        let reason = format!("{} has no name without .spz: say with -o where to write", shown(input));
        return Err(Failure::Usage(reason));
    }
    Err(Failure::Usage(format!("{} does not end in .spz: say with -o where to write", shown(input))))
}

/// The work on every file.
struct Work<'a> {
    arguments: &'a Decompress,
    executor: &'a dyn Executor,
}

impl Work<'_> {
    fn file(&self, job: &Job) -> Result<(StreamReport, Speed)> {
        let (input, output) = (&*job.input, &*job.output);
        refuse_json(output, self.arguments.json.json)?;
        catch_interrupts();
        let force = self.arguments.target.force;
        let limit = self.arguments.limit.unwrap_or(u64::MAX);
        let between = Failure::between(input, output);
        let started;
        let report;
        if is_pipe(input) {
            let stdin = Stdin::open()?;
            let mut sink = Sink::create(output, force)?;
            started = Instant::now();
            // How much there is to come stands in a header that is not read yet.
            let mut bar = Bar::new("decompress", 0);
            let done = &mut |done| bar.at(done);
            let restored = file::decompress_stream_within(self.executor, stdin, sink.writer(), limit, done);
            report = restored.map_err(between)?;
            drop(bar);
            sink.commit(output)?;
        } else {
            let mapped = open(input)?;
            refuse_same(input, output)?;
            let mut reader = Reader::from_bytes(&mapped).map_err(Failure::at(input))?;
            reader.header().check_limit(limit).map_err(Failure::at(input))?;
            let mut sink = Sink::create(output, force)?;
            started = Instant::now();
            let raw_bytes = reader.header().raw_bytes;
            let mut bar = Bar::new("decompress", raw_bytes);
            let mut progress = behind(&mut bar, &reader, &mapped, None);
            file::decompress(self.executor, &mut reader, sink.writer(), &mut progress).map_err(between)?;
            drop(progress);
            drop(bar);
            mapped.check_unchanged().map_err(Failure::at(input))?;
            sink.commit(output)?;
            let (coded_bytes, frames) = (reader.file_bytes(), reader.frames().len() as u64);
            report = StreamReport { raw_bytes, coded_bytes, frames, sha256: *reader.sha256() };
        }
        Ok((report, Speed::new(report.raw_bytes, started.elapsed())))
    }

    fn one(&self, job: &Job) -> Result {
        let (report, speed) = self.file(job)?;
        if is_pipe(&job.output) {
            return Ok(());
        }
        if self.arguments.json.json {
            return output::json(&self.object(job, &report, speed));
        }
        output::text(&format!(
            "decompressed  {} to {}, {} ({})\nwritten       {}\n",
            size(report.coded_bytes),
            size(report.raw_bytes),
            speed.text(),
            self.executor.name(),
            shown(&job.written)
        ))
    }

    fn outcome(&self, job: &Job) -> Result<Outcome> {
        let (report, speed) = self.file(job)?;
        Outcome::new(report.raw_bytes, report.coded_bytes, &self.object(job, &report, speed))
    }

    /// Restores what was compressed of a directory into a new one, and copies all else.
    fn directory(&self, input: &Path) -> Result {
        let tree = Tree::read(input)?;
        tree.check_compressed(input)?;
        tree.check_restored(input)?;
        let output = match &self.arguments.output {
            Some(output) => several::directory_target(input, output)?,
            None => without_extension(&several::plain(input)?)?,
        };
        catch_interrupts();
        let target = TargetDirectory::create(&output).map_err(Failure::at(&output))?;
        #[cfg(unix)]
        crate::shortened::directory(Some(target.staging()));
        let (coded, others) = tree.split(is_compressed);
        tree.make_directories(target.staging())?;
        let job = |file: &&PathBuf| Job {
            input: input.join(file),
            output: target.staging().join(file).with_extension(""),
            written: output.join(file).with_extension(""),
        };
        let jobs: Vec<Job> = coded.iter().map(job).collect();
        let mut batch = several::run("decompress", &jobs, true, |job| self.outcome(job))?;
        others.iter().try_for_each(|file| batch.copy(&input.join(file), &target.staging().join(file)))?;
        #[cfg(unix)]
        crate::shortened::directory(None);
        target.commit().map_err(Failure::at(&output))?;
        batch.print(&self.executor.name(), self.arguments.json.json, Some(&output))
    }

    fn object(&self, job: &Job, report: &StreamReport, decompress: Speed) -> Object {
        Object {
            schema: SCHEMA,
            command: "decompress",
            input: job.input.display().to_string(),
            output: job.written.display().to_string(),
            device: self.executor.name(),
            raw_bytes: report.raw_bytes,
            coded_bytes: report.coded_bytes,
            frames: report.frames,
            sha256: file::hexadecimal(&report.sha256),
            decompress,
        }
    }
}

#[derive(Serialize)]
struct Object {
    schema: u32,
    command: &'static str,
    input: String,
    output: String,
    device: String,
    raw_bytes: u64,
    coded_bytes: u64,
    frames: u64,
    sha256: String,
    decompress: Speed,
}
