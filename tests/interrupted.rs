//! What happens in the middle of the work: a kill, an interrupt, a full disk, nobody who reads stdout.
#![cfg(unix)]

mod common;

use common::{Place, Run, command, fixture, run, safetensors};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A file that takes a while: 4 GiB of zeros, which take no room on a disk.
fn large(place: &Place) -> PathBuf {
    let bytes = 4u64 << 30;
    let header = format!(r#"{{"x":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{bytes}]}}}}"#, bytes / 2);
    let start = safetensors(&header, b"");
    let path = place.file("large", &start);
    let file = fs::File::options().write(true).open(&path).expect("open");
    file.set_len(start.len() as u64 + bytes).expect("a sparse file");
    path
}

/// Starts to compress it, and waits until the temporary is there.
fn start(place: &Place, output: &Path) -> Child {
    let input = large(place);
    let before = place.names().len();
    let mut command = command();
    command.args(["compress", "--force", "--device", "cpu"]).arg(input).arg("-o").arg(output);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let started = Instant::now();
    while place.names().len() == before {
        assert!(started.elapsed() < Duration::from_secs(60), "no temporary appeared");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn a_kill_leaves_the_target_as_it_was() {
    let place = Place::new();
    let target = place.path("out");
    let mut child = start(&place, &target);
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(!target.exists());

    fs::write(&target, "what was there").expect("write");
    let mut child = start(&place, &target);
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_eq!(fs::read_to_string(&target).expect("the target"), "what was there");
}

#[test]
fn an_interrupt_removes_the_temporary() {
    for signal in ["-INT", "-TERM"] {
        let place = Place::new();
        let child = start(&place, &place.path("out"));
        let kill = Command::new("kill").arg(signal).arg(child.id().to_string()).status();
        assert!(kill.expect("kill starts").success());
        let said = Run::from(child.wait_with_output().expect("wait"));
        said.fails(1, &["interrupted; nothing was written"]);
        assert_eq!(place.names(), ["large"]);
    }
}

/// A limit of the size of files stands for a disk that is full.
fn with_little_room(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 500; exec "$0" "$@""#, env!("CARGO_BIN_EXE_splitzip")]);
    shell.args(arguments.iter().map(|argument| argument.as_ref()));
    shell.output().expect("a shell").into()
}

#[test]
fn a_full_disk_leaves_the_target_as_it_was() {
    let place = Place::new();
    let (packed, target) = (place.path("kv.spz"), place.file("out", b"what was there"));
    run([&"compress", &fixture(), &"-o", &packed, &"--device", &"cpu"]).succeeds();
    for (name, input) in [("compress", fixture()), ("decompress", packed)] {
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 7] =
            [&name, &input, &"-o", &target, &"--force", &"--device", &"cpu"];
        with_little_room(&arguments).fails(1, &["cannot write", "out: File too large"]);
        assert_eq!(fs::read(&target).expect("the target"), b"what was there");
        assert_eq!(place.names(), ["kv.spz", "out"]);
    }
}

#[test]
fn nobody_reads_stdout() {
    for json in [true, false] {
        let mut command = command();
        command.args(["inspect", "--device", "cpu"]).arg(fixture()).args(json.then_some("--json"));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        Run::from(child.wait_with_output().expect("wait")).succeeds();
    }
    let child = command().arg("--help").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    drop(child.stdout.take());
    let said = Run::from(child.wait_with_output().expect("wait"));
    assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
}

#[test]
fn stdout_is_full() {
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else {
        eprintln!("SKIPPED stdout_is_full: there is no /dev/full");
        return;
    };
    let output = command().args(["devices", "--json"]).stdout(full).output().expect("the program starts");
    Run::from(output).fails(1, &["cannot write to stdout: No space left on device"]);
}

#[test]
fn nothing_at_all_is_open() {
    // No stdin, stdout or stderr: files that are opened must not be written to in their place.
    let place = Place::new();
    let output = place.path("out");
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        r#"exec "$0" "$@" <&- >&- 2>&-"#,
        env!("CARGO_BIN_EXE_splitzip"),
        "compress",
        "--device",
        "cpu",
    ]);
    let status = shell.arg(fixture()).arg("-o").arg(&output).arg0("sh").status().expect("a shell");
    assert!(status.success());
    run([&"verify", &output, &"--against", &fixture(), &"--device", &"cpu"]).succeeds();
    assert_eq!(place.names(), ["out"]);
}
