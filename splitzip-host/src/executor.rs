//! The trait of everything that encodes and decodes frames.
//!
//! Its methods take host bytes; an executor on a device adds methods of its own for device pointers. All executors write
//! the same canonical bytes, and the conformance list is run on each of them.

use crate::format::{Frame, FrameSpec};
use crate::{Codebook, Dtype, Histogram, Result};
use std::ops::Range;

/// Where the codebook of a `w4` tensor comes from. Tensors of other schemes ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CodebookChoice {
    /// From a sample of the tensor itself ([`sampled_chunks`](crate::sampled_chunks)).
    #[default]
    Auto,
    /// This one; a codebook for another dtype is an error.
    Given(Codebook),
}

/// Something that encodes and decodes frames.
pub trait Executor: Send + Sync {
    /// A name for messages and reports: `reference`, `cpu`, `cuda:0 (H200)`.
    fn name(&self) -> String;

    /// Counts the exponents of elements of `dtype`.
    ///
    /// # Errors
    /// [`BufferSize`](crate::Error::BufferSize) when the bytes are no whole number of elements.
    fn histogram(&self, dtype: Dtype, bytes: &[u8]) -> Result<Histogram>;

    /// Encodes one input a tensor into `out` and returns the bytes of the frame.
    ///
    /// `codebooks` has one choice a tensor, or none at all for [`CodebookChoice::Auto`] everywhere. `out` needs
    /// [`Layout::max_frame_bytes`](crate::Layout::max_frame_bytes) bytes; what lies behind the frame is undefined.
    ///
    /// # Errors
    /// A description that no frame can hold, inputs or `out` of the wrong size or number, a codebook for another dtype,
    /// and [`Unsupported`](crate::Error::Unsupported) for members that the executor does not have.
    fn encode(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize>;

    /// Decodes all tensors of a frame, each into an output of exactly its raw bytes. Checksums are verified.
    ///
    /// # Errors
    /// Outputs of the wrong size or number, bits that cannot be decoded ([`Chunk`](crate::Error::Chunk)), a checksum
    /// that does not match ([`Checksum`](crate::Error::Checksum)), members that the executor does not have.
    fn decode(&self, frame: &Frame<'_>, outputs: &mut [&mut [u8]]) -> Result<()>;

    /// Decodes the chunks `chunks` of one tensor, and nothing else. Checksums of chunks are verified.
    ///
    /// # Errors
    /// As [`Executor::decode`], and [`OutOfRange`](crate::Error::OutOfRange).
    fn decode_range(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        chunks: Range<u64>,
        output: &mut [u8],
    ) -> Result<()>;

    /// [`Executor::encode`] into a new vector.
    ///
    /// # Errors
    /// As [`Executor::encode`].
    fn encode_to_vec(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[u8]],
    ) -> Result<Vec<u8>> {
        let bytes = usize::try_from(spec.layout()?.max_frame_bytes)
            .map_err(|_| crate::Error::TooLarge { what: "the size of the frame", bits: usize::BITS })?;
        let mut out = vec![0; bytes];
        let length = self.encode(spec, codebooks, inputs, &mut out)?;
        out.truncate(length);
        Ok(out)
    }

    /// [`Executor::decode`] into new vectors.
    ///
    /// A frame of a few bytes can describe huge tensors (equal chunks of a packed frame cost 6.5 bytes): look at
    /// [`Frame::layout`] first when the frame is not trusted.
    ///
    /// # Errors
    /// As [`Executor::decode`].
    fn decode_to_vecs(&self, frame: &Frame<'_>) -> Result<Vec<Vec<u8>>> {
        let mut vecs: Vec<Vec<u8>> =
            frame.layout().tensors.iter().map(|tensor| vec![0; tensor.bytes as usize]).collect();
        let mut outputs: Vec<&mut [u8]> = vecs.iter_mut().map(Vec::as_mut_slice).collect();
        self.decode(frame, &mut outputs)?;
        Ok(vecs)
    }
}
