//! What happens in the middle of the work: a kill, an interrupt, a full disk, nobody who reads stdout.
#![cfg(unix)]

mod common;

use common::{Place, Run, command, fixture, run, safetensors};
use std::fs;
use std::io::Write;
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
    appears(|| place.names().len() != before);
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

/// The pages behind the new end of a mapped file are gone: that is a signal, and no half file.
#[test]
fn an_input_that_becomes_shorter() {
    let shorten = |path: &Path| {
        let file = fs::File::options().write(true).open(path).expect("open");
        file.set_len(100).expect("make it shorter");
    };
    let words = ["an input was made shorter while it was read, so nothing was written", "run again"];
    let place = Place::new();
    let child = start(&place, &place.path("out"));
    shorten(&place.path("large"));
    Run::from(child.wait_with_output().expect("wait")).fails(1, &words);
    assert_eq!(place.names(), ["large"]);

    // With many threads most of them come to the signal, each with a page of its own.
    for _ in 0..4 {
        let place = Place::new();
        let mut command = command();
        command.args(["compress", "--device", "cpu", "--threads", "16"]).arg(large(&place));
        command.arg("-o").arg(place.path("out")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        appears(|| place.names().len() > 1);
        shorten(&place.path("large"));
        Run::from(child.wait_with_output().expect("wait")).fails(1, &words);
        assert_eq!(place.names(), ["large"]);
    }

    let place = Place::new();
    fs::create_dir(place.path("model")).expect("a directory");
    fs::rename(large(&place), place.path("model/large.safetensors")).expect("rename");
    let mut command = command();
    command.args(["compress", "--device", "cpu"]).arg(place.path("model"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let filled = || -> Option<PathBuf> {
        let name = place.names().into_iter().find(|name| name.starts_with(".model"))?;
        let mut files = fs::read_dir(place.path(&name)).ok()?;
        files.next().map(|_| place.path(&name))
    };
    appears(|| filled().is_some());
    let directory = filled().expect("the new directory");
    shorten(&place.path("model/large.safetensors"));
    let said = Run::from(child.wait_with_output().expect("wait"));
    let left = format!("what is left of the new directory can be removed: {}\n", directory.display());
    said.fails(1, &[&words[..], &[&left]].concat());
    assert_eq!(fs::read_dir(&directory).expect("the new directory").count(), 0);
}

/// An interrupt while a stream has nothing to read, and one in the middle of a directory.
#[test]
fn an_interrupt_of_the_other_inputs() {
    let interrupt = |child: &Child| {
        let kill = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
        assert!(kill.expect("kill starts").success());
    };
    let packed = {
        let place = Place::new();
        run([&"compress", &fixture(), &"-o", &place.path("kv.spz"), &"--device", &"cpu"]).succeeds();
        fs::read(place.path("kv.spz")).expect("the file")
    };
    let original = fs::read(fixture()).expect("the fixture");
    for (name, bytes) in [("compress", &original), ("decompress", &packed)] {
        let place = Place::new();
        let mut command = command();
        command.args([name, "-", "--device", "cpu", "-o"]).arg(place.path("out"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&bytes[..bytes.len() / 2]).expect("write half of it");
        appears(|| !place.names().is_empty());
        interrupt(&child);
        let said = Run::from(child.wait_with_output().expect("wait"));
        drop(stdin);
        said.fails(1, &["interrupted; nothing was written"]);
        assert!(place.names().is_empty(), "{name}: {:?}", place.names());
    }

    let start = |inputs: &[PathBuf]| {
        let mut command = command();
        command.args(["compress", "--device", "cpu"]).args(inputs);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    let place = Place::new();
    fs::create_dir(place.path("model")).expect("a directory");
    fs::rename(large(&place), place.path("model/large.safetensors")).expect("rename");
    let child = start(&[place.path("model")]);
    appears(|| place.names().len() == 2);
    interrupt(&child);
    let said = Run::from(child.wait_with_output().expect("wait"));
    said.fails(1, &["interrupted; nothing was written"]);
    assert_eq!(place.names(), ["model"]);

    // Of several files the first is done when the second is interrupted.
    let place = Place::new();
    fs::copy(fixture(), place.path("first")).expect("copy");
    let child = start(&[place.path("first"), large(&place)]);
    appears(|| place.names().iter().any(|name| name.starts_with(".large")));
    interrupt(&child);
    let said = Run::from(child.wait_with_output().expect("wait"));
    said.fails(1, &["interrupted; 1 of 2 inputs are done"]);
    assert_eq!(place.names(), ["first", "first.spz", "large"]);
}

/// Waits until something has happened.
fn appears(mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < Duration::from_secs(60), "no temporary appeared");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A file system of one megabyte, in name spaces of its own so that it goes away with the shell. `None` where nobody may mount.
fn on_a_small_disk(place: &Place, script: &str) -> Option<Run> {
    let disk = place.path("disk");
    fs::create_dir_all(&disk).expect("a directory");
    let mount = r#"mount -t tmpfs -o size=1m none "$DISK" || exit 99; echo "what was there" >"$DISK/out"; "#;
    let shell = |name_spaces: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(name_spaces).args(["sh", "-c", &format!("{mount}{script}")]);
        unshare.env("DISK", &disk).env("SPLITZIP", env!("CARGO_BIN_EXE_splitzip")).stdin(Stdio::null());
        unshare.output().ok().filter(|said| said.status.success()).map(Run::from)
    };
    // Root may mount, others as root of a name space of users.
    shell(&["--mount"]).or_else(|| shell(&["--user", "--map-root-user", "--mount"]))
}

#[test]
fn a_disk_that_is_really_full() {
    let place = Place::new();
    run([&"compress", &fixture(), &"-o", &place.path("kv.spz"), &"--device", &"cpu"]).succeeds();
    fs::create_dir(place.path("model")).expect("a directory");
    fs::copy(fixture(), place.path("model/a.safetensors")).expect("copy");
    let (fixture, packed) = (fixture(), place.path("kv.spz"));
    let (fixture, packed, model) = (fixture.display(), packed.display(), place.path("model"));
    for call in [
        format!("compress '{fixture}' -o \"$DISK/out\" --force"),
        format!("decompress '{packed}' -o \"$DISK/out\" --force"),
        format!("compress - -o \"$DISK/out\" --force <'{fixture}'"),
        format!("decompress - -o \"$DISK/out\" --force <'{packed}'"),
        format!("compress '{}' -o \"$DISK/model.spz\"", model.display()),
        // Elements without a header are kept in a temporary file first.
        format!("compress - --dtype e5m2 -o \"$DISK/out\" --force <'{packed}.tail'"),
    ] {
        fs::write(place.path("kv.spz.tail"), &fs::read(place.path("kv.spz")).expect("read")[9..])
            .expect("write");
        let script = format!(
            r#"TMPDIR="$DISK" "$SPLITZIP" {call} --device cpu 2>&1; echo "exit code $?"; ls -A "$DISK"; cat "$DISK/out""#
        );
        let Some(said) = on_a_small_disk(&place, &script) else {
            eprintln!(
                "SKIPPED a_disk_that_is_really_full: nobody may mount here; see a_full_disk_leaves_the_target_as_it_was"
            );
            return;
        };
        let lines: Vec<&str> = said.stdout.lines().collect();
        assert_eq!(lines[1..], ["exit code 1", "out", "what was there"], "{call}: {}", said.stdout);
        let full = lines[0].contains("No space left on device");
        assert!(lines[0].starts_with("error: cannot ") && full, "{call}: {}", said.stdout);
    }
}

/// A limit of the size of files stands for a disk that is full. Its signal ends a process that does not expect it.
fn with_little_room(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"ulimit -f 500; exec "$0" "$@""#, env!("CARGO_BIN_EXE_splitzip")]);
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
    // A file of which nobody has read the end is not whole.
    let mut compress = command();
    compress.args(["compress", "-o", "-", "--device", "cpu"]).arg(fixture());
    let mut child =
        compress.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    drop(child.stdout.take());
    let said = Run::from(child.wait_with_output().expect("wait"));
    said.fails(1, &["cannot write to stdout: Broken pipe", "not whole"]);
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
    let place = Place::new();
    run([&"compress", &fixture(), &"-o", &place.path("kv.spz"), &"--device", &"cpu"]).succeeds();
    let packed = place.path("kv.spz");
    let data = [("compress", fixture()), ("decompress", packed)];
    let calls = data.map(|(name, input)| vec![name.into(), input.into_os_string(), "-o".into(), "-".into()]);
    for call in [vec!["devices".into(), "--json".into()], vec!["man".into()]].into_iter().chain(calls) {
        let full = full.try_clone().expect("a second handle");
        let output = command().args(&call).stdout(full).output().expect("the program starts");
        Run::from(output).fails(1, &["cannot write to stdout: No space left on device"]);
    }
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
