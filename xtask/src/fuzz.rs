//! `cargo xtask fuzz`: builds the fuzz targets with coverage, and runs each for its share of the time.
//!
//! A stable compiler does: the coverage of libFuzzer is a pass of LLVM. Corpus and what broke a promise stay in `fuzz/`, where `cargo fuzz` looks as well.

use super::{cargo, root, run, target};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub const MANIFEST: &str = "fuzz/Cargo.toml";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What `cargo fuzz` gives the compiler, without a sanitizer: edges with counters, and what is compared with what.
const COVERAGE: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The targets: the names of the files.
fn targets() -> Vec<String> {
    let entries = fs::read_dir(root().join("fuzz/fuzz_targets")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// Runs all targets for `seconds` together, or one for all of it.
pub fn fuzz(seconds: &str, only: Option<&str>) -> bool {
    let Ok(seconds) = seconds.parse::<u64>() else {
        eprintln!("error: {seconds:?} is no number of seconds");
        return false;
    };
    let names: Vec<String> =
        targets().into_iter().filter(|name| only.is_none_or(|only| name == only)).collect();
    if names.is_empty() {
        eprintln!("error: there is no such target; there are {}", targets().join(", "));
        return false;
    }
    let folder = target().join("fuzz");
    let build = ["build", "--release", "--manifest-path", MANIFEST, "--target", TRIPLE, "--bins"];
    // With a target the flags are for the targets alone, not for build scripts and macros.
    let flags = COVERAGE.join("\u{1f}");
    let built = run(cargo(&build)
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env_remove("RUSTFLAGS"));
    let share = (seconds / names.len() as u64).max(1).to_string();
    // All of them, so that one run says everything.
    built && names.iter().map(|name| run_target(&folder, name, &share)).fold(true, |all, one| all & one)
}

fn run_target(folder: &std::path::Path, name: &str, seconds: &str) -> bool {
    let [corpus, artifacts]: [PathBuf; 2] =
        ["corpus", "artifacts"].map(|kind| root().join("fuzz").join(kind).join(name));
    for folder in [&corpus, &artifacts] {
        if let Err(error) = fs::create_dir_all(folder) {
            eprintln!("error: cannot make {}: {error}", folder.display());
            return false;
        }
    }
    let mut command = Command::new(folder.join(TRIPLE).join("release").join(name));
    command.arg(&corpus).args([
        &format!("-artifact_prefix={}/", artifacts.display()),
        &format!("-max_total_time={seconds}"),
        "-timeout=30",
        "-rss_limit_mb=2048",
        "-max_len=65536",
        "-print_final_stats=1",
        "-verbosity=0",
        "-print_funcs=0",
    ]);
    command.env("SPLITZIP_SEEDS", &corpus).env("RAYON_NUM_THREADS", "1");
    eprintln!("$ {name}, {seconds} s");
    match command.status() {
        Ok(status) if status.success() => true,
        Ok(_) => {
            eprintln!("error: {name} is broken by what is in {}", artifacts.display());
            eprintln!("mend it, and keep that file as splitzip-host/tests/found/{name}-WHAT");
            false
        }
        Err(error) => {
            eprintln!("error: cannot start {name}: {error}");
            false
        }
    }
}
