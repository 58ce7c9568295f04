//! Runs the kernels on a GPU, writes down what ran, with the hash of every PTX file, and how fast it was beside a copy on the device.
//!
//! Usage: `record [--commit ID] [--device N] -o RECORD.json`. Exit status 1 if anything differs from naive code; the record says what.
//! `tests/record.rs` compares the record with what is committed.

#[path = "../tests/support/mod.rs"]
mod support;

#[path = "../tests/support/ptx.rs"]
mod ptx;

#[path = "record/gpu.rs"]
mod gpu;

#[path = "record/speed.rs"]
mod speed;

use gpu::Gpu;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: record [--commit ID] [--device N] -o RECORD.json";

struct Arguments {
    commit: String,
    device: usize,
    out: PathBuf,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let (mut commit, mut device, mut out) = (String::new(), 0, None);
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value; {USAGE}"));
            match word.as_str() {
                "--commit" => commit = value()?,
                "--device" => device = value()?.parse().map_err(|error| format!("--device: {error}"))?,
                "-o" => out = Some(value()?.into()),
                _ => return Err(format!("what is {word:?}? {USAGE}")),
            }
        }
        Ok(Arguments { commit, device, out: out.ok_or(USAGE)? })
    }
}

fn main() -> ExitCode {
    match record() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record() -> Result<bool, String> {
    let arguments = Arguments::read()?;
    let (mut targets, mut failures) = (Map::new(), Vec::new());
    let mut gpu = Gpu::open(arguments.device, "sm_80")?;
    for target in gpu.targets() {
        gpu = Gpu::open(arguments.device, target)?;
        let (runs, failed) = support::machine::run_all(&mut gpu);
        println!(
            "{target}: {} runs, {} failures",
            runs.iter().map(|(_, runs)| runs).sum::<usize>(),
            failed.len()
        );
        failures.extend(failed.into_iter().map(|failure| format!("{target}: {failure}")));
        let runs: Map<String, Value> =
            runs.into_iter().map(|(entry, runs)| (entry.to_owned(), runs.into())).collect();
        targets.insert(target.to_owned(), json!({ "entries": ptx::hashes(target)?, "runs": runs }));
    }
    let copy = speed::copy(&mut gpu)?;
    println!("\n{:<20} {:>10} {:>8} {:>14}", "entry", "us", "GB/s", "share of copy");
    println!("{:<20} {:>10.1} {:>8.0} {:>14.2}", "copy", copy.microseconds, copy.gb_s, 1.0);
    let mut speeds = Vec::new();
    for (entry, speed) in speed::kernels(&mut gpu, &mut failures)? {
        let share = speed.gb_s / copy.gb_s;
        println!("{entry:<20} {:>10.1} {:>8.0} {share:>14.2}", speed.microseconds, speed.gb_s);
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        speeds.push(json!({
            "entry": entry,
            "bytes_moved": speed.bytes,
            "microseconds": round(speed.microseconds),
            "gb_s": round(speed.gb_s),
            "share_of_copy": round(share),
        }));
    }
    let record = json!({
        "commit": arguments.commit,
        "device": gpu.name()?,
        "compute_capability": gpu.compute_capability()?,
        "targets": targets,
        "copy": { "bytes_moved": copy.bytes, "gb_s": copy.gb_s.round() },
        "speed": speeds,
        "failures": failures,
    });
    std::fs::write(&arguments.out, format!("{record:#}\n"))
        .map_err(|error| format!("{}: {error}", arguments.out.display()))?;
    println!("\n{}", arguments.out.display());
    failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    Ok(failures.is_empty())
}
