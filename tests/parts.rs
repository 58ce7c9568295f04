//! `decompress --tensors --tokens`.

mod common;

use common::{Place, bf16, command, fixture, noise, pipe, run, safetensors_of};
use std::fs;

/// The bytes of a tensor of a safetensors file, and its shape.
fn tensor(file: &[u8], name: &str) -> Option<(Vec<u64>, Vec<u8>)> {
    let length = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + length]).expect("a header");
    let entry = header.get(name)?;
    let numbers = |field: &str| -> Vec<u64> {
        let list = entry[field].as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number")).collect()
    };
    let offsets = numbers("data_offsets");
    let data = &file[8 + length..];
    Some((numbers("shape"), data[offsets[0] as usize..offsets[1] as usize].to_vec()))
}

#[test]
fn some_tokens_of_some_layers_of_the_fixture() {
    let place = Place::new();
    let (packed, output) = (place.path("kv.spz"), place.path("part.safetensors"));
    run([&"compress", &fixture(), &"-o", &packed, &"--device", &"cpu"]).succeeds();
    let said = run([
        &"decompress",
        &packed,
        &"-o",
        &output,
        &"--tensors",
        &"layers.3.*",
        &"--tensors",
        &"layers.1[01].v",
        &"--tokens",
        &"5..17",
        &"--device",
        &"cpu",
    ])
    .succeeds();
    assert!(said.stdout.contains("4 tensors, 18.43 kB from 1 of 1 frames"), "{}", said.stdout);
    let (original, part) = (fs::read(fixture()).expect("the fixture"), fs::read(&output).expect("the part"));
    for name in ["layers.3.k", "layers.3.v", "layers.10.v", "layers.11.v"] {
        let ((shape, all), (cut, got)) =
            (tensor(&original, name).expect(name), tensor(&part, name).expect(name));
        assert_eq!((shape, cut), (vec![3, 160, 64], vec![3, 12, 64]));
        let rows = |head: usize| &all[(head * 160 + 5) * 128..(head * 160 + 17) * 128];
        assert!(got == [rows(0), rows(1), rows(2)].concat(), "{name}");
    }
    assert!(tensor(&part, "layers.10.k").is_none() && tensor(&part, "layers.30.k").is_none());
    assert!(String::from_utf8_lossy(&part).contains("SmolLM2"), "the metadata is gone");
    // Existing files stay, unless one says otherwise.
    let again = run([&"decompress", &packed, &"-o", &output, &"--tensors", &"*"]);
    again.fails(1, &["exists already"]);
    run([&"decompress", &packed, &"-o", &output, &"--tensors", &"*", &"--force", &"--device", &"cpu"])
        .succeeds();
    // The fixture has no gaps: all tensors are all of its data.
    let part = fs::read(&output).expect("the part");
    let data = |file: &[u8]| {
        file[8 + u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize..].to_vec()
    };
    assert!(data(&part) == data(&original));
}

#[test]
fn the_last_tokens_along_another_dimension() {
    let place = Place::new();
    let bytes = bf16(40 * 8 * 32, 1);
    let input = place.file("kv", &safetensors_of(&[("k", "BF16", &[40, 8, 32], bytes.clone())]));
    let (packed, output) = (place.path("kv.spz"), place.path("part"));
    run([&"compress", &input, &"-o", &packed, &"--device", &"cpu"]).succeeds();
    for (axis, tokens, from, to) in [("0", "33..", 33, 40), ("-3", "..2", 0, 2), ("0", "4..4", 4, 4)] {
        run([
            &"decompress",
            &packed,
            &"-o",
            &output,
            &"--tokens",
            &tokens,
            &"--token-axis",
            &axis,
            &"--force",
            &"--device",
            &"cpu",
        ])
        .succeeds();
        let (shape, got) = tensor(&fs::read(&output).expect("the part"), "k").expect("k");
        assert_eq!(shape, [(to - from) as u64, 8, 32]);
        assert!(got == bytes[from * 512..to * 512], "{tokens}");
    }
}

#[test]
fn a_part_goes_to_stdout() {
    let place = Place::new();
    let (packed, part) = (place.path("kv.spz"), place.path("part"));
    run([&"compress", &fixture(), &"-o", &packed, &"--device", &"cpu"]).succeeds();
    run([&"decompress", &packed, &"-o", &part, &"--tensors", &"layers.3.*", &"--tokens", &"5..17"])
        .succeeds();
    let piped = |input: &str, bytes: &[u8]| {
        let more: [&dyn AsRef<std::ffi::OsStr>; 8] =
            [&"decompress", &input, &"-o", &"-", &"--tensors", &"layers.3.*", &"--tokens", &"5..17"];
        pipe(more, bytes).succeeds()
    };
    let expected = fs::read(&part).expect("the part");
    assert!(piped(packed.to_str().expect("a name"), b"") == expected, "another part");
    assert!(piped("-", &fs::read(&packed).expect("the file")) == expected, "another part");
    let json = command()
        .args(["decompress", "kv.spz", "-o", "-", "--tensors", "*", "--json"])
        .current_dir(place.path(""))
        .output()
        .expect("the program starts");
    common::Run::from(json).fails(2, &["cannot both go to stdout"]);
    assert_eq!(place.names(), ["kv.spz", "part"]);
}

#[test]
fn parts_that_cannot_be() {
    let place = Place::new();
    let file = safetensors_of(&[
        ("layers.0.k", "BF16", &[2, 32, 64], bf16(4096, 1)),
        ("ids", "I64", &[300], noise(2400, 4)),
    ]);
    let input = place.file("kv", &file);
    let (packed, output) = (place.path("kv.spz"), place.path("part"));
    run([&"compress", &input, &"-o", &packed, &"--device", &"cpu"]).succeeds();
    let part = |option: &str, value: &str| run([&"decompress", &packed, &"-o", &output, &option, &value]);
    run([&"decompress", &packed, &"--tensors", &"*"]).fails(2, &["say with -o where to write"]);
    part("--tensors", "x*").fails(2, &["no tensor has such a name", "layers.0.k"]);
    part("--tensors", "a[").fails(2, &["a[", "--tensors"]);
    part("--tokens", "0..32").fails(2, &["dimension 0 of \"ids\" has 300 tokens", "\"layers.0.k\" 32"]);
    for wrong in ["5..3", "..", "3", "a..b", "1..-2"] {
        let said = part("--tokens", wrong);
        assert_eq!(said.code, Some(2), "{wrong}");
        assert!(said.stderr.contains("--tokens"), "{}", said.stderr);
    }
    part("--token-axis", "1").fails(2, &["--tokens"]);
    let said =
        run([&"decompress", &packed, &"-o", &output, &"--tensors", &"layers*", &"--tokens", &"30..33"]);
    said.fails(2, &["has no tokens 30 to 33", "[2, 32, 64]"]);
    assert_eq!(place.names(), ["kv", "kv.spz"]);
}
