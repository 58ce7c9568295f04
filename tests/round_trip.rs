//! Files come back byte for byte, whatever they hold.

mod common;

use common::{Place, bf16, fixture, noise, round_trip, run, safetensors, safetensors_of};
use std::fs;

#[test]
fn the_fixture_shrinks_by_three_tenths() {
    let original = fs::read(fixture()).expect("the fixture");
    let packed = round_trip(&original, &[]);
    let ratio = original.len() as f64 / packed.len() as f64;
    assert!(ratio >= 1.44, "ratio {ratio}");
}

#[test]
fn every_executor_writes_the_same_file() {
    let place = Place::new();
    let (cpu, reference) = (place.path("cpu.spz"), place.path("reference.spz"));
    run([&"compress", &fixture(), &"-o", &cpu, &"--device", &"cpu", &"--threads", &"3"]).succeeds();
    run([&"compress", &fixture(), &"-o", &reference, &"--device", &"reference"]).succeeds();
    assert!(fs::read(cpu).expect("a file") == fs::read(reference).expect("a file"), "the files differ");
}

#[test]
fn the_readme_command_prints_the_table() {
    let place = Place::new();
    let output = place.path("kv.spz");
    let said = run([&"compress", &fixture(), &"-o", &output, &"--verify", &"--force", &"--device", &"cpu"])
        .succeeds();
    for words in
        ["layers.*.k", "layers.*.v", "total", "ratio", "escapes", "restores byte for byte", "/s (cpu)"]
    {
        assert!(said.stdout.contains(words), "no {words:?} in:\n{}", said.stdout);
    }
}

#[test]
fn names_of_files_follow_from_each_other() {
    let place = Place::new();
    let input = place.file("kv.safetensors", &safetensors_of(&[("k", "BF16", &[64, 64], bf16(4096, 1))]));
    run([&"compress", &input]).succeeds();
    assert_eq!(place.names(), ["kv.safetensors", "kv.safetensors.spz"]);
    fs::rename(&input, place.path("original")).expect("rename");
    run([&"decompress", &place.path("kv.safetensors.spz")]).succeeds();
    assert_eq!(fs::read(&input).expect("restored"), fs::read(place.path("original")).expect("original"));
}

#[test]
fn dtypes_of_all_kinds() {
    let file = safetensors_of(&[
        ("ints", "I64", &[5], noise(40, 1)),
        ("k", "BF16", &[3, 1000], bf16(3000, 2)),
        ("half", "F16", &[33], noise(66, 3)),
        ("e4m3", "F8_E4M3", &[7], noise(7, 4)),
        ("v", "BF16", &[1025], bf16(1025, 5)),
        ("w", "BF16", &[2048], bf16(2048, 6)),
        ("flags", "BOOL", &[3], vec![1, 0, 1]),
        ("nibbles", "F4", &[6], noise(3, 7)),
        ("later", "F2_NEW", &[6], noise(3, 7)),
    ]);
    let packed = round_trip(&file, &[]);
    assert!(packed.len() < file.len());
}

/// The high bytes of bf16 elements: like an e5m2 or e4m3 pool as far as exponents go.
fn floats(count: usize, dtype: &str, seed: u64) -> Vec<u8> {
    let words = bf16(count, seed);
    let exponents = words.chunks_exact(2).map(|word| (word[1] & 0x7f) << 1 | word[0] >> 7);
    let element = |(exponent, noise): (u8, u8)| match dtype {
        "fp16" => (u16::from(noise & 0x83) << 8 | u16::from(exponent & 31) << 10 | u16::from(noise))
            .to_le_bytes()
            .to_vec(),
        "e4m3" => vec![(noise & 0x87) | (exponent & 15) << 3],
        _ => vec![(noise & 0x83) | (exponent & 31) << 2],
    };
    exponents.zip(noise(count, seed + 1)).flat_map(element).collect()
}

#[test]
fn floats_of_every_dtype_and_bytes_that_are_floats() {
    let schemes = ["auto", "w3", "w2x3", "w2x2x3"];
    let cases = [
        ("F16", "fp16", &["", "fp16"][..]),
        ("F8_E4M3", "e4m3", &["", "e4m3"]),
        ("F8_E5M2", "e5m2", &["", "e5m2"]),
        ("U8", "e4m3", &["e4m3"]),
        ("U8", "e5m2", &["e5m2"]),
        ("I8", "e5m2", &["e5m2"]),
        ("U16", "fp16", &["fp16"]),
        ("I16", "fp16", &["fp16"]),
        ("BF16", "fp16", &["fp16"]),
    ];
    for (header, dtype, overrides) in cases {
        let (shape, size) = ([65, 3, 64], if dtype == "fp16" { 2 } else { 1 });
        let bytes = floats(65 * 3 * 64, dtype, 7);
        assert_eq!(bytes.len(), 65 * 3 * 64 * size);
        let file = safetensors_of(&[("pool", header, &shape, bytes), ("ids", "I64", &[300], noise(2400, 3))]);
        for (&over, scheme) in overrides.iter().flat_map(|over| schemes.map(|scheme| (over, scheme))) {
            let over = if over.is_empty() { vec![] } else { vec!["--dtype", over] };
            for bases in ["auto", "chunk", "channel"] {
                let packed =
                    round_trip(&file, &[&["--scheme", scheme, "--bases", bases][..], &over].concat());
                assert!(packed.len() < file.len(), "{header} {scheme} {bases}: {}", packed.len());
            }
        }
        // A float format of another size leaves integers alone.
        let other = if size == 1 { "bf16" } else { "e5m2" };
        let left = round_trip(&file, &["--dtype", other]);
        assert!(header.contains('F') || left.len() > file.len(), "{header}");
    }
}

#[test]
fn tensors_of_no_and_of_few_elements() {
    for elements in [0, 1, 2, 31, 1023, 1024, 1025] {
        round_trip(&safetensors_of(&[("x", "BF16", &[elements as u64], bf16(elements, 9))]), &[]);
    }
    let none = (("a", "BF16", &[0u64, 8][..], vec![]), ("c", "F32", &[0u64][..], vec![]));
    round_trip(&safetensors_of(&[none.0, ("b", "BF16", &[1], bf16(1, 1)), none.1]), &[]);
    round_trip(&safetensors_of(&[("scalar", "BF16", &[], bf16(1, 1))]), &[]);
}

#[test]
fn a_file_without_tensors() {
    round_trip(&safetensors("{}", b""), &[]);
    round_trip(&safetensors(r#"{"__metadata__":{"a":"b"}}"#, b""), &[]);
}

#[test]
fn gaps_metadata_blanks_and_odd_places() {
    let (k, v) = (bf16(5000, 1), bf16(3000, 2));
    let (k_at, v_at) = (3, 3 + k.len() + 5);
    // v stands before k in the header, there are gaps of odd sizes, and the header has blanks in and behind it.
    let header = format!(
        "{{ \"__metadata__\": {{\"model\": \"\\u00e9\"}},\n \"v\":{{\"dtype\":\"BF16\",\"shape\":[3,1000],\"data_offsets\":[{v_at},{}]}}, \
         \"k\":{{\"shape\":[5000],\"data_offsets\":[{k_at},{}],\"dtype\":\"BF16\"}}}}    \n",
        v_at + v.len(),
        k_at + k.len(),
    );
    let data = [&b"gap"[..], &k, b"12345", &v, b"behind"].concat();
    for blanks in 0..17 {
        let header = format!("{header}{}", " ".repeat(blanks));
        let packed = round_trip(&safetensors(&header, &data), &[]);
        assert!(packed.len() < data.len());
    }
}

#[test]
fn names_that_are_strange() {
    let (long, many) = ("n".repeat(70_000), [1u64; 20]);
    round_trip(
        &safetensors_of(&[
            ("", "BF16", &[4096], bf16(4096, 1)),
            (&long, "BF16", &[4096], bf16(4096, 2)),
            ("../../\u{1f980}\\n", "BF16", &many, bf16(1, 3)),
            ("many", "BF16", &[&many[..], &[4096]].concat(), bf16(4096, 3)),
        ]),
        &[],
    );
}

#[test]
fn what_does_not_shrink_is_stored() {
    let file = safetensors_of(&[
        ("noise", "BF16", &[100_000], noise(200_000, 1)),
        ("k", "BF16", &[100_000], bf16(100_000, 2)),
    ]);
    let packed = round_trip(&file, &[]);
    let stored = round_trip(&file, &["--scheme", "stored"]);
    assert!(packed.len() < 200_000 + 157_000, "{}", packed.len());
    assert!(stored.len() < file.len() + 1024, "{}", stored.len());
    let noise = safetensors_of(&[("noise", "BF16", &[100_000], noise(200_000, 1))]);
    let bound = noise.len() + 208 + 512 + 2 * 237;
    assert!(round_trip(&noise, &[]).len() <= bound);
}

#[test]
fn zeros_nearly_vanish() {
    let file = safetensors_of(&[("zeros", "BF16", &[1 << 20], vec![0; 2 << 20])]);
    let packed = round_trip(&file, &[]);
    assert!(packed.len() < file.len() / 256, "{}", packed.len());
}

#[test]
fn a_calibrated_codebook_is_used() {
    let place = Place::new();
    let book = place.path("codebooks.json");
    run([&"calibrate", &fixture(), &"-o", &book, &"--device", &"cpu"]).succeeds();
    let text = fs::read_to_string(&book).expect("the codebook file");
    assert!(text.contains("splitzip codebooks") && text.contains("layers.0.k"), "{text}");
    let original = fs::read(fixture()).expect("the fixture");
    let packed = round_trip(&original, &["--scheme", "w4", "--codebook", book.to_str().expect("a path")]);
    assert!(original.len() as f64 / packed.len() as f64 >= 1.32);
    assert_eq!(place.names(), ["codebooks.json"]);
}
