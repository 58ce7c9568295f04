//! Inputs of the conformance list: the same bits on every machine, from integer arithmetic alone.

use crate::Dtype;

/// What kind of bits a tensor holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Like a KV cache: exponents fall off by half below a center and faster above it.
    Plain,
    /// The same with one element in 20 far away.
    Outliers,
    /// Bits without any structure.
    Random,
    /// One element again and again.
    Equal,
    /// Nothing but +0.
    Zero,
    /// +0 and -0, so that no chunk is equal but all exponents are 0.
    SignedZeros,
    /// Plain with every second half-chunk zero.
    ZeroHalves,
    /// Plain with every second row zero.
    ZeroRows,
    /// Plain with every second channel zero.
    ZeroChannels,
    /// Plain with half of the elements zero, at random.
    ZeroRandom,
    /// Plain with one element in 50 zero.
    FewZeros,
    /// Exponents far below their mean or far above it: every element escapes, whatever the base.
    Far,
    /// Infinities and NaNs with all payloads, among plain elements.
    NotNumbers,
    /// A plain chunk, an equal one, one with zeros and a random one in turns: all modes.
    Mixed,
    /// All words of the dtype in ascending order, again and again.
    Ascending,
    /// All words of the dtype in a scattered order.
    Scattered,
}

impl Content {
    /// All kinds.
    pub const ALL: [Content; 16] = [
        Content::Plain,
        Content::Outliers,
        Content::Random,
        Content::Equal,
        Content::Zero,
        Content::SignedZeros,
        Content::ZeroHalves,
        Content::ZeroRows,
        Content::ZeroChannels,
        Content::ZeroRandom,
        Content::FewZeros,
        Content::Far,
        Content::NotNumbers,
        Content::Mixed,
        Content::Ascending,
        Content::Scattered,
    ];

    /// `elements` elements of `dtype`, rows of `channels`, as little-endian bytes.
    pub fn bytes(self, dtype: Dtype, elements: usize, channels: usize) -> Vec<u8> {
        let mut random = Random(0x5EED ^ elements as u64 ^ (u64::from(dtype.id()) << 32));
        let mut out = Vec::with_capacity(elements * dtype.bytes());
        for element in 0..elements {
            let word = self.word(dtype, element, channels.max(1), &mut random);
            out.extend(&word.to_le_bytes()[..dtype.bytes()]);
        }
        out
    }

    fn word(self, dtype: Dtype, element: usize, channels: usize, random: &mut Random) -> u16 {
        let mask = (u32::MAX >> (32 - dtype.bits())) as u16;
        let plain = plain(dtype, element % channels, random);
        let noise = random.next();
        let zero = |zero: bool| if zero { 0 } else { plain };
        match self {
            Content::Plain => plain,
            Content::Outliers if noise.is_multiple_of(20) => (noise >> 32) as u16 & mask,
            Content::Outliers => plain,
            Content::Random => (noise >> 32) as u16 & mask,
            Content::Equal => 0x9a5c & mask,
            Content::Zero => 0,
            Content::SignedZeros => (noise as u16 & 1) << (dtype.bits() - 1),
            Content::ZeroHalves => zero(element / 512 % 2 == 1),
            Content::ZeroRows => zero(element / channels % 2 == 1),
            Content::ZeroChannels => zero(element % channels % 2 == 1),
            Content::ZeroRandom => zero(noise >> 40 & 1 == 1),
            Content::FewZeros => zero((noise >> 40).is_multiple_of(50)),
            Content::Far => {
                let (edge, residual) = (dtype.exponents() / 16, (1 << dtype.residual_bits()) - 1);
                let exponent = if noise >> 40 & 1 == 1 { edge } else { dtype.exponents() - 1 - edge };
                dtype.join(exponent as u8, noise as u16 & residual)
            }
            Content::NotNumbers if noise >> 40 & 1 == 1 => plain | dtype.join(u8::MAX, 0) & mask,
            Content::NotNumbers => plain,
            Content::Mixed => match element / 1024 % 4 {
                0 => plain,
                1 => 0x3f80 & mask,
                2 => zero(noise >> 40 & 1 == 1),
                _ => (noise >> 32) as u16 & mask,
            },
            Content::Ascending => element as u16 & mask,
            Content::Scattered => (element as u16).wrapping_mul(0x6487) & mask,
        }
    }
}

/// An element like those of a KV cache; channels have centers of their own.
fn plain(dtype: Dtype, channel: usize, random: &mut Random) -> u16 {
    let bits = random.next();
    let center = (1u32 << (dtype.exponent_bits() - 1)) - 2 + (channel as u32 * 7 % 4);
    let below = (bits >> 32).trailing_zeros().min(12);
    let above = u32::from(bits & 7 == 0) + u32::from(bits & 63 == 0);
    let exponent = (center + above).saturating_sub(below).clamp(1, dtype.exponents() as u32 - 2);
    dtype.join(exponent as u8, (bits >> 16) as u16 & ((1 << dtype.residual_bits()) - 1))
}

/// `splitmix64`.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}
