//! `w2x3`: 2 bits, 3 values and a marker; a marked element (a third of them) has 3 more bits, 7 values and a marker. The default.

use super::Ladder;

/// The ladder of `w2x3`: values 5, 6, 7 are codes 1, 2, 3; of the second level 0 to 3 are themselves, 8 and 9 are 4 and 5, 4 is 7, 6 is the marker.
#[derive(Clone, Copy, Debug)]
pub struct W2x3;

impl Ladder for W2x3 {
    const NAME: &'static str = "w2x3";
    const CHANNEL_NAME: &'static str = "w2x3channel";
    const VALUES: u32 = 10;
    const MEAN: u32 = 5;
    const ZERO: u32 = 5;
    const MANY_ESCAPES: u32 = 32;
    type Values = [u32; 4];
    type Codes = [u32; 2];
    type Second = [u32; 3];
    type Third = [u32; 0];

    #[inline(always)]
    fn climb([v0, v1, v2, v3]: [u32; 4]) -> ([u32; 2], [u32; 3], [u32; 0], [u32; 3]) {
        let codes = [v0 & v2, v1 & v2];
        (codes, [v0 | v2, v1 | v2, v3 | v2], [], [Self::marked(codes), 0, v3 & v1])
    }

    #[inline(always)]
    fn marked([c0, c1]: [u32; 2]) -> u32 {
        !(c0 | c1)
    }

    #[inline(always)]
    fn twice_marked(_: [u32; 3], _: u32) -> u32 {
        0
    }

    #[inline(always)]
    fn descend([c0, c1]: [u32; 2], [s0, s1, s2]: [u32; 3], _: [u32; 0], m: u32, _: u32) -> ([u32; 4], u32) {
        // Of the marked elements, 7 is value 4: all bits set, and only bit 2 of the value.
        let four = s0 & s1 & s2;
        let low = m & !four;
        ([c0 | (low & s0), c1 | (low & s1), !low, low & s2], low & s2 & s1)
    }
}
