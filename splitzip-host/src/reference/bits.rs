//! A string of bits, the lowest bit of a byte first.

/// A string of bits that grows.
#[derive(Default)]
pub(crate) struct Bits(Vec<bool>);

impl Bits {
    /// Appends the low `count` bits of `value`, the lowest first.
    pub fn push(&mut self, value: u32, count: u32) {
        self.0.extend((0..count).map(|bit| value >> bit & 1 != 0));
    }

    /// Appends zero bits up to a multiple of `bits`.
    pub fn fill(&mut self, bits: usize) {
        self.0.resize(self.0.len().next_multiple_of(bits), false);
    }

    /// The bytes, filled up with zero bits to a whole word of 4 bytes.
    pub fn into_words(mut self) -> Vec<u8> {
        self.fill(32);
        self.0
            .chunks(8)
            .map(|byte| byte.iter().rev().fold(0, |value, &bit| value << 1 | u8::from(bit)))
            .collect()
    }
}

/// Reads a string of bits.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// The next `count` bits, at most 32, as a number.
    pub fn take(&mut self, count: u32) -> Result<u32, String> {
        let mut value = 0;
        for bit in 0..count {
            let byte = self.bytes.get(self.at / 8).ok_or("its variable part is too short for its codes")?;
            value |= u32::from(byte >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Ok(value)
    }

    /// Skips to a multiple of `bits`; what is skipped must be zero.
    pub fn fill(&mut self, bits: usize) -> Result<(), String> {
        while !self.at.is_multiple_of(bits) {
            if self.take(1)? != 0 {
                return Err("filling bits of its variable part are not zero".to_owned());
            }
        }
        Ok(())
    }

    /// Checks that everything was read but for filling up to a whole word.
    pub fn finish(mut self) -> Result<(), String> {
        self.fill(32)?;
        if self.at == 8 * self.bytes.len() {
            Ok(())
        } else {
            Err("its variable part is longer than its codes".to_owned())
        }
    }
}
