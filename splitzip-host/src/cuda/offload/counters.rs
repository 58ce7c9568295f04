//! What an offloader has done so far, for those who operate it.

use super::kept::OffloadedSlice;
use crate::Scheme;
use crate::format::{GROUP, Layout, Mode, RECORD_BYTES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What an offloader has done since it was made. Bytes and times of a direction; seconds are those of the device, by events.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// From the device to the host.
    pub out: DirectionCounters,
    /// From the host to the device.
    pub back: DirectionCounters,
    /// Chunks that were stored raw, as they would not have shrunk.
    pub raw_chunks: u64,
    /// 4-byte words of variable parts: what escapes, and levels behind the first, take.
    pub variable_words: u64,
    /// Offloads that were cancelled.
    pub cancelled: u64,
}

/// One direction of [`Counters`].
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct DirectionCounters {
    /// Calls that ended well.
    pub transfers: u64,
    /// Of these, the ones that were sent as they are.
    pub raw_transfers: u64,
    /// Frames.
    pub frames: u64,
    /// Bytes in front of the codec.
    pub raw_bytes: u64,
    /// Bytes on the link.
    pub coded_bytes: u64,
    /// Seconds in the codec.
    pub codec_seconds: f64,
    /// Seconds on the link.
    pub copy_seconds: f64,
    /// Calls that ended with an error.
    pub errors: u64,
}

/// The counters while they count.
#[derive(Default)]
pub(super) struct Meters {
    pub out: Direction,
    pub back: Direction,
    pub raw_chunks: AtomicU64,
    pub variable_words: AtomicU64,
    pub cancelled: AtomicU64,
    /// Raw bytes of offloads that are not over.
    pub queued_bytes: AtomicU64,
}

/// One direction.
#[derive(Default)]
pub(super) struct Direction {
    transfers: AtomicU64,
    raw_transfers: AtomicU64,
    frames: AtomicU64,
    raw_bytes: AtomicU64,
    coded_bytes: AtomicU64,
    codec_nanoseconds: AtomicU64,
    copy_nanoseconds: AtomicU64,
    pub errors: AtomicU64,
}

/// What is counted of a slice.
pub(super) struct Sizes {
    raw_bytes: u64,
    coded_bytes: u64,
    is_raw: bool,
}

impl Sizes {
    pub fn of(slice: &OffloadedSlice) -> Sizes {
        let (raw_bytes, coded_bytes) = (slice.raw_bytes(), slice.block.bytes());
        Sizes { raw_bytes, coded_bytes, is_raw: slice.spec.is_none() }
    }
}

impl Direction {
    /// Counts a transfer of these slices that ended well.
    pub fn add_transfer(&self, slices: impl Iterator<Item = Sizes>) {
        let mut is_raw = false;
        for slice in slices {
            is_raw |= slice.is_raw;
            self.frames.fetch_add(u64::from(!slice.is_raw), Relaxed);
            self.raw_bytes.fetch_add(slice.raw_bytes, Relaxed);
            self.coded_bytes.fetch_add(slice.coded_bytes, Relaxed);
        }
        self.transfers.fetch_add(1, Relaxed);
        self.raw_transfers.fetch_add(u64::from(is_raw), Relaxed);
    }

    pub fn add_codec(&self, seconds: f64) {
        self.codec_nanoseconds.fetch_add(nanoseconds(seconds), Relaxed);
    }

    pub fn add_copy(&self, seconds: f64) {
        self.copy_nanoseconds.fetch_add(nanoseconds(seconds), Relaxed);
    }

    fn read(&self) -> DirectionCounters {
        let seconds = |of: &AtomicU64| of.load(Relaxed) as f64 / 1e9;
        DirectionCounters {
            transfers: self.transfers.load(Relaxed),
            raw_transfers: self.raw_transfers.load(Relaxed),
            frames: self.frames.load(Relaxed),
            raw_bytes: self.raw_bytes.load(Relaxed),
            coded_bytes: self.coded_bytes.load(Relaxed),
            codec_seconds: seconds(&self.codec_nanoseconds),
            copy_seconds: seconds(&self.copy_nanoseconds),
            errors: self.errors.load(Relaxed),
        }
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

impl Meters {
    pub fn read(&self) -> Counters {
        Counters {
            out: self.out.read(),
            back: self.back.read(),
            raw_chunks: self.raw_chunks.load(Relaxed),
            variable_words: self.variable_words.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
        }
    }

    /// Counts the chunks of a frame that has arrived on the host.
    pub fn count_chunks(&self, layout: &Layout, frame: &[u8]) {
        let (raw, words) = chunks(layout, frame);
        self.raw_chunks.fetch_add(raw, Relaxed);
        self.variable_words.fetch_add(words, Relaxed);
    }
}

/// Raw chunks and words of the variable parts, from the directory alone: some 40 microseconds for a frame of 32 MiB.
fn chunks(layout: &Layout, frame: &[u8]) -> (u64, u64) {
    let (mut raw, mut words) = (0, 0);
    for tensor in layout.tensors.iter().filter(|tensor| tensor.scheme != Scheme::Stored) {
        let (start, bytes) = (tensor.directory_at as usize, (tensor.groups * RECORD_BYTES) as usize);
        let records = frame.get(start..start + bytes).unwrap_or_default();
        for record in records.chunks_exact(RECORD_BYTES as usize) {
            for entry in record[8..].chunks_exact(2).take(GROUP) {
                let entry = u16::from_le_bytes([entry[0], entry[1]]);
                raw += u64::from(entry >> 12 == Mode::Raw as u16);
                words += u64::from(entry & 0xfff);
            }
        }
    }
    (raw, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Content;
    use crate::format::Frame;
    use crate::{Dtype, Executor, Flags, FrameSpec, Reference, TensorSpec};

    #[test]
    fn chunks_are_counted_as_the_frame_has_them() {
        let tensor = |name, elements| TensorSpec::new(name, Dtype::Bf16, Scheme::W2x3, &[elements]);
        let stored = TensorSpec::new("bytes", Dtype::Bytes, Scheme::Stored, &[5000]);
        let spec = FrameSpec::new(vec![tensor("a", 40_000), stored, tensor("b", 3000)], Flags::default());
        let random: Vec<u8> = (0..40_000u64)
            .flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_le_bytes()[..2].to_vec())
            .collect();
        let calm = Content::Mixed.bytes(Dtype::Bf16, 3000, 64);
        let bytes = Reference.encode_to_vec(&spec, &[], &[&random, &[7; 5000], &calm]).unwrap();
        let frame = Frame::parse(&bytes).unwrap();
        let (raw, words) = chunks(frame.layout(), &bytes);
        assert_eq!(words, frame.words());
        assert!(raw >= 39, "{raw}");
        let meters = Meters::default();
        meters.count_chunks(frame.layout(), &bytes);
        meters.out.add_codec(0.25);
        let counters = meters.read();
        assert_eq!((counters.raw_chunks, counters.variable_words), (raw, words));
        assert!((counters.out.codec_seconds - 0.25).abs() < 1e-9);
    }
}
