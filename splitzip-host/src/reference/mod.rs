//! The reference executor: naive, scalar, element by element, too simple to be wrong.
//!
//! It says what every other executor must write, bit by bit, and is the only place besides the specification that does so.
//! Nothing here is fast (5 MB/s are plenty), nothing is unsafe, and no input makes it panic.

mod bits;
mod chunk;
mod window;

pub use window::{Window, mean};

use crate::format::write::{self, DynamicTensor};
use crate::format::{
    CHUNK, ChunkPlace, Frame, FrameSpec, FrameTensor, GROUP, Group, PlaneKind, TensorLayout,
};
use crate::{Bases, Codebook, CodebookChoice, Dtype, Error, Executor, Histogram, Result, Scheme};
use chunk::{Coder, EncodedChunk};
use std::ops::Range;

/// The reference executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Executor for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn histogram(&self, dtype: Dtype, bytes: &[u8]) -> Result<Histogram> {
        let elements = bytes.len() / dtype.bytes();
        write::check_size(format!("elements of {dtype}"), (elements * dtype.bytes()) as u64, bytes.len())?;
        let mut histogram = Histogram::new(dtype);
        for element in 0..elements {
            histogram.count(dtype.word(bytes, element));
        }
        Ok(histogram)
    }

    fn encode(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        let layout = write::check_encode(spec, codebooks, inputs, out)?;
        let dense = layout.dense_bytes as usize;
        let (frame, variable) = out.split_at_mut(dense);
        frame.fill(0);
        let head = write::static_bytes(spec, &layout);
        frame[..head.len()].copy_from_slice(&head);

        let mut dynamic = Vec::new();
        let mut words = 0u64;
        for (t, (tensor, input)) in layout.tensors.iter().zip(inputs).enumerate() {
            let choice = codebooks.get(t).copied().unwrap_or_default();
            let codebook = write::choose_codebook(self, tensor.scheme, tensor.dtype, choice, input)?;
            let checksum = write::checksums(&layout, t, input, frame);
            let words_before = if spec.flags.arrival { 0 } else { words };
            dynamic.push(DynamicTensor { words_before, checksum, codebook });
            if tensor.scheme == Scheme::Stored {
                let at = tensor.planes[0].at as usize;
                frame[at..at + input.len()].copy_from_slice(input);
                continue;
            }
            for group in 0..tensor.groups {
                words += encode_group(tensor, codebook, group, input, words, frame, variable);
            }
        }
        let dynamic = write::dynamic_bytes(words, 0, &dynamic);
        frame[head.len()..head.len() + dynamic.len()].copy_from_slice(&dynamic);
        Ok(dense + 4 * words as usize)
    }

    fn decode(&self, frame: &Frame<'_>, outputs: &mut [&mut [u8]]) -> Result<()> {
        write::check_decode(frame.layout(), outputs)?;
        for (tensor, output) in frame.tensors().zip(outputs) {
            decode_chunks(&tensor, 0..tensor.layout().chunks, output)?;
            if tensor.checksum().is_some() {
                tensor.verify_checksum(crate::format::tensor_checksum(tensor.layout().dtype, output))?;
            }
        }
        Ok(())
    }

    fn decode_range(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        chunks: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        let tensor = frame.tensor(tensor)?;
        let layout = tensor.layout();
        if chunks.start > chunks.end || chunks.end > layout.chunks {
            return Err(Error::OutOfRange {
                what: "chunk",
                given: chunks.end.max(chunks.start),
                count: layout.chunks,
            });
        }
        let bytes = |chunk: u64| layout.bytes.min(chunk * layout.chunk_bytes());
        write::check_size(
            "the output of the range".to_owned(),
            bytes(chunks.end) - bytes(chunks.start),
            output.len(),
        )?;
        decode_chunks(&tensor, chunks, output)
    }
}

/// Encodes a group whose parts start at word `start`, and returns their words.
fn encode_group(
    tensor: &TensorLayout,
    codebook: Option<Codebook>,
    group: u64,
    input: &[u8],
    start: u64,
    frame: &mut [u8],
    variable: &mut [u8],
) -> u64 {
    let first = group as usize * GROUP * CHUNK;
    let last = (first + GROUP * CHUNK).min(tensor.elements as usize);
    let lows = channel_lows(tensor, input, first..last);
    let at = (tensor.bases_at + group * tensor.channels) as usize;
    frame[at..at + lows.len()].copy_from_slice(&lows);

    let coder = Coder { dtype: tensor.dtype, scheme: tensor.scheme, bases: tensor.bases, codebook };
    let mut record = Group { start, entries: [0; GROUP] };
    let mut words = 0;
    for chunk in write::chunks_of_group(tensor.chunks, group) {
        let first = chunk as usize * CHUNK;
        let elements: Vec<u16> = (first..first + tensor.chunk_elements(chunk))
            .map(|element| tensor.dtype.word(input, element))
            .collect();
        let encoded = coder.encode(&elements, &lows_of_chunk(tensor, &lows, first, elements.len()));
        for (plane, part) in tensor.planes.iter().zip(planes_of_chunk(tensor, &elements, &encoded)) {
            let at = plane.at as usize + chunk as usize * plane.kind.whole_bytes();
            frame[at..at + part.len()].copy_from_slice(&part);
        }
        let at = 4 * (start + words) as usize;
        variable[at..at + encoded.variable.len()].copy_from_slice(&encoded.variable);
        record.entries[chunk as usize % GROUP] = encoded.entry.bits();
        words += u64::from(encoded.entry.words);
    }
    let at = (tensor.directory_at + group * crate::format::RECORD_BYTES) as usize;
    let record = record.to_bytes();
    frame[at..at + record.len()].copy_from_slice(&record);
    words
}

/// The base of every channel: from the mean over its elements in the group, which are `elements`. Empty without channel bases.
fn channel_lows(tensor: &TensorLayout, input: &[u8], elements: Range<usize>) -> Vec<u8> {
    let window = Window::new(tensor.dtype, tensor.scheme);
    let channels = tensor.channels as usize;
    let mut of_channel = vec![Vec::new(); channels];
    if channels != 0 {
        for element in elements {
            let (exponent, _) = tensor.dtype.split(tensor.dtype.word(input, element));
            of_channel[element % channels].push(exponent);
        }
    }
    of_channel.into_iter().map(|exponents| window.low(mean(exponents.into_iter()))).collect()
}

/// The low end of the window of every element of the chunk that starts at element `first`. Empty without channel bases.
fn lows_of_chunk(tensor: &TensorLayout, lows: &[u8], first: usize, elements: usize) -> Vec<u8> {
    match tensor.bases {
        Bases::Chunk => Vec::new(),
        Bases::Channel => (first..first + elements).map(|element| lows[element % lows.len()]).collect(),
    }
}

/// The parts of all planes for a chunk.
fn planes_of_chunk(tensor: &TensorLayout, elements: &[u16], encoded: &EncodedChunk) -> Vec<Vec<u8>> {
    let residuals: Vec<u16> = elements.iter().map(|&word| tensor.dtype.split(word).1).collect();
    let codes: Vec<u16> = encoded.codes.iter().map(|&code| code.into()).collect();
    let mut shift = 0;
    let mut parts = Vec::new();
    for plane in tensor.residuals() {
        let values: Vec<u16> = residuals.iter().map(|residual| residual >> shift).collect();
        parts.push(part_of(plane.kind, &values));
        shift += plane.kind.bits();
    }
    parts.extend(tensor.codes().map(|plane| part_of(plane.kind, &codes)));
    parts
}

/// The part of a plane for a chunk with these values, of which the low bits count.
fn part_of(kind: PlaneKind, values: &[u16]) -> Vec<u8> {
    let mut part = vec![0; kind.part_bytes(values.len())];
    for (element, value) in values.iter().enumerate() {
        kind.set(&mut part, values.len(), element, *value);
    }
    part
}

/// Decodes a range of chunks and verifies their checksums.
fn decode_chunks(tensor: &FrameTensor<'_, '_>, chunks: Range<u64>, output: &mut [u8]) -> Result<()> {
    let layout = tensor.layout();
    let first = chunks.start;
    let chunk_bytes = layout.chunk_bytes() as usize;
    if let Some(stored) = tensor.stored() {
        let start = (first * layout.chunk_bytes()) as usize;
        output.copy_from_slice(&stored[start..start + output.len()]);
    } else {
        for (chunk, output) in chunks.zip(output.chunks_mut(chunk_bytes)) {
            let place = tensor.chunk(chunk)?;
            for (element, word) in decode_chunk(tensor, chunk, &place)?.into_iter().enumerate() {
                let bytes = layout.dtype.bytes();
                output[bytes * element..bytes * (element + 1)].copy_from_slice(&word.to_le_bytes()[..bytes]);
            }
        }
    }
    tensor.verify_chunks(first, output)
}

/// The elements of a chunk.
fn decode_chunk(tensor: &FrameTensor<'_, '_>, chunk: u64, place: &ChunkPlace<'_>) -> Result<Vec<u16>> {
    let layout = tensor.layout();
    let (coder, lows) = coder_of(tensor, chunk);
    let refuse = |reason| Error::Chunk { tensor: tensor.number(), chunk, reason };
    if let Some(word) = coder.equal(place).map_err(refuse)? {
        return Ok(vec![word; place.elements]);
    }
    let values = |kind: PlaneKind, part: &[u8]| -> Vec<u16> {
        (0..place.elements).map(|element| kind.get(part, place.elements, element)).collect()
    };
    let (mut residuals, mut shift) = (vec![0; place.elements], 0);
    for (plane, part) in layout.residuals().iter().zip(&place.planes) {
        for (residual, value) in residuals.iter_mut().zip(values(plane.kind, part)) {
            *residual |= value << shift;
        }
        shift += plane.kind.bits();
    }
    let plane = PlaneKind::part_bytes;
    let kind = layout.scheme.plane(layout.scheme.code_bits());
    let part = place.planes.last().filter(|part| part.len() == plane(kind, place.elements));
    let part = part.ok_or_else(|| refuse("its codes are missing".to_owned()))?;
    let exponents = coder.decode(&values(kind, part), place, &lows).map_err(refuse)?;
    Ok(exponents
        .into_iter()
        .zip(residuals)
        .map(|(exponent, residual)| layout.dtype.join(exponent, residual))
        .collect())
}

/// What a chunk is coded with: the coder of its tensor, and the low ends of its elements for channel bases.
fn coder_of(tensor: &FrameTensor<'_, '_>, chunk: u64) -> (Coder, Vec<u8>) {
    let layout = tensor.layout();
    let (dtype, scheme, bases) = (layout.dtype, layout.scheme, layout.bases);
    let coder = Coder { dtype, scheme, bases, codebook: tensor.codebook() };
    let lows = tensor.bases(chunk / GROUP as u64);
    // Only the place in a row of channels counts: a row is at most a chunk.
    let first = (u128::from(chunk) * CHUNK as u128 % u128::from(layout.channels.max(1))) as usize;
    (coder, lows_of_chunk(layout, lows, first, layout.chunk_elements(chunk)))
}

/// What the planes of a tensor hold for chunks of mode *equal*, for unpacking. The last ones are kept: padding is many chunks with the same element, and
/// making planes bit by bit takes 100 microseconds.
#[derive(Default)]
pub(crate) struct EqualPlanes {
    /// The element, how many there are, and the low ends of their windows.
    of: (u16, usize, Vec<u8>),
    planes: Vec<Vec<u8>>,
}

impl EqualPlanes {
    /// The planes of a chunk of the tensor that all chunks are of.
    pub(crate) fn of(
        &mut self,
        tensor: &FrameTensor<'_, '_>,
        chunk: u64,
        place: &ChunkPlace<'_>,
    ) -> Result<&[Vec<u8>]> {
        let (coder, lows) = coder_of(tensor, chunk);
        let refuse = |reason| Error::Chunk { tensor: tensor.number(), chunk, reason };
        let word = coder.equal(place).map_err(refuse)?;
        let word = word.ok_or_else(|| refuse("its elements are not equal".to_owned()))?;
        let of = (word, place.elements, lows);
        if self.planes.is_empty() || self.of != of {
            let words = vec![word; place.elements];
            self.planes = planes_of_chunk(tensor.layout(), &words, &coder.encode(&words, &of.2));
            self.of = of;
        }
        Ok(&self.planes)
    }
}
