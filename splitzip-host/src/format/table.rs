//! The static part: header, tensor table, strings. Written from a description, and read back to it.
//!
//! Reading is strict by construction: fields are read in order with their own messages, then the static part is written again from
//! what was read and compared byte by byte, so no offset, padding or reserved field can differ from the rules.

use super::{Flags, FrameSpec, HEADER_BYTES, Layout, MAGIC, MAX_RANK, TensorSpec, VERSION};
use crate::{Bases, Dtype, Error, Result, Scheme};

const CRC_AT: usize = 60;

/// The bytes of the static part.
pub(crate) fn static_part(spec: &FrameSpec, layout: &Layout) -> Vec<u8> {
    let mut out = Vec::with_capacity(layout.static_bytes as usize);
    out.extend(MAGIC);
    out.extend(VERSION.0.to_le_bytes());
    out.extend(VERSION.1.to_le_bytes());
    out.extend(spec.flags.bits().to_le_bytes());
    out.extend((spec.tensors.len() as u32).to_le_bytes());
    out.extend((layout.static_bytes as u32).to_le_bytes());
    out.extend(layout.dense_bytes.to_le_bytes());
    out.extend(spec.layout_id.to_le_bytes());
    out.extend(layout.raw_bytes.to_le_bytes());
    out.extend([0; 16]);
    for (tensor, of) in layout.tensors.iter().zip(&spec.tensors) {
        out.extend(tensor.elements.to_le_bytes());
        out.extend([of.dtype.id(), of.scheme.id(), of.bases.id(), of.shape.len() as u8]);
        out.extend((tensor.channels as u32).to_le_bytes());
        out.extend(of.id.to_le_bytes());
        out.extend((tensor.shape_at as u32).to_le_bytes());
        out.extend((tensor.name_at as u32).to_le_bytes());
        out.extend((of.name.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        out.extend(tensor.directory_at.to_le_bytes());
        out.extend(tensor.bases_at.to_le_bytes());
        out.extend(tensor.planes.first().map_or(0, |plane| plane.at).to_le_bytes());
    }
    for of in &spec.tensors {
        out.extend(of.shape.iter().flat_map(|size| size.to_le_bytes()));
    }
    for of in &spec.tensors {
        out.extend(of.name.as_bytes());
    }
    out.resize(layout.static_bytes as usize, 0);
    let crc = crc32fast::hash(&out);
    out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Reads the static part at the start of `bytes` to the description that it was written from.
///
/// # Errors
/// Everything that a reader must refuse and that shows in the static part, but for offsets, which
/// [`check_static`] compares once the layout is known.
pub(crate) fn read_static(bytes: &[u8]) -> Result<FrameSpec> {
    if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
        return Err(Error::NotAFrame);
    }
    need(bytes, "the header", HEADER_BYTES)?;
    let (major, minor) = (u16_at(bytes, 8), u16_at(bytes, 10));
    if (major, minor) != VERSION {
        return Err(Error::Version { major, minor });
    }
    let tensors = u32_at(bytes, 16);
    let static_bytes = u64::from(u32_at(bytes, 20));
    let least = HEADER_BYTES * (1 + u64::from(tensors));
    if static_bytes < least || !static_bytes.is_multiple_of(8) {
        let allowed = format!("must be a multiple of 8 and at least {least} for {tensors} tensors");
        return Err(Error::field("bytes of the static part", static_bytes, allowed));
    }
    let part = need(bytes, "the static part", static_bytes)?;
    let found = u32_at(part, CRC_AT);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&part[..CRC_AT]);
    crc.update(&[0; 4]);
    crc.update(&part[CRC_AT + 4..]);
    let computed = crc.finalize();
    if found != computed {
        return Err(Error::FrameCheck { what: "static part", found, computed });
    }
    let flags = u32_at(part, 12);
    let flags =
        Flags::from_bits(flags).ok_or_else(|| Error::field("flags", flags.into(), "must be below 16"))?;

    let mut strings = least;
    let mut specs = Vec::with_capacity(tensors as usize);
    for t in 0..tensors as usize {
        let entry = &part[64 * (t + 1)..64 * (t + 2)];
        let of = |what: &str| format!("{what} of tensor {t}");
        let unknown = |what: &str, found: u8| {
            Error::field(of(what), found.into(), format!("must be a {what} of version 1.0"))
        };
        let dtype = Dtype::from_id(entry[8]).ok_or_else(|| unknown("dtype", entry[8]))?;
        let scheme = Scheme::from_id(entry[9]).ok_or_else(|| unknown("scheme", entry[9]))?;
        let bases = Bases::from_id(entry[10]).ok_or_else(|| unknown("kind of bases", entry[10]))?;
        let rank = usize::from(entry[11]);
        if rank > MAX_RANK {
            return Err(Error::field(of("rank"), rank as u64, format!("must be at most {MAX_RANK}")));
        }
        let shape = string(part, of("place of the shape"), u32_at(entry, 24), &mut strings, 8 * rank as u64)?;
        let shape = shape.chunks_exact(8).map(|size| u64_at(size, 0)).collect();
        specs.push(TensorSpec { id: u64_at(entry, 16), name: String::new(), dtype, scheme, bases, shape });
    }
    for (t, spec) in specs.iter_mut().enumerate() {
        let entry = &part[64 * (t + 1)..64 * (t + 2)];
        let of = |what: &str| format!("{what} of tensor {t}");
        let length = u64::from(u32_at(entry, 32));
        let name = string(part, of("place of the name"), u32_at(entry, 28), &mut strings, length)?;
        spec.name = std::str::from_utf8(name)
            .map_err(|error| {
                Error::field(of("name"), error.valid_up_to() as u64, "must be UTF-8 (first bad byte)")
            })?
            .to_owned();
    }
    Ok(FrameSpec { tensors: specs, flags, layout_id: u64_at(part, 32) })
}

/// Compares the static part of `bytes` with what the rules give.
///
/// # Errors
/// [`Error::Field`] for the first byte that differs.
pub(crate) fn check_static(bytes: &[u8], spec: &FrameSpec, layout: &Layout) -> Result<()> {
    let expected = static_part(spec, layout);
    let part = need(bytes, "the static part", layout.static_bytes)?;
    // The CRC was checked before; that of other bytes is another one.
    let differs = |&at: &usize| part[at] != expected[at] && !(CRC_AT..CRC_AT + 4).contains(&at);
    let Some(at) = (0..expected.len()).find(differs) else { return Ok(()) };
    let allowed = format!("must be {} by the rules of the format", expected[at]);
    Err(Error::field(format!("byte {at} of the static part"), part[at].into(), allowed))
}

/// A string of `length` bytes, which must lie at `strings`; moves it on.
fn string<'a>(part: &'a [u8], what: String, at: u32, strings: &mut u64, length: u64) -> Result<&'a [u8]> {
    if u64::from(at) != *strings {
        return Err(Error::field(what, at.into(), format!("must be {strings}, behind the string before it")));
    }
    let end = strings.checked_add(length).filter(|&end| end <= part.len() as u64);
    let end = end.ok_or(Error::Truncated {
        what: "the strings of the static part",
        needed: strings.saturating_add(length),
        got: part.len() as u64,
    })?;
    *strings = end;
    Ok(&part[at as usize..end as usize])
}

/// The first `needed` bytes.
pub(crate) fn need<'a>(bytes: &'a [u8], what: &'static str, needed: u64) -> Result<&'a [u8]> {
    let got = bytes.len() as u64;
    let end = usize::try_from(needed).ok();
    end.and_then(|end| bytes.get(..end)).ok_or(Error::Truncated { what, needed, got })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
