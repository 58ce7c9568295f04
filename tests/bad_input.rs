//! What cannot be compressed, opened or written: a message that says why, exit code 1 or 2, no target, no temporary.

mod common;

use common::{Place, bf16, command, fixture, run, safetensors, safetensors_of};
use std::fs;
use std::path::Path;

/// Compresses a file of these bytes, which must fail with these words and leave nothing behind, whether there is a target or not.
#[track_caller]
fn refuses(bytes: &[u8], words: &[&str]) {
    let place = Place::new();
    let (input, output) = (place.file("in", bytes), place.path("out.spz"));
    run([&"compress", &input, &"-o", &output, &"--device", &"cpu"]).fails(1, words);
    assert_eq!(place.names(), ["in"]);
    fs::write(&output, "what was there").expect("write");
    run([&"compress", &input, &"-o", &output, &"--force", &"--device", &"cpu"]).fails(1, words);
    run([&"inspect", &input, &"--device", &"cpu"]).fails(1, words);
    run([&"calibrate", &input, &"-o", &output, &"--force", &"--device", &"cpu"]).fails(1, words);
    assert_eq!(fs::read_to_string(&output).expect("the target"), "what was there");
    assert_eq!(place.names(), ["in", "out.spz"]);
}

fn entry(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

#[test]
fn files_that_are_not_safetensors() {
    refuses(b"", &["in: not a valid safetensors file", "0 bytes"]);
    refuses(b"short", &["5 bytes"]);
    refuses(b"hello, this is a text file of some length", &["its first 8 bytes say", "at most 100000000"]);
    refuses(&[0; 64], &["its header"]);
    refuses(&[0xff; 64], &["18446744073709551615"]);
    refuses(&(100_000_001u64).to_le_bytes(), &["at most 100000000"]);
    refuses(
        &[&(90_000_000u64).to_le_bytes()[..], b"{}"].concat(),
        &["needs a file of at least 90000008", "has 10"],
    );
    refuses(&[&(4u64).to_le_bytes()[..], b"{\"\xff\"}"].concat(), &["not UTF-8 at byte 10"]);
    for header in ["", "[]", "null", "{", "{}x", "{\"a\":1}", "{\"a\":{}}", "{\"a\":{\"dtype\":\"BF16\"}}"] {
        refuses(&safetensors(header, b""), &["not a valid safetensors file: its header:"]);
    }
    refuses(&safetensors(&"[".repeat(100_000), b""), &["its header:"]);
}

#[test]
fn headers_that_break_the_rules() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        safetensors(&format!(r#"{{"x":{}}}"#, entry(dtype, shape, offsets)), &[0; 64])
    };
    refuses(&one("BF16", "[32]", "[0,63]"), &["tensor \"x\"", "63 bytes", "needs 64"]);
    refuses(&one("BF16", "[31]", "[0,63]"), &["63 bytes", "elements of 16 bits", "needs 62"]);
    refuses(&one("F4", "[3]", "[0,1]"), &["elements of 4 bits"]);
    refuses(&one("BF16", "[33]", "[0,66]"), &["ends at byte 66 of the data, which has 64"]);
    refuses(&one("BF16", "[1]", "[18446744073709551614,18446744073709551615]"), &["past", "x"][1..]);
    refuses(&one("BF16", "[0]", "[4,2]"), &["the first must not be larger"]);
    refuses(&one("BF16", "[4294967296,4294967296,2]", "[0,0]"), &["64 bits"]);
    refuses(&one("BF16", "[-1]", "[0,2]"), &["its header:"]);
    refuses(&one("BF16", "[1.5]", "[0,2]"), &["its header:"]);
    refuses(&one("BF16", "[1]", "[0]"), &["its header:"]);

    let two = |a: &str, b: &str, names: [&str; 2]| {
        let (a, b) = (entry("U8", "[32]", a), entry("U8", "[32]", b));
        safetensors(&format!(r#"{{"{}":{a},"{}":{b}}}"#, names[0], names[1]), &[0; 64])
    };
    refuses(&two("[0,32]", "[32,64]", ["x", "x"]), &["\"x\" occurs twice"]);
    refuses(&two("[0,32]", "[31,63]", ["a", "b"]), &["\"a\" and \"b\" overlap"]);
    refuses(&two("[0,32]", "[0,32]", ["a", "b"]), &["\"a\" and \"b\" overlap"]);
    let inside =
        format!(r#"{{"a":{},"b":{}}}"#, entry("U8", "[32]", "[0,32]"), entry("U8", "[0]", "[16,16]"));
    refuses(&safetensors(&inside, &[0; 32]), &["\"a\" and \"b\" overlap"]);
}

#[test]
fn a_file_that_was_cut_off() {
    let whole =
        safetensors_of(&[("k", "BF16", &[4096], bf16(4096, 1)), ("v", "BF16", &[4096], bf16(4096, 2))]);
    for length in [1, 7, 8, 9, 100, 130, 200, 5000, whole.len() - 1] {
        refuses(&whole[..length], &["not a valid safetensors file"]);
    }
}

#[test]
fn a_file_that_is_compressed_already() {
    let place = Place::new();
    let once = place.path("once.spz");
    run([&"compress", &fixture(), &"-o", &once, &"--device", &"cpu"]).succeeds();
    run([&"compress", &once, &"-o", &place.path("twice.spz"), &"--device", &"cpu"])
        .fails(1, &["it is an .spz file already"]);
    assert_eq!(place.names(), ["once.spz"]);
}

#[test]
fn inputs_that_cannot_be_read() {
    let place = Place::new();
    let (missing, output) = (place.path("missing"), place.path("out"));
    for name in ["compress", "decompress", "calibrate"] {
        run([&name, &missing, &"-o", &output]).fails(1, &["cannot open", "missing", "No such file"]);
        run([&name, &place.path(""), &"-o", &output]).fails(1, &["is a directory"]);
        #[cfg(unix)]
        run([&name, &"/dev/null", &"-o", &output]).fails(1, &["/dev/null is a device, pipe or socket"]);
    }
    for name in ["verify", "inspect"] {
        run([&name, &missing]).fails(1, &["cannot open", "missing", "No such file"]);
        run([&name, &place.path("")]).fails(1, &["is a directory"]);
    }
    assert!(place.names().is_empty());
}

/// Threads that there is no memory for are an error like all others, and no panic of whoever wants them first.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_started() {
    let place = Place::new();
    let call = |threads: &str, environment: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg("ulimit -v 600000; exec \"$0\" compress \"$1\" -o \"$2\" --device cpu $3");
        shell.arg(env!("CARGO_BIN_EXE_splitzip")).arg(fixture()).arg(place.path("out")).arg(threads);
        shell.env("RAYON_NUM_THREADS", environment).env_remove("RUST_LOG");
        common::Run::from(shell.output().expect("sh starts"))
    };
    call("", "1024").fails(1, &["a thread for each core cannot be started", "--threads 1"]);
    // As many as --threads takes at most, whoever asks.
    call("", "100000").fails(1, &["a thread for each core cannot be started"]);
    call("--threads=1000", "1").fails(1, &["1000 threads cannot be started", "ask for fewer"]);
    assert!(place.names().is_empty(), "{:?}", place.names());
    call("--threads=2", "1").succeeds();
}

/// What replaces a file is read by those who could read it, and by nobody else.
#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let out = place.file("out", b"x");
    for mode in [0o600, 0o640, 0o444] {
        fs::set_permissions(&out, fs::Permissions::from_mode(mode)).expect("permissions");
        run([&"compress", &fixture(), &"-o", &out, &"--force", &"--device", &"cpu"]).succeeds();
        assert_eq!(fs::metadata(&out).expect("the file").permissions().mode() & 0o777, mode);
    }
}

#[cfg(unix)]
#[test]
fn permission_is_denied() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    let place = Place::new();
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    let (secret, original) = (place.file("secret", b"x"), place.path("kv.safetensors"));
    fs::copy(fixture(), &original).expect("copy");
    run([&"compress", &original, &"--device", &"cpu"]).succeeds();
    let (coded, closed) = (place.path("kv.safetensors.spz"), place.path("closed"));
    fs::create_dir(&closed).expect("a directory");
    [(place.path(""), 0o755), (closed.clone(), 0o555), (secret.clone(), 0o000)]
        .iter()
        .for_each(|(path, bits)| mode(path, *bits));
    // Root may do everything: then it is somebody else who calls, with a program that everybody can reach.
    let program = fs::read(&secret).is_ok().then(|| {
        let program = place.path("splitzip");
        fs::copy(env!("CARGO_BIN_EXE_splitzip"), &program).expect("copy");
        program
    });
    let call = |arguments: &[&dyn AsRef<std::ffi::OsStr>]| -> common::Run {
        let mut command = match &program {
            None => command(),
            Some(program) => {
                let mut command = Command::new(program);
                command.uid(65534).gid(65534).env_remove("RUST_LOG");
                command
            }
        };
        command.args(arguments.iter().map(|of| of.as_ref()));
        loop {
            match command.output() {
                // Another test has forked while the copy was written, and its child has not let go of it yet.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                output => return output.expect("the program starts").into(),
            }
        }
    };
    call(&[&"compress", &secret, &"-o", &place.path("out")])
        .fails(1, &["cannot open", "secret: Permission denied"]);
    call(&[&"verify", &coded, &"--against", &secret]).fails(1, &["cannot open", "secret: Permission denied"]);
    let out = closed.join("out");
    for (name, input) in
        [("compress", &original), ("decompress", &coded), ("calibrate", &original), ("report", &original)]
    {
        let said = call(&[&name, input, &"-o", &out, &"--device", &"cpu"]);
        // And not the name of a temporary.
        let said = said.fails(1, &["cannot create", "closed/out: Permission denied (os error 13)\n"]);
        assert!(!said.stderr.contains(".out."), "{}", said.stderr);
    }
    assert_eq!(fs::read_dir(&closed).expect("the directory").count(), 0);
}

#[test]
fn targets_that_cannot_be_written() {
    let place = Place::new();
    let there = place.file("there", b"what was there");
    let compress = |output: &Path, more: &[&str]| {
        let mut command = command();
        command.args(["compress", "--device", "cpu"]).arg(fixture()).arg("-o").arg(output).args(more);
        common::Run::from(command.output().expect("the program starts"))
    };
    compress(&there, &[]).fails(1, &["there exists already", "--force"]);
    compress(&place.path(""), &["--force"]).fails(1, &["is a directory"]);
    compress(&place.path("no/such/out"), &[])
        .fails(1, &["the directory", "no/such does not exist", "create it"]);
    compress(&there.join("out"), &[]).fails(1, &["cannot create", "Not a directory"]);
    // A slash at the end says that it is a directory, whether there is one or not.
    for (name, more) in [("new/", &[][..]), ("there/", &[]), ("there/", &["--force"])] {
        compress(&place.path(name), more).fails(1, &["is the name of a directory, not a regular file"]);
    }
    #[cfg(unix)]
    compress(Path::new("/dev/null"), &["--force"]).fails(1, &["/dev/null is a device"]);
    assert_eq!(fs::read(&there).expect("the target"), b"what was there");
    assert_eq!(place.names(), ["there"]);
    compress(&there, &["--force"]).succeeds();
    assert!(fs::read(&there).expect("the target").starts_with(b"\x89SPZ"));
    run([&"decompress", &there]).fails(2, &["does not end in .spz", "-o"]);
}

#[cfg(unix)]
#[test]
fn a_target_that_is_the_input() {
    let place = Place::new();
    let bytes = safetensors_of(&[("k", "BF16", &[4096], bf16(4096, 1))]);
    let input = place.file("in", &bytes);
    fs::hard_link(&input, place.path("hard")).expect("a link");
    std::os::unix::fs::symlink(&input, place.path("soft")).expect("a link");
    for output in ["in", "hard", "soft", "./in"] {
        for name in ["compress", "calibrate"] {
            run([&name, &input, &"-o", &place.path(output), &"--force"]).fails(1, &["are the same file"]);
        }
    }
    assert_eq!(fs::read(&input).expect("the input"), bytes);
    assert_eq!(place.names(), ["hard", "in", "soft"]);
}

/// A pipe must be refused without opening it: that would wait for its other end, for ever.
#[cfg(unix)]
#[test]
fn a_target_that_is_a_pipe() {
    let place = Place::new();
    let input = place.file("in.safetensors", &safetensors_of(&[("k", "BF16", &[4096], bf16(4096, 1))]));
    let coded = place.path("in.spz");
    run([&"compress", &input, &"-o", &coded]).succeeds();
    let pipe = place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts").success());
    for (name, from) in [("compress", &input), ("calibrate", &input), ("decompress", &coded)] {
        run([&name, from, &"-o", &pipe, &"--force"]).fails(1, &["is a device, pipe or socket"]);
    }
}

#[test]
fn a_target_that_is_the_codebook() {
    let place = Place::new();
    let input = place.file("in", &safetensors_of(&[("k", "BF16", &[4096], bf16(4096, 1))]));
    let book = place.path("book");
    run([&"calibrate", &input, &"-o", &book]).succeeds();
    let before = fs::read(&book).expect("the codebooks");
    run([&"compress", &input, &"--scheme", &"w4", &"--codebook", &book, &"-o", &book, &"--force"])
        .fails(1, &["are the same file"]);
    assert_eq!(fs::read(&book).expect("the codebooks"), before);
}

#[cfg(unix)]
#[test]
fn a_target_behind_a_link_is_replaced_there() {
    let place = Place::new();
    let elsewhere = Place::new();
    let real = elsewhere.file("real", b"old");
    std::os::unix::fs::symlink(&real, place.path("link")).expect("a link");
    std::os::unix::fs::symlink(place.path("nowhere"), place.path("dangling")).expect("a link");
    run([&"compress", &fixture(), &"-o", &place.path("link"), &"--force", &"--device", &"cpu"]).succeeds();
    run([&"compress", &fixture(), &"-o", &place.path("dangling")]).fails(1, &["exists already"]);
    assert!(fs::read(&real).expect("the file").starts_with(b"\x89SPZ"));
    assert!(fs::symlink_metadata(place.path("link")).expect("the link").is_symlink());
    assert_eq!(
        (place.names(), elsewhere.names()),
        (vec!["dangling".into(), "link".into()], vec!["real".into()])
    );
}

#[test]
fn devices_that_are_not_there() {
    let place = Place::new();
    let output = place.path("out");
    // No machine has so many.
    let said = run([&"compress", &fixture(), &"-o", &output, &"--device", &"cuda:77"]);
    said.fails(1, &["cuda:77 is not available", "--device cpu"]);
    for name in
        ["gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "CPU", "", "cuda:99999999999999999999999"]
    {
        let said = run([&"compress", &fixture(), &"-o", &output, &"--device", &name]);
        said.fails(2, &["must be auto, cpu or cuda:N"]);
    }
    assert!(place.names().is_empty());
}

#[test]
fn schemes_that_are_not_there() {
    let place = Place::new();
    let output = place.path("out");
    let said = run([&"compress", &fixture(), &"-o", &output, &"--scheme", &"w9"]);
    said.fails(2, &["there is no scheme \"w9\"", "stored, w4, w3, w2x3, w2x2x3"]);
    assert!(place.names().is_empty());
    // A scheme that there is, but not on this device: the message lists those that it has.
    let devices = run([&"devices", &"--json"]).succeeds().stdout;
    let devices: serde_json::Value = serde_json::from_str(&devices).expect("JSON");
    let has = devices["devices"][0]["schemes"].as_array().expect("schemes of the cpu");
    let has: Vec<&str> = has.iter().filter_map(serde_json::Value::as_str).collect();
    for scheme in ["w4", "w3", "w2x3", "w2x2x3"] {
        let said = run([
            &"compress",
            &fixture(),
            &"-o",
            &output,
            &"--scheme",
            &scheme,
            &"--device",
            &"cpu",
            &"--force",
        ]);
        if has.contains(&scheme) {
            said.succeeds();
        } else {
            let words = [format!("the cpu executor does not have the scheme {scheme}"), has.join(", ")];
            said.fails(2, &words.each_ref().map(String::as_str));
        }
    }
}

#[test]
fn codebooks_that_do_not_fit() {
    let place = Place::new();
    let output = place.path("out");
    let compress = |book: &Path, more: &[&str]| {
        let mut command = command();
        command
            .args(["compress", "--device", "cpu"])
            .arg(fixture())
            .arg("-o")
            .arg(&output)
            .arg("--codebook")
            .arg(book)
            .args(if more.contains(&"--scheme") { &[][..] } else { &["--scheme", "w4"] });
        common::Run::from(command.args(more).output().expect("the program starts"))
    };
    let book = |default: &str| {
        let text =
            format!(r#"{{"format":"splitzip codebooks","version":1,"default":{default},"tensors":{{}}}}"#);
        place.file("book", text.as_bytes())
    };
    let exponents = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";
    compress(&book(&format!(r#"{{"dtype":"fp16","exponents":{exponents}}}"#)), &[])
        .fails(1, &["codebook of \"layers.0.k\" is for fp16, but the tensor is bf16"]);
    compress(&book("null"), &[]).fails(1, &["no codebook for \"layers.0.k\"", "calibrate"]);
    compress(&book(r#"{"dtype":"bf16","exponents":[1,2]}"#), &[])
        .fails(1, &["book: invalid codebook file", "must have 16"]);
    compress(&place.file("book", b"{"), &[]).fails(1, &["invalid codebook file"]);
    compress(&place.file("book", b"\xff"), &[]).fails(1, &["invalid codebook file", "UTF-8"]);
    compress(&place.path("missing"), &[]).fails(1, &["cannot open", "missing"]);
    let good = book(&format!(r#"{{"dtype":"bf16","exponents":{exponents}}}"#));
    compress(&good, &["--scheme", "stored"]).fails(2, &["stored has no codebook"]);
    compress(&good, &["--scheme", "w2x3"]).fails(2, &["w2x3 has no codebook", "use w4 or auto"]);
    assert_eq!(place.names(), ["book"]);
    compress(&good, &["--verify"]).succeeds(); // a bad codebook costs size, never bits
}

#[test]
fn a_scheme_without_a_gain() {
    let place = Place::new();
    let output = place.path("out");
    let compress = |tensors: &[(&str, &str, &[u64], Vec<u8>)], more: &[&str]| {
        let input = place.file("in", &safetensors_of(tensors));
        let mut command = command();
        command.args(["compress", "--device", "cpu", "--force", "-o"]).arg(&output).arg(input).args(more);
        common::Run::from(command.output().expect("the program starts"))
    };
    let (half, k) = (("a", "F8_E4M3", &[4096u64][..], vec![0x38; 4096]), bf16(4096, 1));
    let words = ["in: w4 is pointless for e4m3", "use one of stored, w3, w2x3, w2x2x3"];
    compress(std::slice::from_ref(&half), &["--scheme", "w4"]).fails(1, &words);
    assert_eq!(place.names(), ["in"]);
    let said =
        compress(&[half.clone(), ("k", "BF16", &[4096], k)], &["--scheme", "w4", "--verify"]).succeeds();
    assert!(said.stdout.contains("1 tensor is stored: w4 is pointless for e4m3"), "{}", said.stdout);
    compress(&[half], &["--scheme", "auto", "--verify"]).succeeds();
}

#[test]
fn dtypes_and_bases_that_are_not_there() {
    let place = Place::new();
    let output = place.path("out");
    let compress = |name: &str, value: &str| run([&"compress", &fixture(), &"-o", &output, &name, &value]);
    for none in ["f64", "bytes"] {
        compress("--dtype", none).fails(2, &["there is no float format", none, "bf16, fp16, e4m3, e5m2"]);
    }
    compress("--bases", "row").fails(2, &["there is no bases \"row\"", "auto, chunk, channel"]);
    assert!(place.names().is_empty());
}

#[test]
fn nothing_to_calibrate() {
    let place = Place::new();
    let input = place.file("in", &safetensors_of(&[("x", "F32", &[2], vec![0; 8])]));
    run([&"calibrate", &input, &"-o", &place.path("out"), &"--device", &"cpu"])
        .fails(1, &["nothing to calibrate", "BF16"]);
    assert_eq!(place.names(), ["in"]);
}

#[test]
fn calls_that_are_wrong() {
    let place = Place::new();
    let output = place.path("out");
    run([&"compress"]).fails(2, &["IN"]);
    run([&"squeeze"]).fails(2, &["squeeze"]);
    run([&"compress", &fixture(), &"-o", &output, &"--threads", &"0"]).fails(2, &["--threads"]);
    run([&"compress", &fixture(), &"-o", &output, &"--threads", &"many"]).fails(2, &["--threads"]);
    run([&"calibrate", &fixture()]).fails(2, &["--output"]);
    assert!(place.names().is_empty());
}
