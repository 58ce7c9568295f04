//! `cargo xtask sanitize`: tests of the CPU path's unsafe code under AddressSanitizer.
//!
//! Its runtime is in every toolchain; the switch that turns it on is unstable, so the stable compiler is told to take it. It builds everything anew, in a folder of its
//! own. (ThreadSanitizer would want a standard library that is built with it: otherwise every lock of the library looks like a race.)

use super::{cargo, run, target};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What runs: `bounds` counts allocations, and the interpreter's tests run no unsafe code.
const TESTS: [&str; 7] = ["damage", "levels", "promises", "rounds", "hostile", "paged", "paged_errors"];

pub fn sanitize() -> bool {
    let mut command = cargo(&["test", "--package", "splitzip-host", "--target", TRIPLE, "--no-fail-fast"]);
    for test in TESTS {
        command.args(["--test", test]);
    }
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", "-Zsanitizer=address")
        .env_remove("RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", target().join("address"));
    run(command.env("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1"))
}
