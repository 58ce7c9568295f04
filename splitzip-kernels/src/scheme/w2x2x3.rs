//! `w2x2x3`: 2 bits, 2 more for a third of the elements, 3 more for an eighth. For slow links and storage.

use super::Ladder;

/// The ladder of `w2x2x3`: values 8, 9, 10 are codes 0, 1, 2 of the first level, 6, 7, 11 of the second; 0 to 5 and 12 are codes 0 to 6 of the third.
/// The last code of every level is its marker.
#[derive(Clone, Copy, Debug)]
pub struct W2x2x3;

impl Ladder for W2x2x3 {
    const NAME: &'static str = "w2x2x3";
    const CHANNEL_NAME: &'static str = "w2x2x3channel";
    const VALUES: u32 = 13;
    const MEAN: u32 = 8;
    const ZERO: u32 = 8;
    const MANY_ESCAPES: u32 = 32;
    type Values = [u32; 4];
    type Codes = [u32; 2];
    type Second = [u32; 2];
    type Third = [u32; 3];

    #[inline(always)]
    fn climb([v0, v1, v2, v3]: [u32; 4]) -> ([u32; 2], [u32; 2], [u32; 3], [u32; 3]) {
        // Beyond the first level, and of those beyond the second.
        let (u1, u2) = (v2 | !v3, !(v1 & (v2 | v3)));
        let codes = [v0 | u1, v1 | u1];
        let second = [(v0 & !v3) | u2, v3 | u2];
        let marked = Self::marked(codes);
        (codes, second, [v0, v1 | v3, v2], [marked, Self::twice_marked(second, marked), v3 & v2 & v0])
    }

    #[inline(always)]
    fn marked([c0, c1]: [u32; 2]) -> u32 {
        c0 & c1
    }

    #[inline(always)]
    fn twice_marked([s0, s1]: [u32; 2], marked: u32) -> u32 {
        marked & s0 & s1
    }

    #[inline(always)]
    fn descend(
        [c0, c1]: [u32; 2],
        [s0, s1]: [u32; 2],
        [t0, t1, t2]: [u32; 3],
        m: u32,
        t: u32,
    ) -> ([u32; 4], u32) {
        let (first, second) = (!m, m & !t);
        // 8, 9, 10; then 6, 7, 11; then 0 to 5, and 12 where all but bit 0 of the code are set.
        let twelve = t & t1 & t2;
        let v0 = first & c0 | second & (s0 | s1) | t & t0;
        let v1 = first & c1 | second | t & t1 & !t2;
        let v2 = second & !s1 | t & t2;
        let v3 = first | second & s1 | twelve;
        ([v0, v1, v2, v3], twelve & t0)
    }
}
