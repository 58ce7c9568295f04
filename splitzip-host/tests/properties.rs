//! What holds for all inputs: exact round trips, sizes within their bounds, and the small pieces that frames are made of.

use proptest::prelude::*;
use splitzip_host::conformance::{Case, Content, Member, in_arrival_order, members};
use splitzip_host::format::{
    self, Mode, PlaneKind, chunk_checksum, chunk_checksum_naive, coding_order, coding_place,
};
use splitzip_host::{
    Bases, Codebook, CodebookChoice, CodebookFile, Dtype, Error, Executor, Flags, Frame, FrameSpec,
    Histogram, Reference, Scheme, TensorSpec, sampled_chunks,
};

/// Section 9 of the specification, word for word.
fn bound(spec: &FrameSpec) -> u64 {
    let tensor = |of: &TensorSpec| {
        let elements = of.elements().unwrap();
        let bytes = elements * of.dtype.bytes() as u64;
        let chunk_bytes = if of.dtype.is_float() { 1024 * of.dtype.bytes() as u64 } else { 2048 };
        let chunks = bytes.div_ceil(chunk_bytes);
        let groups = chunks.div_ceil(16);
        let checksums = if spec.flags.chunk_checksums { 4 * chunks } else { 0 };
        let strings = 8 * of.shape.len() + of.name.len();
        bytes + 40 * groups + checksums + of.channels() * groups + 96 + strings as u64 + 388
    };
    256 + spec.tensors.iter().map(tensor).sum::<u64>()
}

fn round_trip(case: &Case) -> Vec<u8> {
    let bytes = Reference.encode_to_vec(&case.spec, &case.codebooks, &case.slices()).unwrap();
    let layout = case.spec.layout().unwrap();
    assert!(bytes.len() as u64 <= layout.max_frame_bytes, "{}", case.name);
    assert!(layout.max_frame_bytes <= bound(&case.spec), "{}: {} bytes", case.name, layout.max_frame_bytes);
    let frame = Frame::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    assert_eq!(frame.spec(), &case.spec);
    assert_eq!(frame.bytes().len(), bytes.len());
    assert!(Reference.decode_to_vecs(&frame).unwrap() == case.inputs, "{}", case.name);
    bytes
}

/// Every length up to four chunks. Around the ends of lanes, runs and chunks for all members, elsewhere in turns.
#[test]
fn every_length() {
    let members = members();
    for length in 0..=4097u64 {
        let close = length < 40 || [256, 1024, 2048, 3072, 4096].iter().any(|&end| length.abs_diff(end) < 2);
        for (m, &member) in members.iter().enumerate() {
            let turn = length as usize % members.len() == m;
            if close || turn {
                let shape = match member.bases {
                    Bases::Chunk => vec![length],
                    Bases::Channel => vec![length, 8],
                };
                if member.bases == Bases::Chunk || length < 600 {
                    round_trip(&Case::new(member, Content::Outliers, &shape, Flags::default()));
                }
            }
        }
    }
}

fn any_case() -> impl Strategy<Value = Case> {
    let member = prop::sample::select(members());
    let content = prop::sample::select(Content::ALL.to_vec());
    (member, content, 0..40u64, 1..9u64, 0..4u32, any::<u64>()).prop_map(
        |(member, content, rows, eighths, flags, seed)| {
            let flags = Flags::from_bits(flags << 2).unwrap();
            let mut case = Case::new(member, content, &[rows, 8 * eighths], flags);
            // Patches that no kind of content has.
            let input = &mut case.inputs[0];
            for k in 0..seed % 5 {
                let at = (seed >> (8 * k)) as usize % input.len().max(1);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= (seed >> 7) as u8;
                }
            }
            case
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frames_give_their_input_back(case in any_case()) {
        let bytes = round_trip(&case);
        let frame = Frame::parse(&bytes).unwrap();
        let packed = format::pack(&frame).unwrap();
        let packed_frame = Frame::parse(&packed).unwrap();
        prop_assert!(packed.len() <= bytes.len());
        prop_assert_eq!(Reference.decode_to_vecs(&packed_frame).unwrap(), case.inputs.clone());
        prop_assert_eq!(format::unpack(&packed_frame).unwrap(), bytes.clone());
        prop_assert_eq!(format::pack(&packed_frame).unwrap(), packed.clone());
        let arrived = in_arrival_order(&frame);
        prop_assert_eq!(Reference.decode_to_vecs(&Frame::parse(&arrived).unwrap()).unwrap(), case.inputs.clone());
    }

    #[test]
    fn random_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..3000), m in 0..27usize) {
        let member = members()[m];
        let row = if member.bases == Bases::Channel { 8 } else { 1 };
        let elements = bytes.len() / member.dtype.bytes() / row * row;
        let spec = TensorSpec::new("", member.dtype, member.scheme, &[(elements / row) as u64, row as u64]);
        let spec = FrameSpec::new(vec![spec.with_bases(member.bases)], Flags::CHECKSUMS);
        let input = bytes[..elements * member.dtype.bytes()].to_vec();
        round_trip(&Case { name: member.to_string(), spec, codebooks: vec![], inputs: vec![input] });
    }

    #[test]
    fn any_range_decodes_alone(case in any_case(), a in 0..4u64, b in 0..4u64) {
        let bytes = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
        let frame = Frame::parse(&bytes).unwrap();
        let layout = &frame.layout().tensors[0];
        let (start, end) = (a.min(b), a.max(b));
        let byte = |chunk: u64| (chunk * layout.chunk_bytes()).min(layout.bytes) as usize;
        let mut output = vec![0; byte(end) - byte(start)];
        let result = Reference.decode_range(&frame, 0, start..end, &mut output);
        prop_assert_eq!(result.is_ok(), end <= layout.chunks);
        if result.is_ok() {
            prop_assert_eq!(&output[..], &case.inputs[0][byte(start)..byte(end)]);
        }
    }

    #[test]
    fn both_checksums_of_a_chunk_agree(bytes in prop::collection::vec(any::<u8>(), 0..2100)) {
        for dtype in Dtype::ALL.iter().copied() {
            let size = if dtype.is_float() { 1024 * dtype.bytes() } else { 2048 };
            let bytes = &bytes[..bytes.len().min(size)];
            prop_assert_eq!(chunk_checksum(dtype, bytes), chunk_checksum_naive(dtype, bytes));
        }
    }

    #[test]
    fn planes_hold_what_was_put_in(values in prop::collection::vec(any::<u16>(), 1..1025), bits in 1..9u32) {
        for kind in [PlaneKind::Packed(bits), PlaneKind::Bits(bits)] {
            let mut part = vec![0; kind.part_bytes(values.len())];
            let mask = ((1u32 << bits) - 1) as u16;
            for (element, value) in values.iter().enumerate() {
                kind.set(&mut part, values.len(), element, value & mask);
            }
            for (element, value) in values.iter().enumerate() {
                prop_assert_eq!(kind.get(&part, values.len(), element), value & mask);
            }
        }
    }

    #[test]
    fn hostile_sizes_are_errors(shape in prop::collection::vec(any::<u64>(), 0..10), m in 0..27usize, copies in 0..3usize) {
        let member = members()[m];
        let spec = TensorSpec::new("t", member.dtype, member.scheme, &shape).with_bases(member.bases);
        let _ = FrameSpec::new(vec![spec; copies], Flags::CHECKSUMS).layout();
    }
}

#[test]
fn random_bits_reach_the_exact_bound() {
    for member in members() {
        for rows in [16, 17, 150] {
            let case = Case::new(member, Content::Random, &[rows, 64], Flags::default());
            let bytes = round_trip(&case);
            let layout = case.spec.layout().unwrap();
            // With few exponents random bits compress a little: then all chunks being raw is still the bound.
            let frame = Frame::parse(&bytes).unwrap();
            let chunks = layout.tensors[0].chunks;
            let raw = (0..chunks)
                .all(|chunk| frame.tensor(0).unwrap().chunk(chunk).unwrap().entry.mode == Mode::Raw);
            assert!(raw || member.dtype != Dtype::Bf16 || member.scheme == Scheme::W4, "{member}");
            assert_eq!(raw, bytes.len() as u64 == layout.max_frame_bytes, "{member}");
        }
    }
}

/// Chunks of equal elements come back into the planes as they were, whichever stood before them: another element, another group, a short one.
#[test]
fn equal_chunks_are_put_back() {
    for member in members() {
        let rows = 40 * 1024 / 64 + 3;
        let mut case = Case::new(member, Content::Plain, &[rows, 64], Flags::default());
        let bytes = member.dtype.bytes();
        for (chunk, elements) in case.inputs[0].chunks_mut(1024 * bytes).enumerate() {
            // Runs of one element, runs that alternate, and a plain chunk now and then.
            let word = [0u16, 0, 0x3f, 0x3f, 0, 0x42, 0][chunk % 7];
            if chunk % 11 != 10 {
                elements.chunks_mut(bytes).for_each(|to| to.copy_from_slice(&word.to_le_bytes()[..bytes]));
            }
        }
        let bytes = round_trip(&case);
        let packed = format::pack(&Frame::parse(&bytes).unwrap()).unwrap();
        assert!(packed.len() * 3 < bytes.len(), "{member}: {} of {}", packed.len(), bytes.len());
        assert!(format::unpack(&Frame::parse(&packed).unwrap()).unwrap() == bytes, "{member}");
    }
}

/// A receiver that gets the dense part first knows what it will have before, and how much follows after.
#[test]
fn the_dense_part_can_be_sent_first() {
    for member in members() {
        let case = Case::new(member, Content::Mixed, &[90, 64], Flags::CHECKSUMS);
        let layout = case.spec.layout().unwrap();
        let bytes = round_trip(&case);
        let dense = &bytes[layout.dense_part().start as usize..layout.dense_part().end as usize];
        let mut received = vec![0; layout.max_frame_bytes as usize];
        received[..dense.len()].copy_from_slice(dense);
        let at = layout.words_at() as usize;
        let words = u64::from_le_bytes(received[at..at + 8].try_into().unwrap());
        let rest = layout.variable_parts(words).unwrap();
        let rest = rest.start as usize..rest.end as usize;
        assert_eq!(rest.end, bytes.len(), "{member}");
        received[rest.clone()].copy_from_slice(&bytes[rest]);
        assert_eq!(Reference.decode_to_vecs(&Frame::parse(&received).unwrap()).unwrap(), case.inputs);
        // The same for whatever the tensor holds.
        let zeros = Case::new(member, Content::Zero, &[90, 64], Flags::CHECKSUMS);
        assert_eq!(zeros.spec.layout().unwrap().dense_part(), layout.dense_part());
        for words in [u64::MAX, (layout.max_frame_bytes - layout.dense_bytes) / 4 + 1] {
            assert!(matches!(layout.variable_parts(words), Err(Error::TooLarge { .. })));
        }
    }
}

#[test]
fn every_word_of_every_dtype_splits_and_joins() {
    for dtype in Dtype::ALL.iter().copied() {
        let words = 1u32 << dtype.bits();
        for word in 0..words {
            let (exponent, residual) = dtype.split(word as u16);
            assert!(
                usize::from(exponent) < dtype.exponents() && u32::from(residual) < 1 << dtype.residual_bits()
            );
            assert_eq!(dtype.join(exponent, residual), word as u16);
        }
    }
    assert_eq!(Dtype::Bf16.split(0x3f81), (127, 1));
    assert_eq!(Dtype::Bf16.split(0xbf81), (127, 0x81));
    assert_eq!(Dtype::Fp16.split(0xbc01), (15, 0x401));
    assert_eq!(Dtype::E4m3.split(0xb9), (7, 0x9));
    assert_eq!(Dtype::E5m2.split(0xbd), (15, 0x5));
}

#[test]
fn coding_order_is_that_of_a_warp() {
    let order = coding_order(1024);
    assert_eq!(order[0], 0);
    assert_eq!(&order[..12], &[0, 256, 512, 768, 4, 260, 516, 772, 1, 257, 513, 769]);
    assert!((0..1024).all(|element| order[coding_place(element)] == element));
    assert_eq!(coding_order(3), [0, 1, 2]);
    assert_eq!(coding_order(9), [0, 4, 1, 5, 2, 6, 3, 7, 8]);
}

#[test]
fn a_changed_bit_changes_the_checksum() {
    for dtype in [Dtype::Bf16, Dtype::E4m3] {
        let bytes = Content::Plain.bytes(dtype, 1500, 1);
        let before = format::tensor_checksum(dtype, &bytes);
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(format::tensor_checksum(dtype, &changed), before);
        }
        let (first, second) = bytes.split_at(1024 * dtype.bytes());
        assert_ne!(format::tensor_checksum(dtype, &[second, first].concat()), before);
    }
    // Known values: other implementations compare with these.
    assert_eq!(chunk_checksum_naive(Dtype::Bf16, &[]), chunk_checksum_naive(Dtype::Bf16, &[0; 2048]));
    assert_eq!(format::tensor_checksum(Dtype::Bf16, &[]), 0);
}

#[test]
fn codebooks_follow_the_counts() {
    let mut counts = [0u64; 256];
    counts[100..130].fill(5);
    counts[120] = 9;
    let histogram = Histogram::from_counts(Dtype::Bf16, &counts).unwrap();
    // Ties go to the smaller exponent.
    let expected: Vec<u8> = (100..115).chain([120]).collect();
    assert_eq!(Codebook::from_histogram(&histogram).unwrap().exponents()[..], expected);
    assert_eq!(histogram.total(), 29 * 5 + 9);
    assert!((histogram.coverage(1) - 9.0 / 154.0).abs() < 1e-12);

    let mut few = Histogram::new(Dtype::Bf16);
    (0..10).for_each(|_| few.count(0x3f80));
    let expected: Vec<u8> = (0..15).chain([127]).collect();
    assert_eq!(Codebook::from_histogram(&few).unwrap().exponents()[..], expected);
    assert_eq!((few.entropy(), few.coverage(16)), (0.0, 1.0));
    few.count(0x0000);
    few.merge(&histogram).unwrap();
    assert_eq!(few.total(), 11 + 154);
    assert!(matches!(few.merge(&Histogram::new(Dtype::Fp16)), Err(Error::CodebookDtype { .. })));

    assert!(matches!(Codebook::from_histogram(&Histogram::new(Dtype::E4m3)), Err(Error::Codebook { .. })));
    let ascending: [u8; 16] = std::array::from_fn(|i| 20 + i as u8);
    assert!(Codebook::new(Dtype::Bf16, ascending).is_ok());
    assert!(matches!(Codebook::new(Dtype::E5m2, ascending), Err(Error::Codebook { .. })));
    assert!(matches!(Codebook::new(Dtype::Bf16, [7; 16]), Err(Error::Codebook { .. })));
}

#[test]
fn samples_are_spread_evenly() {
    assert_eq!(sampled_chunks(0).count(), 0);
    assert_eq!(sampled_chunks(3).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(sampled_chunks(64).collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
    let sample: Vec<u64> = sampled_chunks(100).collect();
    assert_eq!((sample.len(), sample[0], sample[1], sample[63]), (64, 0, 1, 98));
    assert_eq!(sampled_chunks(u64::MAX).count(), 64);
}

#[test]
fn a_codebook_of_another_dtype_is_an_error_that_says_so() {
    let member = Member { dtype: Dtype::Fp16, scheme: Scheme::W4, bases: Bases::Chunk };
    let case = Case::new(member, Content::Plain, &[100], Flags::default());
    let codebook = Codebook::new(Dtype::Bf16, std::array::from_fn(|i| 110 + i as u8)).unwrap();
    let result = Reference.encode_to_vec(&case.spec, &[CodebookChoice::Given(codebook)], &case.slices());
    let text = result.unwrap_err().to_string();
    assert_eq!(
        text,
        "the codebook of tensor 0 is for bf16, but the tensor is fp16; calibrate one for fp16 or use auto"
    );

    let mut file = CodebookFile::new();
    file.insert("a \"quoted\" name", codebook);
    assert!(matches!(file.get("b", Dtype::Bf16), Err(Error::CodebookMissing { .. })));
    file.set_default(Some(codebook));
    assert_eq!(file.get("b", Dtype::Bf16).unwrap(), codebook);
    assert!(matches!(file.get("b", Dtype::Fp16), Err(Error::CodebookDtype { .. })));
    let text = file.to_json();
    assert_eq!(CodebookFile::from_json(&text).unwrap(), file, "{text}");
    assert_eq!(CodebookFile::from_json(&CodebookFile::new().to_json()).unwrap(), CodebookFile::new());
    let wrong = [
        text.replace("\"version\": 1", "\"version\": 2"),
        text.replace("splitzip codebooks", "something"),
        text.replace("110, ", ""),
        text.replace("110, 111", "111, 110"),
        text.replace("bf16", "bf17"),
        text.replace("\"tensors\"", "\"more\": 1, \"tensors\""),
        text[..text.len() - 3].to_owned(),
    ];
    for text in wrong {
        assert!(matches!(CodebookFile::from_json(&text), Err(Error::CodebookFile { .. })), "{text}");
    }
}

#[test]
fn names_come_back_and_pointless_pairs_are_refused() {
    assert!(Dtype::ALL.iter().all(|dtype| dtype.name().parse::<Dtype>().unwrap() == *dtype));
    let names: Vec<&str> = Scheme::ALL.iter().map(|scheme| scheme.name()).collect();
    assert!(names.starts_with(&["stored", "w4", "w3", "w2x3", "w2x2x3"]));
    assert!(Scheme::ALL.iter().all(|scheme| scheme.name().parse::<Scheme>().unwrap() == *scheme));
    assert_eq!(
        "w9".parse::<Scheme>().unwrap_err().to_string(),
        format!("there is no scheme \"w9\"; it must be one of {}", names.join(", "))
    );
    assert_eq!(
        Scheme::W4.check(Dtype::E4m3).unwrap_err().to_string(),
        "w4 is pointless for e4m3: its codes have 4 bits and the exponent of e4m3 has 4, so there is nothing to gain; use \
         one of stored, w3, w2x3, w2x2x3"
    );
    assert!(Scheme::W2x3.check(Dtype::Bytes).unwrap_err().to_string().contains("no exponent"));
    let channel = |shape: &[u64], scheme| {
        let spec = TensorSpec::new("k", Dtype::Bf16, scheme, shape).with_bases(Bases::Channel);
        FrameSpec::new(vec![spec], Flags::default()).layout()
    };
    assert!(channel(&[2, 64], Scheme::W2x3).is_ok());
    for shape in [&[2u64, 60][..], &[2, 0], &[2, 2048], &[]] {
        assert!(matches!(channel(shape, Scheme::W2x3), Err(Error::Spec { .. })));
    }
    assert!(matches!(channel(&[2, 64], Scheme::W4), Err(Error::Spec { .. })));
}
