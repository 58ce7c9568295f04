//! Golden frames: the bytes of the format, one small frame a member, committed and kept for ever. `SPLITZIP_BLESS=1` writes those that are missing, and
//! never another one over one that is there.

use splitzip_host::conformance::{Case, Content, Member, cases, in_arrival_order, members};
use splitzip_host::format::{Mode, pack};
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageTable, VllmOrder};
use splitzip_host::{
    Bases, Codebook, CodebookChoice, Dtype, Executor, Flags, Frame, FrameSpec, Reference, Scheme, TensorSpec,
};
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
    frames.extend(others());
    frames
}

/// What members do not show: no tensors, stored tensors, either kind of checksums alone, packed groups in any order, a given codebook, a request out of pages with
/// its layout id.
fn others() -> Vec<(String, Vec<u8>, Vec<Vec<u8>>)> {
    let mut frames = Vec::new();
    let mut push = |name: &str, spec: FrameSpec, codebooks: &[CodebookChoice], inputs: Vec<Vec<u8>>| {
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        frames.push((name.to_owned(), Reference.encode_to_vec(&spec, codebooks, &slices).unwrap(), inputs));
    };
    push("empty", FrameSpec { layout_id: u64::MAX, ..FrameSpec::default() }, &[], Vec::new());
    let stored = |&dtype: &Dtype| TensorSpec::new(dtype.name(), dtype, Scheme::Stored, &[3, 401]);
    let bytes = |dtype: &Dtype| match dtype {
        Dtype::Bytes => Content::Random.bytes(Dtype::E5m2, 1203, 1),
        _ => Content::Random.bytes(*dtype, 1203, 1),
    };
    // Those of version 1.0: the frame stays what it is when there are more.
    let dtypes = [Dtype::Bytes, Dtype::Bf16, Dtype::Fp16, Dtype::E4m3, Dtype::E5m2];
    let spec = FrameSpec::new(dtypes.iter().map(stored).collect(), Flags::CHECKSUMS);
    push("stored", spec, &[], dtypes.iter().map(bytes).collect());
    let member = Member { dtype: Dtype::Bf16, scheme: Scheme::W2x3, bases: Bases::Chunk };
    for (name, flags) in [
        ("tensor_checksums", Flags { tensor_checksums: true, ..Flags::default() }),
        ("chunk_checksums", Flags { chunk_checksums: true, ..Flags::default() }),
    ] {
        let case = Case::new(member, Content::Mixed, &[5, 333], flags);
        push(name, case.spec, &[], case.inputs);
    }
    let case =
        Case::new(Member { scheme: Scheme::W4, ..member }, Content::Outliers, &[1500], Flags::CHECKSUMS);
    let codebook = Codebook::new(Dtype::Bf16, std::array::from_fn(|i| 100 + 2 * i as u8)).unwrap();
    push("given_codebook", case.spec, &[CodebookChoice::Given(codebook)], case.inputs);

    let member = Member { dtype: Dtype::E4m3, ..member };
    let case = Case::new(member, Content::Mixed, &[20_000], Flags::CHECKSUMS);
    let bytes = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let arrived = in_arrival_order(&Frame::parse(&bytes).unwrap());
    frames.push(("packed_arrival".to_owned(), pack(&Frame::parse(&arrived).unwrap()).unwrap(), case.inputs));

    let shape = KvShape { layers: 2, pages: 9, page_tokens: 4, heads: 2, head_dim: 24, dtype: Dtype::Fp16 };
    let pages = PageIds::I32(&[7, 0, 3, 8, 1]);
    let layout = KvLayout::vllm_fused(&shape, VllmOrder::Lbnhc).unwrap();
    let from = layout.bind(PageTable::new(pages, 4, 18).unwrap()).unwrap().salted(b"a model");
    let pools: Vec<Vec<u8>> = (layout.pool_bytes().unwrap().iter())
        .map(|&bytes| Content::Plain.bytes(Dtype::Fp16, bytes as usize / 2, 24))
        .collect();
    let slices: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
    let spec = from.spec(Scheme::W2x2x3, Flags::CHECKSUMS);
    let mut bytes = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    let length = Reference.encode_paged(&spec, &[], &from, &slices, &mut bytes).unwrap();
    bytes.truncate(length);
    let inputs = Reference.decode_to_vecs(&Frame::parse(&bytes).unwrap()).unwrap();
    frames.push(("paged".to_owned(), bytes, inputs));
    frames
}

#[test]
fn frames_are_golden() {
    let bless = std::env::var_os("SPLITZIP_BLESS").is_some();
    let mut names = BTreeSet::new();
    for (name, bytes, inputs) in frames() {
        let name = format!("{name}.frame");
        let path = folder().join(&name);
        if bless && !path.exists() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let golden = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{name}: {error}; SPLITZIP_BLESS=1 writes it"));
        let difference = golden.iter().zip(&bytes).position(|(a, b)| a != b);
        assert!(
            golden == bytes,
            "{name} differs from byte {difference:?} on; frames of version 1 stay what they are (docs/format.md, section 11)"
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
