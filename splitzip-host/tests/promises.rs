//! What the fuzz targets promise, on their seeds, on inputs that once broke one, and on seeds with changes: without a fuzzer, the same in every run.
//!
//! `cargo xtask fuzz` looks for more; what it finds goes to `tests/found/`, named after the promise.

use std::path::Path;
use std::time::{Duration, Instant};

#[path = "support/promises/mod.rs"]
mod promises;

/// Keeps a promise, and says which input breaks it.
fn keep(promise: &promises::Promise, what: &str, input: &[u8]) {
    let kept = std::panic::catch_unwind(|| (promise.keep)(input));
    if kept.is_err() {
        let path = std::env::temp_dir().join(format!("splitzip-{}.input", promise.name));
        std::fs::write(&path, input).unwrap();
        panic!("{}: broken by {what}, which is in {}", promise.name, path.display());
    }
}

#[test]
fn seeds_are_kept() {
    for promise in &promises::ALL {
        let seeds = (promise.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", promise.name);
        seeds.iter().enumerate().for_each(|(number, seed)| keep(promise, &format!("seed {number}"), seed));
        keep(promise, "no bytes", &[]);
    }
}

#[test]
fn what_was_found_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let Ok(entries) = std::fs::read_dir(&folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let promise = promises::ALL.iter().find(|promise| name.starts_with(promise.name));
        let promise = promise.unwrap_or_else(|| panic!("{name} is named after no promise"));
        keep(promise, &name, &std::fs::read(&path).unwrap());
    }
}

/// As many changed seeds as fit into a few seconds for each promise; at least some.
#[test]
fn changed_seeds_are_kept() {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) as usize
    };
    for promise in &promises::ALL {
        let (seeds, started) = ((promise.seeds)(), Instant::now());
        let mut tried = 0;
        while tried < 50 || started.elapsed() < Duration::from_secs(2) {
            let mut input = seeds[random() % seeds.len()].clone();
            for _ in 0..1 + random() % 4 {
                let at = random() % (input.len() + 1);
                match random() % 5 {
                    0 => input.truncate(at.max(8)),
                    1 => input.insert(at, random() as u8),
                    2 if at < input.len() => input[at] = random() as u8,
                    _ if at < input.len() => input[at] ^= 1 << (random() % 8),
                    _ => input.push(random() as u8),
                }
            }
            keep(promise, "a changed seed", &input);
            tried += 1;
        }
        println!("{}: {tried} changed seeds", promise.name);
    }
}
