//! Inputs that are the same every time.

/// Lengths around whole strips, blocks and words.
pub const LENGTHS: [usize; 14] = [0, 1, 2, 7, 127, 128, 129, 255, 256, 257, 1000, 1024, 2049, 5003];

/// Rows and columns: none, rows shorter than a warp's strip, rows that need all warps several times.
pub const SHAPES: [(usize, usize); 13] = [
    (0, 0),
    (0, 5),
    (3, 0),
    (1, 1),
    (3, 5),
    (33, 33),
    (7, 127),
    (2, 128),
    (5, 129),
    (3, 1024),
    (2, 1025),
    (9, 1500),
    (1, 5003),
];

/// `splitmix64`.
pub struct Random(pub u64);

impl Random {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Floats of all magnitudes, and now and then a special one; without NaN unless `nan`.
    pub fn floats(&mut self, count: usize, nan: bool) -> Vec<f32> {
        let special =
            [0.0, -0.0, 1.0, -1.0, f32::MIN_POSITIVE / 8.0, f32::MAX, f32::INFINITY, -f32::INFINITY];
        let float = |_| loop {
            let bits = self.bits();
            let float = match bits >> 60 {
                0 => special[(bits & 7) as usize],
                1..=9 => (bits as i16) as f32 / 256.0,
                _ => f32::from_bits(bits as u32),
            };
            if nan || !float.is_nan() {
                break float;
            }
        };
        (0..count).map(float).collect()
    }

    /// Words of 16 bits.
    pub fn words(&mut self, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.bits() as u16).collect()
    }
}

/// The same numbers: the same bits, or both NaN. (Which NaN arithmetic gives differs between machines.)
pub fn same(a: &[f32], b: &[f32]) -> bool {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    a.len() == b.len() && a.iter().zip(b).all(same)
}
