//! The trait of everything that encodes and decodes frames.
//!
//! Its methods take host bytes; an executor on a device adds methods of its own for device pointers. All executors write
//! the same canonical bytes, and the conformance list is run on each of them.

use crate::format::write::check_size;
use crate::format::{Frame, FrameSpec, tensor_checksum};
use crate::paged::{Paged, naive};
use crate::{Codebook, Dtype, Error, Histogram, Result};
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

    /// Decodes the elements `elements` of one tensor, and nothing else: only the chunks that hold some of them. Checksums of those
    /// chunks are verified.
    ///
    /// # Errors
    /// As [`Executor::decode_range`].
    fn decode_elements(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        elements: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        let bytes = bytes_of(frame, tensor, elements)?;
        check_size("the output of the elements".to_owned(), bytes.end - bytes.start, output.len())?;
        output.copy_from_slice(&decode_bytes(self, frame, tensor, bytes)?);
        Ok(())
    }

    /// Encodes the tensors of a request from their pages, which lie in `pools`. The frame is that of [`Executor::encode`] from the same elements, byte by
    /// byte.
    ///
    /// `spec` has the tensors of `from`, in its order, as [`Paged::spec`] gives them.
    ///
    /// # Errors
    /// As [`Executor::encode`], and [`PagedError`](crate::paged::PagedError) for a description of other tensors, pools that are too few or too small, pages that a
    /// pool does not have.
    fn encode_paged(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        from.check_spec(spec)?;
        let inputs = (0..from.tensors().len()).map(|tensor| naive::gather(from, tensor, pools));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.encode(spec, codebooks, &inputs, out)
    }

    /// Decodes tensors of a frame into their pages in `pools`: those that `to` has, found by their names; of these all tokens, or `tokens`. Only the chunks that
    /// hold some of them are decoded, and no other byte of the pools is written.
    ///
    /// Checksums of these chunks are verified, and those of tensors that are decoded in whole. After an error bytes of the destination are
    /// undefined.
    ///
    /// # Errors
    /// As [`Executor::decode`], and [`PagedError`](crate::paged::PagedError) for a frame of another form, another number of tokens than there is place for, pools
    /// that are too few or too small, pages that a pool does not have or that are listed twice.
    fn decode_paged(
        &self,
        frame: &Frame<'_>,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &mut [&mut [u8]],
    ) -> Result<()> {
        decode_paged_naively(self, frame, tokens, to, pools)
    }

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
    /// A packed frame can describe 315 times as many bytes as it has (equal chunks cost 6.5 bytes):
    /// [`Executor::decode_to_vecs_within`] is for frames that are not trusted.
    ///
    /// # Errors
    /// As [`Executor::decode`], and [`HostMemory`](crate::Error::HostMemory).
    fn decode_to_vecs(&self, frame: &Frame<'_>) -> Result<Vec<Vec<u8>>> {
        self.decode_to_vecs_within(frame, u64::MAX)
    }

    /// [`Executor::decode`] into new vectors of at most `most_bytes` bytes together.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) for a frame that describes more, before anything is allocated; and as
    /// [`Executor::decode_to_vecs`].
    fn decode_to_vecs_within(&self, frame: &Frame<'_>, most_bytes: u64) -> Result<Vec<Vec<u8>>> {
        let needed = frame.layout().raw_bytes;
        if needed > most_bytes {
            return Err(Error::Limit { what: "the frame", needed, allowed: most_bytes });
        }
        let tensors = frame.layout().tensors.iter();
        let mut vecs = tensors.map(|tensor| zeros(tensor.bytes)).collect::<Result<Vec<_>>>()?;
        let mut outputs: Vec<&mut [u8]> = vecs.iter_mut().map(Vec::as_mut_slice).collect();
        self.decode(frame, &mut outputs)?;
        Ok(vecs)
    }
}

/// Where elements of a tensor lie among its bytes.
pub(crate) fn bytes_of(frame: &Frame<'_>, tensor: usize, elements: Range<u64>) -> Result<Range<u64>> {
    let layout = frame.tensor(tensor)?.layout();
    if elements.start > elements.end || elements.end > layout.elements {
        let given = elements.end.max(elements.start);
        return Err(Error::OutOfRange { what: "element", given, count: layout.elements });
    }
    let bytes = layout.dtype.bytes() as u64;
    Ok(elements.start * bytes..elements.end * bytes)
}

/// Zeroed memory, or an error. (`vec![0; n]` takes untouched pages from the system, but ends the process where there are none.)
fn zeros(bytes: u64) -> Result<Vec<u8>> {
    let failed = || Error::HostMemory { bytes };
    let length = usize::try_from(bytes).map_err(|_| failed())?;
    if length == 0 {
        return Ok(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u8>(length).map_err(|_| failed())?;
    // SAFETY: the layout has bytes; what is returned is not null and has the length and the layout of a vector of bytes.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        if memory.is_null() { Err(failed()) } else { Ok(Vec::from_raw_parts(memory, length, length)) }
    }
}

/// What [`Executor::decode_paged`] does where there is nothing faster.
pub(crate) fn decode_paged_naively(
    executor: &(impl Executor + ?Sized),
    frame: &Frame<'_>,
    tokens: Option<Range<u64>>,
    to: &Paged<'_>,
    pools: &mut [&mut [u8]],
) -> Result<()> {
    let pairs = to.pair(frame.spec(), tokens)?;
    to.check_pools(&pools.iter().map(|pool| pool.len() as u64).collect::<Vec<_>>(), true)?;
    for (number, (tensor, bytes)) in pairs.into_iter().enumerate() {
        let whole = bytes == (0..frame.layout().tensors[tensor].bytes);
        let decoded = decode_bytes(executor, frame, tensor, bytes)?;
        let of = frame.tensor(tensor)?;
        if whole && of.checksum().is_some() {
            of.verify_checksum(tensor_checksum(of.layout().dtype, &decoded))?;
        }
        naive::scatter(to, number, &decoded, pools)?;
    }
    Ok(())
}

/// Bytes of a tensor, cut out of its chunks. The range lies in it.
pub(crate) fn decode_bytes(
    executor: &(impl Executor + ?Sized),
    frame: &Frame<'_>,
    tensor: usize,
    bytes: Range<u64>,
) -> Result<Vec<u8>> {
    let layout = frame.tensor(tensor)?.layout();
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let chunk_bytes = layout.chunk_bytes();
    let chunks = bytes.start / chunk_bytes..bytes.end.div_ceil(chunk_bytes);
    let (start, end) = (chunks.start * chunk_bytes, (chunks.end * chunk_bytes).min(layout.bytes));
    let mut decoded = zeros(end - start)?;
    executor.decode_range(frame, tensor, chunks, &mut decoded)?;
    decoded.truncate((bytes.end - start) as usize);
    decoded.drain(..(bytes.start - start) as usize);
    Ok(decoded)
}
