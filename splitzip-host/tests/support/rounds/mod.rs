//! Random rounds: what `examples/soak.rs` does for hours, and `tests/rounds.rs` for seconds.

mod frames;
mod pages;

use splitzip_host::Executor;
use std::fmt;

/// Who encodes and decodes.
pub struct Executors<'a> {
    /// Who is tested.
    pub device: &'a dyn Executor,
    /// Another one, fast enough for large tensors.
    pub other: &'a dyn Executor,
    /// Who says what is right, for small tensors.
    pub reference: &'a dyn Executor,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames encoded, by all executors.
    pub encoded: u64,
    /// Frames decoded, in whole or in part, by all executors.
    pub decoded: u64,
    /// Of them, from or into pages.
    pub paged: u64,
    /// Frames with a flipped bit.
    pub damaged: u64,
    /// Raw bytes that were compared.
    pub raw_bytes: u64,
    /// Bytes of the frames of the executor that is tested.
    pub frame_bytes: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { encoded, decoded, paged, damaged, raw_bytes, frame_bytes } = self;
        write!(
            f,
            "{encoded} frames encoded, {decoded} decoded ({paged} in pages), {damaged} damaged, {raw_bytes} raw bytes compared, \
             {frame_bytes} bytes of frames"
        )
    }
}

/// `splitmix64`, with choices.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, round: u64) -> Random {
        Random(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ round.wrapping_mul(0x2545_F491_4F6C_DD1D))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// A size up to `most`, small ones as often as large ones.
    pub fn size(&mut self, most: u64) -> u64 {
        let bits = u64::from(most.max(1).ilog2()) + 1;
        let shift = 64 - self.below(bits + 1);
        (if shift == 64 { 0 } else { self.next() >> shift }).min(most)
    }
}

/// Round number `round` of a seed, with tensors of about `most_bytes` bytes at most.
///
/// # Errors
/// What is wrong, and in which frame.
pub fn run(
    executors: &Executors<'_>,
    seed: u64,
    round: u64,
    most_bytes: u64,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut random = Random::new(seed, round);
    // Most rounds are small, where there is more to get wrong, and the reference can say what is right.
    let most = if random.one_in(8) { most_bytes } else { most_bytes.min(1 << 18) };
    match random.one_in(3) {
        true => pages::run(executors, &mut random, most, counts),
        false => frames::run(executors, &mut random, most, counts),
    }
}
