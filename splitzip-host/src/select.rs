//! Which scheme and bases make a tensor smallest, from the exponents of a few of its groups.
//!
//! The size of a coded chunk follows from how often every exponent occurs in it, and with channel bases from how often it has which
//! distance to the base of its channel. So a sample is counted once, and every candidate is sized without coding anything. A
//! tensor of at most 4 groups is counted as a whole: then sizes are exact. The choice depends on nothing but the tensor.

use crate::format::write::{check_size, choose_codebook};
use crate::format::{
    CHUNK, DYNAMIC_BYTES, Flags, FrameSpec, GROUP, HEADER_BYTES, MAX_CHANNELS, MAX_RANK, Mode,
    PLANE_ALIGNMENT, RECORD_BYTES, TensorSpec, raw_words,
};
use crate::reference::{Reference, Window};
use crate::{Bases, Codebook, CodebookChoice, Dtype, Error, Histogram, Result, Scheme};
use rayon::prelude::*;
use std::fmt;
use std::str::FromStr;

/// The most groups of a tensor that are looked at: of `G` groups `min(G, 4)`, `i * G / min(G, 4)`.
pub const SAMPLED_GROUPS: u64 = 4;

/// The scheme of the tensors of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemeChoice {
    /// The one that makes a tensor smallest.
    Auto,
    /// This one.
    Given(Scheme),
}

impl From<Scheme> for SchemeChoice {
    fn from(scheme: Scheme) -> SchemeChoice {
        SchemeChoice::Given(scheme)
    }
}

impl SchemeChoice {
    /// The schemes to choose from, in the order in which the first of equal ones is taken.
    pub fn schemes(self) -> Vec<Scheme> {
        match self {
            SchemeChoice::Auto => Scheme::coded().collect(),
            SchemeChoice::Given(scheme) => vec![scheme],
        }
    }
}

impl fmt::Display for SchemeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SchemeChoice::Auto => "auto",
            SchemeChoice::Given(scheme) => scheme.name(),
        })
    }
}

impl FromStr for SchemeChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<SchemeChoice> {
        if text == "auto" {
            return Ok(SchemeChoice::Auto);
        }
        text.parse().map(SchemeChoice::Given).map_err(|_| {
            let names = [vec!["auto"], Scheme::names()].concat();
            Error::unknown_name("scheme", text, &names)
        })
    }
}

/// The bases of the tensors of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BasesChoice {
    /// Those that make a tensor smaller.
    Auto,
    /// These; channel bases where a tensor can have them.
    Given(Bases),
}

impl From<Bases> for BasesChoice {
    fn from(bases: Bases) -> BasesChoice {
        BasesChoice::Given(bases)
    }
}

impl fmt::Display for BasesChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BasesChoice::Auto => "auto",
            BasesChoice::Given(bases) => bases.name(),
        })
    }
}

impl FromStr for BasesChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<BasesChoice> {
        if text == "auto" {
            return Ok(BasesChoice::Auto);
        }
        let [chunk, channel] = Bases::ALL.map(Bases::name);
        text.parse()
            .map(BasesChoice::Given)
            .map_err(|_| Error::unknown_name("bases", text, &["auto", chunk, channel]))
    }
}

/// Whether a tensor of this shape can have channel bases: two dimensions or more, the last one a multiple of 8, at most 1024.
pub fn has_channels(shape: &[u64]) -> bool {
    let last = shape.last().copied().unwrap_or(0);
    shape.len() >= 2 && last != 0 && last.is_multiple_of(8) && last <= MAX_CHANNELS
}

/// What a tensor can be coded with, in the order in which the first of equal ones is taken: schemes by id, bases per chunk first.
/// Pairs of dtype and scheme without a gain are left out.
pub fn candidates(
    dtype: Dtype,
    shape: &[u64],
    scheme: SchemeChoice,
    bases: BasesChoice,
) -> Vec<(Scheme, Bases)> {
    let of = |scheme: Scheme| {
        let channels = scheme.has_window() && has_channels(shape);
        let all: &[Bases] = match bases {
            _ if !channels => &[Bases::Chunk],
            BasesChoice::Auto => &Bases::ALL,
            BasesChoice::Given(Bases::Chunk) => &[Bases::Chunk],
            BasesChoice::Given(Bases::Channel) => &[Bases::Channel],
        };
        all.iter().map(move |&bases| (scheme, bases))
    };
    let fits = |scheme: &Scheme| scheme.check(dtype).is_ok();
    scheme.schemes().into_iter().filter(fits).flat_map(of).collect()
}

/// The candidate that makes a tensor smallest, the first of equal ones, and *stored* when none shrinks it or there is none.
/// `codebook` is that of `w4`; without one it is that of the sample.
///
/// # Errors
/// Bytes that are not those of the shape, and candidates that no frame can hold.
pub fn select(
    name: &str,
    dtype: Dtype,
    shape: &[u64],
    bytes: &[u8],
    candidates: &[(Scheme, Bases)],
    codebook: Option<Codebook>,
) -> Result<(Scheme, Bases)> {
    let mut best = ((Scheme::Stored, Bases::Chunk), bytes.len() as u64);
    if candidates.is_empty() {
        return Ok(best.0);
    }
    let sample = Sample::new(dtype, bytes);
    let flat = [bytes.len() as u64 / dtype.bytes() as u64];
    let rows = has_channels(shape).then(|| [flat[0] / shape[shape.len() - 1], shape[shape.len() - 1]]);
    let shape = match &rows {
        _ if shape.len() <= MAX_RANK => shape,
        Some(rows) => rows,
        None => &flat,
    };
    for &(scheme, bases) in candidates {
        let spec = TensorSpec::new(name, dtype, scheme, shape).with_bases(bases);
        let bytes = sample.coded_bytes(&spec, codebook)?;
        if bytes < best.1 {
            best = ((scheme, bases), bytes);
        }
    }
    Ok(best.0)
}

/// What was counted of a tensor.
pub struct Sample {
    dtype: Dtype,
    bytes: u64,
    groups: Vec<SampledGroup>,
}

struct SampledGroup {
    /// The number of its first element.
    first: u64,
    exponents: Vec<u8>,
    chunks: Vec<SampledChunk>,
}

struct SampledChunk {
    counts: Box<[u32; 256]>,
    elements: u64,
    equal: bool,
}

/// Words of the variable part and escapes of one way to code a chunk.
#[derive(Clone, Copy)]
struct Try {
    words: u64,
    escapes: u64,
}

impl Sample {
    /// Counts the exponents of the sampled groups of a tensor. Bytes behind the last whole element are not looked at.
    pub fn new(dtype: Dtype, bytes: &[u8]) -> Sample {
        let groups = groups_of(dtype, bytes);
        let sampled = groups.min(SAMPLED_GROUPS);
        let of = |i: u64| {
            let group = (u128::from(i) * u128::from(groups) / u128::from(sampled)) as usize;
            SampledGroup::new(dtype, bytes, group)
        };
        Sample { dtype, bytes: bytes.len() as u64, groups: (0..sampled).map(of).collect() }
    }

    /// The bytes of a packed frame that would be there for the tensor, coded as `spec` says. Exact for tensors of at most
    /// [`SAMPLED_GROUPS`] groups.
    ///
    /// # Errors
    /// A description that no frame can hold, or of another tensor.
    pub fn coded_bytes(&self, spec: &TensorSpec, codebook: Option<Codebook>) -> Result<u64> {
        check_size(
            "the sampled tensor".to_owned(),
            spec.elements()?.saturating_mul(spec.dtype.bytes() as u64),
            self.bytes as usize,
        )?;
        let layout = FrameSpec::new(vec![spec.clone()], Flags::default()).layout()?;
        let layout = &layout.tensors[0];
        let codebook = match codebook {
            _ if !spec.scheme.has_codebook() => None,
            None => Some(Codebook::from_histogram(&self.histogram()?)?),
            given => given,
        };
        let costs = Costs::new(spec.dtype, spec.scheme);
        let (mut words, mut planes, mut sampled) = (0u64, 0u64, 0u64);
        for group in &self.groups {
            let chunks = costs.chunks(group, layout.channels, codebook.as_ref());
            for (size, chunk) in chunks.iter().zip(&group.chunks) {
                sampled += chunk.elements;
                words += size.words;
                planes += if size.mode == Mode::Equal { 0 } else { chunk.elements };
            }
        }
        // A part of the whole, rounded up, so that rounding never makes a tensor shrink.
        let scale = |part: u64| {
            let whole = u128::from(part) * u128::from(layout.elements);
            whole.div_ceil(u128::from(sampled.max(1))) as u64
        };
        let elements = scale(planes);
        let plane = |bits: u32| (elements * u64::from(bits)).div_ceil(8).next_multiple_of(PLANE_ALIGNMENT);
        let planes: u64 = layout.planes.iter().map(|of| plane(of.kind.bits())).sum();
        let entry = HEADER_BYTES + 8 * spec.shape.len() as u64 + spec.name.len() as u64 + DYNAMIC_BYTES;
        Ok(entry + layout.groups * (RECORD_BYTES + layout.channels) + planes + 4 * scale(words))
    }

    fn histogram(&self) -> Result<Histogram> {
        let mut counts = [0u64; 256];
        for chunk in self.groups.iter().flat_map(|group| &group.chunks) {
            counts.iter_mut().zip(chunk.counts.iter()).for_each(|(sum, &count)| *sum += u64::from(count));
        }
        Histogram::from_counts(self.dtype, &counts[..self.dtype.exponents()])
    }
}

/// What becomes of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkSize {
    /// [`Mode::Coded`] (with or without zeros), [`Mode::Raw`] or [`Mode::Equal`].
    pub mode: Mode,
    /// 32-bit words of its variable part.
    pub words: u64,
    /// Elements whose exponent has no code; 0 unless it is coded.
    pub escapes: u64,
}

/// What becomes of every chunk of a tensor that is coded as `spec` says, without coding it: what an encoder of canonical frames does. `codebook` is that of
/// schemes that have one; without one it is that of the tensor's own sample, as with [`CodebookChoice::Auto`].
///
/// # Errors
/// As [`Sample::coded_bytes`].
pub fn chunk_sizes(spec: &TensorSpec, bytes: &[u8], codebook: Option<Codebook>) -> Result<Vec<ChunkSize>> {
    let raw = spec.elements()?.saturating_mul(spec.dtype.bytes() as u64);
    check_size("the tensor".to_owned(), raw, bytes.len())?;
    let layout = FrameSpec::new(vec![spec.clone()], Flags::default()).layout()?;
    let channels = layout.tensors[0].channels;
    let choice = codebook.map_or(CodebookChoice::Auto, CodebookChoice::Given);
    let codebook = choose_codebook(&Reference, spec.scheme, spec.dtype, choice, bytes)?;
    let costs = Costs::new(spec.dtype, spec.scheme);
    let of = |group| {
        let group = SampledGroup::new(spec.dtype, bytes, group as usize);
        costs.chunks(&group, channels, codebook.as_ref())
    };
    Ok((0..groups_of(spec.dtype, bytes)).into_par_iter().flat_map_iter(of).collect())
}

/// Groups of a tensor.
fn groups_of(dtype: Dtype, bytes: &[u8]) -> u64 {
    bytes.len().div_ceil(GROUP * CHUNK * dtype.bytes()) as u64
}

impl SampledGroup {
    fn new(dtype: Dtype, bytes: &[u8], group: usize) -> SampledGroup {
        let chunk_bytes = CHUNK * dtype.bytes();
        let group_bytes = GROUP * chunk_bytes;
        let part = &bytes[group * group_bytes..bytes.len().min((group + 1) * group_bytes)];
        let exponents = exponents(dtype, part);
        let chunks = exponents.chunks(CHUNK).zip(part.chunks(chunk_bytes)).map(|(exponents, bytes)| {
            let mut counts = Box::new([0; 256]);
            exponents.iter().for_each(|&exponent| counts[usize::from(exponent)] += 1);
            let (head, tail) = bytes.split_at(dtype.bytes().min(bytes.len()));
            let equal = tail.chunks(dtype.bytes()).all(|word| word == head);
            SampledChunk { counts, elements: exponents.len() as u64, equal }
        });
        let chunks = chunks.collect();
        SampledGroup { first: (group * GROUP * CHUNK) as u64, exponents, chunks }
    }
}

/// The exponents of elements.
fn exponents(dtype: Dtype, bytes: &[u8]) -> Vec<u8> {
    let (shift, mask) = (dtype.mantissa_bits(), (dtype.exponents() - 1) as u16);
    let exponent = |word: u16| (word >> shift & mask) as u8;
    match dtype.bytes() {
        1 => bytes.iter().map(|&word| exponent(word.into())).collect(),
        _ => bytes.chunks_exact(2).map(|word| exponent(u16::from_le_bytes([word[0], word[1]]))).collect(),
    }
}

/// What the values of a window cost.
struct Costs {
    dtype: Dtype,
    scheme: Scheme,
    window: Window,
    /// Bits of all levels behind the first, by value; the last value stands for outside.
    bits: Vec<u64>,
}

impl Costs {
    fn new(dtype: Dtype, scheme: Scheme) -> Costs {
        let window = Window::new(dtype, scheme);
        let levels = window.levels();
        let bits = |value: u8| {
            let marked = levels.iter().take_while(|level| level.value(level.code(value)).is_none()).count();
            levels.iter().skip(1).take(marked).map(|level| u64::from(level.bits)).sum()
        };
        Costs { dtype, scheme, window, bits: (0..=window.values()).map(bits).collect() }
    }

    /// What becomes of the chunks of a group: the smaller one of coded and raw.
    fn chunks(&self, group: &SampledGroup, channels: u64, codebook: Option<&Codebook>) -> Vec<ChunkSize> {
        let lows = self.channel_lows(group, channels);
        let of = |(number, chunk): (usize, &SampledChunk)| {
            if chunk.equal {
                return ChunkSize { mode: Mode::Equal, words: 1, escapes: 0 };
            }
            let raw = u64::from(raw_words(self.dtype, self.scheme, chunk.elements as usize));
            let coded = match codebook {
                Some(codebook) => {
                    let outside = |&(exponent, _): &(u8, &u32)| codebook.code(exponent).is_none();
                    let escapes =
                        (0..=255).zip(&chunk.counts[..]).filter(outside).map(|(_, &n)| u64::from(n)).sum();
                    Try { words: escapes, escapes }
                }
                None => self.window(group, number, chunk, &lows, raw),
            };
            if coded.words < raw {
                ChunkSize { mode: Mode::Coded, words: coded.words, escapes: coded.escapes }
            } else {
                ChunkSize { mode: Mode::Raw, words: raw, escapes: 0 }
            }
        };
        group.chunks.iter().enumerate().map(of).collect()
    }

    /// The base of every channel of a group. Empty without channel bases.
    fn channel_lows(&self, group: &SampledGroup, channels: u64) -> Vec<u8> {
        let mut sums = vec![(0u32, 0u32); channels as usize];
        if channels != 0 {
            let mut channel = (group.first % channels) as usize;
            for &exponent in &group.exponents {
                let (sum, count) = &mut sums[channel];
                (*sum, *count) = (*sum + u32::from(exponent), *count + 1);
                channel = if channel + 1 == sums.len() { 0 } else { channel + 1 };
            }
        }
        let mean = |(sum, count): (u32, u32)| sum.checked_div(count).unwrap_or(0) as u8;
        sums.into_iter().map(|sum| self.window.low(mean(sum))).collect()
    }

    /// The better of both tries of a canonical encoder.
    fn window(
        &self,
        group: &SampledGroup,
        number: usize,
        chunk: &SampledChunk,
        lows: &[u8],
        raw: u64,
    ) -> Try {
        let first = if lows.is_empty() {
            self.own(chunk, false, mean_of(chunk, 0))
        } else {
            self.channel(group, number, lows)
        };
        if first.escapes < self.window.many_escapes() as u64 && first.words < raw {
            return first;
        }
        let zeros = !lows.is_empty() || 16 * u64::from(chunk.counts[0]) >= chunk.elements;
        let second = self.own(chunk, zeros, mean_of(chunk, 1));
        if second.words < first.words { second } else { first }
    }

    /// With a base of the chunk.
    fn own(&self, chunk: &SampledChunk, zeros: bool, mean: u8) -> Try {
        let low = self.window.low(mean);
        let (mut bits, mut escapes) = (8, 0);
        for (exponent, &count) in (0..=255).zip(&chunk.counts[..]).filter(|&(_, &count)| count != 0) {
            let value = self.window.value(low, zeros, exponent);
            bits += u64::from(count) * self.bits[usize::from(value)];
            escapes += if value == self.window.values() { u64::from(count) } else { 0 };
        }
        self.sized(bits, escapes)
    }

    /// With bases of channels.
    fn channel(&self, group: &SampledGroup, number: usize, lows: &[u8]) -> Try {
        let start = number * CHUNK;
        let exponents = &group.exponents[start..group.exponents.len().min(start + CHUNK)];
        let mut channel = ((group.first + start as u64) % lows.len() as u64) as usize;
        let mask = (self.dtype.exponents() - 1) as u8;
        let mut distances = [0u32; 256];
        for exponent in exponents {
            distances[usize::from(exponent.wrapping_sub(lows[channel]) & mask)] += 1;
            channel = if channel + 1 == lows.len() { 0 } else { channel + 1 };
        }
        let outside = usize::from(self.window.values());
        let inside = distances[..outside].iter().zip(&self.bits);
        let escapes =
            exponents.len() as u64 - distances[..outside].iter().map(|&n| u64::from(n)).sum::<u64>();
        let bits: u64 = inside.map(|(&count, bits)| u64::from(count) * bits).sum();
        self.sized(bits + escapes * self.bits[outside], escapes)
    }

    fn sized(&self, bits: u64, escapes: u64) -> Try {
        let bits = bits.next_multiple_of(8) + escapes * u64::from(self.dtype.exponent_bits());
        Try { words: bits.div_ceil(32), escapes }
    }
}

/// The mean of the exponents of a chunk from `least` on.
fn mean_of(chunk: &SampledChunk, least: usize) -> u8 {
    let (mut sum, mut count) = (0u64, 0u64);
    for (exponent, &of) in chunk.counts.iter().enumerate().skip(least) {
        sum += exponent as u64 * u64::from(of);
        count += u64::from(of);
    }
    sum.checked_div(count).unwrap_or(0) as u8
}
