//! What people and programs see: JSON objects whose fields stay, and tables. (The help is `docs/cli.md`.)

mod common;

use common::{Place, bf16, command, noise, run, safetensors_of};
use serde_json::Value;
use std::path::PathBuf;

#[test]
fn the_version() {
    let said = run([&"--version"]).succeeds();
    assert_eq!(said.stdout, format!("splitzip {}\n", env!("CARGO_PKG_VERSION")));
}

/// The object that a run printed, with what differs from run to run and from place to place taken out.
fn object(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Value {
    let mut command = command();
    command.args(arguments.iter().map(|argument| argument.as_ref())).arg("--json");
    let said = common::Run::from(command.output().expect("the program starts")).succeeds();
    let mut object = serde_json::from_str(&said.stdout).expect("one JSON object");
    redact(&mut object);
    object
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match name.as_str() {
                    "seconds" | "bytes_per_second" => {
                        assert!(value.as_f64().is_some_and(|number| number > 0.0), "{name}: {value}");
                        *value = format!("[{name}]").into();
                    }
                    "input" | "output" | "against" | "codebook"
                        if value.as_str().is_some_and(|text| text != "auto") =>
                    {
                        *value = "[path]".into();
                    }
                    "inputs" => *value = value.as_array().map_or(0, Vec::len).into(),
                    _ => redact(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        // The last digits of a logarithm are the machine's.
        Value::Number(number) if number.is_f64() => {
            *value = number.as_f64().map_or(Value::Null, |number| ((1e6 * number).round() / 1e6).into());
        }
        _ => {}
    }
}

fn input(place: &Place) -> PathBuf {
    let file = safetensors_of(&[
        ("layers.0.k", "BF16", &[2, 32, 64], bf16(4096, 1)),
        ("layers.0.v", "BF16", &[2, 32, 64], bf16(4096, 2)),
        ("half", "F16", &[10], noise(20, 3)),
        ("ids", "I64", &[3], noise(24, 4)),
        ("none", "BF16", &[0], vec![]),
    ]);
    place.file("in.safetensors", &file)
}

#[test]
fn json_of_compress_decompress_and_verify() {
    let place = Place::new();
    let (input, packed, back) = (input(&place), place.path("x.spz"), place.path("back"));
    let book = place.path("book");
    run([&"calibrate", &input, &"-o", &book, &"--device", &"cpu"]).succeeds();
    let plain = object(&[&"compress", &input, &"-o", &packed, &"--device", &"cpu"]);
    assert_eq!((&plain["codebook"], &plain["verify"]), (&Value::from("auto"), &Value::Null));
    let compress: [&dyn AsRef<std::ffi::OsStr>; 12] = [
        &"compress",
        &input,
        &"-o",
        &packed,
        &"--force",
        &"--verify",
        &"--device",
        &"cpu",
        &"--codebook",
        &book,
        &"--scheme",
        &"w4",
    ];
    insta::assert_json_snapshot!("compress", object(&compress));
    insta::assert_json_snapshot!(
        "verify",
        object(&[&"verify", &packed, &"--against", &input, &"--device", &"cpu"])
    );
    insta::assert_json_snapshot!(
        "decompress",
        object(&[&"decompress", &packed, &"-o", &back, &"--device", &"cpu"])
    );
}

#[test]
fn json_of_inspect_and_calibrate() {
    let place = Place::new();
    let (input, packed, book) = (input(&place), place.path("x.spz"), place.path("book"));
    insta::assert_json_snapshot!("inspect", object(&[&"inspect", &input, &"--device", &"cpu"]));
    insta::assert_json_snapshot!(
        "calibrate",
        object(&[&"calibrate", &input, &input, &"-o", &book, &"--device", &"cpu"])
    );
    run([&"compress", &input, &"-o", &packed, &"--device", &"cpu"]).succeeds();
    let mut raw = object(&[&"inspect", &input, &"--device", &"cpu"]);
    let coded = object(&[&"inspect", &packed, &"--device", &"cpu"]);
    // An .spz file says the same about its tensors as its original did.
    raw["compressed"] = true.into();
    assert_eq!(raw, coded);
}

#[test]
fn json_of_devices() {
    let object = object(&[&"devices"]);
    assert_eq!((&object["schema"], &object["command"]), (&Value::from(1), &Value::from("devices")));
    let devices = object["devices"].as_array().expect("devices");
    let fields = ["device", "name", "memory_bytes", "compute_capability", "schemes", "unavailable"];
    for device in devices {
        let device = device.as_object().expect("a device");
        let mut names: Vec<&str> = device.keys().map(String::as_str).collect();
        let mut expected = fields;
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
    assert_eq!(devices[0]["device"], "cpu");
    assert!(devices[0]["schemes"].as_array().is_some_and(|schemes| schemes.contains(&"w4".into())));
}

#[test]
fn tables_for_people() {
    let place = Place::new();
    let input = input(&place);
    let said = run([&"inspect", &input, &"--device", &"cpu"]).succeeds();
    insta::assert_snapshot!("inspect_table", said.stdout);
    let strange =
        safetensors_of(&[("a\\u001b[31m\\nb", "U8", &[1], vec![0]), (&"n".repeat(99), "U8", &[1], vec![0])]);
    let strange = place.file("strange", &strange);
    let said = run([&"inspect", &strange, &"--device", &"cpu"]).succeeds();
    assert!(said.stdout.contains(r"a\u{1b}[31m\nb"), "{}", said.stdout);
    assert!(said.stdout.lines().all(|line| line.chars().count() < 160), "{}", said.stdout);
    let said = run([&"devices"]).succeeds();
    assert!(said.stdout.contains("cpu"));
}

#[test]
fn verbose_says_more_on_stderr_only() {
    let place = Place::new();
    let (input, output) = (input(&place), place.path("out"));
    let said = run([&"compress", &input, &"-o", &output, &"--device", &"cpu", &"--json", &"-vv"]);
    assert_eq!(said.code, Some(0));
    assert!(said.stderr.contains("device: cpu") && said.stderr.contains("coded_bytes"), "{}", said.stderr);
    assert!(!said.stderr.contains('\u{1b}'), "colours although stderr is no terminal: {}", said.stderr);
    serde_json::from_str::<Value>(&said.stdout).expect("one JSON object");
}
