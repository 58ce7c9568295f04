//! The element types: where sign, exponent and mantissa lie in a word.
//!
//! Everything else in the crate asks these properties; nothing matches on a dtype to know a number of bits.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// One row a dtype: id in a frame, name, bits of an element, bits of its exponent (0 for what is no float).
macro_rules! dtypes {
    ($($(#[$doc:meta])* $dtype:ident = $id:literal, $name:literal, $bits:literal, $exponent_bits:literal;)*) => {
        /// The type of the elements of a tensor.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Dtype {
            $($(#[$doc])* $dtype,)*
        }

        impl Dtype {
            /// All dtypes, in the order of their ids.
            pub const ALL: &[Dtype] = &[$(Dtype::$dtype),*];

            const fn row(self) -> &'static Row {
                match self {
                    $(Dtype::$dtype => &Row { id: $id, name: $name, bits: $bits, exponent_bits: $exponent_bits },)*
                }
            }
        }
    };
}
dtypes! {
    /// No float: 8 bits an element, stored as they are.
    Bytes = 0, "bytes", 8, 0;
    /// bfloat16: 8 exponent bits, 7 mantissa bits.
    Bf16 = 1, "bf16", 16, 8;
    /// IEEE half precision: 5 exponent bits, 10 mantissa bits.
    Fp16 = 2, "fp16", 16, 5;
    /// 8-bit float (the `fn` form): 4 exponent bits, 3 mantissa bits.
    E4m3 = 3, "e4m3", 8, 4;
    /// 8-bit float: 5 exponent bits, 2 mantissa bits.
    E5m2 = 4, "e5m2", 8, 5;
}

struct Row {
    id: u8,
    name: &'static str,
    bits: u32,
    exponent_bits: u32,
}

impl Dtype {
    /// The dtypes that are floats, those that a scheme can code, in the order of their ids.
    pub fn floats() -> impl Iterator<Item = Dtype> {
        Dtype::ALL.iter().copied().filter(|dtype| dtype.is_float())
    }

    /// The id in a frame.
    pub const fn id(self) -> u8 {
        self.row().id
    }

    /// The dtype with this id in a frame, if there is one.
    pub fn from_id(id: u8) -> Option<Dtype> {
        Dtype::ALL.iter().copied().find(|dtype| dtype.id() == id)
    }

    /// The name, as in entry names and on the command line: `bf16`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Bits of an element.
    pub const fn bits(self) -> u32 {
        self.row().bits
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// Bits of the exponent; 0 for [`Dtype::Bytes`].
    pub const fn exponent_bits(self) -> u32 {
        self.row().exponent_bits
    }

    /// Bits of the mantissa, those below the exponent; 0 for [`Dtype::Bytes`].
    pub const fn mantissa_bits(self) -> u32 {
        match self {
            Dtype::Bytes => 0,
            dtype => dtype.bits() - 1 - dtype.exponent_bits(),
        }
    }

    /// Bits of the residual: sign and mantissa. For [`Dtype::Bytes`] the whole element.
    pub const fn residual_bits(self) -> u32 {
        self.bits() - self.exponent_bits()
    }

    /// The number of different exponents, `2^exponent_bits`.
    pub const fn exponents(self) -> usize {
        1 << self.exponent_bits()
    }

    /// Whether elements have an exponent.
    pub const fn is_float(self) -> bool {
        self.exponent_bits() != 0
    }

    /// Splits a word into exponent and residual. [`Dtype::join`] is the inverse.
    pub const fn split(self, word: u16) -> (u8, u16) {
        let mantissa = self.mantissa_bits();
        let exponent = (word >> mantissa) & (self.exponents() as u16 - 1);
        let sign = if self.is_float() { word >> (self.bits() - 1) & 1 } else { 0 };
        if self.is_float() {
            (exponent as u8, sign << mantissa | word & ((1 << mantissa) - 1))
        } else {
            (0, word & 0xff)
        }
    }

    /// Joins an exponent and a residual to a word.
    pub const fn join(self, exponent: u8, residual: u16) -> u16 {
        let mantissa = self.mantissa_bits();
        if self.is_float() {
            let sign = residual >> mantissa & 1;
            sign << (self.bits() - 1) | (exponent as u16) << mantissa | residual & ((1 << mantissa) - 1)
        } else {
            residual
        }
    }

    /// The word of element `index` of little-endian `bytes`.
    ///
    /// # Panics
    /// When the bytes do not hold that element.
    pub fn word(self, bytes: &[u8], index: usize) -> u16 {
        match self.bytes() {
            2 => u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]),
            _ => u16::from(bytes[index]),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Dtype> {
        let found = Dtype::ALL.iter().copied().find(|dtype| dtype.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
            Error::unknown_name("dtype", text, &names)
        })
    }
}
