//! Window schemes: an exponent is coded as its distance to the low end of a window.
//!
//! The window needs no calibration: it lies so that the mean exponent of the chunk (or of the channel) has the shortest code. All of
//! coding is done on the bit planes of 32 distances, so that every plane of every code is one instruction. Zeros would spoil the mean: a chunk with
//! many escapes is tried again without them (`docs/format.md`, section 4), which plain data never pays for.

use super::spread::{Spread, lows_of_halves};
use super::w4::exponent_at;
use super::{Coded, DECODE_PART, Decoded, Ladder, Scheme, Shape};
use crate::dtype::Dtype;
use crate::stream::{GROUP, MODE_CODED, MODE_ZEROS};
use crate::tile::bits::{from_planes, planes, transpose, unweave, weave};
use crate::tile::{
    ChannelBases, ChannelBasesOut, Chunk, GroupSums, InChunk, Nothing, Part, Parts, Program, Tile, Words,
    count_before, lane_map, map,
};
use crate::unroll;
use core::marker::PhantomData;

/// A window scheme: a ladder, with a base per chunk or (`CHANNEL`) per channel.
#[derive(Clone, Copy, Debug)]
pub struct Window<L, const CHANNEL: bool>(PhantomData<L>);

/// Where the window of a chunk lies. (Words only: a `bool` or an `Option` leaves holes in the struct, and a copy of it in local memory.)
#[derive(Clone, Copy)]
pub struct Base {
    /// Its low end, if it is one for all elements.
    low: u32,
    /// Not 0: exponent 0 has a code of its own.
    zeros: u32,
    /// Not 0: the low end is the chunk's own, not that of each channel.
    own: u32,
    /// Number of channels.
    channels: u32,
    /// Channel bases, if there are any.
    bases: ChannelBasesOut,
    /// What they come from, if they are not stored yet.
    sums: GroupSums,
}

/// The low end of a window of `values` values in which a mean exponent gets number `mean_value`.
#[inline(always)]
pub fn low_of<D: Dtype>(mean: u32, mean_value: u32, values: u32) -> u32 {
    if D::EXPONENT_BITS < 8 {
        mean.wrapping_sub(mean_value) & ((1 << D::EXPONENT_BITS) - 1)
    } else {
        mean.saturating_sub(mean_value).min(255 - values)
    }
}

/// The largest low end that there is.
const fn limit<D: Dtype, L: Ladder>() -> u32 {
    if D::EXPONENT_BITS < 8 { (1 << D::EXPONENT_BITS) - 1 } else { 255 - L::VALUES }
}

/// The sum of the exponents of a chunk. A short one is filled up with its first element, whose exponents are taken out again.
#[inline(always)]
fn sum_of_chunk<D: Dtype, const LEVEL: u32>(
    program: &Program,
    chunk: &Chunk,
    spread: &Tile<D::Spread>,
    first: impl Fn() -> u32,
) -> u32 {
    let sum = program.sum(&map(spread, |s| s.sum::<D>()));
    if chunk.is_whole() {
        return sum;
    }
    let exponent = first() >> D::MANTISSA_BITS & ((1 << D::EXPONENT_BITS) - 1);
    sum - (1024 - chunk.valid) * exponent
}

/// Planes of values in which exponent 0 has a code: see `docs/format.md`, section 4. `zeros` are the elements with exponent 0.
#[inline(always)]
fn with_zeros<L: Ladder, const N: usize>(v: [u32; N], zeros: u32) -> [u32; N] {
    let equal = |value: u32| {
        let mut all = !zeros;
        unroll!(j < N => all &= if value >> j & 1 != 0 { v[j] } else { !v[j] });
        all
    };
    let (lowest, displaced) = (equal(0), equal(L::ZERO));
    let mut out = v;
    unroll!(j < N => {
        out[j] &= !(lowest | displaced | zeros);
        if L::VALUES >> j & 1 != 0 { out[j] |= lowest }
        if L::ZERO >> j & 1 != 0 { out[j] |= zeros }
    });
    out
}

/// The way back: planes of distances, and the elements with exponent 0.
#[inline(always)]
fn without_zeros<L: Ladder, const N: usize>(v: [u32; N]) -> ([u32; N], u32) {
    let equal = |value: u32| {
        let mut all = !0;
        unroll!(j < N => all &= if value >> j & 1 != 0 { v[j] } else { !v[j] });
        all
    };
    let (zeros, lowest) = (equal(L::ZERO), equal(0));
    let mut out = v;
    unroll!(j < N => if L::ZERO >> j & 1 != 0 { out[j] |= lowest });
    (out, zeros)
}

/// Bit planes of values: what differs between 4 of them, for up to 15 values, and 5, for up to 31.
pub trait ValuePlanes: Words {
    /// From values, a byte each.
    fn from_bytes(bytes: [u32; 8]) -> Self;
    /// The way back.
    fn to_bytes(self) -> [u32; 8];
    #[doc(hidden)]
    fn with_zeros<L: Ladder>(self, zeros: u32) -> Self;
    #[doc(hidden)]
    fn without_zeros<L: Ladder>(self) -> (Self, u32);
}

macro_rules! value_planes {
    ($count:literal, |$bytes:ident| $from:expr, |$planes:ident| $to:expr) => {
        impl ValuePlanes for [u32; $count] {
            #[inline(always)]
            fn from_bytes($bytes: [u32; 8]) -> Self {
                $from
            }

            #[inline(always)]
            fn to_bytes(self) -> [u32; 8] {
                let $planes = self;
                $to
            }

            #[inline(always)]
            fn with_zeros<L: Ladder>(self, zeros: u32) -> Self {
                with_zeros::<L, $count>(self, zeros)
            }

            #[inline(always)]
            fn without_zeros<L: Ladder>(self) -> (Self, u32) {
                without_zeros::<L, $count>(self)
            }
        }
    };
}
value_planes!(4, |bytes| transpose(weave(bytes)), |planes| unweave(transpose(planes)));
value_planes!(
    5,
    |bytes| {
        let [a, b, c, d, e, ..] = planes(bytes);
        [a, b, c, d, e]
    },
    |planes| {
        let [a, b, c, d, e] = planes;
        from_planes([a, b, c, d, e, 0, 0, 0])
    }
);

impl<L: Ladder, const CHANNEL: bool> Window<L, CHANNEL> {
    const LEVELS: [u32; 2] = [L::Second::COUNT, L::Third::COUNT];
    /// Whatever a damaged chunk says that it has, reading it does not leave the memory of a part.
    const STAYS_INSIDE: () =
        assert!((8 + 1024 * (L::Second::COUNT + L::Third::COUNT)).div_ceil(8) + 8 <= Part::BYTES);
}

macro_rules! window_scheme { ($channel:literal, $name:ident, $given:ty, $known:ty) => {
impl<L: Ladder> Scheme for Window<L, $channel> {
    const NAME: &'static str = L::$name;
    const CODE_BITS: u32 = L::Codes::COUNT;
    const PACKED: bool = false;
    const CHANNELS: bool = $channel;
    const EQUAL_SHOWS: bool = !$channel;
    const WINDOW: [u32; 2] = [L::MEAN, L::VALUES];
    const ENCODE_SHARED: u32 = 0;
    const DECODE_SHARED: u32 = DECODE_PART + Part::BYTES;
    type Codes = L::Codes;
    type Second = L::Second;
    type Third = L::Third;
    type Decoded<D: Dtype> = D::Decoded;
    type Given = $given;
    type Known = $known;
    type Book = Base;

    #[inline(always)]
    fn stage(program: &Program, given: $given) -> Base {
        let bases = given.into();
        Base { low: 0, zeros: 0, own: !$channel as u32, channels: 0, bases, sums: GroupSums::none(program) }
    }

    #[inline(always)]
    fn first_book<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        staged: Base,
        channels: u32,
        sums: GroupSums,
        spread: &Tile<D::Spread>,
        first: impl Fn() -> u32,
    ) -> Base {
        if $channel {
            if sums.are_wanted() && chunk.index.is_multiple_of(GROUP) {
                let bases = map(&sums.means(), |means| lows_of_halves::<D, L>(means));
                staged.bases.store_summed(chunk.index / GROUP, sums, &bases);
            }
            return Base { channels, sums, ..staged };
        }
        let sum = sum_of_chunk::<D, LEVEL>(program, chunk, spread, first);
        let mean = if chunk.is_whole() { sum >> 10 } else { sum / chunk.valid.max(1) };
        Base { low: low_of::<D>(mean, L::MEAN, L::VALUES), ..staged }
    }

    #[inline(always)]
    fn code<D: Dtype, const LEVEL: u32>(
        _: &Program,
        chunk: &Chunk,
        book: Base,
        spread: &Tile<D::Spread>,
    ) -> Coded<Self> {
        // Before the values: so that no register holds the exponents after them.
        let zeros = if book.zeros != 0 {
            lane_map!((spread), |s| s.zeros::<D>())
        } else {
            map(spread, |_| 0u32)
        };
        let values = if $channel && book.own == 0 && book.sums.are_wanted() {
            lane_map!((spread, &book.sums.means()), |s, means| {
                s.values_of_runs::<D, L>(lows_of_halves::<D, L>(means))
            })
        } else if $channel && book.own == 0 {
            let lows = book.bases.known().of(chunk, book.channels);
            lane_map!((spread, &lows), |s, lows| s.values_of_elements::<D, L>(lows))
        } else {
            let low = book.low;
            lane_map!((spread), |s| s.values::<D, L>(low))
        };
        let values = if book.zeros != 0 {
            lane_map!((&values, &zeros), |v, zeros| v.with_zeros::<L>(zeros))
        } else {
            values
        };
        if $channel {
            // Between the values and the codes fewest words are held: two registers less, which decides whether a member fits.
            let exist = chunk.existing();
            let (codes, second, third, masks) = lane_map!((&values, &exist), |v, exist| {
                let (codes, second, third, [marked, twice_marked, escaped]) = L::climb(v);
                (codes, second, third, [marked & exist, twice_marked & exist, escaped & exist])
            });
            let [marked, twice_marked, escaped] = [masks.slot(0), masks.slot(1), masks.slot(2)];
            return Coded { codes, second, third, marked, twice_marked, escaped };
        }
        let (codes, second, third, masks) = lane_map!((&values), |v| L::climb(v));
        let mask = |i: usize| chunk.within(&masks.slot(i));
        Coded { codes, second, third, marked: mask(0), twice_marked: mask(1), escaped: mask(2) }
    }

    #[inline(always)]
    fn is_bad(shape: &Shape, raw: u32) -> bool {
        shape.escaped >= L::MANY_ESCAPES || shape.words >= raw
    }

    #[inline(always)]
    fn second_book<D: Dtype>(program: &Program, chunk: &Chunk, book: Base, zeros: u32, sum: u32) -> Base {
        let others = chunk.valid - zeros;
        let mean = sum / others.max(1);
        let zeros = ($channel || zeros * 16 >= chunk.valid) as u32;
        // A quotient is in a register of every lane. Where one is one too many, it need not be.
        let low = low_of::<D>(mean, L::MEAN, L::VALUES);
        let low = if $channel { program.uniform(low) } else { low };
        Base { low, zeros, own: 1, ..book }
    }

    #[inline(always)]
    fn is_same(book: Base, other: Base) -> bool {
        book.own == other.own && book.zeros == other.zeros && book.low == other.low
    }

    #[inline(always)]
    fn shape<D: Dtype>(program: &Program, book: Base, coded: &Coded<Self>) -> Shape {
        let base = if book.own != 0 { 8 } else { 0 };
        Shape::of::<Self, 0>(program, coded, base, Self::LEVELS, D::EXPONENT_BITS)
    }

    #[inline(always)]
    fn mode(book: Base) -> u32 {
        if book.zeros != 0 { MODE_ZEROS } else { MODE_CODED }
    }

    #[inline(always)]
    fn write<D: Dtype, const LEVEL: u32>(
        program: &Program,
        book: Base,
        coded: &Coded<Self>,
        shape: &Shape,
        input: InChunk<D::Words>,
        part: Part,    ) {
        part.clear(program, shape.words, if book.own != 0 { book.low } else { 0 });
        if L::Second::COUNT != 0 {
            let second = map((&coded.second, &coded.marked), |(s, m)| s.compact(m));
            let (before, at) = (shape.marked_before::<Self, LEVEL>(), shape.second_at);
            part.put_bits(&map(&before, |b| at + b), shape.marked, &second, true);
        }
        if L::Third::COUNT != 0 {
            let third = map((&coded.third, &coded.twice_marked), |(t, m)| t.compact(m));
            let (before, at) = (shape.twice_marked_before::<LEVEL>(), shape.third_at);
            part.put_bits(&map(&before, |b| at + b), shape.twice_marked, &third, false);
        }
        if shape.escaped != 0 {
            let before = shape.escaped_before::<Self, LEVEL>();
            part.put_numbers(program, shape.escapes_at, D::EXPONENT_BITS, &coded.escaped, &before, |element| {
                exponent_at::<D>(input, element)
            });
        }
    }

    #[inline(always)]
    fn raw_codes<D: Dtype>(spread: D::Spread) -> L::Codes {
        let planes = spread.planes::<D>();
        L::Codes::from_fn(|i| planes[i as usize & 7])
    }

    #[inline(always)]
    fn raw_exponents<D: Dtype>(codes: L::Codes, high: [u32; 8]) -> D::Decoded {
        let mut planes = high;
        unroll!(i < 8 => if (i as u32) < L::Codes::COUNT { planes[i] = codes.word(i) });
        D::Decoded::from_planes(planes)
    }

    #[inline(always)]
    fn decode_alone<D: Dtype, const LEVEL: u32>(
        _: &Program,
        chunk: &Chunk,
        known: $known,
        channels: u32,
        codes: &Tile<L::Codes>,
    ) -> Tile<[u32; 8]> {
        if $channel {
            return map(&ChannelBases::from(known).of_lanes(chunk, channels), |[a, b]| [a, b, a, b, a, b, a, b]);
        }
        map(codes, |_| [0; 8])
    }

    #[inline(always)]
    fn decoded<D: Dtype>(bytes: [u32; 8]) -> D::Decoded {
        D::Decoded::from_bytes(bytes)
    }

    #[inline(always)]
    fn decode<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        known: $known,
        channels: u32,
        codes: &Tile<L::Codes>,
        lows: &Tile<[u32; 8]>,
        mode: u32,
        from: Parts,
        length: u32,
    ) -> (Tile<D::Decoded>, bool) {
        let zeros = mode == MODE_ZEROS;
        let own = !$channel || zeros;
        let () = Self::STAYS_INSIDE;
        let base_bits = if own { 8 } else { 0 };
        let part = Part::new(program, DECODE_PART);
        if D::BITS == 8 {
            part.load_at_once(program, from, length);
        } else {
            part.load(program, from, length);
        }
        let low = part.first_byte();
        let mut ok = !own || low <= limit::<D, L>();

        // Each level says how long the next one is, and in the end the length of all is compared: see `STAYS_INSIDE`.
        let marked = chunk.within(&map(codes, |c| L::marked(c)));
        let (before, total) =
            if L::Second::COUNT != 0 { count_before(program, &marked) } else { (marked, 0) };
        let third_at = base_bits + L::Second::COUNT * total;
        let second = if L::Second::COUNT != 0 {
            let bits = part.bits::<L::Second>(&map(&before, |b| base_bits + b), total);
            map((&bits, &marked), |(b, m)| b.expand(m))
        } else {
            map(codes, |_| L::Second::from_fn(|_| 0))
        };
        let twice_marked = map((&second, &marked), |(s, m)| L::twice_marked(s, m));
        let (third, twice_total) = if L::Third::COUNT != 0 {
            let (before, total) = count_before(program, &twice_marked);
            let bits = part.bits::<L::Third>(&map(&before, |b| third_at + b), total);
            (map((&bits, &twice_marked), |(b, m)| b.expand(m)), total)
        } else {
            (map(codes, |_| L::Third::from_fn(|_| 0)), 0)
        };

        let masks = map((&marked, &twice_marked), |(m, t)| [m, t]);
        let (values, escaped) = map((codes, &second, &third, &masks), |(c, s, t, [m, tm])| L::descend(c, s, t, m, tm));
        let escaped = chunk.within(&escaped);
        let (before, escapes) = count_before(program, &escaped);
        let shape = Shape::with_totals(before, total, twice_total, escapes, base_bits, Self::LEVELS, D::EXPONENT_BITS);
        ok &= shape.words == length;

        let exponents = if zeros {
            map(&values, |v| {
                let (values, zero) = v.without_zeros::<L>();
                D::Decoded::of_values::<L>(values, low).with_zeros(zero)
            })
        } else if $channel && GroupSums::takes(channels) {
            map((&values, lows), |(v, lows)| D::Decoded::of_values_of_elements::<L>(v, lows))
        } else if $channel {
            let lows = ChannelBases::from(known).of(chunk, channels);
            map((&values, &lows), |(v, lows)| D::Decoded::of_values_of_elements::<L>(v, lows))
        } else {
            map(&values, |v| D::Decoded::of_values::<L>(v, low))
        };
        let exponents = if ok && escapes != 0 {
            D::Decoded::with_escapes::<D>(program, &exponents, part, shape.escapes_at, &escaped, &before)
        } else {
            exponents
        };
        (exponents, ok)
    }

    #[inline(always)]
    fn join<D: Dtype>(exponents: D::Decoded, residuals: D::Residuals, upper: D::UpperResiduals) -> D::Words {
        D::join_decoded(exponents, residuals, upper)
    }
}
} }
window_scheme!(false, NAME, Nothing, Nothing);
window_scheme!(true, CHANNEL_NAME, ChannelBasesOut, ChannelBases);
