//! What was recorded on a GPU is a record of the PTX that is committed.

#[path = "support/ptx.rs"]
mod ptx;

use serde_json::Value;

const AGAIN: &str = "record anew on a machine with a GPU: `cargo run --release --manifest-path examples/own-kernels/Cargo.toml \
                     --example record -- -o examples/own-kernels/h200.json`";

#[test]
fn the_record_is_of_what_is_committed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/h200.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}; {AGAIN}"));
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["failures"], Value::Array(Vec::new()), "{path} records failures; {AGAIN}");
    for target in ["sm_80", "sm_90"] {
        let run = &record["targets"][target];
        assert_eq!(run["entries"], Value::Object(ptx::hashes(target).unwrap()), "{target}; {AGAIN}");
        for entry in own_kernels::entries() {
            let runs = run["runs"][entry.name].as_u64().unwrap_or_default();
            assert!(runs > 20, "{path} has {runs} runs of {} for {target}; {AGAIN}", entry.name);
        }
    }
    let speeds = record["speed"].as_array().map_or(&[][..], Vec::as_slice);
    for entry in own_kernels::entries() {
        let speed = speeds.iter().find(|speed| speed["entry"] == entry.name);
        assert!(
            speed.is_some_and(|speed| speed["gb_s"].as_f64() > Some(0.0)),
            "{path}: {}; {AGAIN}",
            entry.name
        );
    }
}
