//! Cases that mutants of the kernels have shown to be missing from the conformance list: `docs/mutants.md` has the story.

use splitzip_host::conformance::{Case, Content, Member};
use splitzip_host::cuda::PTX;
use splitzip_host::format::write;
use splitzip_host::{Bases, Executor, Flags, Reference, TensorSpec};

/// Short chunks that end in each quarter with each remainder, chunks that are equal but for one element.
pub fn small(member: Member) -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes: Vec<Vec<u64>> = match member.bases {
        Bases::Chunk => [262, 387, 522, 644, 771, 905].map(|length| vec![length]).to_vec(),
        Bases::Channel => [[65, 8], [39, 16], [97, 8], [37, 24], [113, 8]].map(Vec::from).to_vec(),
    };
    for shape in &shapes {
        for content in [Content::Plain, Content::Outliers, Content::ZeroRandom, Content::Random] {
            cases.push(Case::new(member, content, shape, Flags::CHECKSUMS));
        }
    }
    if member.bases == Bases::Chunk {
        for (quarter, remainder) in (0..4).flat_map(|quarter| [2, 3, 5, 7].map(|of| (quarter, of))) {
            let length = 256 * quarter + 8 * (3 + 5 * quarter) + remainder;
            cases.push(Case::new(member, Content::Outliers, &[length], Flags::CHECKSUMS));
        }
    }
    for content in [Content::Equal, Content::Zero] {
        for (shape, at) in
            [([3, 1024], 0), ([3, 1024], 1029), ([3, 1024], 3071), ([40, 24], 500), ([40, 24], 959)]
        {
            let mut case = Case::new(member, content, &shape, Flags::CHECKSUMS);
            let bytes = member.dtype.bytes();
            // A bit of the residual, then one of the exponent.
            case.inputs[0][at * bytes] ^= 1;
            case.inputs[0][(at / 2) * bytes + bytes - 1] ^= 0x10;
            cases.push(case);
        }
    }
    cases
}

/// Exponents that lie where a slip of the hand in a mask, a comparison or a base shows: far ones in six of sixteen places, small ones and zeros in one
/// byte of each word, small ones everywhere; and chunks that are equal but for one element of their last lanes.
pub fn exponents(member: Member) -> Vec<Case> {
    let (dtype, all) = (member.dtype, member.dtype.exponents());
    let (center, residuals) = (all / 2, (1u64 << dtype.residual_bits()) - 1);
    // A second chunk that ends in each quarter; whole groups of channels and a short one.
    let shapes: &[&[u64]] = match member.bases {
        Bases::Chunk => &[&[1084], &[1313], &[1652], &[1950]],
        Bases::Channel => &[&[128, 120], &[122, 128]],
    };
    let far = |element: usize| (7 * element + element / 32) % 16 < 6;
    let mut cases = Vec::new();
    for shape in shapes {
        for kind in ["far", "one byte", "small"] {
            let mut case = Case::new(member, Content::Plain, shape, Flags::default());
            let mut random = Random(3);
            for (number, element) in case.inputs[0].chunks_exact_mut(dtype.bytes()).enumerate() {
                let (bits, rest) = ((random.next() >> 40) as usize, random.next() >> 33);
                let exponent = match kind {
                    "far" if far(number) => bits % all,
                    "one byte" if number % 4 == 1 => bits % 2,
                    "one byte" if bits % 3 == 0 => (bits >> 8) % all,
                    "small" if bits % 8 < 3 => (bits >> 8) % 3,
                    "small" => center + (bits >> 8) % 3,
                    _ => center,
                };
                let zero = kind == "one byte" && exponent == 0;
                let word = dtype.join(exponent as u8, if zero { 0 } else { (rest & residuals) as u16 });
                element.copy_from_slice(&word.to_le_bytes()[..dtype.bytes()]);
            }
            case.name = format!("{member}, {kind} exponents, {shape:?}");
            cases.push(case);
        }
    }
    for at in [0, 8, 150, 262, 320] {
        let channels = if member.bases == Bases::Channel { 8 } else { 1 };
        let mut case = Case::new(member, Content::Equal, &[321, channels], Flags::default());
        case.inputs[0][at * dtype.bytes()] ^= 2;
        case.name += &format!(" but for {at}");
        cases.push(case);
    }
    cases
}

/// More groups than a warp has lanes: totals of two levels.
pub fn large(member: Member) -> Case {
    Case::new(member, Content::Mixed, &[645, 1024], Flags::default())
}

/// So many tensors that every load of the seal has something of the dynamic part.
pub fn crowded(member: Member, tensors: u64) -> Case {
    let mut case = Case::new(member, Content::Plain, &[2, 8], Flags::CHECKSUMS);
    for number in 1..tensors {
        case.spec.tensors.push(TensorSpec::new(
            &format!("t{number}"),
            member.dtype,
            member.scheme,
            &[number % 5, 8],
        ));
        case.inputs.push(Content::Plain.bytes(member.dtype, 8 * (number % 5) as usize, 8));
    }
    case.name = format!("{member}, {tensors} tensors");
    case
}

/// Knuth's generator of 64 bits; its upper ones are random enough.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        self.0
    }
}

/// Frames of 4 chunks with a start or a length that is a little too far, and others with bytes changed at random.
pub fn damaged(member: Member, content: Content, count: u64) -> (Case, Vec<Vec<u8>>) {
    // The last chunk ends in its first, third or fourth quarter.
    let rows: u64 = match content {
        Content::Mixed => 400,
        Content::Outliers => 450,
        _ => 497,
    };
    let shape = if member.bases == Bases::Channel { vec![rows, 8] } else { vec![8 * rows - 3] };
    let shape = shape.as_slice();
    let case = Case::new(member, content, shape, Flags::default());
    let good = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let layout = case.spec.layout().unwrap();
    let (start, dense) = (layout.directory_at as usize, layout.dense_bytes as usize);
    let words = (good.len() - dense) as u64 / 4;
    let mut frames = Vec::new();
    for first in [1, words / 2, words.saturating_sub(1), words, words + 1, u64::MAX, u64::MAX - words] {
        let mut frame = good.clone();
        frame[start..start + 8].copy_from_slice(&first.to_le_bytes());
        frames.push(frame);
    }
    for (cut, _) in (1..=words).zip(0..6) {
        frames.push(good[..good.len() - 4 * cut as usize].to_vec());
    }
    // The end of each plane: codes behind the last element, among others.
    for plane in &layout.tensors[0].planes {
        for (back, bit) in (1..=plane.bytes.min(20)).zip((0..8).cycle()) {
            let mut frame = good.clone();
            frame[(plane.at + plane.bytes - back) as usize] ^= 1 << bit;
            frames.push(frame.clone());
            frame[(plane.at + plane.bytes - back) as usize] = 0xff;
            frames.push(frame);
        }
    }
    let mut random = Random(7);
    for number in 0..count {
        let mut frame = good.clone();
        for _ in 0..1 + number % 2 {
            let state = random.next();
            // The start and the entries of the chunks, the variable parts, everything.
            let (from, to) = match number % 3 {
                0 => (start, start + 16),
                1 => (dense.min(frame.len() - 1), frame.len()),
                _ => (start, frame.len()),
            };
            frame[from + (state >> 33) as usize % (to - from)] ^= (state >> 24) as u8;
        }
        frames.push(frame);
    }
    frames.iter_mut().for_each(|frame| write::seal_dynamic(&layout, frame).unwrap());
    (case, frames)
}

/// Are there kernels over batches for a member?
pub fn has_batches(member: Member) -> bool {
    let channel = if member.bases == Bases::Channel { "channel" } else { "" };
    let name = format!("encode_batch_{}_{}{channel}", member.dtype.name(), member.scheme.name());
    PTX.iter().any(|ptx| ptx.entry == name)
}

/// What goes through pages besides: with channel bases, only requests of whole groups are encoded by the kernels over batches.
pub fn contents_in_pages(member: Member) -> &'static [Content] {
    const ALL: [Content; 7] = [
        Content::Mixed,
        Content::Outliers,
        Content::ZeroRandom,
        Content::Random,
        Content::Zero,
        Content::ZeroChannels,
        Content::Far,
    ];
    match (has_batches(member), member.bases) {
        (true, Bases::Channel) => &ALL,
        _ => &ALL[..1],
    }
}
