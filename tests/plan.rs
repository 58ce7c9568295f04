//! `splitzip plan`: what it says, and what it refuses. The policy itself is tested where it is, in splitzip-host.

mod common;

use common::{Place, Run, command, fixture, run, safetensors_of};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Rates that are made up and never change: records do.
fn rates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rates.json")
}

fn plan(arguments: &[&dyn AsRef<OsStr>]) -> Run {
    let mut command = command();
    command.arg("plan").args(arguments.iter().map(|argument| argument.as_ref()));
    command.output().expect("the program starts").into()
}

/// The object that a run printed; numbers have six digits, the last ones are the machine's.
fn object(arguments: &[&dyn AsRef<OsStr>]) -> Value {
    let json: &dyn AsRef<OsStr> = &"--json";
    let said = plan(&[arguments, &[json]].concat()).succeeds();
    let mut object = serde_json::from_str(&said.stdout).expect("one JSON object");
    round(&mut object);
    object
}

fn round(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            let six = number.as_f64().and_then(|number| format!("{number:.5e}").parse::<f64>().ok());
            *value = six.into();
        }
        _ => {}
    }
}

/// What differs from place to place is taken out.
fn shown(said: &Run) -> String {
    said.stdout.replace(&rates().display().to_string(), "[rates]")
}

#[test]
fn help() {
    insta::assert_snapshot!("plan_help", run([&"plan", &"--help"]).succeeds().stdout);
}

#[test]
fn tables() {
    let rates = rates();
    let one = |more: &[&dyn AsRef<OsStr>]| {
        let rest: [&dyn AsRef<OsStr>; 2] = [&"--rates", &rates];
        shown(&plan(&[more, &rest].concat()).succeeds())
    };
    let mut text = String::new();
    for words in [
        "--bytes 1GB",
        "--bytes 1GB --link 400g",
        "--bytes 1GB --link 400g --serial",
        "--bytes 1GB --link 400g --encode-on cpu",
        "--bytes 1GB --link 1.5GB/s --encode-on cpu --decode-on cuda:0",
        "--bytes 64KiB --link 400g",
        "--bytes 1GB --link 400g --least-gain 40",
        "--layers 32 --kv-heads 8 --head-dim 128 --tokens 32768 --link 100g,nvlink",
    ] {
        let arguments: Vec<&str> = words.split(' ').collect();
        let arguments: Vec<&dyn AsRef<OsStr>> =
            arguments.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        text += &format!("$ splitzip plan {words} --rates RATES\n{}\n", one(&arguments));
    }
    insta::assert_snapshot!("plan_tables", text);
}

#[test]
fn json() {
    let mut object = object(&[&"--bytes", &"1GB", &"--link", &"400g", &"--rates", &rates()]);
    for name in ["encode_rates", "decode_rates"] {
        assert_eq!(object[name], rates().display().to_string());
        object[name] = "[rates]".into();
    }
    insta::assert_json_snapshot!("plan", object);
}

/// The numbers of a file are its own: bytes, dtype, ratios.
#[test]
fn the_ratios_of_a_file() {
    let object = object(&[&fixture(), &"--link", &"100g", &"--rates", &rates()]);
    let bytes = std::fs::metadata(fixture()).expect("the fixture").len();
    assert_eq!((&object["bytes"], &object["dtype"]), (&bytes.into(), &"bf16".into()));
    for codec in object["links"][0]["codecs"].as_array().expect("codecs") {
        let (scheme, bases) = (codec["scheme"].as_str().expect("a scheme"), codec["bases"].as_str());
        let inspect = run([
            &"inspect",
            &fixture(),
            &"--scheme",
            &scheme,
            &"--bases",
            &bases.unwrap_or("chunk"),
            &"--json",
            &"--device",
            &"cpu",
        ]);
        let inspected: Value = serde_json::from_str(&inspect.succeeds().stdout).expect("JSON");
        let (said, real) =
            (codec["ratio"].as_f64().expect("a ratio"), inspected["ratio"].as_f64().expect("a ratio"));
        assert!((said / real - 1.0).abs() < 1e-3, "{scheme} {bases:?}: {said} and {real}");
    }
}

/// Without a file of rates there are those of the repository.
#[test]
fn the_records_are_the_default() {
    let said = plan(&[&"--bytes", &"1GiB"]).succeeds().stdout;
    assert!(
        said.contains("encoded and decoded on h200 (docs/gpu/bench-h200.json, one NVIDIA H200)"),
        "{said}"
    );
    let line = said.lines().find(|line| line.starts_with("100g ")).expect("a row");
    assert!(line.contains("w2x2x3") && line.contains("pipelined"), "{line}");
    let said = plan(&[&"--bytes", &"1GiB", &"--encode-on", &"cpu", &"--link", &"400g"]).succeeds().stdout;
    assert!(said.contains("do not compress") && said.contains("docs/performance.md"), "{said}");
    // A device of the file comes first, and the records are there beside it.
    let said =
        plan(&[&"--bytes", &"1GiB", &"--rates", &rates(), &"--encode-on", &"cpu", &"--decode-on", &"h200"]);
    let said = shown(&said.succeeds());
    assert!(said.contains("encoded on cpu ([rates]), decoded on h200 (docs/gpu"), "{said}");
}

#[test]
fn refusals() {
    let place = Place::new();
    let wrong = place.file("wrong.json", b"{\"schema\":1,\"command\":\"inspect\",\"rows\":[]}");
    let ints = place.file("ints", &safetensors_of(&[("ids", "I64", &[3], vec![0; 24])]));
    let mut text = String::new();
    let mut refuse = |code: i32, arguments: &[&dyn AsRef<OsStr>]| {
        let said = plan(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{}", said.stderr);
        let words =
            arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        text += &format!("$ splitzip plan {words}\n{}\n", said.stderr);
    };
    refuse(2, &[]);
    refuse(2, &[&"--bytes", &"0"]);
    refuse(2, &[&"--bytes", &"1GB", &"--link", &"300g"]);
    refuse(2, &[&"--bytes", &"1GB", &"--link", &"-1"]);
    refuse(2, &[&"--bytes", &"1GB", &"--link", &"0"]);
    refuse(2, &[&"--layers", &"3"]);
    refuse(
        2,
        &[&"--bytes", &"1GB", &"--layers", &"3", &"--kv-heads", &"1", &"--head-dim", &"1", &"--tokens", &"1"],
    );
    let most: [&dyn AsRef<OsStr>; 8] = [
        &"--layers",
        &"100000",
        &"--kv-heads",
        &"100000",
        &"--head-dim",
        &"100000",
        &"--tokens",
        &"1000000000",
    ];
    refuse(2, &most);
    refuse(2, &[&"--bytes", &"1GB", &"--encode-on", &"a100"]);
    refuse(2, &[&"--bytes", &"1GB", &"--encode-on", &"cpu", &"--dtype", &"fp16"]);
    refuse(2, &[&"--bytes", &"1GB", &"--dtype", &"bytes"]);
    refuse(1, &[&"--bytes", &"1GB", &"--rates", &wrong]);
    refuse(1, &[&"--bytes", &"1GB", &"--rates", &place.path("none.json")]);
    refuse(1, &[&ints]);
    refuse(1, &[&place.path("none")]);
    insta::assert_snapshot!("plan_refusals", text.replace(&place.path("").display().to_string(), "[place]/"));
}
