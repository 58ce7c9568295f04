//! Coding whole chunks with a window: `w3`, `w2x3`, `w2x2x3`.

use super::bases::low_of;
use super::dtype::Dtype;
use super::escapes::Escapes;
use super::ladder::Ladder;
use super::planes::{Bytes, Plane, from_planes, to_planes};
use super::strings::{self, NO_STRINGS, Strings};
use super::vector::Vector;

/// What a chunk is between its elements and its frame. One for each piece of work: nothing is allocated for a chunk.
#[repr(C, align(64))]
pub(super) struct Scratch {
    /// Exponents.
    pub exponents: Bytes,
    /// What goes to, or comes from, bit planes: values, residuals.
    pub bytes: Bytes,
    pub second: [Plane; 3],
    pub third: [Plane; 3],
    pub marked: Plane,
    pub twice_marked: Plane,
    pub escaped: Plane,
    pub strings: Strings,
    pub escapes: Escapes,
}

impl Scratch {
    pub const fn new() -> Scratch {
        let (bytes, plane) = (Bytes([0; 1024]), [0; 32]);
        Scratch {
            exponents: bytes,
            bytes,
            second: [plane; 3],
            third: [plane; 3],
            marked: plane,
            twice_marked: plane,
            escaped: plane,
            strings: NO_STRINGS,
            escapes: Escapes::new(),
        }
    }
}

/// Where the parts of a coded chunk lie, in bits.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The base, where it is one for the chunk, else 0.
    low: u8,
    base_bits: usize,
    marked: usize,
    twice_marked: usize,
    escaped: usize,
    escapes_at: usize,
    /// Words of the variable part.
    pub words: usize,
}

impl Shape {
    #[inline(always)]
    fn of<D: Dtype, L: Ladder>(low: Option<u8>, [marked, twice_marked, escaped]: [usize; 3]) -> Shape {
        let base_bits = if low.is_some() { 8 } else { 0 };
        let third_at = base_bits + L::BITS[1] * marked;
        let escapes_at = (third_at + L::BITS[2] * twice_marked).next_multiple_of(8);
        let words = (escapes_at + D::EXPONENT_BITS as usize * escaped).div_ceil(32);
        Shape { low: low.unwrap_or(0), base_bits, marked, twice_marked, escaped, escapes_at, words }
    }
}

/// Is there a window with this low end?
#[inline(always)]
fn is_low<D: Dtype, L: Ladder>(low: u8) -> bool {
    if D::EXPONENT_BITS == 8 { low <= 255 - L::VALUES } else { u32::from(low) < 1 << D::EXPONENT_BITS }
}

/// Where the window of a chunk lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Base {
    /// Its low end, where that is the chunk's own.
    low: Option<u8>,
    /// Does exponent 0 have a code of its own?
    pub zeros: bool,
}

/// A canonical encoder's choice (`docs/format.md`, section 4): the first try, or the second one, of a chunk with many escapes or as many words as a raw one,
/// if that has fewer words. Codes the exponents in the scratch, whose sum is `sum`; the first level goes to `codes`. A chunk that is `equal` has one try.
///
/// # Safety
/// The machine has the instructions; `codes` has 128 bytes for each bit of a code; `lows` has 1024 bytes for channel bases.
#[inline(always)]
pub(super) unsafe fn choose<V: Vector, D: Dtype, L: Ladder, const CHANNELS: bool>(
    scratch: &mut Scratch,
    lows: *const u8,
    sum: u64,
    codes: *mut u8,
    equal: bool,
) -> (Base, Shape) {
    let low = |mean: u64| low_of::<D>(mean as u8, [L::MEAN, L::VALUES]);
    let first = Base { low: if CHANNELS { None } else { Some(low(sum / 1024)) }, zeros: false };
    let (mut base, mut attempt, mut first_words) = (first, 0, 0);
    loop {
        // SAFETY: by contract.
        let shape = unsafe { code::<V, D, L>(scratch, lows, base, codes) };
        if attempt == 0 {
            let raw = 32 * (D::EXPONENT_BITS as usize - L::BITS[0]);
            if equal || (shape.escaped < L::MANY_ESCAPES && shape.words < raw) {
                return (base, shape);
            }
            // SAFETY: by contract.
            let zeros = unsafe { zeros::<V>(&scratch.exponents) };
            base =
                Base { low: Some(low(sum / (1024 - zeros).max(1))), zeros: CHANNELS || 16 * zeros >= 1024 };
            if base == first {
                return (base, shape);
            }
            (attempt, first_words) = (1, shape.words);
        } else if attempt == 1 && shape.words >= first_words {
            (base, attempt) = (first, 2);
        } else {
            return (base, shape);
        }
    }
}

/// How many exponents are 0.
#[inline(always)]
unsafe fn zeros<V: Vector>(exponents: &Bytes) -> u64 {
    // SAFETY: by contract of `choose`; there are 1024 bytes.
    unsafe {
        let (zero, one) = (V::splat(0), V::splat(1));
        let (mut sums, mut at) = (zero, 0);
        while at < 1024 {
            sums = sums.add_to_sums(V::load(exponents.0.as_ptr().add(at)).equal(zero).and(one));
            at += V::BYTES;
        }
        sums.total()
    }
}

/// One try.
///
/// # Safety
/// As [`choose`]; `lows` has 1024 bytes where the chunk has no base of its own.
#[inline(always)]
unsafe fn code<V: Vector, D: Dtype, L: Ladder>(
    scratch: &mut Scratch,
    lows: *const u8,
    base: Base,
    codes: *mut u8,
) -> Shape {
    // SAFETY: by contract; a chunk has 1024 bytes, and a plane 128.
    unsafe {
        let (limit, zero) = (V::splat(L::VALUES), V::splat(0));
        let width = V::splat(0xff >> (8 - D::EXPONENT_BITS));
        let mut at = 0;
        while at < 1024 {
            let low = match base.low {
                Some(low) => V::splat(low),
                None => V::load(lows.add(at)),
            };
            let exponents = V::load(scratch.exponents.0.as_ptr().add(at));
            let mut values = exponents.subtract(low);
            if D::EXPONENT_BITS < 8 {
                values = values.and(width);
            }
            values = values.least(limit);
            if base.zeros {
                let (lowest, displaced) = (values.equal(zero), values.equal(V::splat(L::ZERO)));
                values = lowest.select(limit, values.without(displaced));
                values = exponents.equal(zero).select(V::splat(L::ZERO), values);
            }
            values.store(scratch.bytes.0.as_mut_ptr().add(at));
            at += V::BYTES;
        }
        let mut lane = 0;
        while lane < 32 {
            let values = to_planes::<V>(scratch.bytes.0.as_ptr(), lane);
            let climbed = L::climb(values);
            for plane in 0..L::BITS[0] {
                climbed.codes[plane].store(codes.add(128 * plane + 4 * lane));
            }
            for plane in 0..L::BITS[1] {
                climbed.second[plane].store(scratch.second[plane].as_mut_ptr().add(lane).cast());
            }
            for plane in 0..L::BITS[2] {
                climbed.third[plane].store(scratch.third[plane].as_mut_ptr().add(lane).cast());
            }
            if L::BITS[1] != 0 {
                climbed.marked.store(scratch.marked.as_mut_ptr().add(lane).cast());
            }
            if L::BITS[2] != 0 {
                climbed.twice_marked.store(scratch.twice_marked.as_mut_ptr().add(lane).cast());
            }
            climbed.escaped.store(scratch.escaped.as_mut_ptr().add(lane).cast());
            lane += V::BYTES / 4;
        }
        let marked = if L::BITS[1] != 0 { strings::count(&scratch.marked) } else { 0 };
        let twice_marked = if L::BITS[2] != 0 { strings::count(&scratch.twice_marked) } else { 0 };
        scratch.escapes.find::<V>(&scratch.escaped);
        let escaped = scratch.escapes.count();
        Shape::of::<D, L>(base.low, [marked, twice_marked, escaped])
    }
}

/// Writes the variable part.
///
/// # Safety
/// The machine has the instructions; `to` has room for the words of the shape and 128 more bytes.
#[inline(always)]
pub(super) unsafe fn write_part<V: Vector, D: Dtype, L: Ladder>(
    scratch: &mut Scratch,
    shape: Shape,
    to: *mut u8,
) {
    // SAFETY: by contract.
    unsafe {
        let mut before = u64::from(shape.low);
        if L::BITS[1] == 0 {
            to.write(shape.low);
        }
        let Scratch { second, third, marked, twice_marked, strings, exponents, escapes, .. } = scratch;
        let mut at = shape.base_bits;
        if L::BITS[1] == 2 {
            at = strings::put::<V, 2>(to, at, &mut before, second, marked, shape.marked, strings);
        } else if L::BITS[1] == 3 {
            at = strings::put::<V, 3>(to, at, &mut before, second, marked, shape.marked, strings);
        }
        if L::BITS[2] == 3 {
            strings::put::<V, 3>(to, at, &mut before, third, twice_marked, shape.twice_marked, strings);
        }
        let to = to.add(shape.escapes_at / 8);
        match D::EXPONENT_BITS {
            8 => escapes.put::<8>(exponents, to),
            5 => escapes.put::<5>(exponents, to),
            _ => escapes.put::<4>(exponents, to),
        }
    }
}

/// Decodes the exponents of a chunk of mode *coded* or (`zeros`) *coded with zeros* into the scratch. False if its part does not hold together.
///
/// # Safety
/// The machine has the instructions; `codes` are the codes of the chunk, `part` has `words` words and 128 more bytes; `lows` has 1024 bytes.
#[inline(always)]
pub(super) unsafe fn decode<V: Vector, D: Dtype, L: Ladder, const CHANNELS: bool>(
    scratch: &mut Scratch,
    codes: *const u8,
    lows: *const u8,
    part: *const u8,
    words: usize,
    zeros: bool,
) -> bool {
    // SAFETY: by contract; every level is only read once it is known to lie in the part; the rest as in `code`.
    unsafe {
        let own = !CHANNELS || zeros;
        if own && (words == 0 || !is_low::<D, L>(part.read())) {
            return false;
        }
        let low = if own { Some(part.read()) } else { None };
        let base_bits = if own { 8 } else { 0 };
        let zero = V::splat(0);
        let Scratch { second, third, marked, twice_marked, .. } = scratch;
        let (mut marked_count, mut twice_count) = (0, 0);
        if L::BITS[1] != 0 {
            let mut lane = 0;
            while lane < 32 {
                L::marked(load_codes::<V, L>(codes, lane)).store(marked.as_mut_ptr().add(lane).cast());
                lane += V::BYTES / 4;
            }
            marked_count = strings::count(marked);
            if base_bits + L::BITS[1] * marked_count > 32 * words {
                return false;
            }
            if L::BITS[1] == 2 {
                strings::take::<2>(part, base_bits, second, marked, marked_count);
            } else {
                strings::take::<3>(part, base_bits, second, marked, marked_count);
            }
        }
        if L::BITS[2] != 0 {
            let mut lane = 0;
            while lane < 32 {
                let marked = V::load(marked.as_ptr().add(lane).cast());
                let twice = L::twice_marked(load_planes::<V>(second, lane), marked);
                twice.store(twice_marked.as_mut_ptr().add(lane).cast());
                lane += V::BYTES / 4;
            }
            twice_count = strings::count(twice_marked);
            let at = base_bits + L::BITS[1] * marked_count;
            if at + L::BITS[2] * twice_count > 32 * words {
                return false;
            }
            strings::take::<3>(part, at, third, twice_marked, twice_count);
        }
        let (zero_value, all) = (V::splat(L::ZERO), V::splat(low.unwrap_or(0)));
        let mut lane = 0;
        while lane < 32 {
            let codes = load_codes::<V, L>(codes, lane);
            let (mut levels, mut masks) = ([[zero; 3]; 2], [zero; 2]);
            if L::BITS[1] != 0 {
                (levels[0], masks[0]) =
                    (load_planes(second, lane), V::load(marked.as_ptr().add(lane).cast()));
            }
            if L::BITS[2] != 0 {
                (levels[1], masks[1]) =
                    (load_planes(third, lane), V::load(twice_marked.as_ptr().add(lane).cast()));
            }
            let (values, escaped) = L::descend(codes, levels[0], levels[1], masks);
            escaped.store(scratch.escaped.as_mut_ptr().add(lane).cast());
            for (run, (first, second)) in from_planes(values).into_iter().enumerate() {
                for (half, values) in [first, second].into_iter().enumerate() {
                    let at = 256 * run + 8 * lane + half * V::BYTES;
                    let low = if own { all } else { V::load(lows.add(at)) };
                    let mut exponents = values.add(low);
                    if zeros {
                        // Value 0 stands for the distance that exponent 0 has the value of.
                        exponents = values.or(values.equal(zero).and(zero_value)).add(low);
                        exponents = exponents.without(values.equal(zero_value));
                    }
                    exponents.store(scratch.exponents.0.as_mut_ptr().add(at));
                }
            }
            lane += V::BYTES / 4;
        }
        scratch.escapes.find::<V>(&scratch.escaped);
        let counts = [marked_count, twice_count, scratch.escapes.count()];
        let shape = Shape::of::<D, L>(low, counts);
        if shape.words != words {
            return false;
        }
        let (from, escapes) = (part.add(shape.escapes_at / 8), &scratch.escapes);
        match D::EXPONENT_BITS {
            8 => escapes.take::<8>(from, &mut scratch.exponents),
            5 => escapes.take::<5>(from, &mut scratch.exponents),
            _ => escapes.take::<4>(from, &mut scratch.exponents),
        }
        true
    }
}

/// The codes of the first level of the lanes of a vector.
#[inline(always)]
unsafe fn load_codes<V: Vector, L: Ladder>(codes: *const u8, lane: usize) -> [V; 3] {
    // SAFETY: by contract.
    unsafe {
        let mut out = [V::splat(0); 3];
        for (plane, out) in out.iter_mut().enumerate().take(L::BITS[0]) {
            *out = V::load(codes.add(128 * plane + 4 * lane));
        }
        out
    }
}

#[inline(always)]
unsafe fn load_planes<V: Vector>(planes: &[Plane; 3], lane: usize) -> [V; 3] {
    // SAFETY: by contract.
    unsafe {
        let load = [planes[0].as_ptr(), planes[1].as_ptr(), planes[2].as_ptr()];
        [
            V::load(load[0].add(lane).cast()),
            V::load(load[1].add(lane).cast()),
            V::load(load[2].add(lane).cast()),
        ]
    }
}

/// Codes the exponents in the scratch as they are: low bits to `codes`, high bits to the part.
///
/// # Safety
/// The machine has the instructions; `codes` and `part` have 128 bytes for each of their bits.
#[inline(always)]
pub(super) unsafe fn write_raw<V: Vector, D: Dtype, L: Ladder>(
    scratch: &mut Scratch,
    codes: *mut u8,
    part: *mut u8,
) {
    // SAFETY: by contract.
    unsafe {
        for nibble in 0..2 {
            let mut at = 0;
            while at < 1024 {
                let exponents = V::load(scratch.exponents.0.as_ptr().add(at));
                let bits = if nibble == 0 { exponents } else { exponents.shift_right::<4>() };
                bits.and(V::splat(0x0f)).store(scratch.bytes.0.as_mut_ptr().add(at));
                at += V::BYTES;
            }
            let mut lane = 0;
            while lane < 32 {
                let planes = to_planes::<V>(scratch.bytes.0.as_ptr(), lane);
                for (bit, plane) in planes.into_iter().enumerate() {
                    let bit = 4 * nibble + bit;
                    if bit < L::BITS[0] {
                        plane.store(codes.add(128 * bit + 4 * lane));
                    } else if bit < D::EXPONENT_BITS as usize {
                        plane.store(part.add(128 * (bit - L::BITS[0]) + 4 * lane));
                    }
                }
                lane += V::BYTES / 4;
            }
        }
    }
}

/// The way back.
///
/// # Safety
/// The machine has the instructions; `codes` and `part` have 128 bytes for each of their bits.
#[inline(always)]
pub(super) unsafe fn read_raw<V: Vector, D: Dtype, L: Ladder>(
    scratch: &mut Scratch,
    codes: *const u8,
    part: *const u8,
) {
    // SAFETY: by contract.
    unsafe {
        let mut lane = 0;
        while lane < 32 {
            let mut planes = [[V::splat(0); 4]; 2];
            for bit in 0..D::EXPONENT_BITS as usize {
                let plane =
                    if bit < L::BITS[0] { codes.add(128 * bit) } else { part.add(128 * (bit - L::BITS[0])) };
                planes[bit / 4][bit % 4] = V::load(plane.add(4 * lane));
            }
            let [low, high] = planes.map(|planes| from_planes(planes));
            for run in 0..4 {
                let to = scratch.exponents.0.as_mut_ptr().add(256 * run + 8 * lane);
                low[run].0.or(high[run].0.shift_left::<4>()).store(to);
                low[run].1.or(high[run].1.shift_left::<4>()).store(to.add(V::BYTES));
            }
            lane += V::BYTES / 4;
        }
    }
}
