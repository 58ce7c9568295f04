//! `cargo xtask sanitize`: tests of the CPU path's unsafe code under AddressSanitizer; `sanitize thread`: those that share work between threads under
//! ThreadSanitizer.
//!
//! Both build everything anew, in a folder of their own. The runtimes are in every toolchain. The switch that turns AddressSanitizer on is unstable, so the stable compiler is told
//! to take it. ThreadSanitizer wants a standard library that is built with it (otherwise every lock of the library looks like a race): that takes the
//! nightly toolchain with `rust-src` that the kernels need as well.

use super::{cargo, root, run, target};
use std::env;
use std::process::Command;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What runs: `bounds` counts allocations, and the interpreter's tests run no unsafe code.
const TESTS: [&str; 7] = ["damage", "levels", "promises", "rounds", "hostile", "paged", "paged_errors"];

/// What has threads: the executor, pages, streams of files.
const THREADS: [&str; 4] = ["rounds", "cpu", "paged", "files"];

pub fn sanitize() -> bool {
    let mut command = cargo(&["test", "--package", "splitzip-host", "--target", TRIPLE, "--no-fail-fast"]);
    command.env("RUSTC_BOOTSTRAP", "1");
    under(command, "address", &TESTS, ("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1"))
}

pub fn sanitize_threads() -> bool {
    let toolchain = env::var("SPLITZIP_NIGHTLY").unwrap_or_else(|_| "nightly".to_owned());
    let mut command = Command::new("rustup");
    command.args(["run", &toolchain, "cargo", "test", "-Zbuild-std", "--package", "splitzip-host"]);
    command.args(["--target", TRIPLE, "--no-fail-fast"]).current_dir(root());
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    under(command, "thread", &THREADS, ("TSAN_OPTIONS", "halt_on_error=1"))
}

fn under(mut command: Command, sanitizer: &str, tests: &[&str], (name, value): (&str, &str)) -> bool {
    for test in tests {
        command.args(["--test", test]);
    }
    command
        .env("CARGO_ENCODED_RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", target().join(sanitizer));
    run(command.env(name, value))
}
