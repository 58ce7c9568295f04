//! `compress`: one file or stream, several files, or a directory of them.

mod table;

use super::several::{self, Job, Outcome};
use super::tree::{Tree, is_safetensors};
use super::{TensorObject, behind, escapes, notes, open, refuse_same};
use crate::arguments::Compress;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, shown};
use crate::pipe::{Sink, Stdin, is_pipe, refuse_json, refuse_twice};
use crate::progress::{Bar, catch_interrupts};
use serde::Serialize;
use splitzip_host::file::{self, Mapped, Options, OriginalStream, Reader, Report, TargetDirectory};
use splitzip_host::{CodebookFile, Dtype, Executor};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn run(arguments: &Compress) -> Result {
    let directory = several::directory(&arguments.inputs)?;
    let output = arguments.output.as_deref();
    refuse_twice(arguments.inputs.iter().chain(&arguments.codebook))?;
    let jobs = match directory {
        Some(_) => Vec::new(),
        None => several::jobs(&arguments.inputs, output, |input| Ok(with_extension(input)))?,
    };
    for output in jobs.iter().map(|job| &*job.output) {
        arguments.codebook.iter().try_for_each(|codebook| refuse_same(codebook, output))?;
    }
    let codebooks = arguments.codebook.as_deref().map(read_codebooks).transpose()?;
    let work = &arguments.work;
    let options = Options { codebooks, ..arguments.coding.options() };
    let executor = device::choose_with_scheme(work.device, work.threads, options.scheme)?;
    let compress = Work { arguments, executor: &*executor, options };
    match (directory, &jobs[..]) {
        (Some(directory), _) => compress.directory(directory),
        (None, [job]) => compress.one(job),
        (None, jobs) => {
            let batch = several::run("compress", jobs, false, |job| compress.outcome(job))?;
            batch.print(&executor.name(), arguments.json.json, None)
        }
    }
}

/// `IN.spz`, whatever extension IN has: two inputs never share a default.
fn with_extension(input: &Path) -> PathBuf {
    let mut name = input.as_os_str().to_owned();
    name.push(".spz");
    name.into()
}

fn read_codebooks(path: &Path) -> Result<CodebookFile> {
    let file = open(path)?;
    let text = std::str::from_utf8(&file)
        .map_err(|_| Failure::Failed(format!("{}: invalid codebook file: it is not UTF-8", shown(path))))?;
    CodebookFile::from_json(text).map_err(Failure::at(path))
}

/// The work on every file.
struct Work<'a> {
    arguments: &'a Compress,
    executor: &'a dyn Executor,
    options: Options,
}

/// What came of one file.
struct Done {
    report: Report,
    compress: Speed,
    verify: Option<Speed>,
}

/// Where an original comes from.
enum Source {
    File(Mapped),
    Stream(OriginalStream<Stdin>),
}

impl Source {
    /// Opens a file, or reads the header of stdin. What cannot be compressed as it comes, because nobody knows its size, is kept in a
    /// temporary file without a name first.
    fn open(path: &Path, dtype: Option<Dtype>) -> Result<Source> {
        if !is_pipe(path) {
            return open(path).map(Source::File);
        }
        let stream = OriginalStream::open(Stdin::open()?, dtype).map_err(Failure::at(path))?;
        if stream.raw_bytes().is_some() {
            return Ok(Source::Stream(stream));
        }
        Mapped::spooled(stream.into_read(), path).map(Source::File).map_err(Failure::at(path))
    }

    fn bytes(&self) -> u64 {
        match self {
            Source::File(file) => file.len() as u64,
            Source::Stream(stream) => stream.raw_bytes().unwrap_or(0),
        }
    }
}

impl Work<'_> {
    fn file(&self, job: &Job) -> Result<Done> {
        let (input, output) = (&*job.input, &*job.output);
        refuse_json(output, self.arguments.json.json)?;
        if self.arguments.verify && is_pipe(output) {
            let reason =
                "what goes to stdout cannot be read again; leave --verify out, or name a file with -o";
            return Err(Failure::Usage(reason.to_owned()));
        }
        catch_interrupts();
        let source = Source::open(input, self.options.dtype)?;
        refuse_same(input, output)?;
        refuse_other_content(input, &source)?;
        let mut sink = Sink::create(output, self.arguments.target.force)?;
        let started = Instant::now();
        let mut bar = Bar::new("compress", source.bytes());
        let (executor, options, out) = (self.executor, &self.options, sink.writer());
        let (report, source) = match source {
            Source::File(file) => {
                let mut released = 0;
                let mut progress = |done| {
                    file.release(released..done);
                    released = done;
                    bar.at(done)
                };
                let report = file::compress(executor, &file, out, options, &mut progress);
                (report, Some(file))
            }
            Source::Stream(stream) => {
                (file::compress_stream(executor, stream, out, options, &mut |done| bar.at(done)), None)
            }
        };
        let report = report.map_err(Failure::between(input, output))?;
        drop(bar);
        let compress = Speed::new(report.raw_bytes, started.elapsed());
        let verify = match sink.temporary().filter(|_| self.arguments.verify) {
            Some(temporary) => Some(verify(executor, temporary, source.as_ref(), input)?),
            None => None,
        };
        source.map_or(Ok(()), |file| file.check_unchanged()).map_err(Failure::at(input))?;
        sink.commit(output)?;
        Ok(Done { report, compress, verify })
    }

    fn one(&self, job: &Job) -> Result {
        let done = self.file(job)?;
        if is_pipe(&job.output) {
            return Ok(());
        }
        if self.arguments.json.json {
            return output::json(&self.object(job, &done));
        }
        let mut text = table::table(&done.report) + &notes(&done.report);
        text += &format!("\ncompressed  {} ({})\n", done.compress.text(), self.executor.name());
        if let Some(speed) = done.verify {
            let sha256 = &done.report.sha256;
            text += &format!("verified    {}: restores byte for byte, SHA-256 {sha256}\n", speed.text());
        }
        text += &format!("written     {}\n", shown(&job.written));
        output::text(&text)
    }

    fn outcome(&self, job: &Job) -> Result<Outcome> {
        let done = self.file(job)?;
        Outcome::new(done.report.raw_bytes, done.report.coded_bytes, &self.object(job, &done))
    }

    /// Compresses the safetensors files of a directory into a new one, and copies all others: a checkpoint stays whole.
    fn directory(&self, input: &Path) -> Result {
        let tree = Tree::read(input)?;
        tree.check_checkpoint(input)?;
        let output = match &self.arguments.output {
            Some(output) => several::directory_target(input, output)?,
            None => with_extension(&several::plain(input)?),
        };
        catch_interrupts();
        let target = TargetDirectory::create(&output).map_err(Failure::at(&output))?;
        #[cfg(unix)]
        crate::shortened::directory(Some(target.staging()));
        let (coded, others) = tree.split(is_safetensors);
        tree.make_directories(target.staging())?;
        let job = |file: &&PathBuf| Job {
            input: input.join(file),
            output: target.staging().join(with_extension(file)),
            written: output.join(with_extension(file)),
        };
        let jobs: Vec<Job> = coded.iter().map(job).collect();
        let mut batch = several::run("compress", &jobs, true, |job| self.outcome(job))?;
        others.iter().try_for_each(|file| batch.copy(&input.join(file), &target.staging().join(file)))?;
        #[cfg(unix)]
        crate::shortened::directory(None);
        target.commit().map_err(Failure::at(&output))?;
        batch.print(&self.executor.name(), self.arguments.json.json, Some(&output))
    }

    fn object<'a>(&'a self, job: &Job, done: &'a Done) -> Object<'a> {
        let (report, options) = (&done.report, &self.options);
        let codebook = self.arguments.codebook.as_deref();
        Object {
            schema: SCHEMA,
            command: "compress",
            input: job.input.display().to_string(),
            output: job.written.display().to_string(),
            device: self.executor.name(),
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
            compress: done.compress,
            verify: done.verify,
            tensors: report.tensors.iter().map(TensorObject::new).collect(),
        }
    }
}

/// A file that is called a safetensors file and is none: it was cut off or is damaged, whatever else its bytes may be taken for.
fn refuse_other_content(input: &Path, source: &Source) -> Result {
    let Source::File(file) = source else { return Ok(()) };
    if is_safetensors(input) && !is_pipe(input) {
        file::Original::read(file, file.len() as u64, None).map_err(Failure::at(input))?;
    }
    Ok(())
}

/// Decodes the finished temporary and compares it with the input, or where that was a stream with its SHA-256.
fn verify(executor: &dyn Executor, temporary: &Path, source: Option<&Mapped>, input: &Path) -> Result<Speed> {
    let written = open(temporary)?;
    let started = Instant::now();
    let verified = Reader::from_bytes(&written).and_then(|mut reader| {
        let mut bar = Bar::new("verify", reader.header().raw_bytes);
        let mut progress = behind(&mut bar, &reader, &written, source);
        match source {
            Some(source) => file::verify_against(executor, &mut reader, source, &mut progress),
            None => file::verify(executor, &mut reader, &mut progress),
        }
        .map(|()| reader.header().raw_bytes)
    });
    let raw_bytes = verified.map_err(|error| {
        let input = shown(input);
        Failure::Failed(format!(
            "the compressed file does not restore to {input}, so it was not written: {error}"
        ))
    })?;
    Ok(Speed::new(raw_bytes, started.elapsed()))
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    input: String,
    output: String,
    device: String,
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
