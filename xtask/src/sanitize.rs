//! `cargo xtask sanitize`: tests of the CPU path's unsafe code, and of threads that share, under sanitizers.
//!
//! Their runtimes are in every toolchain; the switch that turns them on is unstable, so the stable compiler is told to take it. The standard library is not
//! instrumented. Each sanitizer builds everything anew, in a folder of its own.

use super::{cargo, run, target};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What runs under a sanitizer: `bounds` counts allocations and the interpreter's tests run no unsafe code.
const ADDRESS: [&str; 7] = ["damage", "levels", "promises", "rounds", "hostile", "paged", "paged_errors"];
/// Threads share the pieces of a tensor.
const THREAD: [&str; 3] = ["rounds", "promises", "paged"];

pub fn all() -> bool {
    one("address") & one("thread")
}

/// Under AddressSanitizer or ThreadSanitizer.
pub fn one(sanitizer: &str) -> bool {
    let (tests, flags): (&[&str], _) = match sanitizer {
        "address" => (&ADDRESS, "-Zsanitizer=address"),
        "thread" => (&THREAD, "-Zsanitizer=thread\u{1f}-Cunsafe-allow-abi-mismatch=sanitizer"),
        _ => {
            eprintln!("error: there is no sanitizer {sanitizer:?}; there are address and thread");
            return false;
        }
    };
    let mut command = cargo(&["test", "--package", "splitzip-host", "--target", TRIPLE, "--no-fail-fast"]);
    for test in tests {
        command.args(["--test", test]);
    }
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", flags).env_remove("RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", target().join(sanitizer));
    // Every report is a failure, of all the processes that a test starts.
    command
        .env("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1")
        .env("TSAN_OPTIONS", "halt_on_error=1");
    run(&mut command)
}
