//! `w3`: 3 bits, 7 values and a marker. The fewest instructions above a ratio of 1.33.

use super::Ladder;

/// The ladder of `w3`: the code is the value, 7 (outside) is the marker.
#[derive(Clone, Copy, Debug)]
pub struct W3;

impl Ladder for W3 {
    const NAME: &'static str = "w3";
    const CHANNEL_NAME: &'static str = "w3channel";
    const VALUES: u32 = 7;
    const MEAN: u32 = 3;
    const ZERO: u32 = 0;
    const MANY_ESCAPES: u32 = 96;
    type Values = [u32; 4];
    type Codes = [u32; 3];
    type Second = [u32; 0];
    type Third = [u32; 0];

    #[inline(always)]
    fn climb([v0, v1, v2, _]: [u32; 4]) -> ([u32; 3], [u32; 0], [u32; 0], [u32; 3]) {
        ([v0, v1, v2], [], [], [0, 0, v0 & v1 & v2])
    }

    #[inline(always)]
    fn marked(_: [u32; 3]) -> u32 {
        0
    }

    #[inline(always)]
    fn twice_marked(_: [u32; 0], _: u32) -> u32 {
        0
    }

    #[inline(always)]
    fn descend([c0, c1, c2]: [u32; 3], _: [u32; 0], _: [u32; 0], _: u32, _: u32) -> ([u32; 4], u32) {
        ([c0, c1, c2, 0], c0 & c1 & c2)
    }
}
