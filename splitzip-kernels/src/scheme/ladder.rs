//! The ladder of a window scheme: which values of the window have a code at which level.

use super::ValuePlanes;
use crate::tile::Words;

/// Functions on the bit planes of a lane's 32 values. A value is the distance of an exponent to the low end of the window, limited
/// to [`Ladder::VALUES`], which stands for all exponents outside. Every plane of a code is one three-input operation.
pub trait Ladder: Copy + 'static {
    /// As in entry names, with a base per chunk.
    const NAME: &'static str;
    /// The same with channel bases.
    const CHANNEL_NAME: &'static str;
    /// Values that have a code; the next one stands for all exponents outside.
    const VALUES: u32;
    /// The value of the mean exponent: the first one of the first level.
    const MEAN: u32;
    /// The value of exponent 0 in a chunk coded with zeros.
    const ZERO: u32;
    /// Escapes from which on a chunk is tried again without its zeros.
    const MANY_ESCAPES: u32;
    /// Bit planes of a value: `[u32; 4]` up to 15 values, `[u32; 5]` up to 31.
    type Values: ValuePlanes;
    /// Bit planes of the first level.
    type Codes: Words;
    /// Bit planes of the second level.
    type Second: Words;
    /// Bit planes of the third level.
    type Third: Words;

    /// Codes, and the masks of elements that are marked, twice marked, escaped.
    fn climb(values: Self::Values) -> (Self::Codes, Self::Second, Self::Third, [u32; 3]);
    /// The elements that the first level marks.
    fn marked(codes: Self::Codes) -> u32;
    /// Of the marked elements, those that the second level marks.
    fn twice_marked(second: Self::Second, marked: u32) -> u32;
    /// The values, and which elements are escaped. `second` and `third` are anything outside of their masks.
    fn descend(
        codes: Self::Codes,
        second: Self::Second,
        third: Self::Third,
        marked: u32,
        twice_marked: u32,
    ) -> (Self::Values, u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{w2x2x3, w2x3, w3};

    /// All values in one lane: what comes down is what went up, and nothing outside escapes unmarked.
    fn values_come_back<L: Ladder>() {
        let value = |bit: u32| bit.min(L::VALUES);
        let plane = |j: u32| (0..32).fold(0, |plane, bit| plane | (value(bit) >> j & 1) << bit);
        let values = L::Values::from_fn(plane);
        let (codes, second, third, [marked, twice_marked, escaped]) = L::climb(values);
        assert_eq!(escaped, (0..32).fold(0, |mask, bit| mask | u32::from(value(bit) == L::VALUES) << bit));
        assert_eq!(L::marked(codes), if L::Second::COUNT == 0 { L::marked(codes) } else { marked });
        if L::Third::COUNT != 0 {
            assert_eq!(L::twice_marked(second, marked), twice_marked);
        }
        assert_eq!(twice_marked & !marked, 0);
        for junk in [0, !0, 0x5a5a_1234] {
            let spoil = |word: u32, mask: u32| word & mask | junk & !mask;
            let second = L::Second::from_fn(|i| spoil(second.word(i as usize), marked));
            let third = L::Third::from_fn(|i| spoil(third.word(i as usize), twice_marked));
            let (back, gone) = L::descend(codes, second, third, marked, twice_marked);
            assert_eq!(gone, escaped);
            for j in 0..L::Values::COUNT as usize {
                assert_eq!(back.word(j) & !escaped, values.word(j) & !escaped, "plane {j} of {}", L::NAME);
            }
        }
    }

    #[test]
    fn values_come_back_from_every_ladder() {
        values_come_back::<w3::W3>();
        values_come_back::<w2x3::W2x3>();
        values_come_back::<w2x2x3::W2x2x3>();
    }
}
