//! Everything that can be compressed beside one safetensors file: arrays, plain elements, streams, several files, checkpoints in a directory.

mod common;

use common::{Place, bf16, command, fixture, noise, pipe, round_trip, run, safetensors, safetensors_of};
use std::fs;
use std::path::Path;

/// A `.npy` file.
fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let length: Vec<u8> = match version {
        1 => (header.len() as u16).to_le_bytes().to_vec(),
        _ => (header.len() as u32).to_le_bytes().to_vec(),
    };
    [b"\x93NUMPY", &[version, 0][..], &length, header.as_bytes(), data].concat()
}

/// Elements of e5m2 or fp16 with few exponents.
fn halves(count: usize) -> Vec<u8> {
    bf16(count, 5).chunks_exact(2).flat_map(|word| [word[0], 0x38 | word[1] & 0x83]).collect()
}

/// What compressing a file gives, and that a stream gives the same.
#[track_caller]
fn compressed(bytes: &[u8], more: &[&str]) -> Vec<u8> {
    let packed = round_trip(bytes, more);
    let place = Place::new();
    let file = place.path("from-stdin.spz");
    let arguments = |output: &Path| {
        let mut command = command();
        command.args(["compress", "-", "--device", "cpu", "-o"]).arg(output).args(more);
        command
    };
    let send = |mut command: std::process::Command| {
        let input = place.file("in", bytes);
        let stdin = fs::File::open(input).expect("open");
        command.stdin(stdin).output().expect("the program starts")
    };
    let said = send(arguments(Path::new("-")));
    assert_eq!((said.status.code(), String::from_utf8_lossy(&said.stderr).as_ref()), (Some(0), ""));
    assert!(said.stdout == packed, "the stream was compressed to other bytes");
    let mut verified = arguments(&file);
    verified.arg("--verify");
    assert!(send(verified).status.success());
    assert!(fs::read(&file).expect("the file") == packed, "stdin was compressed to another file");
    assert!(
        pipe([&"decompress", &"-", &"--device", &"cpu"], &packed).succeeds() == bytes,
        "other bytes came back"
    );
    pipe([&"verify", &"-", &"--device", &"cpu"], &packed).succeeds();
    packed
}

#[test]
fn arrays_of_numpy() {
    let data = halves(3 * 4096);
    for (version, header) in [
        (1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 64, 64), }           \n"),
        (2, "{'descr': '<f2', 'fortran_order': True, 'shape': (64, 192), }\n"),
        (3, "{\"descr\": \"<f2\", \"fortran_order\": False, \"shape\": (12288L,)}\n"),
    ] {
        let file = npy(version, header, &data);
        let packed = compressed(&file, &["--scheme", "auto"]);
        assert!(packed.len() * 10 < file.len() * 9, "{}", packed.len());
    }
    // The floats of ml_dtypes have no name in NumPy, and those with their high byte first have none here.
    let data = bf16(9000, 1);
    let void = npy(1, "{'descr': '|V2', 'fortran_order': False, 'shape': (90, 100)}", &data);
    assert!(compressed(&void, &[]).len() > void.len());
    assert!(compressed(&void, &["--dtype", "bf16"]).len() * 5 < void.len() * 4);
    let swapped = npy(1, "{'descr': '>f2', 'fortran_order': False, 'shape': (90, 100)}", &data);
    assert!(compressed(&swapped, &[]).len() > swapped.len());
    for others in
        ["'<f4', 'fortran_order': False, 'shape': ()", "'|O', 'fortran_order': False, 'shape': (3,)"]
    {
        compressed(&npy(1, &format!("{{'descr': {others}}}"), &data[..4]), &[]);
    }
    let place = Place::new();
    let input = place.file("void.npy", &void);
    let said = run([&"compress", &input, &"--device", &"cpu"]).succeeds();
    assert!(said.stdout.contains("with --dtype they are coded"), "{}", said.stdout);
    let said = run([&"inspect", &place.path("void.npy.spz")]).succeeds();
    assert!(said.stdout.contains("headers, index"), "{}", said.stdout);
}

#[test]
fn arrays_that_break_the_rules() {
    let refuses = |bytes: &[u8], words: &[&str]| {
        let place = Place::new();
        let input = place.file("in.npy", bytes);
        run([&"compress", &input, &"--device", &"cpu"]).fails(1, words);
        run([&"inspect", &input, &"--device", &"cpu"]).fails(1, words);
        pipe([&"compress", &"-", &"--device", &"cpu"], bytes).fails(1, &["npy"]);
        assert_eq!(place.names(), ["in.npy"]);
    };
    let header = "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3)}";
    refuses(&npy(1, header, &[0; 11]), &["in.npy: not a valid .npy file", "there are", "cut off"]);
    refuses(&npy(1, header, &[0; 12])[..40], &["inside of its header"]);
    refuses(&npy(9, header, &[0; 12]), &["version 9 is unknown"]);
    refuses(
        &npy(1, "{'descr': '<f2', 'shape': (2, 3)}", &[0; 12]),
        &["must have descr, fortran_order and shape"],
    );
    refuses(&npy(1, "{'descr': '<f2', 'fortran_order': 1}", &[0; 12]), &["where False must stand"]);
}

#[test]
fn elements_without_a_header() {
    for (dtype, count) in [("bf16", 40_000), ("bf16", 1024), ("bf16", 3), ("e5m2", 0)] {
        let bytes = bf16(count, 3);
        // A last element that is not whole comes back too.
        for extra in [0, 1] {
            let file = [&bytes[..], &bytes[..bytes.len().min(extra)]].concat();
            let packed = compressed(&file, &["--dtype", dtype]);
            assert!(count < 2000 || packed.len() * 5 < file.len() * 4, "{}", packed.len());
        }
    }
    let place = Place::new();
    let (plain, named) = (place.file("kv.bin", &bf16(4096, 1)), place.file("kv.safetensors", &bf16(4096, 1)));
    run([&"compress", &plain]).fails(1, &["not a valid safetensors file", "say which with --dtype"]);
    // A damaged safetensors file is not taken for elements.
    run([&"compress", &named, &"--dtype", &"bf16"]).fails(1, &["not a valid safetensors file"]);
    run([&"inspect", &plain, &"--dtype", &"bf16", &"--device", &"cpu"]).succeeds();
    run([&"compress", &plain, &"--dtype", &"bf16", &"--device", &"cpu"]).succeeds();
    let said = run([&"inspect", &place.path("kv.bin.spz"), &"--device", &"cpu"]).succeeds();
    assert!(said.stdout.contains("data") && said.stdout.contains("BF16"), "{}", said.stdout);
}

#[test]
fn what_python_pickled() {
    let place = Place::new();
    let zip = |name: &[u8]| {
        let head =
            [b"PK\x03\x04".to_vec(), vec![0; 22], (name.len() as u16).to_le_bytes().to_vec(), vec![0; 2]];
        [&head.concat(), name, &noise(999, 1)].concat()
    };
    let file = place.file("my model.pt", &zip(b"archive/data.pkl"));
    let words = [
        "my model.pt is a zip archive",
        "python3 -c \"import sys, torch;",
        "'my model.pt' 'my model.safetensors'",
    ];
    run([&"compress", &file]).fails(1, &words[..2]);
    run([&"compress", &file, &"--dtype", &"bf16"]).fails(1, &words[..2]);
    let mut there = command();
    let said = there.args(["inspect", "my model.pt"]).current_dir(place.path("")).output().expect("starts");
    common::Run::from(said).fails(1, &words);
    run([&"compress", &place.file("kv.npz", &zip(b"keys.npy"))]).fails(1, &["(.npz)", "numpy.load"]);
    run([&"compress", &place.file("old.bin", b"\x80\x02}q\x00.")])
        .fails(1, &["pickle of Python objects", "torch.load"]);
    pipe([&"compress", &"-"], &zip(b"archive/data.pkl")).fails(1, &["stdin is a zip archive"]);
    assert_eq!(place.names(), ["kv.npz", "my model.pt", "old.bin"]);
}

#[test]
fn streams_of_safetensors() {
    let original = fs::read(fixture()).expect("the fixture");
    compressed(&original, &[]);
    let refuses = |bytes: &[u8], words: &[&str]| {
        pipe([&"compress", &"-", &"--device", &"cpu"], bytes).fails(1, words);
        let place = Place::new();
        pipe([&"compress", &"-", &"-o", &place.path("x.spz"), &"--device", &"cpu"], bytes).fails(1, words);
        assert!(place.names().is_empty());
    };
    refuses(
        &original[..original.len() - 1],
        &["stdin: the file ends too early", "its header says", "cut off"],
    );
    refuses(&original[..1000], &["stdin: not a valid safetensors file"]);
    refuses(b"", &["stdin: not a valid safetensors file"]);
    // The size stands in front, and these bytes are seen last.
    refuses(&[&original[..], b"x"].concat(), &["more bytes follow", "from a file"]);
    let huge =
        r#"{"a":{"dtype":"BF16","shape":[4611686018427387904],"data_offsets":[0,9223372036854775808]}}"#;
    refuses(&safetensors(huge, &[0; 5000]), &["the file ends too early"]);
    // Small ones are read as a whole before that matters.
    round_trip(&[&safetensors("{}", b"")[..], b"xyz"].concat(), &[]);
    assert!(
        !pipe([&"compress", &"-", &"--device", &"cpu"], &safetensors("{}", b"xyz")).succeeds().is_empty()
    );
}

#[test]
fn stdin_and_stdout() {
    let place = Place::new();
    let original = fs::read(fixture()).expect("the fixture");
    let packed = pipe([&"compress", &fixture(), &"-o", &"-", &"--device", &"cpu"], b"").succeeds();
    assert_eq!(pipe([&"decompress", &"-", &"--device", &"cpu"], &packed).succeeds(), original);
    let file = place.file("kv.spz", &packed);
    assert_eq!(pipe([&"decompress", &file, &"-o", &"-", &"--device", &"cpu"], b"").succeeds(), original);
    let said =
        pipe([&"decompress", &"-", &"-o", &place.path("back"), &"--device", &"cpu"], &packed).succeeds();
    assert!(String::from_utf8_lossy(&said).contains("decompressed"));
    assert_eq!(fs::read(place.path("back")).expect("the file"), original);
    // Commands that read an input twice keep it.
    let inspected = |bytes: &[u8]| pipe([&"inspect", &"-", &"--device", &"cpu"], bytes).succeeds();
    assert_eq!(inspected(&original), inspected(&packed));
    let book = place.path("book");
    pipe([&"calibrate", &"-", &"-o", &book, &"--device", &"cpu"], &original).succeeds();
    pipe([&"verify", &file, &"--against", &"-", &"--device", &"cpu"], &original).succeeds();
    let json = pipe([&"verify", &"-", &"--json", &"--device", &"cpu"], &packed).succeeds();
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["raw_bytes"], original.len());
    // What cannot be.
    for command in ["compress", "decompress"] {
        pipe([&command, &"-", &"--json"], b"").fails(2, &["cannot both go to stdout"]);
        pipe([&command, &"-", &fixture()], b"").fails(2, &["can only be the one input"]);
    }
    pipe([&"compress", &fixture(), &"-o", &"-", &"--verify"], b"").fails(2, &["leave --verify out"]);
    assert_eq!(place.names(), ["back", "book", "kv.spz"]);
}

/// `-` is stdin and stdout for every command, and stdin is read once.
#[test]
fn dashes_of_every_command() {
    let place = Place::new();
    let kv = safetensors_of(&[("layers.0.k", "BF16", &[128, 64], bf16(8192, 1))]);
    let packed = round_trip(&kv, &[]);
    let input = place.file("kv", &kv);
    let to_stdout = |arguments: [&dyn AsRef<std::ffi::OsStr>; 4], bytes: &[u8]| {
        let mut command = command();
        command.args(arguments.iter().map(|of| of.as_ref())).current_dir(place.path(""));
        let stdin = fs::File::open(place.file("stdin", bytes)).expect("open");
        let said = command.stdin(stdin).output().expect("the program starts");
        assert_eq!((said.status.code(), String::from_utf8_lossy(&said.stderr).as_ref()), (Some(0), ""));
        fs::remove_file(place.path("stdin")).expect("remove");
        said.stdout
    };
    let book = place.path("book");
    run([&"calibrate", &input, &"-o", &book]).succeeds();
    assert!(to_stdout([&"calibrate", &"-", &"-o", &"-"], &kv) == fs::read(&book).expect("the codebooks"));
    let page = to_stdout([&"report", &"-", &"-o", &"-"], &kv);
    assert!(page.starts_with(b"<!DOCTYPE html>") && page.ends_with(b"</html>"), "no page");
    assert_eq!(place.names(), ["book", "kv"]);

    let refuse = |arguments: &[&str], bytes: &[u8], words: &[&str]| {
        let mut command = command();
        command.args(arguments).current_dir(place.path(""));
        let stdin = fs::File::open(place.file("stdin", bytes)).expect("open");
        let said = command.stdin(stdin).output().expect("the program starts");
        common::Run::from(said).fails(2, words);
    };
    let twice: [&[&str]; 7] = [
        &["compress", "-", "-"],
        &["compress", "-", "-o", "x", "--codebook", "-"],
        &["verify", "-", "-"],
        &["verify", "-", "--against", "-"],
        &["calibrate", "-", "-", "-o", "x"],
        &["report", "-", "kv", "-", "-o", "x"],
        &["decompress", "-", "-"],
    ];
    for arguments in twice {
        refuse(arguments, &packed, &["- stands for stdin, which can only be"]);
    }
    for name in ["calibrate", "report"] {
        refuse(&[name, "kv", "-o", "-", "--json"], b"", &["cannot both go to stdout"]);
    }
    fs::create_dir(place.path("model")).expect("a directory");
    fs::write(place.path("model/a.safetensors"), &kv).expect("write");
    run([&"compress", &place.path("model")]).succeeds();
    for (name, directory) in [("compress", "model"), ("decompress", "model.spz")] {
        refuse(&[name, directory, "-o", "-"], b"", &["a directory cannot go to stdout"]);
    }
    assert_eq!(place.names(), ["book", "kv", "model", "model.spz", "stdin"]);
}

#[test]
fn names_in_capitals() {
    let place = Place::new();
    run([&"compress", &fixture(), &"-o", &place.path("KV.SPZ"), &"--device", &"cpu"]).succeeds();
    run([&"decompress", &place.path("KV.SPZ"), &"--device", &"cpu"]).succeeds();
    assert_eq!(fs::read(place.path("KV")).expect("restored"), fs::read(fixture()).expect("the fixture"));
}

#[test]
fn several_files() {
    let place = Place::new();
    let bytes = |seed| safetensors_of(&[("k", "BF16", &[4096], bf16(4096, seed))]);
    let (a, b) = (place.file("a.safetensors", &bytes(1)), place.file("b.safetensors", &bytes(2)));
    let broken = place.file("broken.safetensors", b"broken");
    let said = run([&"compress", &a, &broken, &b, &"--device", &"cpu"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("2 files") && said.stdout.contains("compressed"), "{}", said.stdout);
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert!(lines[0].contains("broken.safetensors: not a valid") && lines.len() == 2, "{}", said.stderr);
    assert_eq!(lines[1], "error: 1 of 3 inputs failed, the others are done");
    let (packed_a, packed_b) = (place.path("a.safetensors.spz"), place.path("b.safetensors.spz"));
    let said = run([&"verify", &packed_a, &packed_b, &"--json", &"--device", &"cpu"]).succeeds();
    let json: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!((json["files"].as_array().map(Vec::len), &json["schema"]), (Some(2), &1.into()));
    assert_eq!(json["raw_bytes"], bytes(1).len() + bytes(2).len());
    // Into a directory that is there.
    let out = place.path("out");
    run([&"decompress", &packed_a, &packed_b, &"-o", &out])
        .fails(2, &["there are 2 inputs", "directory that exists"]);
    run([&"decompress", &packed_a, &packed_b, &"-o", &"-"]).fails(2, &["-o is stdout"]);
    fs::create_dir(&out).expect("a directory");
    run([&"decompress", &packed_a, &packed_b, &"-o", &out, &"--device", &"cpu"]).succeeds();
    assert_eq!(fs::read(out.join("b.safetensors")).expect("restored"), bytes(2));
    run([&"compress", &a, &out.join("a.safetensors"), &"-o", &out]).fails(2, &["would both be written to"]);
    run([&"compress", &a, &out]).fails(2, &["is a directory: name it alone"]);
    run([&"verify", &packed_a, &packed_b, &"--against", &a]).fails(2, &["--against compares one file"]);
    run([&"verify", &packed_a, &a, &"--device", &"cpu"]).code.filter(|&code| code == 1).expect("a failure");
}

/// A checkpoint of two shards with index, configuration and a directory.
fn checkpoint(place: &Place) -> std::path::PathBuf {
    let model = place.path("model");
    fs::create_dir_all(model.join("original/empty")).expect("directories");
    let shard = |seed| safetensors_of(&[("w", "BF16", &[64, 64], bf16(4096, seed))]);
    let write = |name: &str, bytes: &[u8]| fs::write(model.join(name), bytes).expect("write");
    write("model-00001-of-00002.safetensors", &shard(1));
    write("model-00002-of-00002.safetensors", &shard(2));
    write("original/consolidated.SAFETENSORS", &shard(3));
    write("config.json", b"{}");
    let index = r#"{"metadata":{"total_size":16384},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    write("model.safetensors.index.json", index.as_bytes());
    model
}

/// Paths below a directory with the bytes of files.
fn listing(directory: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(directory).expect("list") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            out.extend(listing(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
            out.push((name, None));
        } else {
            out.push((name, Some(fs::read(&path).expect("read"))));
        }
    }
    out.sort();
    out
}

#[test]
fn checkpoints_in_a_directory() {
    let place = Place::new();
    let model = checkpoint(&place);
    let before = listing(&model);
    let slash = place.path("model/");
    let said = run([&"compress", &slash, &"--verify", &"--device", &"cpu"]).succeeds();
    assert!(said.stdout.contains("3 files") && said.stdout.contains("2 other files"), "{}", said.stdout);
    assert_eq!(place.names(), ["model", "model.spz"]);
    let packed = place.path("model.spz");
    let names: Vec<String> = listing(&packed).into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"original/consolidated.SAFETENSORS.spz".to_owned()), "{names:?}");
    assert!(names.contains(&"original/empty".to_owned()) && names.contains(&"config.json".to_owned()));
    run([&"verify", &packed, &"--device", &"cpu"]).succeeds();
    fs::rename(&model, place.path("before")).expect("rename");
    run([&"decompress", &packed, &"--device", &"cpu"]).succeeds();
    assert!(listing(&model) == before, "another directory came back");
    run([&"decompress", &packed, &"-o", &place.path("again"), &"--json", &"--device", &"cpu"]).succeeds();
    assert!(listing(&place.path("again")) == before);
    assert_eq!(place.names(), ["again", "before", "model", "model.spz"]);
}

/// What is beside an original that is left where it was: neither may be written over the other.
#[test]
fn directories_whose_files_come_back_to_one_name() {
    let place = Place::new();
    let packed = place.path("packed");
    fs::create_dir(&packed).expect("a directory");
    fs::write(packed.join("w.safetensors"), safetensors_of(&[("w", "BF16", &[64, 64], bf16(4096, 1))]))
        .expect("write");
    run([&"compress", &packed.join("w.safetensors"), &"--device", &"cpu"]).succeeds();
    let refuses = |other: &str| {
        let words = [
            "packed: w.safetensors.spz would come back as w.safetensors, and so would",
            other,
            "take one of them",
        ];
        run([&"decompress", &packed, &"-o", &place.path("out"), &"--device", &"cpu"]).fails(1, &words);
        assert_eq!(place.names(), ["packed"]);
    };
    refuses(" w.safetensors;");
    // Both are whole files.
    run([&"verify", &packed, &"--device", &"cpu"]).succeeds();
    fs::remove_file(packed.join("w.safetensors")).expect("remove");
    fs::create_dir(packed.join("w.safetensors")).expect("a directory");
    refuses(" w.safetensors;");
    fs::remove_dir(packed.join("w.safetensors")).expect("remove");
    let coded = packed.join("w.safetensors.spz");
    if fs::copy(&coded, packed.join("w.safetensors.SPZ")).is_ok()
        && fs::read_dir(&packed).expect("list").count() == 2
    {
        run([&"decompress", &packed, &"-o", &place.path("out"), &"--device", &"cpu"])
            .fails(1, &["and so would"]);
        fs::remove_file(packed.join("w.safetensors.SPZ")).expect("remove");
    }
    run([&"decompress", &packed, &"-o", &place.path("out"), &"--device", &"cpu"]).succeeds();
    assert_eq!(place.names(), ["out", "packed"]);
}

#[test]
fn directories_that_cannot_be_compressed() {
    let place = Place::new();
    let model = checkpoint(&place);
    let refuses = |words: &[&str]| {
        let before = place.names();
        run([&"compress", &model, &"--device", &"cpu"]).fails(1, words);
        assert_eq!(place.names(), before);
    };
    fs::write(model.join("old.spz"), b"x").expect("write");
    refuses(&["model: old.spz is compressed already"]);
    fs::remove_file(model.join("old.spz")).expect("remove");
    // What fails in the middle leaves nothing.
    let shard = model.join("model-00002-of-00002.safetensors");
    let bytes = fs::read(&shard).expect("read");
    fs::write(&shard, &bytes[..99]).expect("write");
    refuses(&["model-00002-of-00002.safetensors: not a valid safetensors file"]);
    fs::remove_file(&shard).expect("remove");
    refuses(&["model.safetensors.index.json names model-00002-of-00002.safetensors", "get it first"]);
    fs::write(&shard, &bytes).expect("write");
    fs::write(model.join("model.safetensors.index.json"), b"[]").expect("write");
    refuses(&["is not the index of a checkpoint"]);
    fs::remove_file(model.join("model.safetensors.index.json")).expect("remove");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&model, model.join("loop")).expect("a link");
        refuses(&["loop is a link to a directory"]);
        fs::remove_file(model.join("loop")).expect("remove");
    }
    // The next run would find it among the files of the model.
    for output in [model.join("inside"), model.join("./x/../inside")] {
        run([&"compress", &model, &"-o", &output]).fails(1, &["lies inside of"]);
        fs::create_dir(model.join("x")).or_else(|_| fs::remove_dir(model.join("x"))).expect("a directory");
    }
    // Nothing is ever replaced or filled up.
    fs::create_dir(place.path("model.spz")).expect("a directory");
    refuses(&["model.spz exists already, and a directory is never replaced"]);
    run([&"compress", &model, &"--force"]).fails(1, &["never replaced"]);
    fs::create_dir(place.path("empty")).expect("a directory");
    run([&"compress", &place.path("empty")]).fails(1, &["without a .safetensors file"]);
    run([&"decompress", &place.path("empty"), &"-o", &place.path("x")]).fails(1, &["without an .spz file"]);
    run([&"decompress", &model]).fails(1, &["without an .spz file"]);
    run([&"compress", &model, &"-o", &place.path("no/such")]).fails(1, &["no does not exist"]);
}

/// More than one frame, read while the one before is encoded.
#[test]
fn streams_of_several_frames() {
    let elements = 36u64 << 20; // 72 MiB
    let header = format!(
        r#"{{"k":{{"dtype":"BF16","shape":[{elements}],"data_offsets":[0,{}]}},"v":{{"dtype":"BF16","shape":[4096],"data_offsets":[{},{}]}}}}"#,
        2 * elements,
        2 * elements,
        2 * elements + 8192
    );
    let data = [vec![0; 2 * elements as usize], bf16(4096, 2)].concat();
    let file = safetensors(&header, &data);
    let packed = pipe([&"compress", &"-", &"--device", &"cpu"], &file).succeeds();
    assert!(
        pipe([&"decompress", &"-", &"--device", &"cpu"], &packed).succeeds() == file,
        "other bytes came back"
    );
    let place = Place::new();
    run([&"compress", &place.file("in", &file), &"-o", &place.path("x.spz"), &"--device", &"cpu"]).succeeds();
    assert!(fs::read(place.path("x.spz")).expect("the file") == packed);
}
