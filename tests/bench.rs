//! `splitzip bench`: what it prints, what it refuses. How fast anything is, is no matter here.

mod common;

use common::{Place, Run, bf16, command, fixture, noise, run, safetensors_of};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

fn bench(arguments: &[&dyn AsRef<OsStr>]) -> Run {
    let mut command = command();
    command.arg("bench").args(arguments.iter().map(|argument| argument.as_ref()));
    command.output().expect("the program starts").into()
}

/// The object that a run printed.
fn object(arguments: &[&dyn AsRef<OsStr>]) -> Value {
    let json: &dyn AsRef<OsStr> = &"--json";
    let said = bench(&[arguments, &[json]].concat()).succeeds();
    serde_json::from_str(&said.stdout).expect("one JSON object")
}

fn rows(object: &Value) -> &Vec<Value> {
    object["rows"].as_array().expect("rows")
}

/// What must be so in every object, whatever was measured.
fn check(object: &Value) {
    assert_eq!((&object["schema"], &object["command"]), (&Value::from(1), &Value::from("bench")));
    assert!(!rows(object).is_empty());
    for row in rows(object) {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {row}"));
        let (raw, coded) = (number(&row["raw_bytes"]), number(&row["coded_bytes"]));
        assert!((number(&row["ratio"]) / raw * coded - 1.0).abs() < 1e-5, "{row}");
        assert_eq!(row["verified"], true, "{row}");
        let copy = &row["copy"];
        assert_eq!(copy["share"], Value::Null, "{row}");
        for name in ["copy", "encode", "decode"] {
            let of = &row[name];
            let (seconds, quartiles) = (number(&of["seconds"]), &of["quartiles"]);
            assert!(number(&quartiles[0]) <= seconds && seconds <= number(&quartiles[1]), "{row}");
            let moved = if name == "copy" { 2.0 * raw } else { raw };
            assert!((number(&of["bytes_per_second"]) * seconds / moved - 1.0).abs() < 1e-4, "{row}");
            if name != "copy" {
                let share = (raw + coded) / seconds / number(&copy["bytes_per_second"]);
                assert!((number(&of["share"]) / share - 1.0).abs() < 1e-4, "{row}");
            }
        }
    }
}

/// Takes out what differs from run to run and from machine to machine.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let digits = ["seconds", "quartiles", "bytes_per_second", "share"].contains(&name.as_str());
                let machine = ["os", "architecture", "cpu", "cores", "debug_build"].contains(&name.as_str());
                let instructions = name == "instructions";
                if machine || (digits || instructions) && !value.is_null() {
                    *value = format!("[{name}]").into();
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        _ => {}
    }
}

#[test]
fn json_of_a_run_on_the_cpu() {
    let sizes: [&dyn AsRef<OsStr>; 6] = [&"--sizes", &"64KiB", &"--runs", &"3", &"--threads", &"1"];
    let mut object = object(&sizes);
    check(&object);
    redact(&mut object);
    // One row whole; of the others, what they are of.
    let others: Vec<String> = rows(&object)
        .iter()
        .map(|row| {
            let fields = [
                "data",
                "dtype",
                "scheme",
                "bases",
                "codebook",
                "placement",
                "raw_bytes",
                "coded_bytes",
                "same_frame_as",
            ];
            fields.map(|field| row[field].to_string().replace('"', "")).join(" ")
        })
        .collect();
    object["rows"] = Value::from(vec![rows(&object)[0].clone()]);
    object["other_rows"] = others.into();
    insta::assert_json_snapshot!("bench", object);
}

/// A row of a CPU says nothing without the instructions that it took.
#[test]
fn the_cpu_says_its_instructions() {
    let of = |level: &str| {
        let mut command = command();
        command.args([
            "bench",
            "--sizes=4KiB",
            "--runs=1",
            "--schemes=w3",
            "--device=cpu,reference",
            "--json",
        ]);
        let said = command.env("SPLITZIP_CPU_LEVEL", level).output().expect("the program starts");
        let object: Value = serde_json::from_slice(&said.stdout).expect("JSON");
        let of = |number: usize| object["devices"][number]["instructions"].clone();
        assert_eq!(of(1), Value::Null, "the reference has none");
        of(0)
    };
    let all = ["baseline", "avx2", "avx512"];
    let found = all.iter().position(|name| of("9") == *name).expect("instructions");
    // A level lowers what there is, and no more.
    for level in 0..3 {
        assert_eq!(of(&level.to_string()), all[level.min(found)]);
    }
}

#[test]
fn every_list_is_combined_with_every_other() {
    let object = object(&[
        &"--device=cpu,reference",
        &"--threads=1,2",
        &"--generate=histogram,random5,half-zeros,zeros,incompressible,zeros",
        &"--dtypes=bf16,fp16,e4m3,e5m2",
        &"--schemes=w3,w2x2x3",
        &"--placement=canonical,arrival",
        &"--sizes=3kB,16KiB",
        &"--runs=1",
    ]);
    check(&object);
    // Two counts of threads and the reference, five kinds, four dtypes, two schemes with two kinds of bases, two orders, two sizes.
    assert_eq!(rows(&object).len(), 3 * 5 * 4 * 2 * 2 * 2 * 2);
    let found = |field: &str| {
        let mut found: Vec<String> = rows(&object).iter().map(|row| row[field].to_string()).collect();
        found.sort();
        found.dedup();
        found
    };
    assert_eq!(found("device"), [r#""cpu""#, r#""reference""#]);
    assert_eq!(found("threads"), ["1", "2"]);
    // Whole rows of 64 channels: of 2 bytes an element, and of 1.
    assert_eq!(found("raw_bytes"), ["16384", "2944"]);
    assert_eq!(found("data").len(), 5);
    assert_eq!(found("bases"), [r#""channel""#, r#""chunk""#]);
    assert_eq!(object["notes"], Value::Array(vec![]));
    // All devices code the same bytes.
    let of = |device: &str, threads: u64| -> Vec<(Value, Value)> {
        let same = |row: &&Value| row["device"] == device && row["threads"] == threads;
        let canonical = |row: &&Value| row["placement"] == "canonical";
        let sizes = |row: &Value| (row["coded_bytes"].clone(), row["ratio"].clone());
        rows(&object).iter().filter(same).filter(canonical).map(sizes).collect()
    };
    assert_eq!(of("cpu", 1), of("cpu", 2));
    assert_eq!(of("cpu", 1), of("reference", 1));
    for row in rows(&object).iter().filter(|row| row["placement"] == "canonical") {
        let other = if row["device"] == "cpu" { "reference" } else { "cpu" };
        assert_eq!(row["same_frame_as"], other, "{row}");
    }
}

#[test]
fn a_file_is_measured_as_it_is_and_converted() {
    let fixture = fixture();
    let object = object(&[
        &"--data",
        &fixture,
        &"--sizes=1MiB",
        &"--runs=1",
        &"--codebook=auto,calibrated",
        &"--dtypes=bf16,e4m3",
    ]);
    check(&object);
    let ratio = |dtype: &str, scheme: &str, bases: &str| {
        let row = rows(&object).iter().find(|row| {
            row["dtype"] == dtype && row["scheme"] == scheme && (row["bases"] == bases || bases.is_empty())
        });
        row.and_then(|row| row["ratio"].as_f64()).unwrap_or_else(|| panic!("no {dtype} {scheme} {bases}"))
    };
    assert!(ratio("bf16", "w2x3", "chunk") > 1.42 && ratio("bf16", "w2x2x3", "chunk") > 1.44);
    assert!(ratio("bf16", "w2x3", "channel") > 1.44 && ratio("e4m3", "w2x3", "channel") > 1.1);
    assert!(ratio("bf16", "w4", "") > 1.3);
    let codebooks =
        rows(&object).iter().filter(|row| row["scheme"] == "w4").map(|row| row["codebook"].clone());
    assert_eq!(codebooks.collect::<Vec<_>>(), ["auto", "calibrated"]);
    assert!(rows(&object).iter().all(|row| row["data"] == "smollm2_prose_160"));
    let note = object["notes"][0].as_str().expect("a note");
    assert!(note.starts_with("w4 is pointless for e4m3"), "{note}");
}

/// What a cache has: one frame, K with channel bases and V with chunk bases.
#[test]
fn keys_and_values_in_one_frame() {
    let fixture = fixture();
    let of = |more: &[&dyn AsRef<OsStr>]| {
        let all: [&dyn AsRef<OsStr>; 3] = [&"--sizes=1MiB,129kB", &"--runs=1", &"--bases=keys,chunk,channel"];
        object(&[more, &all[..]].concat())
    };
    let object = of(&[&"--data", &fixture, &"--placement=canonical,arrival"]);
    check(&object);
    let found = |scheme: &str, bases: &str| {
        let row = rows(&object).iter().find(|row| row["scheme"] == scheme && row["bases"] == bases);
        row.unwrap_or_else(|| panic!("no {scheme} {bases}"))
    };
    for scheme in ["w3", "w2x3", "w2x2x3"] {
        let row = found(scheme, "keys");
        assert_eq!(
            (&row["raw_bytes"], &row["same_frame_as"]),
            (&Value::from(1 << 20), &Value::from("reference"))
        );
        let ratio = |bases: &str| found(scheme, bases)["ratio"].as_f64().expect("a ratio");
        assert!(ratio("keys") > ratio("chunk") + 0.004, "{scheme} {} {}", ratio("keys"), ratio("chunk"));
    }
    // 129 kB are two tensors of 503 rows of 128 bytes.
    let bases = |bases: &str| rows(&object).iter().filter(|row| row["bases"] == bases).count();
    assert_eq!((bases("keys"), bases("chunk"), bases("channel")), (12, 12, 12));
    assert!(rows(&object).iter().any(|row| row["bases"] == "keys" && row["raw_bytes"] == 2 * 503 * 128));
    // Rows of them are behind all others of the same data, and what is generated has keys and values as well.
    let generated = of(&[&"--generate=histogram,random5,zeros", &"--schemes=w3", &"--dtypes=bf16,e4m3"]);
    check(&generated);
    assert_eq!(rows(&generated).len(), 3 * 2 * 3 * 2);
    let said = bench(&[&"--bases=keys", &"--schemes=w2x3", &"--sizes=64KiB", &"--runs=1"]).succeeds().stdout;
    assert!(said.contains("keys: one frame of K with channel bases and V with chunk bases"), "{said}");
}

#[test]
fn files_say_which_dtypes_they_have() {
    let place = Place::new();
    let halves = place.file(
        "halves.safetensors",
        &safetensors_of(&[
            ("a", "F16", &[40, 24], noise(1920, 1)),
            ("b", "F8_E5M2", &[3, 100], noise(300, 2)),
            ("ids", "I64", &[10], noise(80, 3)),
        ]),
    );
    let found = object(&[&"--data", &halves, &"--sizes", &"2KiB", &"--runs", &"1", &"--schemes", &"w3"]);
    check(&found);
    let of: Vec<String> = rows(&found)
        .iter()
        .map(|row| format!("{} {} {}", row["dtype"], row["bases"], row["raw_bytes"]).replace('"', ""))
        .collect();
    // Rows of 24 channels; 100 channels can have no bases.
    assert_eq!(of, ["fp16 chunk 2016", "fp16 channel 2016", "e5m2 chunk 2048"]);
    let note = found["notes"][0].as_str().expect("a note");
    assert!(note.contains("halves do not have one last dimension"), "{note}");
    bench(&[&"--data", &halves, &"--dtypes", &"e4m3"])
        .fails(2, &["halves has no tensors of e4m3", "none of bf16", "one of fp16, e5m2"]);
    bench(&[&"--data", &halves, &"--dtypes=e5m2", &"--schemes=w3", &"--bases=channel"])
        .fails(2, &["do not have one last dimension", "use chunk bases"]);
    let none = place.file("none", &safetensors_of(&[("ids", "I64", &[1], noise(8, 1))]));
    bench(&[&"--data", &none])
        .fails(1, &["none has no tensors of bf16, fp16, e4m3, e5m2", "nothing to measure"]);
    let text = place.file("text", b"hello, this is some text");
    bench(&[&"--data", &text]).fails(1, &["text: not a valid safetensors file"]);
    bench(&[&"--data", &place.path("missing")]).fails(1, &["cannot open", "missing"]);
    let packed = place.path("packed.spz");
    run([&"compress", &halves, &"-o", &packed, &"--device", &"cpu"]).succeeds();
    bench(&[&"--data", &packed]).fails(1, &["it is an .spz file already"]);
    let said = bench(&[&"--data", &halves, &"--sizes=2KiB", &"--runs=1", &"--dtypes=fp16", &"--bases=keys"]);
    said.fails(2, &["nothing is left to measure for fp16", "halves are not keys and values by their names"]);
    let weights =
        place.file("weights.safetensors", &safetensors_of(&[("x", "BF16", &[64, 64], bf16(4096, 1))]));
    let record = object(&[&"--data", &weights, &"--sizes=2KiB", &"--runs=1", &"--record"]);
    let said = record["notes"].to_string();
    assert!(said.contains("weights are not keys and values by their names"), "{said}");
    // A file of whatever numbers is bits like any other.
    let odd = place.file("odd", &safetensors_of(&[("k", "BF16", &[333], bf16(333, 1))]));
    check(&object(&[&"--data", &odd, &"--sizes=1kB,1", &"--runs=1", &"--dtypes=e4m3"]));
}

#[test]
fn what_cannot_be_measured() {
    let refused: [(&[&str], &[&str]); 15] = [
        (&["--schemes", "w9"], &["there is no scheme \"w9\" to measure", "w4, w3, w2x3, w2x2x3"]),
        (&["--schemes", "stored"], &["there is no scheme \"stored\" to measure"]),
        (&["--dtypes", "bytes"], &["no float format \"bytes\"", "bf16, fp16, e4m3, e5m2"]),
        (&["--bases", "row"], &["no bases \"row\"", "chunk, channel, keys"]),
        (&["--sizes", "1.5MiB"], &["whole number of bytes", "as in 64KiB"]),
        (&["--sizes", "64KiB,0"], &["at least 1"]),
        (&["--sizes", "300000GiB"], &["below 256 TiB"]),
        (
            &["--sizes", "64KiB,100"],
            &["--sizes has 100 B, less than one row of the tensors, which takes 128 B in bf16"],
        ),
        (&["--device", "gpu"], &["must be auto, cpu or cuda:N"]),
        (
            &["--dtypes", "e4m3", "--schemes", "w3,w4"],
            &["w4 is pointless for e4m3", "use one of stored, w3, w2x3, w2x2x3"],
        ),
        (&["--schemes", "w4", "--bases", "channel"], &["w4 has no window", "use chunk bases"]),
        (&["--schemes", "w4", "--bases", "keys"], &["w4 has no window", "use chunk bases"]),
        (
            &["--sizes", "200", "--schemes", "w3", "--bases", "keys"],
            &["--sizes has 200 B, less than one row of each of the two tensors, which takes 128 B"],
        ),
        (&["--record", "--schemes", "w4"], &["--record", "cannot be used with", "--schemes"]),
        (&["--json", "--markdown"], &["cannot be used with"]),
    ];
    for (arguments, words) in refused {
        let arguments: Vec<&dyn AsRef<OsStr>> = arguments.iter().map(|of| of as &dyn AsRef<OsStr>).collect();
        bench(&arguments).fails(2, words);
    }
    // No machine has so many GPUs, or so much memory.
    bench(&[&"--device", &"cuda:77"]).fails(1, &["cuda:77 is not available", "--device cpu"]);
    bench(&[&"--device", &"cpu,cuda:77", &"--sizes", &"1GiB"]).fails(1, &["cuda:77 is not available"]);
    #[cfg(target_os = "linux")]
    bench(&[&"--sizes", &"64KiB,200000GiB"]).fails(1, &["does not give", "bytes of memory", "smaller sizes"]);
    #[cfg(not(feature = "peers"))]
    bench(&[&"--peers"]).fails(2, &["this build has no --peers", "--features peers"]);
}

#[cfg(feature = "peers")]
#[test]
fn peers_stand_beside_ours() {
    let fixture = fixture();
    let object = object(&[
        &"--data",
        &fixture,
        &"--sizes=1MiB",
        &"--runs=1",
        &"--schemes=w2x3",
        &"--bases=chunk",
        &"--peers",
    ]);
    check(&object);
    let codecs: Vec<&str> = rows(&object).iter().filter_map(|row| row["codec"].as_str()).collect();
    assert_eq!(codecs, ["splitzip", "zstd-1", "lz4"]);
    assert!(rows(&object)[1]["ratio"].as_f64().is_some_and(|ratio| ratio > 1.35));
    assert_eq!(rows(&object)[1]["scheme"], Value::Null);
}

/// What only a GPU has, on a machine that has one.
#[test]
fn a_gpu_has_graphs_and_calls() {
    let devices = run([&"devices", &"--json"]).succeeds().stdout;
    let devices: Value = serde_json::from_str(&devices).expect("JSON");
    let gpu =
        devices["devices"].as_array().expect("devices").iter().find(|device| device["device"] == "cuda:0");
    if gpu.is_none_or(|gpu| !gpu["unavailable"].is_null()) {
        use std::io::Write;
        // Not `eprintln!`, which a passing test does not show.
        let _ = std::io::stderr().write_all(b"SKIPPED a_gpu_has_graphs_and_calls: there is no GPU\n");
        return;
    }
    let object = object(&[
        &"--device=cuda:0,cpu",
        &"--sizes=64KiB,8MiB",
        &"--bases=chunk,channel,keys",
        &"--placement=canonical,arrival",
        &"--codebook=auto,calibrated",
        &"--runs=5",
    ]);
    check(&object);
    assert!(object["devices"][0]["entries"].as_object().is_some_and(|entries| entries.len() > 50));
    let (gpu, cpu): (Vec<&Value>, Vec<&Value>) =
        rows(&object).iter().partition(|row| row["device"] == "cuda:0");
    assert_eq!(gpu.len(), cpu.len());
    for (gpu, cpu) in gpu.iter().zip(&cpu) {
        for part in ["copy", "encode", "decode"] {
            assert!(gpu["graph"][part]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{gpu}");
        }
        assert!(gpu["call"]["encode"]["seconds"].as_f64().is_some_and(|seconds| seconds < 1e-3), "{gpu}");
        assert_eq!((&gpu["coded_bytes"], &cpu["graph"]), (&cpu["coded_bytes"], &Value::Null));
        let canonical = gpu["placement"] == "canonical";
        assert_eq!(gpu["same_frame_as"], if canonical { Value::from("cpu") } else { Value::Null });
    }
    bench(&[&"--device", &"cuda:0", &"--sizes", &"100000GiB"])
        .fails(1, &["cuda:0 has", "bytes of memory free", "smaller sizes"]);
}

/// The rows of the documentation, at small sizes.
#[test]
fn the_rows_of_the_record() {
    let object = object(&[&"--record", &"--sizes=64KiB,2MiB", &"--runs=1"]);
    check(&object);
    let count = |test: &dyn Fn(&Value) -> bool| rows(&object).iter().filter(|row| test(row)).count();
    let (small, large) = (65_536, 2 << 20);
    // Pairs of scheme and bases that the dtypes have.
    let pairs = ["bf16", "fp16", "e4m3", "e5m2"].map(|dtype| {
        let of = rows(&object).iter().filter(|row| row["dtype"] == dtype);
        of.map(|row| format!("{} {}", row["scheme"], row["bases"])).collect::<BTreeSet<_>>().len()
    });
    let schemes = rows(&object).iter().map(|row| row["scheme"].to_string()).collect::<BTreeSet<_>>().len();
    assert!(pairs[0] >= 7 && pairs[2] >= 6 && pairs[2] < pairs[3] && schemes >= 4);
    let keys = rows(&object).iter().filter(|row| row["bases"] == "keys");
    let keys: BTreeSet<String> = keys.map(|row| format!("{} {}", row["scheme"], row["raw_bytes"])).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    // bf16 in both orders at both sizes, but keys at the larger one, the first of 2 MiB and more; w4 with auto; four kinds of data; the other dtypes in both orders.
    let others: usize = pairs[1..].iter().sum();
    assert_eq!(count(&|row| row["raw_bytes"] == small), 2 * (pairs[0] - keys.len()));
    assert_eq!(count(&|row| row["raw_bytes"] == large), 2 * pairs[0] + 1 + 4 * schemes + 2 * others);
    assert_eq!(rows(&object).len(), 4 * pairs[0] - 2 * keys.len() + 1 + 4 * schemes + 2 * others);
    assert_eq!(count(&|row| row["codebook"] == "auto"), 1);
    for data in ["random5", "incompressible", "zeros", "half-zeros"] {
        assert_eq!(count(&|row| row["data"] == data), schemes, "{data}");
    }
}

#[test]
fn tables_for_people_and_for_documents() {
    let arguments: [&dyn AsRef<OsStr>; 3] = [&"--sizes=64KiB,1MiB", &"--runs=1", &"--schemes=w4,w2x3"];
    let said = bench(&arguments).succeeds().stdout;
    let title = said.lines().find(|line| line.contains("encode GB/s")).expect("titles");
    assert!(title.starts_with("codec  "), "{title}");
    let head = "data histogram, dtype bf16, order canonical";
    for words in [
        head,
        "w2x3   channel",
        "64 KiB",
        "1 MiB",
        "Every row was decoded and compared; the frames of 6 of 6",
    ] {
        assert!(said.contains(words), "no {words:?} in:\n{said}");
    }
    let markdown: &dyn AsRef<OsStr> = &"--markdown";
    let said = bench(&[&arguments[..], &[markdown]].concat()).succeeds().stdout;
    let table: Vec<&str> = said.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(table.len(), 2 + 6, "{said}");
    assert!(table[1].starts_with("| --- |") && table[1].ends_with(" ---: |"), "{}", table[1]);
    let columns = |line: &str| line.matches(" |").count();
    assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{said}");
}

/// What is embedded is what the fixture has.
#[test]
fn the_embedded_exponents_are_those_of_the_fixture() {
    let said = run([&"inspect", &fixture(), &"--device", &"cpu", &"--json"]).succeeds().stdout;
    let inspected: Value = serde_json::from_str(&said).expect("JSON");
    let mut lines = Vec::new();
    for tensor in inspected["tensors"].as_array().expect("tensors") {
        let (name, shape, counts) = (&tensor["name"], &tensor["shape"], &tensor["exponents"]["counts"]);
        assert_eq!(tensor["dtype"], "BF16");
        lines.push(format!(r#"{{"name":{name},"dtype":"bf16","shape":{shape},"counts":{counts}}}"#));
    }
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/bench/exponents.json");
    if std::env::var_os("SPLITZIP_BLESS").is_some() {
        fs::write(&path, &text).expect("write");
    }
    assert!(
        fs::read_to_string(&path).expect("the exponents") == text,
        "{} is not of the fixture; `cargo xtask bless`",
        path.display()
    );
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_without_a_result() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    let mut command = command();
    command.args(["bench", "-v", "--sizes", "64MiB", "--device", "cpu"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
    let mut line = String::new();
    while !line.contains("measuring") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).expect("stderr"), 0, "it ended before it measured anything");
    }
    let kill = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(kill.expect("kill starts").success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("stderr");
    let output = child.wait_with_output().expect("wait");
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(rest.ends_with("error: interrupted; nothing was written\n"), "{rest}");
    assert_eq!(output.stdout, b"");
}
