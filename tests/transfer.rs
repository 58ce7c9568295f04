//! `splitzip bench transfer`: two processes on this machine, what it prints and what it refuses. How fast anything is, is no matter here; what needs a GPU is in
//! `splitzip-host/tests/gpu_offload.rs`.

mod common;

use common::{Run, command, fixture};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
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
        std::io::Write::write_all(&mut connection, said).expect("it reads");
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
