//! A checked view of the bytes of a frame.
//!
//! [`Frame::parse`] checks everything that can be checked without decoding, so that a decoder only has to look at the bits of a
//! chunk: no offset, count or place of a parsed frame can lead outside of its bytes. It allocates for the tensor table
//! and, for packed and arrival frames, 8 to 16 bytes a group, all of it less than the bytes it was given.

use super::directory::{Entry, Group, Mode};
use super::layout::Kept;
use super::table::{check_static, need, read_static, u32_at, u64_at};
use super::{
    CHUNK, DYNAMIC_BYTES, Flags, FrameSpec, GROUP, Layout, Plane, RECORD_BYTES, TensorLayout, TensorSpec,
};
use crate::format::checksum::chunk_checksum;
use crate::{Bases, Codebook, Dtype, Error, Result, Scheme};
use std::ops::Range;

/// A checked frame.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    spec: FrameSpec,
    layout: Layout,
    /// For every tensor of a packed frame and every group: chunks in front of it that the planes hold.
    kept_before: Vec<Vec<u64>>,
}

impl<'a> Frame<'a> {
    /// Checks the frame at the start of `bytes`; more bytes may follow it.
    ///
    /// # Errors
    /// What section 10 of the specification says a reader must refuse, as far as it shows without decoding a chunk.
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>> {
        let spec = read_static(bytes)?;
        let unpacked = FrameSpec { flags: Flags { packed: false, ..spec.flags }, ..spec };
        let mut layout = unpacked.layout()?;
        need(bytes, "the directory", layout.planes_at)?;
        check_dynamic(bytes, &layout)?;
        let spec = FrameSpec { flags: spec.flags, ..unpacked };
        let mut kept_before = Vec::new();
        if spec.flags.packed {
            let (kept, before) = kept_chunks(bytes, &layout)?;
            layout = Layout::with_kept(&spec, |t, _| kept[t])?;
            kept_before = before;
        }
        check_static(bytes, &spec, &layout)?;
        let words = u64_at(bytes, layout.static_bytes as usize);
        let end = words.checked_mul(4).and_then(|bytes| bytes.checked_add(layout.dense_bytes));
        let end = end.ok_or(Error::TooLarge { what: "the size of the frame", bits: 64 })?;
        let bytes = need(bytes, "the frame", end)?;
        let frame = Frame { bytes, spec, layout, kept_before };
        frame.check_paddings()?;
        frame.check_codebooks()?;
        frame.check_directory(words)?;
        Ok(frame)
    }

    /// The bytes of the frame, without what follows it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What the frame holds.
    pub fn spec(&self) -> &FrameSpec {
        &self.spec
    }

    /// Where everything lies in it.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Words of all variable parts.
    pub fn words(&self) -> u64 {
        u64_at(self.bytes, self.layout.static_bytes as usize)
    }

    /// Tensors in it.
    pub fn len(&self) -> usize {
        self.spec.tensors.len()
    }

    /// Whether it holds no tensor at all.
    pub fn is_empty(&self) -> bool {
        self.spec.tensors.is_empty()
    }

    /// Tensor number `tensor`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn tensor(&self, tensor: usize) -> Result<FrameTensor<'_, 'a>> {
        if tensor >= self.len() {
            return Err(Error::OutOfRange { what: "tensor", given: tensor as u64, count: self.len() as u64 });
        }
        Ok(FrameTensor { frame: self, number: tensor })
    }

    /// All tensors, in order.
    pub fn tensors(&self) -> impl Iterator<Item = FrameTensor<'_, 'a>> {
        (0..self.len()).map(|number| FrameTensor { frame: self, number })
    }

    /// Padding between the parts of the dense part is zero, and so are the bytes behind the planes.
    fn check_paddings(&self) -> Result<()> {
        let layout = &self.layout;
        let sums = layout
            .tensors
            .iter()
            .map(|tensor| if layout.flags.chunk_checksums { 4 * tensor.chunks } else { 0 });
        let bases = layout.tensors.iter().map(|tensor| tensor.groups * tensor.channels).sum::<u64>();
        let mut paddings = vec![
            (layout.bases_at + bases, layout.checksums_at),
            (layout.checksums_at + sums.sum::<u64>(), layout.planes_at),
        ];
        for plane in layout.tensors.iter().flat_map(|tensor| &tensor.planes) {
            let end = plane.at + plane.bytes;
            paddings.push((end, end.next_multiple_of(super::PLANE_ALIGNMENT)));
        }
        for (start, end) in paddings {
            let padding = &self.bytes[start as usize..end as usize];
            if let Some(at) = padding.iter().position(|&byte| byte != 0) {
                let what = format!("padding at byte {}", start + at as u64);
                return Err(Error::field(what, padding[at].into(), "must be 0"));
            }
        }
        Ok(())
    }

    fn check_codebooks(&self) -> Result<()> {
        for tensor in self.tensors() {
            let bytes = tensor.codebook_bytes();
            if tensor.layout().scheme.has_codebook() {
                Codebook::new(tensor.layout().dtype, *bytes)?;
            } else if bytes != &[0; Codebook::LEN] {
                let what = format!("the codebook of tensor {}", tensor.number);
                return Err(Error::field(what, bytes[0].into(), "must be 0 for a scheme without a codebook"));
            }
            let sum = u64_at(tensor.dynamic(), 8);
            if !self.spec.flags.tensor_checksums && sum != 0 {
                return Err(Error::field(
                    format!("the checksum of tensor {}", tensor.number),
                    sum,
                    "must be 0 without its flag",
                ));
            }
        }
        Ok(())
    }

    /// Entries are possible, groups tile the variable parts: in order, or with `arrival` in any order.
    fn check_directory(&self, words: u64) -> Result<()> {
        let arrival = self.spec.flags.arrival;
        let mut at = 0;
        let mut starts = Vec::new();
        for tensor in self.tensors() {
            let before = u64_at(tensor.dynamic(), 0);
            let expected = if arrival { 0 } else { at };
            if before != expected {
                let what = format!("words in front of tensor {}", tensor.number);
                return Err(Error::field(what, before, format!("must be {expected}")));
            }
            for group in 0..tensor.layout().groups {
                let record = tensor.group(group);
                for (entry, chunk) in record.entries.iter().zip(group * GROUP as u64..) {
                    let refuse = |reason| Error::Chunk { tensor: tensor.number, chunk, reason };
                    let elements = tensor.layout().chunk_elements(chunk);
                    if elements == 0 {
                        if *entry != 0 {
                            return Err(refuse(format!(
                                "it does not exist, but its entry is {entry:#06x}, not 0"
                            )));
                        }
                        continue;
                    }
                    let entry = Entry::from_bits(*entry);
                    let entry =
                        entry.ok_or_else(|| refuse("its mode is unknown; modes are 0 to 3".to_owned()))?;
                    entry.check(tensor.layout(), elements).map_err(refuse)?;
                }
                if arrival {
                    starts.push((record.start, record.words()));
                } else if record.start != at {
                    let what = format!("the start of group {group} of tensor {}", tensor.number);
                    return Err(Error::field(
                        what,
                        record.start,
                        format!("must be {at}, behind the group before it"),
                    ));
                }
                at += record.words();
            }
        }
        if at != words {
            return Err(Error::field(
                "words of all variable parts",
                words,
                format!("must be {at}, the sum over the directory"),
            ));
        }
        starts.retain(|&(_, words)| words != 0);
        starts.sort_unstable();
        let mut end = 0;
        for (start, words) in starts {
            if start != end {
                let allowed = format!("must be {end}: groups leave no gaps and do not overlap");
                return Err(Error::field("the start of a group", start, allowed));
            }
            end = start + words;
        }
        Ok(())
    }
}

/// One tensor of a checked frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameTensor<'f, 'a> {
    frame: &'f Frame<'a>,
    number: usize,
}

impl<'f, 'a> FrameTensor<'f, 'a> {
    /// Its number in the frame.
    pub fn number(&self) -> usize {
        self.number
    }

    /// What it is.
    pub fn spec(&self) -> &'f TensorSpec {
        &self.frame.spec.tensors[self.number]
    }

    /// Where its parts lie.
    pub fn layout(&self) -> &'f TensorLayout {
        &self.frame.layout.tensors[self.number]
    }

    /// Its codebook, if its scheme has one.
    pub fn codebook(&self) -> Option<Codebook> {
        Codebook::new(self.layout().dtype, *self.codebook_bytes())
            .ok()
            .filter(|_| self.layout().scheme.has_codebook())
    }

    /// The checksum of its raw bits, if the frame has one.
    pub fn checksum(&self) -> Option<u64> {
        self.frame.spec.flags.tensor_checksums.then(|| u64_at(self.dynamic(), 8))
    }

    /// The checksum of the raw bits of a chunk, if the frame has one.
    pub fn chunk_checksum(&self, chunk: u64) -> Option<u32> {
        let has = self.frame.spec.flags.chunk_checksums && chunk < self.layout().chunks;
        has.then(|| u32_at(self.frame.bytes, (self.layout().checksums_at + 4 * chunk) as usize))
    }

    /// The bases of a group: one byte a channel; empty without channel bases.
    pub fn bases(&self, group: u64) -> &'a [u8] {
        let layout = self.layout();
        if layout.bases == Bases::Chunk || group >= layout.groups {
            return &[];
        }
        let at = (layout.bases_at + group * layout.channels) as usize;
        &self.frame.bytes[at..at + layout.channels as usize]
    }

    /// The record of a group.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn group(&self, group: u64) -> Group {
        assert!(group < self.layout().groups, "group {group} of {}", self.layout().groups);
        group_at(self.frame.bytes, self.layout(), group)
    }

    /// Where chunk `chunk` lies.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; a stored tensor has no chunks here, its bytes are [`FrameTensor::stored`].
    pub fn chunk(&self, chunk: u64) -> Result<ChunkPlace<'a>> {
        let (layout, bytes) = (self.layout(), self.frame.bytes);
        let count = if layout.scheme == Scheme::Stored { 0 } else { layout.chunks };
        if chunk >= count {
            return Err(Error::OutOfRange { what: "chunk", given: chunk, count });
        }
        let (group, in_group) = (chunk / GROUP as u64, (chunk % GROUP as u64) as usize);
        let record = self.group(group);
        let words = |entries: &[u16]| entries.iter().map(|entry| u64::from(entry & 0xfff)).sum::<u64>();
        let start = layout_words(self.frame, record.start + words(&record.entries[..in_group]));
        let end = start + 4 * usize::from(record.entries[in_group] & 0xfff);
        let refuse = |reason: &str| Error::Chunk { tensor: self.number, chunk, reason: reason.to_owned() };
        let entry =
            Entry::from_bits(record.entries[in_group]).ok_or_else(|| refuse("its mode is unknown"))?;
        let variable = bytes.get(start..end).ok_or_else(|| refuse("its part reaches past the frame"))?;
        let elements = layout.chunk_elements(chunk);
        let slot = if self.frame.spec.flags.packed {
            let before = record.entries[..in_group].iter().filter(|&&entry| !is_equal(entry)).count() as u64;
            (entry.mode != Mode::Equal).then(|| self.frame.kept_before[self.number][group as usize] + before)
        } else {
            Some(chunk)
        };
        let part = |plane: &Plane| match slot {
            Some(slot) => {
                let at = (plane.at + slot * plane.kind.whole_bytes() as u64) as usize;
                &bytes[at..at + plane.kind.part_bytes(elements)]
            }
            None => &[],
        };
        Ok(ChunkPlace { entry, elements, planes: layout.planes.iter().map(part).collect(), variable })
    }

    /// The bytes of a stored tensor; `None` for a coded one.
    pub fn stored(&self) -> Option<&'a [u8]> {
        let plane = self.layout().planes.first().filter(|_| self.layout().scheme == Scheme::Stored)?;
        Some(&self.frame.bytes[plane.at as usize..(plane.at + plane.bytes) as usize])
    }

    /// Compares the checksum of decoded bits with the one that the frame has for the tensor, if it has one.
    ///
    /// # Errors
    /// [`Error::Checksum`].
    pub fn verify_checksum(&self, computed: u64) -> Result<()> {
        match self.checksum() {
            Some(found) if found != computed => {
                Err(Error::Checksum { tensor: self.number, chunk: None, found, computed })
            }
            _ => Ok(()),
        }
    }

    /// Verifies decoded chunks from chunk `first` on against the checksums of chunks that the frame has.
    ///
    /// # Errors
    /// [`Error::Checksum`].
    pub fn verify_chunks(&self, first: u64, decoded: &[u8]) -> Result<()> {
        if !self.frame.spec.flags.chunk_checksums {
            return Ok(());
        }
        for (bytes, chunk) in decoded.chunks(self.layout().chunk_bytes() as usize).zip(first..) {
            let computed = chunk_checksum(self.layout().dtype, bytes);
            match self.chunk_checksum(chunk) {
                Some(found) if found != computed => {
                    let (tensor, found, computed) = (self.number, found.into(), computed.into());
                    return Err(Error::Checksum { tensor, chunk: Some(chunk), found, computed });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn dynamic(&self) -> &'a [u8] {
        let at = (self.frame.layout.static_bytes + DYNAMIC_BYTES * (1 + self.number as u64)) as usize;
        &self.frame.bytes[at..at + DYNAMIC_BYTES as usize]
    }

    fn codebook_bytes(&self) -> &'a [u8; Codebook::LEN] {
        self.dynamic()[16..].first_chunk().unwrap_or(&[0; Codebook::LEN])
    }
}

/// Where the bits of a chunk lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkPlace<'a> {
    /// Its mode and the words of its variable part.
    pub entry: Entry,
    /// Its elements: 1024, or fewer.
    pub elements: usize,
    /// Its part of every plane, in the order of the planes; empty when a packed frame leaves the chunk out.
    pub planes: Vec<&'a [u8]>,
    /// Its variable part.
    pub variable: &'a [u8],
}

/// The byte of the frame where word `word` of the variable parts lies, saturating for hostile numbers.
fn layout_words(frame: &Frame<'_>, word: u64) -> usize {
    let at = word.saturating_mul(4).saturating_add(frame.layout.dense_bytes);
    at.min(frame.bytes.len() as u64) as usize
}

fn is_equal(entry: u16) -> bool {
    entry >> 12 == Mode::Equal as u16
}

fn group_at(bytes: &[u8], tensor: &TensorLayout, group: u64) -> Group {
    let at = (tensor.directory_at + RECORD_BYTES * group) as usize;
    let mut record = [0; RECORD_BYTES as usize];
    record.copy_from_slice(&bytes[at..at + RECORD_BYTES as usize]);
    Group::from_bytes(&record)
}

/// How many words the variable parts of a frame have, whose encoder has ended well: for frames that are not looked at any further.
pub(crate) fn sealed_words(bytes: &[u8], layout: &Layout) -> Result<u64> {
    need(bytes, "the dynamic part", layout.static_bytes + layout.dynamic_bytes)?;
    check_dynamic(bytes, layout)?;
    Ok(u64_at(bytes, layout.static_bytes as usize))
}

/// Check, status and reserved fields of the dynamic part.
fn check_dynamic(bytes: &[u8], layout: &Layout) -> Result<()> {
    let range = dynamic_range(layout);
    let part = &bytes[range];
    let (status, found, computed) = (u32_at(part, 8), u32_at(part, 12), dynamic_check(part));
    if found != computed {
        return Err(Error::FrameCheck { what: "dynamic part", found, computed });
    }
    if status != 0 {
        return Err(Error::EncoderFailed { status });
    }
    for at in [16, 24] {
        if u64_at(part, at) != 0 {
            return Err(Error::field(
                format!("byte {at} of the dynamic part"),
                u64_at(part, at),
                "must be 0",
            ));
        }
    }
    Ok(())
}

/// Where the dynamic part lies.
pub(crate) fn dynamic_range(layout: &Layout) -> Range<usize> {
    layout.static_bytes as usize..(layout.static_bytes + layout.dynamic_bytes) as usize
}

/// The check of a dynamic part, its own field taken as zero.
pub(crate) fn dynamic_check(part: &[u8]) -> u32 {
    let mut part = part.to_vec();
    part[12..16].fill(0);
    super::tensor_checksum(Dtype::Bf16, &part) as u32
}

/// What the planes of a packed frame hold: for every tensor, and in front of every group of it.
pub(crate) fn kept_chunks(bytes: &[u8], layout: &Layout) -> Result<(Vec<Kept>, Vec<Vec<u64>>)> {
    let mut totals = Vec::with_capacity(layout.tensors.len());
    let mut before = Vec::with_capacity(layout.tensors.len());
    for tensor in &layout.tensors {
        let (mut whole, mut short) = (0, tensor.elements % CHUNK as u64);
        let mut groups = Vec::new();
        if tensor.scheme == Scheme::Stored {
            totals.push((tensor.elements / CHUNK as u64, short));
            before.push(groups);
            continue;
        }
        for group in 0..tensor.groups {
            groups.push(whole);
            let entries = group_at(bytes, tensor, group).entries;
            for (&entry, chunk) in entries.iter().zip(group * GROUP as u64..tensor.chunks) {
                match (tensor.chunk_elements(chunk) == CHUNK, is_equal(entry)) {
                    (true, false) => whole += 1,
                    (false, true) => short = 0,
                    _ => {}
                }
            }
        }
        totals.push((whole, short));
        before.push(groups);
    }
    Ok((totals, before))
}
