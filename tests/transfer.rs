//! `splitzip bench transfer`: two processes on this machine, files, what it prints and what it refuses. How fast anything is, is no matter here; what needs a GPU is in
//! `splitzip-host/tests/gpu_offload.rs`.

mod common;

use common::{Run, command, fixture};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The smallest request there is: 16 tokens of 32 layers, 2 MiB.
const SMALL: [&str; 4] = ["--device=cpu", "--size=2MiB", "--runs=1", "--what=tcp"];

fn transfer(arguments: &[&str]) -> Run {
    command().args(["bench", "transfer"]).args(arguments).output().expect("the program starts").into()
}

#[test]
fn kv_moves_to_another_process_raw_and_with_every_scheme() {
    let data = format!("--data={}", fixture().display());
    let said = transfer(&[&SMALL[..], &[&data, "--links=unshaped,1g", "--json"]].concat()).succeeds().stdout;
    let object: Value = serde_json::from_str(&said).expect("one JSON object");
    assert_eq!(object["command"], "bench transfer");
    let rows = object["wire"].as_array().expect("rows");
    // Raw and four schemes on two links.
    assert_eq!(rows.len(), 10);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
        let is_raw = row["scheme"].is_null();
        assert_eq!(number("raw_bytes"), f64::from(2 << 20));
        assert_eq!(number("ratio") == 1.0, is_raw, "{row}");
        assert!(is_raw || (1.2..1.6).contains(&number("ratio")), "{row}");
        assert!(row["first"]["seconds"].as_f64() <= row["last"]["seconds"].as_f64(), "{row}");
        if row["link"] == "1 Gbit/s" {
            // What is on the wire takes the time of the wire.
            let least = number("sent_bytes") * 8.0 / 1e9;
            assert!(row["last"]["seconds"].as_f64().unwrap() > 0.9 * least, "{row}");
        }
    }
}

#[test]
fn tables_say_what_was_measured_on_what() {
    let said = transfer(&[&SMALL[..], &["--links=unshaped", "--schemes=w2x3"]].concat()).succeeds().stdout;
    for part in
        ["2 MiB of histogram to another process", "unshaped", "w2x3", "of ratio", "Everything was compared"]
    {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let said = transfer(&[&SMALL[..], &["--links=unshaped", "--schemes=w4", "--markdown"]].concat());
    assert!(said.succeeds().stdout.contains("| --- |"), "a table in Markdown");
    let said = transfer(&["--device=cpu", "--size=2MiB", "--runs=1", "--what=offload"]).succeeds().stdout;
    assert!(said.contains("there is no GPU to offload from"), "{said}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    transfer(&["--links=0g"]).fails(2, &["unshaped, or a number of Gbit/s"]);
    transfer(&["--schemes=w9"]).fails(2, &["w9"]);
    transfer(&["--size=none"]).fails(2, &["a whole number of bytes"]);
    transfer(&["--what=nothing"]).fails(2, &["offload", "tcp"]);
    transfer(&["--device=reference"]).fails(2, &["the reference is too slow"]);
    transfer(&["--device=cuda:77"]).fails(1, &["cuda:77 is not available"]);
    transfer(&["--data=missing"]).fails(1, &["cannot open", "missing"]);
    transfer(&["--what=file", "--device=cpu"]).fails(2, &["--device cpu has none", "use cuda:N or auto"]);
}

/// A request in a file.
fn to_file(folder: &Path, size: &str, more: &[&str]) -> Run {
    let (folder, size) = (format!("--folder={}", folder.display()), format!("--size={size}"));
    transfer(&[&["--what=file", "--runs=2", &folder, &size], more].concat())
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").next().is_none()
}

#[test]
fn files_are_removed_when_they_were_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = to_file(folder.path(), "64MiB", &["--schemes=w2x3,w2x2x3", "--json"]).succeeds().stdout;
    assert!(is_empty(folder.path()), "something is left");
    let object: Value = serde_json::from_str(&said).expect("one JSON object");
    let (rows, notes) = (object["files"].as_array().expect("rows"), object["notes"].to_string());
    if object["device"]["device"] == "cpu" {
        // Not captured, as `eprintln` is.
        let skipped = "SKIPPED files_are_removed_when_they_were_measured: no rows without a GPU\n";
        std::io::stderr().write_all(skipped.as_bytes()).expect("stderr");
        assert!(rows.is_empty() && notes.contains("there is no GPU to save from"), "{said}");
        return;
    }
    // A plain copy, raw, and two schemes, with the cache of the system and, mostly, past it.
    let ios = if notes.contains("has no direct I/O") { 1 } else { 2 };
    assert_eq!(rows.len(), ios * 4);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
        let coded = !row["scheme"].is_null();
        assert_eq!(number("raw_bytes"), f64::from(64 << 20));
        assert_eq!(number("ratio") > 1.2, coded, "{row}");
        assert_eq!(row["is_plain"], !coded, "{row}");
        // Of 512 tokens 64, and so many in a slice.
        assert_eq!((number("part_bytes"), number("slice_bytes")), (f64::from(8 << 20), f64::from(128 << 10)));
        for way in ["out", "back", "part"] {
            assert!(row[way]["seconds"].as_f64() > Some(0.0) && row[way]["runs"] == 2, "{row}");
        }
    }
    let said = to_file(folder.path(), "64MiB", &["--schemes=w2x3"]).succeeds().stdout;
    let name = folder.path().display().to_string();
    for part in ["a file in", &name, "cached", "gathered", "w2x3", "part GB/s", "Everything was compared"] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn folders_that_cannot_take_the_file_are_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    to_file(&missing, "2MiB", &[]).fails(1, &["missing does not exist", "create it first", "--folder"]);
    if cfg!(target_os = "linux") {
        // 17 sixteenths of it and 1 MiB.
        let needed = (200_000u64 << 30) / 16 * 17 + (1 << 20);
        to_file(folder.path(), "200000GiB", &[])
            .fails(1, &["bytes free", &needed.to_string(), "(--folder, --size)"]);
        // Not even root writes there.
        let said = ["cannot create a folder in /proc", "--folder takes a directory"];
        to_file(Path::new("/proc"), "2MiB", &[]).fails(1, &said);
    }
    assert!(is_empty(folder.path()), "something is left");
    let file = folder.path().join("file");
    std::fs::write(&file, b"text").expect("a file");
    to_file(&file, "2MiB", &[]).fails(1, &["cannot create a folder in", "not a directory"]);
    assert_eq!(std::fs::read(&file).expect("the file"), b"text");
}

/// The receiver of a measurement ends when its sender goes, wherever it is.
#[test]
fn a_receiver_whose_sender_has_gone_ends() {
    for said in
        [&b""[..], b"c", b"c\0", b"c\0\x10\0\0\0\0\0\0\0half a", b"r\0\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let mut command = command();
        command.args(["bench", "transfer", "--receive=127.0.0.1:0", "--device=cpu", "--size=2MiB"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).expect("it says where it listens");
        let mut connection = TcpStream::connect(line.trim()).expect("it listens");
        connection.write_all(said).expect("it reads");
        drop(connection);
        let start = Instant::now();
        while child.try_wait().expect("it can be waited for").is_none() {
            if start.elapsed() > Duration::from_secs(30) {
                child.kill().expect("it can be killed");
                panic!("it hangs after {said:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
