//! What a frame is asked to hold.

use super::table::{check_static, read_static};
use super::{Layout, MAX_CHANNELS, MAX_RANK};
use crate::{Bases, Dtype, Error, Result, Scheme};

/// Options of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags {
    /// Groups lie in the order in which they were finished. Such a frame is not a pure function of its input.
    pub arrival: bool,
    /// The planes leave out chunks whose elements are all equal.
    pub packed: bool,
    /// A checksum of the raw bits of every tensor.
    pub tensor_checksums: bool,
    /// A checksum of the raw bits of every chunk.
    pub chunk_checksums: bool,
}

impl Flags {
    /// Both kinds of checksums.
    pub const CHECKSUMS: Flags =
        Flags { arrival: false, packed: false, tensor_checksums: true, chunk_checksums: true };

    /// The field of the header.
    pub const fn bits(self) -> u32 {
        self.arrival as u32
            | (self.packed as u32) << 1
            | (self.tensor_checksums as u32) << 2
            | (self.chunk_checksums as u32) << 3
    }

    /// The flags of a header; `None` when there are unknown ones.
    pub const fn from_bits(bits: u32) -> Option<Flags> {
        if bits >> 4 != 0 {
            return None;
        }
        Some(Flags {
            arrival: bits & 1 != 0,
            packed: bits & 2 != 0,
            tensor_checksums: bits & 4 != 0,
            chunk_checksums: bits & 8 != 0,
        })
    }
}

/// One tensor of a frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorSpec {
    /// A number of the caller's, not interpreted.
    pub id: u64,
    /// The name; may be empty.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// How exponents are coded.
    pub scheme: Scheme,
    /// Whose mean places the window.
    pub bases: Bases,
    /// The dimensions, the last one contiguous. Their product is the number of elements.
    pub shape: Vec<u64>,
}

impl TensorSpec {
    /// A tensor with id 0 and a base per chunk.
    pub fn new(name: &str, dtype: Dtype, scheme: Scheme, shape: &[u64]) -> TensorSpec {
        TensorSpec { id: 0, name: name.to_owned(), dtype, scheme, bases: Bases::Chunk, shape: shape.to_vec() }
    }

    /// The same tensor with other bases.
    pub fn with_bases(mut self, bases: Bases) -> TensorSpec {
        self.bases = bases;
        self
    }

    /// The same tensor with another id.
    pub fn with_id(mut self, id: u64) -> TensorSpec {
        self.id = id;
        self
    }

    /// Elements: the product of the shape.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when it does not fit into 64 bits.
    pub fn elements(&self) -> Result<u64> {
        let product = self.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        product.ok_or(Error::TooLarge { what: "the number of elements", bits: 64 })
    }

    /// Channels: the last dimension for channel bases, else 0.
    pub fn channels(&self) -> u64 {
        match self.bases {
            Bases::Chunk => 0,
            Bases::Channel => self.shape.last().copied().unwrap_or(0),
        }
    }

    /// Says whether a frame can hold this tensor.
    ///
    /// # Errors
    /// [`Error::Pointless`] for a pair of dtype and scheme without a gain, [`Error::Spec`] for bases or a shape that
    /// the format does not have.
    pub fn check(&self) -> Result<()> {
        self.scheme.check(self.dtype)?;
        let refuse = |reason: String| Err(Error::Spec { tensor: format!("{:?}", self.name), reason });
        if self.shape.len() > MAX_RANK {
            return refuse(format!(
                "its shape has {} dimensions; at most {MAX_RANK} are allowed",
                self.shape.len()
            ));
        }
        if self.bases == Bases::Channel {
            if !self.scheme.has_window() {
                return refuse(format!(
                    "{} has no window, so it has no channel bases; use chunk bases",
                    self.scheme
                ));
            }
            let channels = self.channels();
            if channels == 0 || !channels.is_multiple_of(8) || channels > MAX_CHANNELS {
                return refuse(format!(
                    "channel bases need a last dimension that is a multiple of 8 and at most {MAX_CHANNELS}, and it is \
                     {channels}; use chunk bases"
                ));
            }
        }
        Ok(())
    }
}

/// What a frame is asked to hold: its tensors, in order, and its options.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FrameSpec {
    /// The tensors.
    pub tensors: Vec<TensorSpec>,
    /// The options.
    pub flags: Flags,
    /// An opaque number that both sides may compare.
    pub layout_id: u64,
}

impl FrameSpec {
    /// A frame with layout id 0.
    pub fn new(tensors: Vec<TensorSpec>, flags: Flags) -> FrameSpec {
        FrameSpec { tensors, flags, layout_id: 0 }
    }

    /// The same tensors as they are.
    pub(crate) fn stored(&self) -> FrameSpec {
        let stored = |tensor: &TensorSpec| TensorSpec {
            scheme: Scheme::Stored,
            bases: Bases::Chunk,
            ..tensor.clone()
        };
        FrameSpec { tensors: self.tensors.iter().map(stored).collect(), ..*self }
    }

    /// The description of a frame of which only the start is there: its static part, or more. For a receiver that has the rest elsewhere, as in device memory.
    ///
    /// # Errors
    /// What section 10 of the specification says a reader must refuse, as far as it shows in the static part; [`Error::Truncated`] says how many bytes
    /// that is when there are fewer.
    pub fn read(start: &[u8]) -> Result<FrameSpec> {
        let spec = read_static(start)?;
        // Where everything lies in a packed frame shows in its directory only.
        if !spec.flags.packed {
            check_static(start, &spec, &spec.layout()?)?;
        }
        Ok(spec)
    }

    /// Where everything lies.
    ///
    /// # Errors
    /// What [`TensorSpec::check`] refuses, sizes that do not fit ([`Error::TooLarge`]), and the flag `packed`, whose
    /// layout follows from the directory ([`Error::Spec`]).
    pub fn layout(&self) -> Result<Layout> {
        Layout::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executor, Reference};

    #[test]
    fn the_start_of_a_frame_says_what_it_holds() {
        let tensor = TensorSpec::new("layers.0.k", Dtype::Bf16, Scheme::W2x3, &[3, 64]).with_id(7);
        let spec = FrameSpec { tensors: vec![tensor], flags: Flags::CHECKSUMS, layout_id: 9 };
        let frame = Reference.encode_to_vec(&spec, &[], &[&[0x3f; 384]]).unwrap();
        let start = spec.layout().unwrap().static_bytes as usize;
        assert_eq!(FrameSpec::read(&frame[..start]).unwrap(), spec);
        assert_eq!(FrameSpec::read(&frame).unwrap(), spec);
        match FrameSpec::read(&frame[..start - 1]) {
            Err(Error::Truncated { needed, .. }) => assert_eq!(needed, start as u64),
            other => panic!("{other:?}"),
        }
        for at in 0..start {
            let mut damaged = frame[..start].to_vec();
            damaged[at] ^= 1;
            assert!(FrameSpec::read(&damaged).is_err(), "byte {at}");
        }
    }
}
