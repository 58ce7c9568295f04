//! The damage list: what a decoder does with a frame that is no longer what was encoded.
//!
//! A frame that is cut or has a bit flipped is refused, or it decodes to the bits that were encoded (the flip was in a bit that nobody reads). Only a frame
//! without checksums may decode to other bits, and then all of them lie in the part that the flipped bit belongs to: its chunk, or the channel bases of its
//! group. A decoder that is handed the bytes without [`Frame::parse`], as one on a device is, knows no more than its part of the frame, so there a flip in a
//! record of the directory reaches its group, and one in a codebook its tensor.

use super::inputs::Random;
use crate::format::{FrameSpec, GROUP, Layout, RECORD_BYTES};
use crate::{Error, Executor, Flags, Frame, Reference, Scheme};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One way to damage a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// This bit is the other one.
    Flip(usize),
    /// Only so many bytes are there.
    Cut(usize),
}

impl Damage {
    /// The damaged bytes.
    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Damage::Flip(bit) => {
                let mut bytes = bytes.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            }
            Damage::Cut(length) => bytes[..length].to_vec(),
        }
    }
}

/// What other bits may stand in when a flip was not noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Nowhere.
    Nothing,
    /// In a chunk of a tensor.
    Chunk(usize, u64),
    /// In a group of a tensor.
    Group(usize, u64),
    /// In a tensor.
    Tensor(usize),
}

/// A frame that is about to be damaged.
#[derive(Clone, Debug)]
pub struct Victim {
    /// What it is, for messages.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What it decodes to.
    pub inputs: Vec<Vec<u8>>,
    /// What it holds.
    pub spec: FrameSpec,
    layout: Layout,
    /// Whose bits lie where: the parts of the planes and the variable parts, ascending.
    owners: Vec<Owner>,
}

/// Bytes of a frame, and the tensor and the chunk that they belong to.
type Owner = (Range<usize>, (usize, u64));

/// What became of a list of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damaged {
    /// Frames that were damaged, each in one way.
    pub tried: u64,
    /// Refused, before or while they were decoded.
    pub refused: u64,
    /// Decoded to what was encoded.
    pub harmless: u64,
    /// Decoded to other bits within reach of the damage; none where there are checksums.
    pub confined: u64,
}

impl Damaged {
    /// Both together.
    pub fn and(self, other: Damaged) -> Damaged {
        Damaged {
            tried: self.tried + other.tried,
            refused: self.refused + other.refused,
            harmless: self.harmless + other.harmless,
            confined: self.confined + other.confined,
        }
    }
}

impl Victim {
    /// A frame that is whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(name: &str, bytes: Vec<u8>) -> Result<Victim, String> {
        let text = |error: Error| format!("{name}: {error}");
        let frame = Frame::parse(&bytes).map_err(text)?;
        let inputs = Reference.decode_to_vecs(&frame).map_err(text)?;
        let (spec, layout) = (frame.spec().clone(), frame.layout().clone());
        let owners = owners(&frame).map_err(text)?;
        Ok(Victim { name: name.to_owned(), bytes, inputs, spec, layout, owners })
    }

    /// The same tensors in a frame without checksums, in chunk order and not packed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn without_checksums(&self) -> Result<Victim, String> {
        let spec = FrameSpec { flags: Flags::default(), ..self.spec.clone() };
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let bytes = Reference.encode_to_vec(&spec, &[], &inputs).map_err(|error| error.to_string())?;
        Victim::new(&format!("{} without checksums", self.name), bytes)
    }

    /// Is every tensor under a checksum of its own?
    fn has_checksums(&self) -> bool {
        self.spec.flags.tensor_checksums
    }

    /// The list: every bit of header, table, strings, dynamic part, directory, bases and checksums, then `flips` bits of all behind them, the same for
    /// the same `seed`.
    pub fn flips(&self, flips: usize, seed: u64) -> impl Iterator<Item = Damage> + use<> {
        let (head, all) = (8 * self.layout.planes_at as usize, 8 * self.bytes.len());
        let mut random = Random(seed);
        let body = if head == all { 0 } else { flips };
        let body = (0..body).map(move |_| head + random.next() as usize % (all - head));
        (0..head).chain(body).map(Damage::Flip)
    }

    /// The frame at every length that is not its own; of one that is not small, at some of them.
    pub fn cuts(&self) -> impl Iterator<Item = Damage> + use<> {
        (0..self.bytes.len()).step_by(1 + self.bytes.len() / (12 << 10)).map(Damage::Cut)
    }

    /// Damages the frame in each of these ways, and hands it to an executor through [`Frame::parse`].
    ///
    /// # Errors
    /// The first damage that was not noticed, or that something panicked at.
    pub fn check(
        &self,
        executor: &dyn Executor,
        list: impl Iterator<Item = Damage>,
    ) -> Result<Damaged, String> {
        let mut total = Damaged::default();
        let mut outputs: Vec<Vec<u8>> = self.inputs.iter().map(|input| vec![0; input.len()]).collect();
        for damage in list {
            let bytes = damage.of(&self.bytes);
            outputs.iter_mut().for_each(|output| output.fill(0xa5));
            let decode = || {
                let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
                Frame::parse(&bytes).and_then(|frame| executor.decode(&frame, &mut slices))
            };
            let wrong = |what: &str| format!("{}: {}: {damage:?}: {what}", executor.name(), self.name);
            let refused = catch_unwind(AssertUnwindSafe(decode)).map_err(|_| wrong("it panics"))?.is_err();
            let head = matches!(damage, Damage::Flip(bit) if bit < 8 * self.layout.directory_at as usize);
            if !refused && (head || matches!(damage, Damage::Cut(_))) {
                return Err(wrong("it is not refused"));
            }
            let reach = if self.has_checksums() { Reach::Nothing } else { self.reach(damage, true) };
            total = total.and(self.judge(refused, &outputs, reach).map_err(|what| wrong(&what))?);
        }
        Ok(total)
    }

    /// Judges what a decoder made of damaged bytes that nobody had parsed before: whether its status refused them, the bits that it has written, and
    /// the checksums of these, which are compared with those in the damaged bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge_unparsed(
        &self,
        damage: Damage,
        status: u32,
        outputs: &[Vec<u8>],
        sums: &[u64],
    ) -> Result<Damaged, String> {
        let bytes = damage.of(&self.bytes);
        let stored = |number: usize| {
            let at = self.layout.static_bytes as usize + 32 * (1 + number) + 8;
            bytes.get(at..at + 8).and_then(|sum| sum.first_chunk()).map(|sum| u64::from_le_bytes(*sum))
        };
        let differs = |(number, sum): (usize, &u64)| stored(number) != Some(*sum);
        let refused = status != 0 || self.has_checksums() && sums.iter().enumerate().any(differs);
        let reach = if self.has_checksums() { Reach::Nothing } else { self.reach(damage, false) };
        self.judge(refused, outputs, reach)
            .map_err(|what| format!("{}, not parsed: {damage:?}: {what}", self.name))
    }

    fn judge(&self, refused: bool, outputs: &[Vec<u8>], reach: Reach) -> Result<Damaged, String> {
        let one = Damaged { tried: 1, ..Damaged::default() };
        if refused {
            return Ok(Damaged { refused: 1, ..one });
        }
        let mut other_bits = false;
        for (number, (output, input)) in outputs.iter().zip(&self.inputs).enumerate() {
            let chunk_bytes = self.layout.tensors[number].chunk_bytes() as usize;
            let pairs = output.chunks(chunk_bytes).zip(input.chunks(chunk_bytes));
            for (chunk, _) in (0u64..).zip(pairs).filter(|(_, (output, input))| output != input) {
                other_bits = true;
                let within = match reach {
                    Reach::Nothing => false,
                    Reach::Chunk(of, only) => of == number && only == chunk,
                    Reach::Group(of, group) => of == number && group == chunk / GROUP as u64,
                    Reach::Tensor(of) => of == number,
                };
                if !within {
                    return Err(format!(
                        "other bits in tensor {number}, chunk {chunk}, and no error; the damage reaches {reach:?}"
                    ));
                }
            }
        }
        match other_bits {
            true => Ok(Damaged { confined: 1, ..one }),
            false => Ok(Damaged { harmless: 1, ..one }),
        }
    }

    /// What a flip can change.
    fn reach(&self, damage: Damage, parsed: bool) -> Reach {
        let Damage::Flip(bit) = damage else { return Reach::Nothing };
        let byte = (bit / 8) as u64;
        let layout = &self.layout;
        let within = |start: u64, bytes: u64| byte >= start && byte - start < bytes;
        if !parsed {
            for number in 0..layout.tensors.len() {
                if within(layout.static_bytes + 32 * (1 + number as u64), 32) {
                    return Reach::Tensor(number);
                }
            }
        }
        for (number, tensor) in layout.tensors.iter().enumerate() {
            if within(tensor.directory_at, RECORD_BYTES * tensor.groups) {
                let record = byte - tensor.directory_at;
                let (group, at) = (record / RECORD_BYTES, record % RECORD_BYTES);
                // Who has parsed the frame has compared the words of all parts, so what is left is a mode.
                let chunk = group * GROUP as u64 + at.saturating_sub(8) / 2;
                return if parsed { Reach::Chunk(number, chunk) } else { Reach::Group(number, group) };
            }
            if tensor.channels != 0 && within(tensor.bases_at, tensor.channels * tensor.groups) {
                return Reach::Group(number, (byte - tensor.bases_at) / tensor.channels);
            }
        }
        let behind = self.owners.partition_point(|(range, _)| range.end as u64 <= byte);
        match self.owners.get(behind) {
            Some((range, (tensor, chunk))) if range.start as u64 <= byte => Reach::Chunk(*tensor, *chunk),
            _ => Reach::Nothing,
        }
    }
}

/// The parts of the planes and the variable parts, with the tensor and the chunk that they belong to.
fn owners(frame: &Frame<'_>) -> Result<Vec<Owner>, Error> {
    let start = frame.bytes().as_ptr() as usize;
    let place = |part: &[u8]| {
        let at = part.as_ptr() as usize - start;
        at..at + part.len()
    };
    let mut owners = Vec::new();
    for tensor in frame.tensors() {
        let (number, layout) = (tensor.number(), tensor.layout());
        if layout.scheme == Scheme::Stored {
            let parts = tensor.stored().unwrap_or(&[]).chunks(layout.chunk_bytes() as usize);
            owners.extend(parts.zip(0..).map(|(part, chunk)| (place(part), (number, chunk))));
            continue;
        }
        for chunk in 0..layout.chunks {
            let places = tensor.chunk(chunk)?;
            let parts = places.planes.iter().chain([&places.variable]).filter(|part| !part.is_empty());
            owners.extend(parts.map(|part| (place(part), (number, chunk))));
        }
    }
    owners.sort_unstable_by_key(|(range, _)| range.start);
    Ok(owners)
}
