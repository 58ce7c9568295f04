//! Promises about frames.

use super::Choices;
use splitzip_host::conformance::{Case, Content, Member, in_arrival_order, in_chunk_order, members};
use splitzip_host::format::{pack, unpack, write};
use splitzip_host::{Cpu, Error, Executor, Flags, Frame, FrameSpec, Reference, TensorSpec};
use std::path::Path;
use std::sync::OnceLock;

/// No frame of these targets describes more.
const MOST_BYTES: u64 = 1 << 21;

/// A tensor of any member, and elements: the bytes that are left, again and again, so that few bytes make whole chunks.
fn case(data: &[u8]) -> Case {
    let mut choices = Choices(data);
    let member = choices.one_of(&members());
    let flags = choices.byte();
    let flags = Flags {
        arrival: flags & 1 != 0,
        packed: false,
        tensor_checksums: flags & 2 != 0,
        chunk_checksums: flags & 4 != 0,
    };
    let channels = 8 * (1 + choices.below(20));
    let repeat = 1 + choices.below(32);
    let row = channels * member.dtype.bytes();
    let mut input = choices.0.repeat(repeat);
    input.truncate(input.len().min(1 << 16) / row * row);
    let shape = [(input.len() / row) as u64, channels as u64];
    let tensor = TensorSpec::new("t", member.dtype, member.scheme, &shape).with_bases(member.bases);
    let spec = FrameSpec::new(vec![tensor], flags);
    Case { name: member.to_string(), spec, codebooks: Vec::new(), inputs: vec![input] }
}

/// Elements come back, from the frame, its packed form, and any range of its chunks.
pub fn round_trip(data: &[u8]) {
    let (case, cpu) = (case(data), Cpu::new());
    let bytes = cpu.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let layout = case.spec.layout().unwrap();
    assert!(bytes.len() as u64 <= layout.max_frame_bytes, "{}: larger than its bound", case.name);
    let frame = Frame::parse(&bytes).unwrap();
    assert!(cpu.decode_to_vecs(&frame).unwrap() == case.inputs, "{}: other bits", case.name);
    let packed = pack(&frame).unwrap();
    let packed_frame = Frame::parse(&packed).unwrap();
    assert!(cpu.decode_to_vecs(&packed_frame).unwrap() == case.inputs, "{}: packed: other bits", case.name);
    assert!(unpack(&packed_frame).unwrap() == bytes, "{}: unpacked: another frame", case.name);
    let elements = layout.tensors[0].elements;
    let seed = data.iter().fold(1u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let (a, b) = (seed % (elements + 1), (seed >> 20) % (elements + 1));
    let range = a.min(b)..a.max(b);
    let size = case.spec.tensors[0].dtype.bytes() as u64;
    let expected = &case.inputs[0][(range.start * size) as usize..(range.end * size) as usize];
    for frame in [&frame, &packed_frame] {
        let mut output = vec![0; expected.len()];
        cpu.decode_elements(frame, 0, range.clone(), &mut output).unwrap();
        assert!(output == expected, "{}: elements {range:?}: other bits", case.name);
    }
}

/// The reference and the CPU write the same frame, and read it to the same bits.
pub fn executors_agree(data: &[u8]) {
    let case = case(data);
    let [ours, expected] = [&Cpu::new() as &dyn Executor, &Reference]
        .map(|executor| executor.encode_to_vec(&case.spec, &[], &case.slices()).unwrap());
    let [ours, expected] = match case.spec.flags.arrival {
        true => [&ours, &expected].map(|frame| in_chunk_order(&Frame::parse(frame).unwrap())),
        false => [ours, expected],
    };
    assert!(ours == expected, "{}: another frame than the reference", case.name);
    let dtype = case.spec.tensors[0].dtype;
    let [ours, expected] =
        [Cpu::new().histogram(dtype, &case.inputs[0]), Reference.histogram(dtype, &case.inputs[0])];
    assert_eq!(ours.unwrap().counts(), expected.unwrap().counts());
    decoders_agree(&in_arrival_order(&Frame::parse(&expected_frame(&case)).unwrap()));
}

fn expected_frame(case: &Case) -> Vec<u8> {
    let spec = FrameSpec { flags: Flags { arrival: false, ..case.spec.flags }, ..case.spec.clone() };
    Reference.encode_to_vec(&spec, &[], &case.slices()).unwrap()
}

/// What the reference decodes the CPU decodes to the same bits, and what has checksums no executor decodes to others. (The reference refuses more: filling bits
/// that a kernel does not look at.)
fn decoders_agree(bytes: &[u8]) {
    let Ok(frame) = Frame::parse(bytes) else { return };
    let [ours, expected] = [&Cpu::new() as &dyn Executor, &Reference]
        .map(|executor| executor.decode_to_vecs_within(&frame, MOST_BYTES));
    if frame.layout().raw_bytes > MOST_BYTES {
        assert!(matches!(ours, Err(Error::Limit { .. })) && matches!(expected, Err(Error::Limit { .. })));
    }
    if let Ok(expected) = &expected {
        assert!(ours.as_ref().ok() == Some(expected), "the CPU does not decode what the reference does");
    }
    for (number, tensor) in frame.layout().tensors.iter().enumerate() {
        for chunk in [0, 1, tensor.chunks.saturating_sub(1)] {
            if chunk < tensor.chunks {
                let mut output = vec![0; tensor.chunk_len(chunk)];
                let ranged = Cpu::new().decode_range(&frame, number, chunk..chunk + 1, &mut output);
                if let (Ok(()), Ok(expected)) = (ranged, &expected) {
                    let at = (chunk * tensor.chunk_bytes()) as usize;
                    assert!(output == expected[number][at..at + output.len()], "a range has other bits");
                }
            }
        }
    }
    if frame.layout().raw_bytes <= MOST_BYTES {
        let moved = if frame.spec().flags.packed { unpack(&frame) } else { pack(&frame) };
        if let (Ok(moved), Ok(expected)) = (moved, &expected) {
            let moved = Reference.decode_to_vecs(&Frame::parse(&moved).unwrap()).unwrap();
            assert!(moved == *expected, "packing changes the bits");
        }
    }
}

/// Any bytes are refused, or decoded alike by all executors.
pub fn any_bytes(data: &[u8]) {
    decoders_agree(data);
    if let Ok(frame) = Frame::parse(data) {
        assert_eq!(FrameSpec::read(data).ok().as_ref(), Some(frame.spec()), "its start says something else");
    }
}

/// A golden frame with changes, under checks that fit them: what is left to notice it are the fields themselves, and the decoders.
pub fn damaged_frame(data: &[u8]) {
    let mut choices = Choices(data);
    let goldens = goldens();
    let mut bytes = goldens[choices.below(goldens.len())].clone();
    let seal = choices.byte();
    for _ in 0..16 {
        if choices.0.is_empty() {
            break;
        }
        let at = choices.below(bytes.len());
        bytes[at] ^= choices.byte();
    }
    if seal & 1 == 0 {
        seal_static(&mut bytes);
    }
    if seal & 2 == 0
        && let Ok(spec) = FrameSpec::read(&bytes)
        && let Ok(layout) = (FrameSpec { flags: Flags { packed: false, ..spec.flags }, ..spec }).layout()
        && layout.directory_at <= bytes.len() as u64
    {
        write::seal_dynamic(&layout, &mut bytes).unwrap();
    }
    decoders_agree(&bytes);
}

/// A static part under a CRC that fits is refused, or is the one that its description gives.
pub fn header(data: &[u8]) {
    let mut bytes = data.to_vec();
    if bytes.len() >= 64 {
        bytes[..12].copy_from_slice(b"SPZFRAME\x01\0\0\0");
        seal_static(&mut bytes);
    }
    let _ = Frame::parse(&bytes);
    if let Ok(spec) = FrameSpec::read(&bytes)
        && !spec.flags.packed
    {
        let layout = spec.layout().unwrap();
        let expected = write::static_bytes(&spec, &layout);
        assert!(bytes[..expected.len()] == expected, "it is not what its description gives");
        assert!(layout.raw_bytes <= layout.max_frame_bytes);
    }
}

/// Writes the CRC of the static part, as far as it is there.
fn seal_static(bytes: &mut [u8]) {
    let Some(length) = bytes.get(20..24).and_then(|field| field.first_chunk()) else { return };
    let length = u32::from_le_bytes(*length) as usize;
    if let Some(part) = bytes.get_mut(..length).filter(|part| part.len() >= 64) {
        part[60..64].fill(0);
        let crc = crc32fast::hash(part);
        part[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The golden frames.
pub fn goldens() -> &'static [Vec<u8>] {
    static GOLDENS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    GOLDENS.get_or_init(|| {
        // The manifest is that of the library, or of `fuzz/` beside it.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../splitzip-host/tests/golden");
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let frames: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert!(!frames.is_empty(), "there are no golden frames");
        frames
    })
}

/// What becomes a tensor of each member, of elements that are like those of a cache, and of others.
pub fn element_seeds() -> Vec<Vec<u8>> {
    let seed = |(number, member): (usize, Member)| {
        [Content::Plain, Content::Mixed, Content::ZeroRandom].map(|content| {
            let start = [number as u8, 6 + number as u8 % 2, 7, 2];
            [&start[..], &content.bytes(member.dtype, 1100, 64)].concat()
        })
    };
    members().into_iter().enumerate().flat_map(seed).collect()
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    goldens().to_vec()
}

/// Each golden frame with a change somewhere.
pub fn damage_seeds() -> Vec<Vec<u8>> {
    (0..goldens().len() as u8)
        .map(|number| vec![number, 0, number.wrapping_mul(7), number % 23, 1 << (number % 8)])
        .collect()
}

pub fn header_seeds() -> Vec<Vec<u8>> {
    let start = |bytes: &Vec<u8>| {
        let frame = Frame::parse(bytes).unwrap();
        bytes[..frame.layout().static_bytes as usize].to_vec()
    };
    goldens().iter().map(start).collect()
}
