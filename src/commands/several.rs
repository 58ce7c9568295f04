//! Several inputs in one call: which output belongs to which, and a summary of all.

use super::ratio_text;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, Speed, shown, size};
use crate::pipe::is_pipe;
use crate::progress::interrupted;
use crate::table::Table;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// An input, and where what is made of it goes.
pub struct Job {
    pub input: PathBuf,
    pub output: PathBuf,
    /// The name that the output has in the end.
    pub written: PathBuf,
}

/// The one directory among the inputs.
///
/// # Errors
/// A directory that is not alone.
pub fn directory(inputs: &[PathBuf]) -> Result<Option<&Path>> {
    let Some(directory) = inputs.iter().find(|input| input.is_dir()) else { return Ok(None) };
    if inputs.len() > 1 {
        let reason = format!("{} is a directory: name it alone, or name its files", shown(directory));
        return Err(Failure::Usage(reason));
    }
    Ok(Some(directory))
}

/// A directory by a path that ends with its name: `.` has none.
///
/// # Errors
/// A directory that cannot be looked up.
pub fn plain(directory: &Path) -> Result<PathBuf> {
    let plain: PathBuf = directory.components().collect();
    if plain.file_name().is_some() {
        return Ok(plain);
    }
    let looked_up = plain.canonicalize();
    looked_up.map_err(|error| Failure::Failed(format!("cannot open {}: {error}", shown(directory))))
}

/// What `-o` names for a directory.
///
/// # Errors
/// stdout; a place inside of the input.
pub fn directory_target(input: &Path, output: &Path) -> Result<PathBuf> {
    if is_pipe(output) {
        let reason = "a directory cannot go to stdout; name a new directory with -o";
        return Err(Failure::Usage(reason.to_owned()));
    }
    // The next run would find it among the files of the input. What cannot be looked up, whoever makes it or reads it says.
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let (Ok(input_at), Ok(parent)) = (input.canonicalize(), parent.canonicalize())
        && parent.starts_with(input_at)
    {
        let (input, output) = (shown(input), shown(output));
        return Err(Failure::Failed(format!(
            "{output} lies inside of {input}; name a directory outside of it"
        )));
    }
    Ok(output.to_owned())
}

/// Pairs inputs with outputs; `named` gives the output of an input that is a file.
///
/// # Errors
/// stdin beside other inputs, an output that cannot be that of all, two inputs with one output.
pub fn jobs(
    inputs: &[PathBuf],
    output: Option<&Path>,
    named: impl Fn(&Path) -> Result<PathBuf>,
) -> Result<Vec<Job>> {
    let job =
        |input: &Path, output: PathBuf| Job { input: input.to_owned(), written: output.clone(), output };
    if let [input] = inputs {
        let output = match output {
            Some(output) => output.to_owned(),
            None if is_pipe(input) => input.clone(),
            None => named(input)?,
        };
        return Ok(vec![job(input, output)]);
    }
    let refuse = |reason: String| Err(Failure::Usage(reason));
    if inputs.iter().any(|input| is_pipe(input)) {
        return refuse("- stands for stdin, which can only be the one input".to_owned());
    }
    let mut jobs: Vec<Job> = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut written = named(input)?;
        if let Some(directory) = output {
            if !directory.is_dir() {
                return refuse(format!(
                    "-o is {}, but there are {} inputs: name a directory that exists, or leave -o out",
                    if is_pipe(directory) { "stdout".to_owned() } else { shown(directory) },
                    inputs.len()
                ));
            }
            written = directory.join(written.file_name().unwrap_or_default());
        }
        if let Some(other) = jobs.iter().find(|job| job.written == written) {
            let (first, second) = (shown(&other.input), shown(input));
            return refuse(format!("{first} and {second} would both be written to {}", shown(&written)));
        }
        jobs.push(job(input, written));
    }
    Ok(jobs)
}

/// What came of one input.
pub struct Outcome {
    pub raw_bytes: u64,
    pub coded_bytes: u64,
    pub object: serde_json::Value,
}

impl Outcome {
    /// Sizes, and the JSON object of the input alone.
    ///
    /// # Errors
    /// None, as long as the object is one.
    pub fn new(raw_bytes: u64, coded_bytes: u64, object: &impl Serialize) -> Result<Outcome> {
        let object = serde_json::to_value(object).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Outcome { raw_bytes, coded_bytes, object })
    }
}

/// What came of all.
pub struct Batch {
    command: &'static str,
    started: Instant,
    done: Vec<(String, Outcome)>,
    failed: Vec<Failed>,
    copied: u64,
}

#[derive(Serialize)]
struct Failed {
    input: String,
    error: String,
}

/// Does the work on one input after the other. One that fails is said on stderr, and the others go on, unless they are `all_or_none`.
///
/// # Errors
/// An interrupt; with `all_or_none` the first failure.
pub fn run(
    command: &'static str,
    jobs: &[Job],
    all_or_none: bool,
    mut work: impl FnMut(&Job) -> Result<Outcome>,
) -> Result<Batch> {
    let mut batch =
        Batch { command, started: Instant::now(), done: Vec::new(), failed: Vec::new(), copied: 0 };
    for job in jobs {
        match work(job) {
            Ok(outcome) => batch.done.push((shown(&job.input), outcome)),
            Err(failure) if all_or_none => return Err(failure),
            Err(_) if interrupted() => {
                let (done, all) = (batch.done.len(), jobs.len());
                return Err(Failure::Failed(format!("interrupted; {done} of {all} inputs are done")));
            }
            Err(failure) => {
                output::error(&failure);
                let (input, error) = (job.input.display().to_string(), failure.to_string());
                batch.failed.push(Failed { input, error });
            }
        }
    }
    Ok(batch)
}

impl Batch {
    fn participle(&self) -> &'static str {
        match self.command {
            "compress" => "compressed",
            "decompress" => "decompressed",
            _ => "verified",
        }
    }

    /// Copies a file that is not coded.
    ///
    /// # Errors
    /// What the system says; an interrupt.
    pub fn copy(&mut self, from: &Path, to: &Path) -> Result {
        let copied = std::fs::copy(from, to).and_then(|_| std::fs::File::open(to)?.sync_all());
        copied.map_err(|error| Failure::Failed(format!("cannot copy {}: {error}", shown(from))))?;
        self.copied += 1;
        if interrupted() {
            return Err(Failure::Failed("interrupted; nothing was written".to_owned()));
        }
        Ok(())
    }

    /// Prints a row an input and the sum, or one JSON object. `written` is the directory that has the outputs.
    ///
    /// # Errors
    /// Inputs that failed; an output that cannot be written.
    pub fn print(self, device: &str, json: bool, written: Option<&Path>) -> Result {
        let sum = |of: fn(&Outcome) -> u64| self.done.iter().map(|(_, outcome)| of(outcome)).sum();
        let (raw_bytes, coded_bytes): (u64, u64) = (sum(|of| of.raw_bytes), sum(|of| of.coded_bytes));
        let speed = Speed::new(raw_bytes, self.started.elapsed());
        let (done, failed) = (self.done.len(), self.failed.len());
        if json {
            output::json(&Object {
                schema: SCHEMA,
                command: self.command,
                output: written.map(|path| path.display().to_string()),
                device,
                raw_bytes,
                coded_bytes,
                ratio: raw_bytes as f64 / coded_bytes.max(1) as f64,
                time: speed,
                copied: self.copied,
                failed: self.failed,
                files: self.done.into_iter().map(|(_, outcome)| outcome.object).collect(),
            })?;
        } else {
            let mut table = Table::new(1, &["file", "raw", "coded", "ratio"]);
            let row = |name: String, raw, coded| [name, size(raw), size(coded), ratio_text(raw, coded)];
            for (name, of) in &self.done {
                table.row(row(name.clone(), of.raw_bytes, of.coded_bytes));
            }
            table.line();
            table.row(row(counted(done as u64, "file", "files"), raw_bytes, coded_bytes));
            let mut text = table.text();
            text += &format!("\n{:<12}  {} ({device})\n", self.participle(), speed.text());
            if self.copied != 0 {
                text += &format!("copied        {}\n", counted(self.copied, "other file", "other files"));
            }
            if let Some(written) = written {
                text += &format!("written       {}\n", shown(written));
            }
            output::text(&text)?;
        }
        if failed == 0 {
            return Ok(());
        }
        Err(Failure::Failed(match done {
            0 => format!("all {failed} inputs failed"),
            _ => format!("{failed} of {} inputs failed, the others are done", done + failed),
        }))
    }
}

fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    output: Option<String>,
    device: &'a str,
    raw_bytes: u64,
    coded_bytes: u64,
    ratio: f64,
    time: Speed,
    copied: u64,
    failed: Vec<Failed>,
    files: Vec<serde_json::Value>,
}
