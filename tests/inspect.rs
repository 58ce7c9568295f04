//! What `inspect` shows people: bars, and a small histogram. (Its JSON object is in interface.rs.)

mod common;

use common::{Place, Run, bf16, command, fixture, noise, run, safetensors_of};
use serde_json::Value;
use std::path::Path;

fn inspect(file: &Path, environment: &[(&str, &str)]) -> String {
    let mut command = command();
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"] {
        command.env_remove(name);
    }
    command.args(["inspect", "--device", "cpu"]).arg(file).envs(environment.iter().copied());
    Run::from(command.output().expect("the program starts")).succeeds().stdout
}

/// The lines behind the table.
fn histogram(text: &str) -> Vec<&str> {
    let (_, rest) = text.split_once("\nexponent").expect("a histogram");
    rest.lines().skip(1).collect()
}

#[test]
fn the_histogram_of_the_fixture() {
    let text = inspect(&fixture(), &[]);
    let lines = histogram(&text);
    insta::assert_snapshot!("inspect_histogram", lines.join("\n"));

    // Its numbers are those of the JSON object.
    let json = run([&"inspect", &fixture(), &"--device", &"cpu", &"--json"]).succeeds().stdout;
    let object: Value = serde_json::from_str(&json).expect("one JSON object");
    let tensors = object["tensors"].as_array().expect("tensors");
    for (column, ending) in [(1, ".k"), (2, ".v")] {
        let of = tensors
            .iter()
            .filter(|tensor| tensor["name"].as_str().is_some_and(|name| name.ends_with(ending)));
        let counts: Vec<(u64, u64)> = of
            .flat_map(|tensor| tensor["exponents"]["counts"].as_array().expect("counts"))
            .map(|pair| (pair[0].as_u64().expect("an exponent"), pair[1].as_u64().expect("a count")))
            .collect();
        let total: u64 = counts.iter().map(|of| of.1).sum();
        let mut rest = total;
        for line in &lines {
            let words: Vec<&str> = line
                .split_whitespace()
                .filter(|word| word.parse::<f64>().is_ok() || *word == "others")
                .collect();
            let count = match words[0].parse::<u64>() {
                Ok(exponent) => counts.iter().filter(|of| of.0 == exponent).map(|of| of.1).sum(),
                Err(_) => rest,
            };
            rest -= count;
            assert_eq!(words[column], format!("{:.2}", 100.0 * count as f64 / total as f64), "{line}");
        }
        assert_eq!(rest, 0, "all elements are in a row");
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let plain = inspect(&fixture(), &[]);
    assert!(!plain.contains('\u{1b}'), "colours in a pipe");
    assert_eq!(inspect(&fixture(), &[("NO_COLOR", "1"), ("TERM", "xterm-256color")]), plain);
    let colored = inspect(&fixture(), &[("CLICOLOR_FORCE", "1")]);
    assert!(colored.contains("\u{1b}[36m██"), "no coloured bar");
    let mut without = colored.clone();
    while let Some(start) = without.find('\u{1b}') {
        let end = without[start..].find('m').expect("the end of a style");
        without.replace_range(start..=start + end, "");
    }
    assert_eq!(without, plain, "colours change nothing else");
}

#[test]
fn other_files() {
    let place = Place::new();
    let none = place.file(
        "none",
        &safetensors_of(&[("ids", "I64", &[3], noise(24, 4)), ("empty.k", "BF16", &[0], vec![])]),
    );
    let text = inspect(&none, &[]);
    assert!(!text.contains("exponent") && text.trim_end().ends_with('█'), "{text}");
    // Weights are others; the dtype that has most elements is counted.
    let mixed = place.file(
        "mixed",
        &safetensors_of(&[
            ("0.k", "BF16", &[4096], bf16(4096, 1)),
            ("mlp.weight", "BF16", &[4096], bf16(4096, 2)),
            ("half.v", "F16", &[1024], noise(2048, 3)),
        ]),
    );
    let text = inspect(&mixed, &[]);
    assert!(
        text.contains("exponent  K, 1 tensor, 2.04 bits")
            && text.contains("Other tensors, 1 tensor, 2.01 bits"),
        "{text}"
    );
    assert!(!text.contains("V, 1"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 160 && line == line.trim_end()), "{text}");
}
