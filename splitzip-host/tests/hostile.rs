//! Bytes that are no frame, or no longer one: an error with a type, never a panic, never wrong bits.

use splitzip_host::conformance::{Case, Content, Member, cases, members};
use splitzip_host::format::{self, write};
use splitzip_host::{Bases, Dtype, Error, Executor, Flags, Frame, FrameSpec, Reference, Scheme, TensorSpec};

/// A small frame with everything: all modes, channel bases, a codebook, a stored tensor, checksums.
fn small() -> (FrameSpec, Vec<Vec<u8>>, Vec<u8>) {
    let tensors = vec![
        TensorSpec::new("a", Dtype::Bf16, Scheme::W2x3, &[4, 1030]),
        TensorSpec::new("b", Dtype::E5m2, Scheme::W2x2x3, &[140, 8]).with_bases(Bases::Channel).with_id(3),
        TensorSpec::new("c", Dtype::Bytes, Scheme::Stored, &[13]),
        TensorSpec::new("d", Dtype::Fp16, Scheme::W4, &[700]),
    ];
    let inputs = vec![
        Content::Mixed.bytes(Dtype::Bf16, 4 * 1030, 1),
        Content::Outliers.bytes(Dtype::E5m2, 140 * 8, 8),
        b"thirteen byte".to_vec(),
        Content::Plain.bytes(Dtype::Fp16, 700, 1),
    ];
    let spec = FrameSpec { tensors, flags: Flags::CHECKSUMS, layout_id: 9 };
    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let bytes = Reference.encode_to_vec(&spec, &[], &slices).unwrap();
    (spec, inputs, bytes)
}

fn decode(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let frame = Frame::parse(bytes)?;
    Reference.decode_to_vecs(&frame)
}

#[test]
fn the_small_frame_has_all_modes() {
    let (_, inputs, bytes) = small();
    let frame = Frame::parse(&bytes).unwrap();
    let mut modes: Vec<u8> =
        (0..5).map(|chunk| frame.tensor(0).unwrap().chunk(chunk).unwrap().entry.mode as u8).collect();
    assert_eq!(modes.pop(), Some(0));
    modes.sort_unstable();
    assert_eq!(modes, [0, 1, 2, 3]);
    assert_eq!(Reference.decode_to_vecs(&frame).unwrap(), inputs);
}

#[test]
fn every_truncation_is_refused() {
    for bytes in [small().2, format::pack(&Frame::parse(&small().2).unwrap()).unwrap()] {
        for length in 0..bytes.len() {
            assert!(Frame::parse(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
        let longer = [&bytes[..], &[1, 2, 3]].concat();
        assert_eq!(Frame::parse(&longer).unwrap().bytes(), bytes);
    }
}

#[test]
fn every_flipped_bit_of_the_head_is_refused() {
    let (spec, _, bytes) = small();
    let layout = spec.layout().unwrap();
    for bit in 0..8 * (layout.static_bytes + layout.dynamic_bytes) as usize {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Frame::parse(&changed).is_err(), "bit {bit}");
    }
}

/// Behind the head there are checksums of the raw bits: a flipped bit is refused, or does not change what is decoded (a
/// plane where a chunk is equal).
#[test]
fn every_flipped_bit_of_the_body_is_noticed() {
    let (_, inputs, bytes) = small();
    let packed = format::pack(&Frame::parse(&bytes).unwrap()).unwrap();
    for bytes in [bytes, packed] {
        let start = Frame::parse(&bytes).unwrap().layout().directory_at as usize;
        for at in start..bytes.len() {
            // One bit a byte, another one each time: all of them take minutes.
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            if let Ok(decoded) = decode(&changed) {
                assert!(decoded == inputs, "byte {at}");
            }
        }
    }
}

/// The same with a valid CRC: now the fields themselves are checked.
#[test]
fn sealed_nonsense_in_the_static_part_is_refused() {
    let (spec, inputs, bytes) = small();
    let layout = spec.layout().unwrap();
    let mut accepted = 0;
    for at in 8..layout.static_bytes as usize {
        for change in [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            let part = &mut changed[..layout.static_bytes as usize];
            part[60..64].fill(0);
            let crc = crc32fast::hash(part);
            part[60..64].copy_from_slice(&crc.to_le_bytes());
            if let Ok(frame) = Frame::parse(&changed) {
                accepted += 1;
                // Ids and names may change, and w2x3 can be called w3 until it is decoded; what is decoded may not.
                assert!(
                    Reference.decode_to_vecs(&frame).map_or(true, |decoded| decoded == inputs),
                    "byte {at}"
                );
            }
        }
    }
    assert!(accepted < 600, "{accepted}");
}

#[test]
fn sealed_nonsense_in_the_dynamic_part_is_refused() {
    let (spec, inputs, bytes) = small();
    let layout = spec.layout().unwrap();
    for at in layout.static_bytes as usize..layout.directory_at as usize {
        for change in [1, 0x10, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            write::seal_dynamic(&layout, &mut changed).unwrap();
            if let Ok(decoded) = decode(&changed) {
                assert!(decoded == inputs, "byte {at}");
            }
        }
    }
    let mut failed = bytes.clone();
    failed[layout.static_bytes as usize + 8] = 7;
    write::seal_dynamic(&layout, &mut failed).unwrap();
    assert!(matches!(Frame::parse(&failed), Err(Error::EncoderFailed { status: 7 })));
}

/// Without checksums nothing stands between a decoder and the bits: errors or wrong elements, but no panic.
#[test]
fn damage_without_checksums_does_not_panic() {
    let mut errors = 0;
    for member in members() {
        for content in [Content::Outliers, Content::Mixed] {
            let case = Case::new(member, content, &[3, 50, 8], Flags::default());
            let bytes = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
            let layout = case.spec.layout().unwrap();
            let packed = format::pack(&Frame::parse(&bytes).unwrap()).unwrap();
            for bytes in [&bytes, &packed] {
                for at in (layout.directory_at as usize..bytes.len()).step_by(3) {
                    let mut changed = bytes.clone();
                    changed[at] = changed[at].wrapping_add(0x55);
                    errors += u32::from(decode(&changed).is_err());
                }
            }
        }
    }
    assert!(errors > 1000, "{errors}");
}

#[test]
fn errors_have_types() {
    let (_, _, bytes) = small();
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        Frame::parse(&changed).map(|_| ()).unwrap_err()
    };
    assert!(matches!(with(0, b'X'), Error::NotAFrame));
    assert!(matches!(with(8, 2), Error::Version { major: 2, minor: 0 }));
    assert!(matches!(with(10, 1), Error::Version { major: 1, minor: 1 }));
    assert!(matches!(with(12, 0xff), Error::FrameCheck { what: "static part", .. }));
    assert!(matches!(Frame::parse(&[]), Err(Error::NotAFrame)));
    assert!(matches!(Frame::parse(&bytes[..100]), Err(Error::Truncated { .. })));
    assert_eq!(
        with(8, 2).to_string(),
        "frame version 2.0 is unknown; this reader knows 1.0, so use a newer splitzip"
    );

    let frame = Frame::parse(&bytes).unwrap();
    assert!(matches!(frame.tensor(4), Err(Error::OutOfRange { what: "tensor", given: 4, count: 4 })));
    let mut short = [0; 5];
    assert!(matches!(Reference.decode(&frame, &mut [&mut short]), Err(Error::Count { what: "outputs", .. })));
    assert!(matches!(Reference.decode_range(&frame, 0, 0..1, &mut short), Err(Error::BufferSize { .. })));
    assert!(matches!(Reference.decode_range(&frame, 0, 0..6, &mut short), Err(Error::OutOfRange { .. })));
    assert!(matches!(Reference.histogram(Dtype::Bf16, &[1, 2, 3]), Err(Error::BufferSize { .. })));
}

#[test]
fn wrong_buffers_are_errors() {
    let member = Member { dtype: Dtype::Bf16, scheme: Scheme::W4, bases: Bases::Chunk };
    let case = &cases(member)[20];
    let mut out = vec![0; case.spec.layout().unwrap().max_frame_bytes as usize];
    let inputs = case.slices();
    assert!(Reference.encode(&case.spec, &[], &inputs, &mut out).is_ok());
    let last = out.len() - 1;
    assert!(matches!(
        Reference.encode(&case.spec, &[], &inputs, &mut out[..last]),
        Err(Error::BufferSize { .. })
    ));
    assert!(matches!(
        Reference.encode(&case.spec, &[], &[], &mut out),
        Err(Error::Count { what: "inputs", .. })
    ));
    let two = [Default::default(); 2];
    assert!(matches!(
        Reference.encode(&case.spec, &two, &inputs, &mut out),
        Err(Error::Count { what: "codebooks", .. })
    ));
    assert!(matches!(Reference.encode(&case.spec, &[], &[&[1]], &mut out), Err(Error::BufferSize { .. })));
    let packed = FrameSpec { flags: Flags { packed: true, ..Flags::default() }, ..case.spec.clone() };
    assert!(matches!(Reference.encode(&packed, &[], &inputs, &mut out), Err(Error::Spec { .. })));
}
