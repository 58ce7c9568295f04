//! The conformance list: what every executor must do, in one place, run on all of them.
//!
//! An executor conforms when it writes the bytes of the reference for every input here, and gives back every input from
//! those bytes, in whole and by ranges. The list is a library, not a test, so that a program on a machine with a GPU can run it;
//! it is hidden because nobody else needs it.

mod damage;
mod inputs;
mod paged;

pub use damage::{Damage, Damaged, Victim};
pub use inputs::Content;
pub use paged::check_paged;

use crate::format::{
    CHUNK, Flags, Frame, FrameSpec, GROUP, Group, RECORD_BYTES, TensorLayout, TensorSpec, pack, unpack, write,
};
use crate::{Bases, CodebookChoice, Dtype, Executor, Reference, Scheme};
use inputs::Random;
use std::fmt;

/// One member of the product: a dtype, a scheme, and bases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    /// The dtype.
    pub dtype: Dtype,
    /// The scheme.
    pub scheme: Scheme,
    /// The bases.
    pub bases: Bases,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.scheme)?;
        if self.bases == Bases::Channel { f.write_str(" channel") } else { Ok(()) }
    }
}

/// All members that make sense and code something: 27 of them.
pub fn members() -> Vec<Member> {
    let mut members = Vec::new();
    for dtype in Dtype::floats() {
        for scheme in Scheme::coded().filter(|scheme| scheme.check(dtype).is_ok()) {
            for bases in Bases::ALL {
                if bases == Bases::Chunk || scheme.has_window() {
                    members.push(Member { dtype, scheme, bases });
                }
            }
        }
    }
    members
}

/// One input of the list.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is, for messages.
    pub name: String,
    /// The frame that is asked for.
    pub spec: FrameSpec,
    /// Codebooks, none or one a tensor.
    pub codebooks: Vec<CodebookChoice>,
    /// Raw bytes, one a tensor.
    pub inputs: Vec<Vec<u8>>,
}

impl Case {
    /// A frame with one tensor.
    pub fn new(member: Member, content: Content, shape: &[u64], flags: Flags) -> Case {
        let spec = TensorSpec::new("t", member.dtype, member.scheme, shape).with_bases(member.bases);
        let elements: u64 = shape.iter().product();
        let channels = shape.last().copied().unwrap_or(1);
        let input = content.bytes(member.dtype, elements as usize, channels as usize);
        let name = format!("{member}, {content:?}, {shape:?}");
        Case { name, spec: FrameSpec::new(vec![spec], flags), codebooks: Vec::new(), inputs: vec![input] }
    }

    /// The inputs as slices.
    pub fn slices(&self) -> Vec<&[u8]> {
        self.inputs.iter().map(Vec::as_slice).collect()
    }
}

/// The inputs for one member.
pub fn cases(member: Member) -> Vec<Case> {
    let rows =
        |channels: u64, rows: &[u64]| rows.iter().map(|&rows| vec![rows, channels]).collect::<Vec<_>>();
    let shapes: Vec<Vec<u64>> = match member.bases {
        Bases::Chunk => {
            let around = |length: u64| length - 1..length + 2;
            let lengths =
                (0..4).chain(around(8)).chain(around(32)).chain([100]).chain(around(256)).chain([1000]);
            lengths.chain(around(1024)).chain(around(2048)).map(|length| vec![length]).collect()
        }
        Bases::Channel => [
            rows(8, &[0, 1, 3, 129]),
            rows(24, &[40]),
            rows(64, &[1, 16, 17]),
            rows(96, &[30]),
            rows(1000, &[3]),
            rows(1024, &[2]),
        ]
        .concat(),
    };
    let plain = Flags::default();
    let mut cases: Vec<Case> = Vec::new();
    for shape in &shapes {
        for content in
            [Content::Plain, Content::Outliers, Content::Equal, Content::ZeroRandom, Content::Random]
        {
            cases.push(Case::new(member, content, shape, plain));
        }
    }
    for content in Content::ALL {
        cases.push(Case::new(member, content, &[2, 71, 64], Flags::CHECKSUMS));
    }
    for content in [Content::Plain, Content::Mixed, Content::ZeroHalves] {
        // One whole group; a group and a chunk; a row of channels that no group is a multiple of.
        for shape in [[16, 1024], [17, 1024], [300, 96]] {
            cases.push(Case::new(member, content, &shape, plain));
        }
    }
    for content in [Content::Ascending, Content::Scattered] {
        cases.push(Case::new(member, content, &[1024, 64], Flags::CHECKSUMS));
    }
    if member.bases == Bases::Channel {
        // A group that is summed up by who codes it, and a short one that is not.
        let contents = [Content::Outliers, Content::ZeroHalves, Content::ZeroRandom, Content::FewZeros];
        for (content, channels) in contents.into_iter().chain([Content::Mixed]).zip([64, 128, 256, 64, 128]) {
            cases.push(Case::new(
                member,
                content,
                &[(CHUNK * GROUP) as u64 / channels + 13, channels],
                plain,
            ));
        }
    }
    cases.push(several(member));
    cases
}

/// A frame with several tensors: the member between stored ones, an empty one, and other schemes of its dtype.
fn several(member: Member) -> Case {
    let Member { dtype, scheme, bases } = member;
    let other = if Scheme::W3.check(dtype).is_ok() { Scheme::W3 } else { scheme };
    let tensors = vec![
        (TensorSpec::new("bytes", Dtype::Bytes, Scheme::Stored, &[2051]), Content::Random),
        (TensorSpec::new("first", dtype, scheme, &[37, 64]).with_bases(bases).with_id(7), Content::Plain),
        (TensorSpec::new("empty", dtype, scheme, &[0, 64]).with_bases(bases), Content::Plain),
        (TensorSpec::new("stored", dtype, Scheme::Stored, &[3, 5, 7]), Content::Random),
        (TensorSpec::new("", dtype, other, &[4, 300]), Content::Mixed),
        (
            TensorSpec::new("schlüssel.0", dtype, scheme, &[2, 150, 64]).with_bases(bases).with_id(u64::MAX),
            Content::Mixed,
        ),
    ];
    let bytes = |spec: &TensorSpec, content: Content| {
        let elements = spec.shape.iter().product::<u64>() as usize;
        match spec.dtype {
            Dtype::Bytes => Content::Random.bytes(Dtype::E5m2, elements, 1),
            dtype => content.bytes(dtype, elements, 64),
        }
    };
    let inputs = tensors.iter().map(|(spec, content)| bytes(spec, *content)).collect();
    let tensors = tensors.into_iter().map(|(spec, _)| spec).collect();
    let spec = FrameSpec { tensors, flags: Flags::CHECKSUMS, layout_id: 0x1234_5678_9abc_def0 };
    Case { name: format!("{member}, several tensors"), spec, codebooks: Vec::new(), inputs }
}

/// What a run of the list did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Cases run.
    pub cases: usize,
    /// Raw bytes of them.
    pub raw_bytes: u64,
    /// Bytes of their frames.
    pub frame_bytes: u64,
}

/// Does the executor have kernels for this member? It says [`Unsupported`](crate::Error::Unsupported) if not.
///
/// # Errors
/// Anything else that it says about one element.
pub fn has(executor: &dyn Executor, member: Member) -> Result<bool, String> {
    let case = Case::new(member, Content::Plain, &[1, 8], Flags::default());
    match executor.encode_to_vec(&case.spec, &case.codebooks, &case.slices()) {
        Ok(_) => Ok(true),
        Err(crate::Error::Unsupported { .. }) => Ok(false),
        Err(error) => Err(format!("{}: {member}: {error}", executor.name())),
    }
}

/// The inputs for one member, for an executor that may lack others: their tensors get the scheme of the member.
///
/// # Errors
/// As [`has`].
pub fn cases_for(executor: &dyn Executor, member: Member) -> Result<Vec<Case>, String> {
    let mut cases = cases(member);
    for tensor in cases.iter_mut().flat_map(|case| &mut case.spec.tensors) {
        let of = Member { dtype: tensor.dtype, scheme: tensor.scheme, bases: tensor.bases };
        if of != member && tensor.scheme != Scheme::Stored && !has(executor, of)? {
            tensor.scheme = member.scheme;
        }
    }
    Ok(cases)
}

/// Runs the list for `members` on an executor.
///
/// # Errors
/// What went wrong first, and in which case.
pub fn run(executor: &dyn Executor, members: &[Member]) -> Result<Report, String> {
    let mut report = Report::default();
    for &member in members {
        for case in cases_for(executor, member)? {
            let frame = check(executor, &case)?;
            report.cases += 1;
            report.raw_bytes += case.inputs.iter().map(|input| input.len() as u64).sum::<u64>();
            report.frame_bytes += frame;
        }
    }
    Ok(report)
}

/// Checks one case: the bytes of the reference, and back, in whole, by ranges, from the packed form and in arrival order.
/// Returns the bytes of its frame.
///
/// # Errors
/// What went wrong, and where.
pub fn check(executor: &dyn Executor, case: &Case) -> Result<u64, String> {
    check_case(executor, case).map_err(|error| format!("{}: {}: {error}", executor.name(), case.name))
}

fn check_case(executor: &dyn Executor, case: &Case) -> Result<u64, String> {
    let text = |error: crate::Error| error.to_string();
    let inputs = case.slices();
    let expected = Reference.encode_to_vec(&case.spec, &case.codebooks, &inputs).map_err(text)?;
    let got = executor.encode_to_vec(&case.spec, &case.codebooks, &inputs).map_err(text)?;
    if let Some(difference) = difference(&got, &expected) {
        return Err(format!("its frame is not that of the reference: {difference}"));
    }
    let frame = Frame::parse(&got).map_err(text)?;
    check_decode(executor, &frame, case)?;
    check_ranges(executor, &frame, case)?;

    let packed = pack(&frame).map_err(text)?;
    let unpacked = unpack(&Frame::parse(&packed).map_err(text)?).map_err(text)?;
    if let Some(difference) = difference(&unpacked, &got) {
        return Err(format!("packing and unpacking changes it: {difference}"));
    }
    let arrived = in_arrival_order(&frame);
    check_decode(executor, &Frame::parse(&arrived).map_err(text)?, case)
        .map_err(|error| format!("arrival: {error}"))?;
    check_arrival(executor, case, &expected)
        .map_err(|error| format!("encoding in arrival order: {error}"))?;
    Ok(got.len() as u64)
}

/// Groups in any order: brought into the order of chunks, the frame of the reference.
fn check_arrival(executor: &dyn Executor, case: &Case, expected: &[u8]) -> Result<(), String> {
    let spec = FrameSpec { flags: Flags { arrival: true, ..case.spec.flags }, ..case.spec.clone() };
    let got = executor.encode_to_vec(&spec, &case.codebooks, &case.slices());
    let got = got.map_err(|error| error.to_string())?;
    let frame = Frame::parse(&got).map_err(|error| error.to_string())?;
    if let Some(difference) = difference(&in_chunk_order(&frame), expected) {
        return Err(format!("sorted, it is not the frame of the reference: {difference}"));
    }
    check_decode(executor, &frame, case)
}

fn check_decode(executor: &dyn Executor, frame: &Frame<'_>, case: &Case) -> Result<(), String> {
    let mut outputs: Vec<Vec<u8>> = case.inputs.iter().map(|input| vec![0xa5; input.len()]).collect();
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    executor.decode(frame, &mut slices).map_err(|error| error.to_string())?;
    for (t, (output, input)) in outputs.iter().zip(&case.inputs).enumerate() {
        if let Some(difference) = difference(output, input) {
            return Err(format!("decoding does not give tensor {t} back: {difference}"));
        }
    }
    Ok(())
}

/// The first chunk, the last one, and some in the middle, each alone.
fn check_ranges(executor: &dyn Executor, frame: &Frame<'_>, case: &Case) -> Result<(), String> {
    for tensor in frame.tensors() {
        let (t, layout) = (tensor.number(), tensor.layout());
        let (chunks, chunk_bytes) = (layout.chunks, layout.chunk_bytes());
        for range in [0..chunks.min(1), chunks.saturating_sub(1)..chunks, chunks / 3..chunks - chunks / 4] {
            let byte = |chunk: u64| (chunk * chunk_bytes).min(layout.bytes) as usize;
            let input = &case.inputs[t][byte(range.start)..byte(range.end)];
            let mut output = vec![0xa5; input.len()];
            let result = executor.decode_range(frame, t, range.clone(), &mut output);
            result.map_err(|error| format!("chunks {range:?}: {error}"))?;
            if let Some(difference) = difference(&output, input) {
                return Err(format!(
                    "decoding chunks {range:?} of tensor {t} does not give them back: {difference}"
                ));
            }
        }
    }
    Ok(())
}

/// Where two strings of bytes differ, in words.
fn difference(got: &[u8], expected: &[u8]) -> Option<String> {
    if got == expected {
        return None;
    }
    let at = got.iter().zip(expected).position(|(a, b)| a != b);
    Some(match at {
        Some(at) => format!("byte {at} is {:#04x} instead of {:#04x}", got[at], expected[at]),
        None => format!("{} bytes instead of {}", got.len(), expected.len()),
    })
}

/// The same frame as an encoder in arrival order might have written it: its groups in some other order.
pub fn in_arrival_order(frame: &Frame<'_>) -> Vec<u8> {
    let mut random = Random(frame.layout().tensors.iter().map(|tensor| tensor.groups).sum());
    let mut groups = all_groups(frame);
    groups.sort_by_cached_key(|_| random.next());
    with_groups(frame, &groups, true)
}

/// The canonical frame of one whose groups stand in any order.
pub fn in_chunk_order(frame: &Frame<'_>) -> Vec<u8> {
    with_groups(frame, &all_groups(frame), false)
}

/// Number of the tensor and of the group, in order.
fn all_groups(frame: &Frame<'_>) -> Vec<(usize, u64)> {
    let groups = |(t, tensor): (usize, &TensorLayout)| (0..tensor.groups).map(move |group| (t, group));
    frame.layout().tensors.iter().enumerate().flat_map(groups).collect()
}

fn with_groups(frame: &Frame<'_>, groups: &[(usize, u64)], arrival: bool) -> Vec<u8> {
    let spec = FrameSpec { flags: Flags { arrival, ..frame.spec().flags }, ..frame.spec().clone() };
    let (layout, bytes) = (frame.layout(), frame.bytes());
    let dense = layout.dense_bytes as usize;
    let mut out = bytes[..dense].to_vec();
    let head = write::static_bytes(&spec, layout);
    out[..head.len()].copy_from_slice(&head);
    let mut words_of = vec![0u64; layout.tensors.len()];
    let mut start = 0u64;
    for &(t, group) in groups {
        let record = frame.tensors().nth(t).map(|tensor| tensor.group(group));
        let record = record.unwrap_or(Group { start: 0, entries: [0; GROUP] });
        let from = dense + 4 * record.start as usize;
        out.extend(&bytes[from..from + 4 * record.words() as usize]);
        let at = (layout.tensors[t].directory_at + RECORD_BYTES * group) as usize;
        out[at..at + 8].copy_from_slice(&start.to_le_bytes());
        start += record.words();
        words_of[t] += record.words();
    }
    let mut before = 0u64;
    for (t, words) in words_of.into_iter().enumerate() {
        let at = layout.static_bytes as usize + 32 * (1 + t);
        out[at..at + 8].copy_from_slice(&(if arrival { 0 } else { before }).to_le_bytes());
        before += words;
    }
    // The layout is that of the same description: sealing cannot fail.
    let _ = write::seal_dynamic(layout, &mut out);
    out
}
