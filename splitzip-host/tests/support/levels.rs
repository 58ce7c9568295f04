//! A test on every level of machine instructions. A process reads its level once, so every level is a process: the test binary again, with its test
//! `one_level`, which is ignored otherwise and ends with [`say_ran`].

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// The levels of `SPLITZIP_CPU_LEVEL`: the build's own target, AVX2, AVX-512.
pub const LEVELS: [u32; 3] = [0, 1, 2];

/// Runs `one_level` for each level, and says which ones ran: a machine without the instructions of a level runs the one below.
pub fn run() -> BTreeSet<u32> {
    let start = |level: u32| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_level", "--ignored", "--nocapture"])
            .env("SPLITZIP_CPU_LEVEL", level.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut ran = BTreeSet::new();
    for (level, child) in LEVELS.map(|level| (level, start(level))) {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "level {level}:\n{text}\n{errors}");
        let line = text.lines().find_map(|line| line.split_once("ran on level "));
        let (_, found) = line.unwrap_or_else(|| panic!("level {level} ran no test:\n{text}"));
        ran.insert(found.parse().unwrap());
    }
    assert!(ran.contains(&0), "{ran:?}");
    ran
}

/// The last line of `one_level`.
pub fn say_ran() {
    println!("ran on level {}", splitzip_kernels::arch::level());
}
