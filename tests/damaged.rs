//! `.spz` files that are cut, flipped or of another version. Every byte is under a checksum, so every flip must show, in
//! `verify` and in `decompress`, which leaves its target as it was.

mod common;

use common::{Place, bf16, command, fixture, noise, pipe, run, safetensors_of};
use std::fs;
use std::path::Path;

/// A small file with two coded tensors, a stored one and equal chunks, compressed.
fn compressed(place: &Place) -> Vec<u8> {
    let original = safetensors_of(&[
        ("k", "BF16", &[3000], bf16(3000, 1)),
        ("zeros", "BF16", &[3, 1024], vec![0; 6144]),
        ("other", "U8", &[99], noise(99, 2)),
        ("v", "BF16", &[1500], bf16(1500, 3)),
    ]);
    let (input, output) = (place.file("in", &original), place.path("whole.spz"));
    run([&"compress", &input, &"-o", &output, &"--device", &"cpu"]).succeeds();
    fs::read(&output).expect("the compressed file")
}

#[track_caller]
fn refuses(place: &Place, bytes: &[u8], words: &[&str]) {
    let (damaged, target) = (place.file("damaged.spz", bytes), place.file("target", b"what was there"));
    run([&"verify", &damaged, &"--device", &"cpu"]).fails(1, words);
    let decompress =
        |force: &str| run([&"decompress", &damaged, &"-o", &target, &"--device", &"cpu", &force]);
    decompress("--force").fails(1, words);
    run([&"inspect", &damaged, &"--device", &"cpu"]).fails(1, words);
    // A stream shows the same damage, but may see another part of it first.
    pipe([&"verify", &"-", &"--device", &"cpu"], bytes).fails(1, &[]);
    pipe([&"decompress", &"-", &"-o", &target, &"--force", &"--device", &"cpu"], bytes).fails(1, &[]);
    assert_eq!(fs::read(&target).expect("the target"), b"what was there");
    assert_eq!(place.names(), ["damaged.spz", "in", "target", "whole.spz"]);
}

#[test]
fn cut_at_any_length() {
    let place = Place::new();
    let whole = compressed(&place);
    refuses(&place, b"", &["not an .spz file", "it is empty"]);
    let lengths = [1, 4, 7, 8, 9, 127, 128, 129, 159, 160, 161, 200, 1000];
    for length in lengths.into_iter().chain((1..60).map(|back| whole.len() - back * back)) {
        refuses(&place, &whole[..length], &["the file"]);
    }
    refuses(&place, &[&whole[..], b"x"].concat(), &["does not end with the footer"]);
}

#[test]
fn other_files() {
    let place = Place::new();
    let whole = compressed(&place);
    let original = fs::read(place.path("in")).expect("the original");
    refuses(&place, &original, &["not an .spz file", "it looks like a safetensors file"]);
    refuses(&place, &[b"SPZFRAME", &whole[8..]].concat(), &["it is a single frame"]);
    refuses(&place, &noise(5000, 3), &["not an .spz file"]);
    // What a transfer of text does to line ends.
    let text: Vec<u8> = whole.iter().copied().filter(|&byte| byte != b'\r').collect();
    refuses(&place, &text, &["not an .spz file"]);
}

/// The header of a file with other bytes in it, and a CRC that fits.
fn with_header(whole: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = whole.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc(&file[..124]);
    file[124..128].copy_from_slice(&crc.to_le_bytes());
    file
}

/// CRC-32, bit by bit: what another team would write from the specification.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[test]
fn newer_versions_and_unknown_fields() {
    let place = Place::new();
    let whole = compressed(&place);
    assert_eq!(with_header(&whole, 8, &[1, 0]), whole);
    refuses(&place, &with_header(&whole, 8, &[2, 0]), &[".spz version 2.0 is unknown", "use a newer one"]);
    refuses(&place, &with_header(&whole, 10, &[1, 0]), &[".spz version 1.1 is unknown"]);
    // A later version may have moved everything else, even the CRC.
    let mut later = whole.clone();
    later[8] = 7;
    refuses(&place, &later, &[".spz version 7.0 is unknown"]);
    refuses(&place, &with_header(&whole, 12, &[1]), &["the flags is 1"]);
    refuses(&place, &with_header(&whole, 16, &[2]), &["the kind of content is 2"]);
    refuses(&place, &with_header(&whole, 20, &[0; 4]), &["the frame limit is 0"]);
    refuses(&place, &with_header(&whole, 20, &[0xff; 4]), &["the frame limit is 4294967295"]);
    refuses(&place, &with_header(&whole, 20, &[0, 8, 0, 0]), &["the raw size of frame 0"]);
    refuses(&place, &with_header(&whole, 24, &[1]), &["the size of the original"]);
    refuses(&place, &with_header(&whole, 77, &[1]), &["byte 77 of the header"]);
}

#[test]
fn flipped_bits_anywhere() {
    let place = Place::new();
    let whole = compressed(&place);
    let verify = |bytes: &[u8]| {
        let damaged = place.file("damaged.spz", bytes);
        run([&"verify", &damaged, &"--device", &"cpu"])
    };
    verify(&whole).succeeds();
    // All of header, index and footer, and steps through the frame.
    let tail = whole.len() - 120;
    for (at, bit) in (0..128).chain((128..tail).step_by(211)).chain(tail..whole.len()).zip((0..8).cycle()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        verify(&bytes).fails(1, &["damaged.spz: "]);
    }
    for (at, words) in [(3, "not an .spz file"), (30, "the header is damaged"), (5000, "frame 0 is damaged")]
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::remove_file(place.path("damaged.spz")).expect("remove");
        refuses(&place, &bytes, &[words]);
    }
    let mut index = whole.clone();
    index[tail + 30] ^= 1;
    refuses(&place, &index, &["the index is damaged"]);
    let mut footer = whole.clone();
    footer[whole.len() - 30] ^= 1;
    refuses(&place, &footer, &["the footer is damaged"]);
}

/// Which tensor it is, and where: so that one may take the others.
#[test]
fn verify_names_what_is_damaged() {
    let place = Place::new();
    let coded = place.path("whole.spz");
    run([&"compress", &fixture(), &"-o", &coded, &"--device", &"cpu"]).succeeds();
    let whole = fs::read(&coded).expect("the file");
    let original = fs::read(fixture()).expect("the fixture");
    let length = u64::from_le_bytes(original[..8].try_into().expect("8 bytes"));
    let header = original[8..8 + length as usize].to_vec();
    let header: serde_json::Value = serde_json::from_slice(&header).expect("a header");
    let mut named = std::collections::BTreeSet::new();
    let end = whole.len() - 200;
    for at in (end / 20..end).step_by(end / 20) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        let damaged = place.file("damaged.spz", &bytes);
        for arguments in [vec![], vec!["--against".into(), fixture()]] {
            let mut command = command();
            command.args(["verify", "--device", "cpu"]).arg(&damaged).args(&arguments);
            let said = common::Run::from(command.output().expect("the program starts"));
            let text = said.stderr.clone();
            said.fails(1, &["frame 0 is damaged", "get the file again"]);
            let Some((_, place)) = text.split_once("the first damaged tensor is \"") else {
                panic!("byte {at}: {text}")
            };
            let (name, place) = place.split_once('"').expect("the end of a name");
            let words: Vec<&str> = place.split_whitespace().collect();
            let number = |word: &str| -> u64 {
                let at = words.iter().position(|found| *found == word).expect("the word");
                words[at + 1].parse().expect("a number")
            };
            let (start, end) = (number("bytes"), number("to"));
            let offsets = &header[name]["data_offsets"];
            let offset = |i: usize| offsets[i].as_u64().expect("an offset") + 8 + length;
            assert!(offset(0) <= start && start < end && end <= offset(1), "{text}");
            named.insert(name.to_owned());
        }
        fs::remove_file(&damaged).expect("remove");
    }
    assert!(named.len() > 10, "{named:?}");
}

/// Damage that fits its CRCs: what is left are the checks of the frame, its checksums, and the SHA-256.
#[test]
fn damage_with_checksums_that_fit() {
    let place = Place::new();
    let whole = compressed(&place);
    let index_at = whole.len() - 120;
    let mended = |at: usize| {
        let mut file = whole.clone();
        file[at] ^= 1;
        let frame = crc(&file[128..index_at]);
        file[index_at + 84..index_at + 88].copy_from_slice(&frame.to_le_bytes());
        let index = crc(&file[index_at..index_at + 88]);
        file[index_at + 104..index_at + 108].copy_from_slice(&index.to_le_bytes());
        let footer = crc(&file[index_at + 88..index_at + 108]);
        file[index_at + 108..index_at + 112].copy_from_slice(&footer.to_le_bytes());
        file
    };
    assert_eq!(&whole[index_at..index_at + 8], b"SPZINDEX");
    for at in (128..index_at).step_by(37) {
        let damaged = place.file("damaged.spz", &mended(at));
        run([&"verify", &damaged, &"--device", &"cpu"]).fails(1, &["damaged.spz: "]);
    }
    let (damaged, target) = (place.file("damaged.spz", &mended(index_at + 16)), place.path("target"));
    let words = ["have SHA-256", "do not use them"];
    run([&"verify", &damaged, &"--device", &"cpu"]).fails(1, &words);
    run([&"decompress", &damaged, &"-o", &target, &"--device", &"cpu"]).fails(1, &words);
    assert_eq!(place.names(), ["damaged.spz", "in", "whole.spz"]);
}

#[test]
fn another_original() {
    let place = Place::new();
    compressed(&place);
    let whole = place.path("whole.spz");
    let original = fs::read(place.path("in")).expect("the original");
    let against = |bytes: &[u8], words: &[&str]| {
        let other = place.file("other", bytes);
        run([&"verify", &whole, &"--against", &other, &"--device", &"cpu"]).fails(1, words);
    };
    let mut other = original.clone();
    let at = original.len() - 3;
    other[at] ^= 1;
    against(&other, &[&format!("differ at byte {at}, in tensor \"v\""), "is restored"]);
    against(&original[..at], &["has"]);
    against(&[&original[..], b"x"].concat(), &["the other file has"]);
    against(b"", &["the other file has 0"]);
    assert!(Path::new(&whole).exists());
}

/// A file that is not trusted restores to no more than one allows, whatever it says.
#[test]
fn more_than_is_allowed() {
    let place = Place::new();
    let whole = compressed(&place);
    let (raw, target) = (fs::read(place.path("in")).expect("the original").len(), place.path("target"));
    let words = [&format!("has {raw} bytes decoded"), "at most 1000 are allowed"];
    let limited = |limit: &str| {
        run([
            &"decompress",
            &place.path("whole.spz"),
            &"-o",
            &target,
            &"--device",
            &"cpu",
            &"--limit",
            &limit,
        ])
    };
    limited("1000").fails(1, &words);
    pipe([&"decompress", &"-", &"-o", &target, &"--device", &"cpu", &"--limit", &"1000"], &whole)
        .fails(1, &words);
    assert_eq!(place.names(), ["in", "whole.spz"]);
    limited(&raw.to_string()).succeeds();
    assert_eq!(fs::read(&target).expect("the target").len(), raw);
}
