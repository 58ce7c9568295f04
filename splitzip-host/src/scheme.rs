//! The schemes: how exponents become codes, as far as a frame has to know it.

use crate::format::PlaneKind;
use crate::{Dtype, Error, Result};
use std::fmt;
use std::str::FromStr;

/// One row a scheme: id in a frame, name, bits of a first-level code, bits of the codes behind it, how it finds its codes.
macro_rules! schemes {
    ($($(#[$doc:meta])* $scheme:ident = $id:literal, $name:literal, $code_bits:literal, $more_levels:expr, $family:ident;)*) => {
        /// How the exponents of a tensor are coded.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Scheme {
            $($(#[$doc])* $scheme,)*
        }

        impl Scheme {
            /// All schemes, in the order of their ids.
            pub const ALL: &[Scheme] = &[$(Scheme::$scheme),*];

            const fn row(self) -> &'static Row {
                match self {
                    $(Scheme::$scheme => &Row {
                        id: $id, name: $name, code_bits: $code_bits, more_levels: &$more_levels, family: Family::$family,
                    },)*
                }
            }
        }
    };
}
schemes! {
    /// Not at all: the bytes as they are.
    Stored = 0, "stored", 0, [], Nothing;
    /// 4 bits: a codebook of 16 exponents; escapes with positions.
    W4 = 1, "w4", 4, [], Codebook;
    /// 3 bits: 7 values of a window and a marker; escapes.
    W3 = 2, "w3", 3, [], Window;
    /// 2 bits: 3 values and a marker; the marked ones 3 bits: 7 more values and a marker; escapes.
    W2x3 = 3, "w2x3", 2, [3], Window;
    /// 2 bits, 2 bits, 3 bits: 3, 3 and 7 values; escapes.
    W2x2x3 = 4, "w2x2x3", 2, [2, 3], Window;
}

struct Row {
    id: u8,
    name: &'static str,
    code_bits: u32,
    more_levels: &'static [u32],
    family: Family,
}

/// How a scheme finds its codes.
enum Family {
    Nothing,
    Codebook,
    Window,
}

impl Scheme {
    /// The schemes that code something, in the order of their ids.
    pub fn coded() -> impl Iterator<Item = Scheme> {
        Scheme::ALL.iter().copied().filter(|&scheme| scheme != Scheme::Stored)
    }

    /// The names of all, for messages.
    pub(crate) fn names() -> Vec<&'static str> {
        Scheme::ALL.iter().map(|scheme| scheme.name()).collect()
    }

    /// The id in a frame.
    pub const fn id(self) -> u8 {
        self.row().id
    }

    /// The scheme with this id in a frame, if there is one.
    pub fn from_id(id: u8) -> Option<Scheme> {
        Scheme::ALL.iter().copied().find(|scheme| scheme.id() == id)
    }

    /// The name, as in entry names and on the command line: `w2x3`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Bits of a first-level code, the width of the code plane; 0 for [`Scheme::Stored`].
    pub const fn code_bits(self) -> u32 {
        self.row().code_bits
    }

    /// Bits of a code of the levels behind the first, in order.
    pub const fn more_levels(self) -> &'static [u32] {
        self.row().more_levels
    }

    /// Whether the scheme needs a codebook.
    pub const fn has_codebook(self) -> bool {
        matches!(self.row().family, Family::Codebook)
    }

    /// Whether the scheme codes the distance to a base, so that a tensor may have channel bases.
    pub const fn has_window(self) -> bool {
        matches!(self.row().family, Family::Window)
    }

    /// The kind of plane in which `bits` bits of every exponent lie: codes, or the rest of a raw chunk.
    pub const fn plane(self, bits: u32) -> PlaneKind {
        if self.has_window() { PlaneKind::Bits(bits) } else { PlaneKind::Packed(bits) }
    }

    /// Says whether tensors of `dtype` can be coded with this scheme.
    ///
    /// # Errors
    /// [`Error::Pointless`] with a sentence derived from the properties of both: a dtype without an exponent, or
    /// codes that are not shorter than the exponent.
    pub fn check(self, dtype: Dtype) -> Result<()> {
        let Some(reason) = self.why_pointless(dtype) else { return Ok(()) };
        let allowed = Scheme::ALL.iter().filter(|scheme| scheme.why_pointless(dtype).is_none());
        let allowed = allowed.map(|scheme| scheme.name()).collect::<Vec<_>>().join(", ");
        Err(Error::Pointless { dtype, scheme: self, reason, allowed })
    }

    fn why_pointless(self, dtype: Dtype) -> Option<String> {
        let (code, exponent) = (self.code_bits(), dtype.exponent_bits());
        if self == Scheme::Stored {
            None
        } else if !dtype.is_float() {
            Some(format!("{dtype} has no exponent to code"))
        } else if code >= exponent {
            Some(format!(
                "its codes have {code} bits and the exponent of {dtype} has {exponent}, so there is nothing to gain"
            ))
        } else {
            None
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Scheme> {
        let found = Scheme::ALL.iter().copied().find(|scheme| scheme.name() == text);
        found.ok_or_else(|| Error::unknown_name("scheme", text, &Scheme::names()))
    }
}

/// Whose mean places the window of a scheme that has one.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Bases {
    /// One base a chunk, in its variable part. The only choice for schemes without a window.
    #[default]
    Chunk,
    /// One base a channel (the last dimension) and group of 16 chunks: lifts K from 1.44 to 1.48.
    Channel,
}

impl Bases {
    /// Both, in the order of their ids.
    pub const ALL: [Bases; 2] = [Bases::Chunk, Bases::Channel];

    /// The id in a frame.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The bases with this id in a frame, if there are any.
    pub fn from_id(id: u8) -> Option<Bases> {
        Bases::ALL.into_iter().find(|bases| bases.id() == id)
    }

    /// The name, as on the command line: `chunk` or `channel`.
    pub const fn name(self) -> &'static str {
        match self {
            Bases::Chunk => "chunk",
            Bases::Channel => "channel",
        }
    }
}

impl fmt::Display for Bases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Bases {
    type Err = Error;

    fn from_str(text: &str) -> Result<Bases> {
        let found = Bases::ALL.into_iter().find(|bases| bases.name() == text);
        found.ok_or_else(|| Error::unknown_name("bases", text, &Bases::ALL.map(Bases::name)))
    }
}
