//! Pieces of a tensor, chunk by chunk: elements to planes and parts, and back. What a fast path does not do itself, it hands to the shared body.

use super::bases::{self, Bases};
use super::codebook::{pack_nibbles, unpack_nibbles};
use super::coder::Coder;
use super::dtype::Dtype;
use super::planes::{from_planes, to_planes};
use super::vector::{Vector, prefetch};
use super::window::Scratch;
use splitzip_kernels::stream::{
    CHUNK, ENTRY_MODE_SHIFT, ENTRY_WORDS, GROUP, MODE_EQUAL, MODE_RAW, MODE_ZEROS, RECORD_BYTES,
    RECORD_ENTRIES,
};
use std::ops::Range;

/// What vectors write behind a part, and read.
const SLACK: usize = 128;
/// Bytes of the largest part of a coded chunk: less than that of a raw one, 6 bits an element.
const PART: usize = 768;
/// The most channels of a tensor with channel bases.
const CHANNELS: usize = 1024;

/// A tensor that is encoded.
#[derive(Clone, Copy)]
pub(super) struct Encoding {
    /// Chunks that are whole.
    pub whole: u64,
    pub words: *const u8,
    /// The packed plane of residuals, their bit planes, codes.
    pub planes: [*mut u8; 3],
    pub directory: *mut u8,
    /// The table of the codebook.
    pub table: *const u8,
    pub bases: Bases,
    pub parts: *mut u8,
    /// Behind the last byte that a part may touch.
    pub parts_end: *mut u8,
    /// Words so far, words before the tensor, words behind it: numbers of 64 bits.
    pub order: *mut u8,
    pub start: *const u8,
    pub end: *mut u8,
}

/// A tensor that is decoded.
#[derive(Clone, Copy)]
pub(super) struct Decoding {
    /// Chunks that are whole.
    pub whole: u64,
    pub words: *mut u8,
    pub planes: [*const u8; 3],
    pub directory: *const u8,
    /// Channel bases, or the codebook.
    pub known: *const u8,
    pub channels: usize,
    pub parts: *const u8,
    pub part_words: u64,
}

/// Codes a chunk in the way that the shared body does.
pub(super) type Shared<'a> = &'a dyn Fn(u64);

/// Encodes chunks, in order, from the start of a group on, with the channel bases of the groups.
///
/// # Safety
/// The machine has the instructions of `V`; the tensor is as large as it says, and nobody else writes the parts of these chunks.
#[inline(always)]
pub(super) unsafe fn encode<V: Vector, D: Dtype, C: Coder>(
    to: &Encoding,
    chunks: Range<u64>,
    shared: Shared<'_>,
) {
    // SAFETY: by contract: whole chunks have all their elements and planes, every group a record, and the parts room for the words of raw chunks.
    unsafe {
        let (mut scratch, mut part) = (Scratch::new(), [0u8; PART + SLACK]);
        let (prepared, mut lows) = (C::prepare::<V>(to.table), GroupLows::new());
        let first = to.start.cast::<u64>().read_unaligned();
        let mut so_far = to.order.cast::<u64>().read_unaligned();
        for chunk in chunks {
            let (index, record) =
                (chunk as usize, to.directory.add((chunk / GROUP as u64) as usize * RECORD_BYTES as usize));
            let mut entry = None;
            if C::CHANNELS && chunk.is_multiple_of(u64::from(GROUP)) {
                bases::compute::<D>(&to.bases, chunk / u64::from(GROUP));
            }
            if chunk < to.whole {
                let low = if C::CHANNELS {
                    lows.of(to.bases.bases, to.bases.channels, chunk)
                } else {
                    std::ptr::null()
                };
                let words = to.words.add(index * CHUNK as usize * D::BYTES);
                let codes = to.planes[2].add(index * 128 * C::CODE_BITS);
                let sum = split::<V, D>(&mut scratch, words, to.planes, index);
                let equal = is_equal::<V, D>(words);
                let coded = C::code::<V, D>(&mut scratch, &prepared, low, sum, codes, equal);
                let (length, mode) = C::shape(coded);
                let place = to.parts.add((first + so_far) as usize * 4);
                if equal {
                    let word = if D::BYTES == 2 {
                        u32::from(words.cast::<u16>().read_unaligned())
                    } else {
                        u32::from(words.read())
                    };
                    place.cast::<u32>().write_unaligned(word);
                    entry = Some(1 | MODE_EQUAL << ENTRY_MODE_SHIFT);
                } else if length < C::raw_words::<D>() {
                    if (to.parts_end as usize).saturating_sub(place as usize) >= 4 * length + SLACK {
                        C::write::<V, D>(&mut scratch, coded, place);
                    } else {
                        C::write::<V, D>(&mut scratch, coded, part.as_mut_ptr());
                        place.copy_from_nonoverlapping(part.as_ptr(), 4 * length);
                    }
                    entry = Some(length as u32 | mode << ENTRY_MODE_SHIFT);
                } else if C::write_raw::<V, D>(&mut scratch, codes, place) {
                    entry = Some(C::raw_words::<D>() as u32 | MODE_RAW << ENTRY_MODE_SHIFT);
                }
            }
            if let Some(entry) = entry {
                if chunk.is_multiple_of(u64::from(GROUP)) {
                    record.cast::<u64>().write_unaligned(first + so_far);
                }
                let slot = record.add(RECORD_ENTRIES as usize + index % GROUP as usize * 2);
                slot.cast::<u16>().write_unaligned(entry as u16);
                so_far += u64::from(entry & ENTRY_WORDS);
            } else {
                to.order.cast::<u64>().write_unaligned(so_far);
                shared(chunk);
                so_far = to.order.cast::<u64>().read_unaligned();
            }
        }
        to.order.cast::<u64>().write_unaligned(so_far);
        to.end.cast::<u64>().write_unaligned(first + so_far);
    }
}

/// Splits a chunk: residuals go to their planes, exponents to the scratch. Returns the sum of the exponents.
#[inline(always)]
unsafe fn split<V: Vector, D: Dtype>(
    scratch: &mut Scratch,
    words: *const u8,
    planes: [*mut u8; 3],
    index: usize,
) -> u64 {
    // SAFETY: by the contract of `encode`.
    unsafe {
        let (packed, upper) =
            (planes[0].wrapping_add(index * 128 * D::PACKED), planes[1].wrapping_add(index * 384));
        let (mut sums, mut at) = (V::splat(0), 0);
        while at < CHUNK as usize {
            let mut nibbles = [V::splat(0); 2];
            for (i, nibbles) in nibbles.iter_mut().enumerate() {
                let at = at + i * V::BYTES;
                let from = words.add(at * D::BYTES);
                prefetch_next::<V>(from, D::BYTES);
                prefetch_next::<V>(packed.wrapping_add(at), 1);
                let (mut low, mut high) = (V::splat(0), V::load(from));
                if D::BYTES == 2 {
                    let second = V::load(from.add(V::BYTES));
                    (low, high) = (V::low_bytes(high, second), V::high_bytes(high, second));
                }
                let [exponents, residuals, bits] = D::split(low, high);
                exponents.store(scratch.exponents.0.as_mut_ptr().add(at));
                sums = sums.add_to_sums(exponents);
                if D::PACKED == 8 {
                    residuals.store(packed.add(at));
                }
                if D::PLANES {
                    bits.store(scratch.bytes.0.as_mut_ptr().add(at));
                }
                *nibbles = residuals;
            }
            if D::PACKED == 4 {
                pack_nibbles(nibbles).store(packed.add(at / 2));
            }
            at += 2 * V::BYTES;
        }
        if D::PLANES {
            let mut lane = 0;
            while lane < 32 {
                let [a, b, c, _] = to_planes::<V>(scratch.bytes.0.as_ptr(), lane);
                for (plane, bits) in [a, b, c].into_iter().enumerate() {
                    bits.store(upper.add(128 * plane + 4 * lane));
                }
                lane += V::BYTES / 4;
            }
        }
        sums.total()
    }
}

/// Asks for what the next chunk has where this one has `size` vectors: elements, residuals, and just as well memory that will be written. The prefetcher
/// of the machine ends at a page, which is two chunks; without this, encoding took 1.3 and decoding 1.7 times as long out of the caches.
#[inline(always)]
fn prefetch_next<V: Vector>(from: *const u8, size: usize) {
    let next = from.wrapping_add(CHUNK as usize * size);
    prefetch(next);
    if size * V::BYTES > 64 {
        prefetch(next.wrapping_add(64));
    }
}

/// Joins the exponents in the scratch with the residuals of a chunk.
#[inline(always)]
unsafe fn join<V: Vector, D: Dtype>(
    scratch: &mut Scratch,
    words: *mut u8,
    planes: [*const u8; 3],
    index: usize,
) {
    // SAFETY: by the contract of `decode`.
    unsafe {
        let (packed, upper) =
            (planes[0].wrapping_add(index * 128 * D::PACKED), planes[1].wrapping_add(index * 384));
        if D::PLANES {
            let mut lane = 0;
            while lane < 32 {
                let [a, b, c] = [0, 1, 2].map(|plane| upper.add(128 * plane + 4 * lane));
                let runs = from_planes([V::load(a), V::load(b), V::load(c), V::splat(0)]);
                for (run, (first, second)) in runs.into_iter().enumerate() {
                    let to = scratch.bytes.0.as_mut_ptr().add(256 * run + 8 * lane);
                    first.store(to);
                    second.store(to.add(V::BYTES));
                }
                lane += V::BYTES / 4;
            }
        }
        let mut at = 0;
        while at < CHUNK as usize {
            let mut residuals = [V::splat(0); 2];
            if D::PACKED == 8 {
                residuals = [V::load(packed.add(at)), V::load(packed.add(at + V::BYTES))];
            } else if D::PACKED == 4 {
                let (first, second) = unpack_nibbles(V::load(packed.add(at / 2)));
                residuals = [first, second];
            }
            for (i, residuals) in residuals.into_iter().enumerate() {
                let at = at + i * V::BYTES;
                let exponents = V::load(scratch.exponents.0.as_ptr().add(at));
                let bits = if D::PLANES { V::load(scratch.bytes.0.as_ptr().add(at)) } else { V::splat(0) };
                let (low, high) = D::join(exponents, residuals, bits);
                let to = words.add(at * D::BYTES);
                prefetch_next::<V>(to, D::BYTES);
                prefetch_next::<V>(packed.wrapping_add(at), 1);
                if D::BYTES == 2 {
                    let (first, second) = V::words(low, high);
                    first.store(to);
                    second.store(to.add(V::BYTES));
                } else {
                    high.store(to);
                }
            }
            at += 2 * V::BYTES;
        }
    }
}

/// Are all elements of a whole chunk equal: is each the one before it?
#[inline(always)]
unsafe fn is_equal<V: Vector, D: Dtype>(words: *const u8) -> bool {
    // SAFETY: by the contract of `encode`; the last vector ends where the chunk does.
    unsafe {
        let (bytes, mut at) = (CHUNK as usize * D::BYTES - D::BYTES, 0);
        loop {
            let from = words.add(at);
            if !V::load(from).xor(V::load(from.add(D::BYTES))).is_zero() {
                return false;
            }
            if at + V::BYTES == bytes {
                return true;
            }
            at = (at + V::BYTES).min(bytes - V::BYTES);
        }
    }
}

/// Decodes chunks, in order.
///
/// # Safety
/// The machine has the instructions of `V`; the tensor is as large as it says, and nobody else writes these chunks.
#[inline(always)]
pub(super) unsafe fn decode<V: Vector, D: Dtype, C: Coder>(
    from: &Decoding,
    chunks: Range<u64>,
    shared: Shared<'_>,
) {
    // SAFETY: by contract: whole chunks have all their elements and planes, every group a record; parts are read only where the frame has them.
    unsafe {
        let (mut scratch, mut copy) = (Scratch::new(), [0u8; PART + SLACK]);
        let (mut lows, mut start) = (GroupLows::new(), 0u64);
        let first_chunk = chunks.start;
        for chunk in chunks {
            let index = chunk as usize;
            let record = from.directory.add((chunk / GROUP as u64) as usize * RECORD_BYTES as usize);
            let entry_of = |rank: usize| {
                u32::from(record.add(RECORD_ENTRIES as usize + 2 * rank).cast::<u16>().read_unaligned())
            };
            let rank = index % GROUP as usize;
            if rank == 0 || chunk == first_chunk {
                let before: u64 = (0..rank).map(|rank| u64::from(entry_of(rank) & ENTRY_WORDS)).sum();
                start = record.cast::<u64>().read_unaligned().wrapping_add(before);
            }
            let (entry, part_start) = (entry_of(rank), start);
            let (mode, length) = (entry >> ENTRY_MODE_SHIFT, (entry & ENTRY_WORDS) as usize);
            start = start.wrapping_add(length as u64);
            let inside = part_start <= from.part_words && length as u64 <= from.part_words - part_start;
            let (mut done, mut joined) = (false, false);
            if chunk < from.whole && inside {
                let mut part = from.parts.add(part_start as usize * 4);
                let words = from.words.wrapping_add(index * CHUNK as usize * D::BYTES);
                let codes = from.planes[2].add(index * 128 * C::CODE_BITS);
                if mode == MODE_EQUAL && length == 1 {
                    fill::<V, D>(words, part.cast::<u32>().read_unaligned());
                    done = true;
                } else if mode == MODE_RAW && length == C::raw_words::<D>() {
                    done = C::read_raw::<V, D>(&mut scratch, codes, part);
                    joined = done;
                } else if mode <= MODE_ZEROS && length < C::raw_words::<D>() {
                    let behind = from.part_words - part_start - length as u64;
                    if behind < (SLACK / 4) as u64 {
                        part.copy_to_nonoverlapping(copy.as_mut_ptr(), 4 * length);
                        part = copy.as_ptr();
                    }
                    let known =
                        if C::CHANNELS { lows.of(from.known, from.channels, chunk) } else { from.known };
                    done = C::decode::<V, D>(&mut scratch, known, codes, part, length, mode);
                    joined = done;
                }
                if joined {
                    join::<V, D>(&mut scratch, words, from.planes, index);
                }
            }
            if !done {
                shared(chunk);
            }
        }
    }
}

/// Fills a chunk with one element.
#[inline(always)]
unsafe fn fill<V: Vector, D: Dtype>(words: *mut u8, word: u32) {
    // SAFETY: by the contract of `decode`.
    unsafe {
        let (low, high) = (V::splat(word as u8), V::splat((word >> 8) as u8));
        let element = if D::BYTES == 2 { V::words(low, high).0 } else { low };
        let mut at = 0;
        while at < CHUNK as usize * D::BYTES {
            element.store(words.add(at));
            at += V::BYTES;
        }
    }
}

/// The channel bases of a group, again and again, so that those of any chunk of it lie one behind the other.
struct GroupLows {
    bytes: [u8; CHANNELS + CHUNK as usize],
    group: Option<u64>,
}

impl GroupLows {
    fn new() -> GroupLows {
        GroupLows { bytes: [0; CHANNELS + CHUNK as usize], group: None }
    }

    /// The bases of the elements of a chunk.
    ///
    /// # Safety
    /// There are `channels` bases for every group up to that of the chunk, 8 to 1024.
    #[inline(always)]
    unsafe fn of(&mut self, bases: *const u8, channels: usize, chunk: u64) -> *const u8 {
        let group = chunk / u64::from(GROUP);
        if self.group != Some(group) {
            // SAFETY: by contract; copies stay in the array.
            unsafe {
                let (to, from) = (self.bytes.as_mut_ptr(), bases.add(group as usize * channels));
                to.copy_from_nonoverlapping(from, channels.min(CHANNELS));
                let mut at = channels.max(1);
                while at < self.bytes.len() {
                    // `at` is a multiple of the channels, so what is copied goes on where it ends.
                    let more = at.min(self.bytes.len() - at);
                    to.add(at).copy_from_nonoverlapping(to, more);
                    at += more;
                }
            }
            self.group = Some(group);
        }
        let first = (chunk * u64::from(CHUNK) % channels.max(1) as u64) as usize;
        self.bytes[first.min(CHANNELS)..].as_ptr()
    }
}
