//! What coding a chunk gives, and how long its variable part is.

use super::Scheme;
use crate::tile::{Mask, Program, Tile, Words, generate, map};

/// A coded chunk in registers.
#[derive(Clone, Copy)]
pub struct Coded<S: Scheme> {
    /// Codes of the first level.
    pub codes: Tile<S::Codes>,
    /// Codes of the second level, where they are marked.
    pub second: Tile<S::Second>,
    /// Codes of the third level, where the second is marked.
    pub third: Tile<S::Third>,
    /// The elements that have a code of the second level.
    pub marked: Mask,
    /// The elements that have a code of the third level.
    pub twice_marked: Mask,
    /// The elements that have none at all.
    pub escaped: Mask,
}

impl<S: Scheme> Coded<S> {
    /// Of a chunk that does not exist.
    #[inline(always)]
    pub fn nothing() -> Self {
        let none = generate(|_| 0u32);
        Coded {
            codes: generate(|_| S::Codes::from_fn(|_| 0)),
            second: generate(|_| S::Second::from_fn(|_| 0)),
            third: generate(|_| S::Third::from_fn(|_| 0)),
            marked: none,
            twice_marked: none,
            escaped: none,
        }
    }
}

/// Where things lie in a variable part: a base, bits of the second level, of the third, escapes.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Lanes before each: elements marked, twice marked (if there is a third level), escaped.
    counts: Tile<u32>,
    /// Elements with a code of the second level.
    pub marked: u32,
    /// Elements with a code of the third level.
    pub twice_marked: u32,
    /// Escapes.
    pub escaped: u32,
    /// The bit where the second level starts.
    pub second_at: u32,
    /// The bit where the third level starts.
    pub third_at: u32,
    /// The bit where escapes start.
    pub escapes_at: u32,
    /// Words of it all.
    pub words: u32,
}

impl Shape {
    /// Of a chunk that does not exist.
    #[inline(always)]
    pub fn nothing() -> Self {
        Shape::with_totals(generate(|_| 0u32), 0, 0, 0, 0, [0, 0], 0)
    }

    /// The shape of a part with `base` bits of base, levels of `second` and `third` bits, escapes of `escape` bits.
    ///
    /// One scan counts all three: 11 + 11 + 10 bits, or 16 + 16 for two. 1024 escapes overflow the last field of three, so their total is summed up alone.
    /// (Always: where only an overflow led there, ptxas 13.0 took another predicate for the `redux` than the condition.)
    #[inline(always)]
    pub fn of<S: Scheme, const LEVEL: u32>(
        program: &Program,
        coded: &Coded<S>,
        base: u32,
        [second, third]: [u32; 2],
        escape: u32,
    ) -> Shape {
        if third == 0 {
            let counts = map((&coded.marked, &coded.escaped), |(m, e)| m.count_ones() | e.count_ones() << 16);
            let (counts, total) = program.scan(&counts);
            return Shape::with_totals(counts, total & 0xffff, 0, total >> 16, base, [second, third], escape);
        }
        let masks = (&coded.marked, &coded.twice_marked, &coded.escaped);
        let counts = map(masks, |(m, t, e)| m.count_ones() | t.count_ones() << 11 | e.count_ones() << 22);
        let (counts, total) = program.scan(&counts);
        let twice_marked = total >> 11 & 0x7ff;
        let escaped = program.count(&coded.escaped);
        Shape::with_totals(counts, total & 0x7ff, twice_marked, escaped, base, [second, third], escape)
    }

    /// The shape for known totals.
    #[inline(always)]
    pub fn with_totals(
        counts: Tile<u32>,
        marked: u32,
        twice_marked: u32,
        escaped: u32,
        base: u32,
        [second, third]: [u32; 2],
        escape: u32,
    ) -> Shape {
        let third_at = base + second * marked;
        // Not `div_ceil`, which cannot know that no sum overflows: it takes four instructions each.
        let escapes_at = (third_at + third * twice_marked + 7) & !7;
        let words = (escapes_at + escape * escaped + 31) >> 5;
        Shape { counts, marked, twice_marked, escaped, second_at: base, third_at, escapes_at, words }
    }

    /// Escapes in the lanes before each, where nothing else was counted.
    #[inline(always)]
    pub fn plain_counts(&self) -> Tile<u32> {
        self.counts
    }

    /// Elements in the lanes before each: marked.
    #[inline(always)]
    pub fn marked_before<S: Scheme, const LEVEL: u32>(&self) -> Tile<u32> {
        if S::Third::COUNT == 0 {
            map(&self.counts, |c| c & 0xffff)
        } else {
            map(&self.counts, |c| c & 0x7ff)
        }
    }

    /// Elements in the lanes before each: twice marked.
    #[inline(always)]
    pub fn twice_marked_before<const LEVEL: u32>(&self) -> Tile<u32> {
        map(&self.counts, |c| c >> 11 & 0x7ff)
    }

    /// Elements in the lanes before each: escaped.
    #[inline(always)]
    pub fn escaped_before<S: Scheme, const LEVEL: u32>(&self) -> Tile<u32> {
        if S::Third::COUNT == 0 { map(&self.counts, |c| c >> 16) } else { map(&self.counts, |c| c >> 22) }
    }
}
