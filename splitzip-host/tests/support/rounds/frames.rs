//! A round of tensors in one piece.

use super::{Counts, Executors, Random};
use splitzip_host::conformance::{Content, in_chunk_order, members};
use splitzip_host::format::{pack, unpack};
use splitzip_host::{Bases, Dtype, Executor, Flags, Frame, FrameSpec, Scheme, TensorSpec};

/// Raw bytes up to which the naive reference takes part.
const REFERENCE: u64 = 1 << 18;

fn tensor(random: &mut Random, number: usize, most: u64) -> (TensorSpec, Vec<u8>) {
    let member = random.one_of(&members());
    let (mut dtype, mut scheme, mut bases) = (member.dtype, member.scheme, member.bases);
    if random.one_in(10) {
        (dtype, scheme, bases) = (random.one_of(&[Dtype::Bytes, dtype]), Scheme::Stored, Bases::Chunk);
    }
    let elements = random.size(most / dtype.bytes() as u64);
    let channels = match bases {
        Bases::Channel if random.one_in(2) => random.one_of(&[64, 128, 256]),
        Bases::Channel => 8 * (1 + random.below(128)),
        Bases::Chunk => 1 + random.below(300),
    };
    let rows = elements / channels;
    let shape = match random.below(4) {
        0 if rows.is_multiple_of(2) => vec![2, rows / 2, channels],
        1 if bases == Bases::Chunk => vec![rows * channels],
        _ => vec![rows, channels],
    };
    let spec = TensorSpec::new(&format!("t{number}"), dtype, scheme, &shape)
        .with_bases(bases)
        .with_id(random.next());
    (spec, elements_of(random, dtype, rows * channels, channels))
}

/// Elements of some kind, a piece of another kind among them, and a few changes.
pub fn elements_of(random: &mut Random, dtype: Dtype, elements: u64, channels: u64) -> Vec<u8> {
    let of = if dtype.is_float() { dtype } else { Dtype::E5m2 };
    let content = |random: &mut Random, count: u64| {
        random.one_of(&Content::ALL).bytes(of, count as usize, channels as usize)
    };
    let mut bytes = content(random, elements);
    if elements != 0 && random.one_in(2) {
        let (from, count) = (random.below(elements), 1 + random.below(elements));
        let count = count.min(elements - from);
        let other = content(random, count);
        let at = from as usize * of.bytes();
        bytes[at..at + other.len()].copy_from_slice(&other);
    }
    if !bytes.is_empty() {
        for _ in 0..random.below(6) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
    }
    bytes
}

pub fn run(
    executors: &Executors<'_>,
    random: &mut Random,
    most: u64,
    counts: &mut Counts,
) -> Result<(), String> {
    let tensors = if random.one_in(6) { random.below(90) } else { 1 + random.below(4) };
    let (specs, inputs): (Vec<_>, Vec<_>) =
        (0..tensors as usize).map(|number| tensor(random, number, most / tensors.max(1))).unzip();
    let flags = Flags {
        arrival: random.one_in(4),
        packed: false,
        tensor_checksums: random.one_in(2),
        chunk_checksums: random.one_in(2),
    };
    let spec = FrameSpec { tensors: specs, flags, layout_id: random.next() };
    check(executors, random, &spec, &inputs, counts).map_err(|what| format!("{what}; {spec:?}"))
}

fn check(
    executors: &Executors<'_>,
    random: &mut Random,
    spec: &FrameSpec,
    inputs: &[Vec<u8>],
    counts: &mut Counts,
) -> Result<(), String> {
    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let raw: u64 = inputs.iter().map(|input| input.len() as u64).sum();
    let second = if raw <= REFERENCE { executors.reference } else { executors.other };
    let text = |error: splitzip_host::Error| error.to_string();
    let [ours, expected] =
        [executors.device, second].map(|executor| executor.encode_to_vec(spec, &[], &slices));
    let (ours, expected) = (ours.map_err(text)?, expected.map_err(text)?);
    counts.encoded += 2;
    counts.frame_bytes += ours.len() as u64;
    let frame = Frame::parse(&ours).map_err(text)?;
    let same = match spec.flags.arrival {
        true => in_chunk_order(&frame) == in_chunk_order(&Frame::parse(&expected).map_err(text)?),
        false => ours == expected,
    };
    if !same {
        return Err(format!("another frame than that of {}", second.name()));
    }
    decode(executors.device, &frame, inputs, counts)?;
    decode(executors.other, &frame, inputs, counts)?;
    let packed = pack(&frame).map_err(text)?;
    let packed_frame = Frame::parse(&packed).map_err(text)?;
    if unpack(&packed_frame).map_err(text)? != ours {
        return Err("another frame when it is packed and unpacked".to_owned());
    }
    decode(executors.device, &packed_frame, inputs, counts)?;
    for (number, (tensor, input)) in spec.tensors.iter().zip(inputs).enumerate().take(4) {
        let (size, elements) = (tensor.dtype.bytes(), tensor.elements().map_err(text)?);
        let (a, b) = (random.below(elements + 1), random.below(elements + 1));
        let range = a.min(b)..a.max(b);
        let mut part = vec![0; (range.end - range.start) as usize * size];
        let of = random.one_of(&[&frame, &packed_frame]);
        executors.device.decode_elements(of, number, range.clone(), &mut part).map_err(text)?;
        if part != input[range.start as usize * size..range.end as usize * size] {
            return Err(format!("other bits in elements {range:?} of tensor {number}"));
        }
        counts.decoded += 1;
    }
    damage(executors.device, random, &ours, inputs, spec.flags.tensor_checksums, counts)
}

fn decode(
    executor: &dyn Executor,
    frame: &Frame<'_>,
    inputs: &[Vec<u8>],
    counts: &mut Counts,
) -> Result<(), String> {
    let mut outputs: Vec<Vec<u8>> = inputs.iter().map(|input| vec![0xa5; input.len()]).collect();
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    let name = executor.name();
    executor.decode(frame, &mut slices).map_err(|error| format!("{name}: {error}"))?;
    if let Some(number) = (0..inputs.len()).find(|&number| outputs[number] != inputs[number]) {
        return Err(format!("{name}: other bits in tensor {number}"));
    }
    counts.decoded += 1;
    counts.raw_bytes += inputs.iter().map(|input| input.len() as u64).sum::<u64>();
    Ok(())
}

/// A flipped bit somewhere: with checksums an error or the same bits, without them anything but a crash.
fn damage(
    executor: &dyn Executor,
    random: &mut Random,
    frame: &[u8],
    inputs: &[Vec<u8>],
    checksums: bool,
    counts: &mut Counts,
) -> Result<(), String> {
    let (mut bytes, bit) = (frame.to_vec(), random.below(8 * frame.len() as u64) as usize);
    bytes[bit / 8] ^= 1 << (bit % 8);
    counts.damaged += 1;
    match Frame::parse(&bytes).and_then(|frame| executor.decode_to_vecs(&frame)) {
        Ok(outputs) if checksums && outputs != inputs => {
            Err(format!("{}: other bits and no error with bit {bit} flipped", executor.name()))
        }
        _ => Ok(()),
    }
}
