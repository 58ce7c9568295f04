//! What was recorded on a GPU is a record of the PTX that ships. A stale record is an error.

use serde_json::{Map, Value};
use splitzip_host::cuda::PTX;
use std::collections::BTreeSet;
use std::path::PathBuf;

#[path = "support/members.rs"]
#[allow(dead_code)]
mod members;

#[path = "support/record.rs"]
mod record;

const AGAIN: &str = "record anew on a machine with a GPU: `cargo run --release -p splitzip-host --example gpu_record -- \
                     --commit $(git rev-parse HEAD) -o docs/gpu/h200.json KV.safetensors`, and with `--target sm_80 -o docs/gpu/h200-sm_80.json`";
const BENCH_AGAIN: &str = "measure anew on a machine with a GPU: `cargo run --release -- bench --device cuda:0 --record \
                           --data KV.safetensors --json > docs/gpu/bench-h200.json`";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/gpu").join(name)
}

/// Entries of a record that have changed since, and wait for a machine with a GPU: said aloud, and no others.
fn waiting(name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(path("waiting.json")).unwrap();
    let lists: Value = serde_json::from_str(&text).unwrap();
    let list = lists[name].as_array().cloned().unwrap_or_default();
    let entries: BTreeSet<String> =
        list.iter().filter_map(|entry| entry.as_str().map(str::to_owned)).collect();
    if !entries.is_empty() {
        println!(
            "WAITING FOR A GPU: {} entries of docs/gpu/{name} have changed since it ran; {AGAIN}",
            entries.len()
        );
    }
    entries
}

/// Compares the hashes under `entries` with those of what ships.
fn check_entries(name: &str, of: &Value, again: &str) {
    let mut waiting = waiting(name);
    let target = of["target"].as_str().unwrap_or_else(|| panic!("docs/gpu/{name} names no target; {again}"));
    let recorded = of["entries"].as_object().cloned().unwrap_or_default();
    let shipped: Map<String, Value> = record::ptx_hashes(target);
    for (entry, hash) in &shipped {
        let found = recorded.get(entry);
        assert!(found.is_some(), "docs/gpu/{name} has no run of {target}/{entry}.ptx; {again}");
        if waiting.remove(entry) {
            assert_ne!(found, Some(hash), "docs/gpu/waiting.json: {entry} has run as it ships; take it out");
            continue;
        }
        assert_eq!(
            found,
            Some(hash),
            "docs/gpu/{name} is stale: it ran another {target}/{entry}.ptx than the one that ships; {again}"
        );
    }
    assert!(waiting.is_empty(), "docs/gpu/waiting.json: {waiting:?} of {name} do not ship; take them out");
    for entry in recorded.keys() {
        assert!(
            shipped.contains_key(entry),
            "docs/gpu/{name} ran {entry}, which does not ship any more; {again}"
        );
    }
}

#[test]
fn every_entry_ships_for_every_target() {
    let kernels: BTreeSet<&str> = splitzip_kernels::kernels::entries().map(|entry| entry.name).collect();
    for target in ["sm_80", "sm_90"] {
        let shipped: BTreeSet<&str> =
            PTX.iter().filter(|ptx| ptx.target == target).map(|ptx| ptx.entry).collect();
        let differ: Vec<_> = kernels.symmetric_difference(&shipped).collect();
        assert!(
            differ.is_empty(),
            "{target}: {differ:?} are kernels or PTX files, but not both; `cargo xtask bless`"
        );
    }
}

/// The PTX of both targets ran there: sm_80 files run on everything since.
#[test]
fn the_records_are_of_what_ships() {
    for (name, target) in [("h200.json", "sm_90"), ("h200-sm_80.json", "sm_80")] {
        let text = std::fs::read_to_string(path(name))
            .unwrap_or_else(|error| panic!("docs/gpu/{name}: {error}; {AGAIN}"));
        let record: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["target"], target, "docs/gpu/{name}; {AGAIN}");
        check_entries(name, &record, AGAIN);
        assert_eq!(record["failures"], Value::Array(Vec::new()), "docs/gpu/{name} records failures; {AGAIN}");
        let runs = record["members"].as_array().unwrap();
        for member in members::members() {
            let run = runs.iter().find(|run| run["member"] == member.to_string());
            let run = run.unwrap_or_else(|| panic!("docs/gpu/{name} has no run of {member}; {AGAIN}"));
            assert!(run["cases"].as_u64().unwrap() > 50, "{run}");
        }
        let files = record["files"].as_array().unwrap();
        assert!(!files.is_empty(), "docs/gpu/{name} has no file of real tensors; {AGAIN}");
    }
}

#[test]
fn measurements_are_of_what_ships() {
    // Not every checkout has measurements; a record of correctness it must have.
    let name = "bench-h200.json";
    if let Ok(text) = std::fs::read_to_string(path(name)) {
        let record: Value = serde_json::from_str(&text).unwrap();
        let devices = record["devices"].as_array().unwrap();
        let gpu = devices.iter().find(|device| !device["target"].is_null());
        check_entries(
            name,
            gpu.unwrap_or_else(|| panic!("docs/gpu/{name} has no GPU; {BENCH_AGAIN}")),
            BENCH_AGAIN,
        );
        let rows = record["rows"].as_array().unwrap();
        assert!(rows.len() > 100, "docs/gpu/{name} has {} rows only; {BENCH_AGAIN}", rows.len());
        for row in rows {
            assert_eq!(row["verified"], true, "docs/gpu/{name}: {row}");
        }
    }
}
