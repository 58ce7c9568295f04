//! Where everything lies in a frame. It follows from the description alone, so an encoder can be launched, and a
//! receiver can post its buffers, before a single element has been read.

use super::{
    CHUNK, DYNAMIC_BYTES, Flags, FrameSpec, GROUP, HEADER_BYTES, PLANE_ALIGNMENT, PlaneKind, RECORD_BYTES,
    TensorSpec, checksum,
};
use crate::{Bases, Dtype, Error, Result, Scheme};
use std::ops::Range;

/// One plane of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plane {
    /// How its bits lie.
    pub kind: PlaneKind,
    /// Where it starts in the frame, a multiple of 128.
    pub at: u64,
    /// Its bytes, without the filling behind it.
    pub bytes: u64,
}

/// Where the parts of one tensor lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorLayout {
    /// The type of the elements.
    pub dtype: Dtype,
    /// How exponents are coded.
    pub scheme: Scheme,
    /// Whose mean places the window.
    pub bases: Bases,
    /// Channels for channel bases, else 0.
    pub channels: u64,
    /// Elements.
    pub elements: u64,
    /// Raw bytes.
    pub bytes: u64,
    /// Chunks, with a short last one.
    pub chunks: u64,
    /// Groups in the directory; 0 for a stored tensor.
    pub groups: u64,
    /// Where the shape lies.
    pub shape_at: u64,
    /// Where the name lies.
    pub name_at: u64,
    /// Where the directory starts; 0 for a stored tensor.
    pub directory_at: u64,
    /// Where the bases start; 0 without channel bases.
    pub bases_at: u64,
    /// Where the checksums of the chunks start; 0 without them.
    pub checksums_at: u64,
    /// The planes: residuals, then codes. A stored tensor has one.
    pub planes: Vec<Plane>,
    /// The most words that all its variable parts can have.
    pub max_words: u64,
}

impl TensorLayout {
    /// Raw bytes of a whole chunk: 2048 for 16-bit elements and for bytes, 1024 for 8-bit floats.
    pub const fn chunk_bytes(&self) -> u64 {
        chunk_bytes(self.dtype)
    }

    /// Elements of chunk `chunk`: 1024, or fewer in the last one. (Of a tensor of bytes: pairs of bytes, rounded up.)
    pub const fn chunk_elements(&self, chunk: u64) -> usize {
        self.chunk_len(chunk).div_ceil(chunk_bytes(self.dtype) as usize / CHUNK)
    }

    /// Raw bytes of chunk `chunk`.
    pub const fn chunk_len(&self, chunk: u64) -> usize {
        let left = self.bytes.saturating_sub(chunk.saturating_mul(self.chunk_bytes()));
        if left < self.chunk_bytes() { left as usize } else { self.chunk_bytes() as usize }
    }

    /// Words of the variable part of a raw chunk of `elements` elements: what a coded one must stay below.
    pub const fn raw_words(&self, elements: usize) -> u32 {
        raw_words(self.dtype, self.scheme, elements)
    }

    /// The plane of the codes; `None` for a stored tensor.
    pub fn codes(&self) -> Option<&Plane> {
        if self.scheme == Scheme::Stored { None } else { self.planes.last() }
    }

    /// The planes of the residuals, the low bits first; empty for a stored tensor.
    pub fn residuals(&self) -> &[Plane] {
        if self.scheme == Scheme::Stored { &[] } else { &self.planes[..self.planes.len() - 1] }
    }
}

/// Where everything lies in a frame: offsets and sizes in bytes from its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The options of the frame.
    pub flags: Flags,
    /// The tensors.
    pub tensors: Vec<TensorLayout>,
    /// Bytes of header, tensor table and strings; here the dynamic part starts.
    pub static_bytes: u64,
    /// Bytes of the dynamic part.
    pub dynamic_bytes: u64,
    /// Where the directory starts.
    pub directory_at: u64,
    /// Where the bases start.
    pub bases_at: u64,
    /// Where the checksums of the chunks start.
    pub checksums_at: u64,
    /// Where the planes start.
    pub planes_at: u64,
    /// Bytes of the dense part: here the variable parts start.
    pub dense_bytes: u64,
    /// The most bytes that the frame can have: `dense_bytes` and every chunk raw.
    pub max_frame_bytes: u64,
    /// Raw bytes of all tensors.
    pub raw_bytes: u64,
}

/// The elements whose chunks lie in the planes of a tensor, as whole chunks and elements of a short one.
pub(crate) type Kept = (u64, u64);

impl Layout {
    /// Where the dense part lies: everything in front of the variable parts. Its size follows from the description, so a sender can post it before the
    /// length of the rest is known. (It is complete when the encoder is done, for the dynamic part in it is written last.)
    pub fn dense_part(&self) -> Range<u64> {
        0..self.dense_bytes
    }

    /// Where the number of words of all variable parts lies in the dense part, 8 bytes: what says how much more is to come.
    pub fn words_at(&self) -> u64 {
        self.static_bytes
    }

    /// Where `words` words of variable parts lie: behind the dense part, up to the end of the frame.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more words than the tensors can have.
    pub fn variable_parts(&self, words: u64) -> Result<Range<u64>> {
        let end = words.checked_mul(4).and_then(|bytes| bytes.checked_add(self.dense_bytes));
        let end = end.filter(|&end| end <= self.max_frame_bytes).ok_or(SIZE)?;
        Ok(self.dense_bytes..end)
    }

    /// The gaps between the parts of the dense part: what an encoder that does not clear it must fill with zeros. Start and length.
    pub(crate) fn gaps(&self) -> Vec<(u64, u64)> {
        let mut parts = vec![(0, self.static_bytes + self.dynamic_bytes)];
        for tensor in &self.tensors {
            if tensor.groups != 0 {
                parts.push((tensor.directory_at, tensor.groups * RECORD_BYTES));
            }
            if tensor.bases_at != 0 {
                parts.push((tensor.bases_at, tensor.groups * tensor.channels));
            }
            if tensor.checksums_at != 0 {
                parts.push((tensor.checksums_at, tensor.chunks * 4));
            }
            parts.extend(tensor.planes.iter().map(|plane| (plane.at, plane.bytes)));
        }
        parts.sort_unstable();
        let mut gaps = Vec::new();
        let mut end = 0;
        for (at, bytes) in parts {
            if at > end {
                gaps.push((end, at - end));
            }
            end = end.max(at + bytes);
        }
        if self.dense_bytes > end {
            gaps.push((end, self.dense_bytes - end));
        }
        gaps
    }

    /// See [`FrameSpec::layout`].
    pub(crate) fn of(spec: &FrameSpec) -> Result<Layout> {
        if spec.flags.packed {
            let reason =
                "the layout of a packed frame follows from its directory; encode a frame without the flag \
                          and pack it"
                    .to_owned();
            return Err(Error::Spec { tensor: "all".to_owned(), reason });
        }
        Layout::with_kept(spec, |_, elements| (elements / CHUNK as u64, elements % CHUNK as u64))
    }

    /// The layout where the planes of tensor `t` hold the chunks that `kept(t, elements)` says.
    pub(crate) fn with_kept(spec: &FrameSpec, kept: impl Fn(usize, u64) -> Kept) -> Result<Layout> {
        let mut tensors = spec.tensors.iter().map(describe).collect::<Result<Vec<_>>>()?;
        let count = tensors.len() as u64;
        if count > u64::from(u32::MAX) {
            return Err(Error::TooLarge { what: "the number of tensors", bits: 32 });
        }
        let mut at = Cursor(HEADER_BYTES);
        at.skip(times(count, HEADER_BYTES)?)?;
        for (tensor, of) in tensors.iter_mut().zip(&spec.tensors) {
            tensor.shape_at = at.skip(8 * of.shape.len() as u64)?;
        }
        for (tensor, of) in tensors.iter_mut().zip(&spec.tensors) {
            tensor.name_at = at.skip(of.name.len() as u64)?;
        }
        let static_bytes = at.align(8)?;
        if static_bytes > u64::from(u32::MAX) {
            return Err(Error::TooLarge { what: "the static part of the frame", bits: 32 });
        }
        let dynamic_bytes = DYNAMIC_BYTES * (1 + count);
        at.skip(dynamic_bytes)?;

        let directory_at = at.0;
        for tensor in tensors.iter_mut().filter(|tensor| tensor.scheme != Scheme::Stored) {
            tensor.directory_at = at.skip(times(tensor.groups, RECORD_BYTES)?)?;
        }
        let bases_at = at.0;
        for tensor in tensors.iter_mut().filter(|tensor| tensor.bases == Bases::Channel) {
            tensor.bases_at = at.skip(times(tensor.groups, tensor.channels)?)?;
        }
        let checksums_at = at.align(8)?;
        if spec.flags.chunk_checksums {
            for tensor in &mut tensors {
                tensor.checksums_at = at.skip(times(tensor.chunks, 4)?)?;
            }
        }
        at.align(8)?;
        let planes_at = at.align(PLANE_ALIGNMENT)?;
        for (t, tensor) in tensors.iter_mut().enumerate() {
            let (whole, short) = kept(t, tensor.elements);
            for kind in plane_kinds(tensor.dtype, tensor.scheme) {
                let short_bytes = kind.part_bytes(short as usize) as u64;
                let bytes = times(whole, kind.whole_bytes() as u64)?.checked_add(short_bytes).ok_or(SIZE)?;
                let start = at.skip(bytes)?;
                at.align(PLANE_ALIGNMENT)?;
                tensor.planes.push(Plane { kind, at: start, bytes });
            }
        }
        let dense_bytes = at.0;
        let sum = |value: fn(&TensorLayout) -> u64| {
            tensors.iter().try_fold(0u64, |sum, tensor| sum.checked_add(value(tensor))).ok_or(SIZE)
        };
        let words = sum(|tensor| tensor.max_words)?;
        let raw_bytes = sum(|tensor| tensor.bytes)?;
        let max_frame_bytes = times(words, 4)?.checked_add(dense_bytes).ok_or(SIZE)?;
        Ok(Layout {
            flags: spec.flags,
            tensors,
            static_bytes,
            dynamic_bytes,
            directory_at,
            bases_at,
            checksums_at,
            planes_at,
            dense_bytes,
            max_frame_bytes,
            raw_bytes,
        })
    }
}

const SIZE: Error = Error::TooLarge { what: "the size of the frame", bits: 64 };

const fn chunk_bytes(dtype: Dtype) -> u64 {
    CHUNK as u64 * checksum::element_bytes(dtype) as u64
}

pub(crate) const fn raw_words(dtype: Dtype, scheme: Scheme, elements: usize) -> u32 {
    (elements as u32 * (dtype.exponent_bits() - scheme.code_bits())).div_ceil(32)
}

/// The planes of a tensor, in order.
fn plane_kinds(dtype: Dtype, scheme: Scheme) -> Vec<PlaneKind> {
    if scheme == Scheme::Stored {
        return vec![PlaneKind::Packed(dtype.bits())];
    }
    let mut kinds = match dtype.residual_bits() {
        bits @ (4 | 8) => vec![PlaneKind::Packed(bits)],
        bits if bits < 8 => vec![PlaneKind::Bits(bits)],
        bits => vec![PlaneKind::Packed(8), PlaneKind::Bits(bits - 8)],
    };
    kinds.push(scheme.plane(scheme.code_bits()));
    kinds
}

/// Everything about a tensor but where it lies.
fn describe(spec: &TensorSpec) -> Result<TensorLayout> {
    spec.check()?;
    let (dtype, scheme) = (spec.dtype, spec.scheme);
    let elements = spec.elements()?;
    let bytes = times(elements, dtype.bytes() as u64)?;
    let chunks = bytes.div_ceil(chunk_bytes(dtype));
    let stored = scheme == Scheme::Stored;
    let max_words = if stored {
        0
    } else {
        let whole = times(elements / CHUNK as u64, u64::from(raw_words(dtype, scheme, CHUNK)))?;
        whole + u64::from(raw_words(dtype, scheme, (elements % CHUNK as u64) as usize))
    };
    Ok(TensorLayout {
        dtype,
        scheme,
        bases: spec.bases,
        channels: spec.channels(),
        elements,
        bytes,
        chunks,
        groups: if stored { 0 } else { chunks.div_ceil(GROUP as u64) },
        shape_at: 0,
        name_at: 0,
        directory_at: 0,
        bases_at: 0,
        checksums_at: 0,
        planes: Vec::new(),
        max_words,
    })
}

fn times(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or(SIZE)
}

/// An offset that grows.
struct Cursor(u64);

impl Cursor {
    /// Moves on by `bytes`; returns where it was.
    fn skip(&mut self, bytes: u64) -> Result<u64> {
        let start = self.0;
        self.0 = start.checked_add(bytes).ok_or(SIZE)?;
        Ok(start)
    }

    /// Moves on to a multiple of `alignment`; returns where it is.
    fn align(&mut self, alignment: u64) -> Result<u64> {
        self.0 = self.0.checked_next_multiple_of(alignment).ok_or(SIZE)?;
        Ok(self.0)
    }
}
