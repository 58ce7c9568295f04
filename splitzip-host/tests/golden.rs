//! Golden frames: the bytes of the format, one small frame a member, committed. `SPLITZIP_BLESS=1` writes them again.

use splitzip_host::conformance::{Case, Content, Member, cases, in_arrival_order, members};
use splitzip_host::format::{Mode, pack};
use splitzip_host::{Bases, Dtype, Executor, Flags, Frame, Reference, Scheme};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Four chunks, one of every mode where the bases allow it, and a short one.
fn golden(member: Member) -> Case {
    Case::new(member, Content::Mixed, &[521, 8], Flags::CHECKSUMS)
}

/// Names and bytes of all golden frames, with what they decode to.
fn frames() -> Vec<(String, Vec<u8>, Vec<Vec<u8>>)> {
    let encode = |case: &Case| Reference.encode_to_vec(&case.spec, &case.codebooks, &case.slices()).unwrap();
    let mut frames = Vec::new();
    for member in members() {
        let case = golden(member);
        let name = member.to_string().replace(' ', "_");
        if member.bases == Bases::Channel {
            // The mixed chunks spoil the means of the channels: this one shows plain codes.
            let case = Case::new(member, Content::Plain, &[140, 8], Flags::default());
            frames.push((format!("{name}_plain"), encode(&case), case.inputs));
        }
        frames.push((name, encode(&case), case.inputs));
    }
    let member = Member { dtype: Dtype::Bf16, scheme: Scheme::W2x3, bases: Bases::Chunk };
    let case = Case::new(member, Content::Mixed, &[3000], Flags::CHECKSUMS);
    let bytes = encode(&case);
    frames.push(("packed".to_owned(), pack(&Frame::parse(&bytes).unwrap()).unwrap(), case.inputs));
    let case = cases(Member { dtype: Dtype::E4m3, ..member }).pop().unwrap();
    let bytes = encode(&case);
    let dense = case.spec.layout().unwrap().dense_bytes as usize;
    let arrived = in_arrival_order(&Frame::parse(&bytes).unwrap());
    assert!(arrived[dense..] != bytes[dense..], "its groups are in another order");
    frames.push(("arrival".to_owned(), arrived, case.inputs));
    let case = cases(Member { dtype: Dtype::E5m2, scheme: Scheme::W4, ..member }).pop().unwrap();
    frames.push(("several".to_owned(), encode(&case), case.inputs));
    frames
}

#[test]
fn frames_are_golden() {
    let bless = std::env::var_os("SPLITZIP_BLESS").is_some();
    let mut names = BTreeSet::new();
    for (name, bytes, inputs) in frames() {
        let name = format!("{name}.frame");
        let path = folder().join(&name);
        if bless {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let golden = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{name}: {error}; SPLITZIP_BLESS=1 writes it"));
        let difference = golden.iter().zip(&bytes).position(|(a, b)| a != b);
        assert!(
            golden == bytes,
            "{name} differs from byte {difference:?} on; if that is intended, SPLITZIP_BLESS=1"
        );
        let frame = Frame::parse(&golden).unwrap();
        assert!(Reference.decode_to_vecs(&frame).unwrap() == inputs, "{name} does not decode to its input");
        names.insert(name);
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name), "{name} is golden, but no test makes it");
    }
}

#[test]
fn golden_frames_have_all_modes() {
    for member in members() {
        let case = golden(member);
        let bytes = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
        let frame = Frame::parse(&bytes).unwrap();
        let tensor = frame.tensor(0).unwrap();
        let modes: Vec<Mode> = (0..5).map(|chunk| tensor.chunk(chunk).unwrap().entry.mode).collect();
        println!("{member}: {modes:?}");
        if member.bases == Bases::Chunk && member.dtype == Dtype::Bf16 {
            let zeros = if member.scheme == Scheme::W4 { Mode::Coded } else { Mode::Zeros };
            assert_eq!(modes, [Mode::Coded, Mode::Equal, zeros, Mode::Raw, Mode::Coded], "{member}");
        }
        assert_eq!(modes[1], Mode::Equal);
    }
}
