//! The CPU executor beside the reference: on every level of machine instructions, with any number of threads.

use proptest::prelude::*;
use splitzip_host::conformance::{self, Case, Content, Member, cases_for};
use splitzip_host::{Bases, Cpu, Executor, Flags, Frame, FrameSpec, Reference, TensorSpec};
use std::io::Write;

mod support;

#[path = "support/members.rs"]
mod members;
use members::members;

#[path = "support/levels.rs"]
mod levels;
use levels::LEVELS;

#[test]
fn it_has_exactly_these_members() {
    members::check(&Cpu::new());
}

#[test]
fn every_level_and_any_number_of_threads() {
    let ran = levels::run();
    for level in LEVELS.iter().filter(|level| !ran.contains(level)) {
        say(&format!(
            "SKIPPED level {level}: this machine has no such instructions; levels {ran:?} were tested"
        ));
    }
}

#[test]
#[ignore = "started once for each level by the test above"]
fn one_level() {
    let pools = [1, 2, 8].map(|threads| Cpu::with_threads(threads).unwrap());
    for member in members() {
        for case in cases_for(&pools[0], member).unwrap() {
            conformance::check(&pools[1], &case).unwrap_or_else(|error| panic!("{error}"));
            let [one, _, eight] = [0, 1, 2].map(|i| encode(&pools[i], &case));
            assert!(one == eight, "{}: 8 threads write another frame than one", case.name);
            for pool in [&pools[0], &pools[2]] {
                let back = pool.decode_to_vecs(&Frame::parse(&one).unwrap()).unwrap();
                assert!(back == case.inputs, "{}: {pool:?}", case.name);
            }
        }
    }
    levels::say_ran();
}

/// A line on stderr. Not by `eprintln!`, which a passing test does not show.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn encode(executor: &dyn Executor, case: &Case) -> Vec<u8> {
    executor
        .encode_to_vec(&case.spec, &case.codebooks, &case.slices())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The bytes of the reference, and back.
fn check(case: &Case) {
    let bytes = encode(&Cpu::new(), case);
    assert!(bytes == encode(&Reference, case), "{}: another frame than the reference", case.name);
    let back = Cpu::new().decode_to_vecs(&Frame::parse(&bytes).unwrap()).unwrap();
    assert!(back == case.inputs, "{}: does not come back", case.name);
}

#[test]
fn every_length() {
    let members = members();
    for length in 0..=4097u64 {
        let member = members[length as usize % members.len()];
        let content = Content::ALL[length as usize % Content::ALL.len()];
        let shape = match member.bases {
            Bases::Chunk => vec![length],
            Bases::Channel => vec![length / 8, 8],
        };
        check(&Case::new(member, content, &shape, Flags::default()));
    }
}

/// Tensors in a file and frames in a buffer start anywhere.
#[test]
fn any_address() {
    for member in members() {
        let case = Case::new(member, Content::Mixed, &[521, 8], Flags::CHECKSUMS);
        let expected = encode(&Reference, &case);
        for (inputs_at, frame_at) in [(1, 0), (0, 1), (2, 8), (7, 13)] {
            let input = [vec![0; inputs_at], case.inputs[0].clone()].concat();
            let mut out = vec![0xa5; frame_at + case.spec.layout().unwrap().max_frame_bytes as usize];
            let bytes =
                Cpu::new().encode(&case.spec, &[], &[&input[inputs_at..]], &mut out[frame_at..]).unwrap();
            let frame = &out[frame_at..frame_at + bytes];
            assert!(frame == expected, "{member}, {inputs_at}, {frame_at}");
            let mut back = vec![0; input.len()];
            Cpu::new().decode(&Frame::parse(frame).unwrap(), &mut [&mut back[inputs_at..]]).unwrap();
            assert!(back[inputs_at..] == case.inputs[0], "{member}, {inputs_at}, {frame_at}");
        }
    }
}

/// All tensors in one frame, cast to the dtype of the member.
fn frame_of(tensors: &[support::Tensor], member: Member) -> Case {
    let tensors: Vec<_> = tensors.iter().map(|tensor| support::cast(tensor, member.dtype)).collect();
    let spec = |tensor: &support::Tensor| {
        TensorSpec::new(&tensor.name, member.dtype, member.scheme, &tensor.shape).with_bases(member.bases)
    };
    let spec = FrameSpec::new(tensors.iter().map(spec).collect(), Flags::CHECKSUMS);
    let inputs = tensors.into_iter().map(|tensor| tensor.bytes).collect();
    Case { name: format!("{member}, real tensors"), spec, codebooks: Vec::new(), inputs }
}

#[test]
fn real_tensors_in_one_frame() {
    let tensors = support::load("../tests/fixtures/smollm2_prose_160.safetensors".as_ref());
    members().into_iter().for_each(|member| check(&frame_of(&tensors, member)));
}

/// A larger file: all of it comes back, and a few of its tensors are compared with the reference, which is slow.
#[test]
fn the_file_in_splitzip_kv() {
    let Some(path) = std::env::var_os("SPLITZIP_KV") else {
        return say(
            "SKIPPED the_file_in_splitzip_kv: SPLITZIP_KV names no safetensors file with bf16 tensors",
        );
    };
    let tensors = support::load(path.as_ref());
    for member in members() {
        check(&frame_of(&tensors[..tensors.len().min(2)], member));
        let case = frame_of(&tensors, member);
        let back = Cpu::new().decode_to_vecs(&Frame::parse(&encode(&Cpu::new(), &case)).unwrap()).unwrap();
        assert!(back == case.inputs, "{member}: does not come back");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes in any number of tensors.
    #[test]
    fn any_bytes(
        tensors in prop::collection::vec((any::<prop::sample::Index>(), 0u64..5000, any::<u64>()), 1..4),
        checksums: bool,
    ) {
        let flags = if checksums { Flags::CHECKSUMS } else { Flags::default() };
        let mut all = Case { name: "any bytes".into(), spec: FrameSpec::new(vec![], flags), codebooks: vec![], inputs: vec![] };
        for (index, length, seed) in tensors {
            let member = *index.get(&members());
            let shape = if member.bases == Bases::Channel { vec![length / 8, 8] } else { vec![length] };
            let mut case = Case::new(member, Content::ALL[index.index(Content::ALL.len())], &shape, flags);
            // Some random bytes among those of the kind.
            let bytes = case.inputs.pop().unwrap_or_default();
            let mut state = seed;
            let stir = |byte: u8| {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                if state >> 58 == 0 { (state >> 40) as u8 } else { byte }
            };
            all.inputs.push(bytes.into_iter().map(stir).collect());
            all.spec.tensors.append(&mut case.spec.tensors);
        }
        check(&all);
    }

    /// A damaged frame is an error, or its checksums were right: never a panic, never other bits.
    #[test]
    fn damaged_frames(index: prop::sample::Index, at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let member = *index.get(&members());
        let case = Case::new(member, Content::Mixed, &[700, 8], Flags::CHECKSUMS);
        let mut bytes = encode(&Cpu::new(), &case);
        for (place, value) in at {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(frame) = Frame::parse(&bytes)
            && let Ok(back) = Cpu::new().decode_to_vecs(&frame)
        {
            prop_assert!(back == case.inputs, "other bits, and no error");
        }
    }
}
