//! What every encoder writes around the coding itself: the static part before it, the dynamic part after it.

use super::frame::{dynamic_check, dynamic_range};
use super::table::static_part;
use super::{CHUNK, DYNAMIC_BYTES, FrameSpec, GROUP, HEADER_BYTES, Layout, chunk_checksum, tensor_checksum};
use crate::{Codebook, CodebookChoice, Error, Executor, Histogram, Result, Scheme, sampled_chunks};

/// The bytes of header, tensor table and strings, `layout.static_bytes` of them: the start of a frame.
pub fn static_bytes(spec: &FrameSpec, layout: &Layout) -> Vec<u8> {
    debug_assert!(layout.static_bytes >= HEADER_BYTES);
    static_part(spec, layout)
}

/// What is known about a tensor once it is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DynamicTensor {
    /// Words of the variable parts of the tensors before it; 0 with `arrival`.
    pub words_before: u64,
    /// Checksum of its raw bits, or 0 without the flag.
    pub checksum: u64,
    /// Its codebook, for `w4`.
    pub codebook: Option<Codebook>,
}

/// The bytes of a sealed dynamic part.
pub fn dynamic_bytes(words: u64, status: u32, tensors: &[DynamicTensor]) -> Vec<u8> {
    let mut out = Vec::with_capacity(DYNAMIC_BYTES as usize * (1 + tensors.len()));
    out.extend(words.to_le_bytes());
    out.extend(status.to_le_bytes());
    out.extend([0; 20]);
    for tensor in tensors {
        out.extend(tensor.words_before.to_le_bytes());
        out.extend(tensor.checksum.to_le_bytes());
        out.extend(tensor.codebook.map_or([0; Codebook::LEN], |codebook| *codebook.exponents()));
    }
    let check = dynamic_check(&out);
    out[12..16].copy_from_slice(&check.to_le_bytes());
    out
}

/// Computes the check of the dynamic part of a frame and writes it into its field: the last step of an encoder.
///
/// # Errors
/// [`Error::Truncated`] when `frame` ends before its dynamic part does.
pub fn seal_dynamic(layout: &Layout, frame: &mut [u8]) -> Result<()> {
    let got = frame.len() as u64;
    let needed = layout.static_bytes + layout.dynamic_bytes;
    let part = frame.get_mut(dynamic_range(layout));
    let part = part.ok_or(Error::Truncated { what: "the dynamic part", needed, got })?;
    let check = dynamic_check(part);
    part[12..16].copy_from_slice(&check.to_le_bytes());
    Ok(())
}

/// Checks what was given to [`Executor::encode`], and returns the layout.
///
/// # Errors
/// See [`Executor::encode`].
pub fn check_encode(
    spec: &FrameSpec,
    codebooks: &[CodebookChoice],
    inputs: &[&[u8]],
    out: &[u8],
) -> Result<Layout> {
    let layout = spec.layout()?;
    let expected = spec.tensors.len();
    if inputs.len() != expected {
        return Err(Error::Count { what: "inputs", expected, got: inputs.len() });
    }
    for (t, (tensor, input)) in layout.tensors.iter().zip(inputs).enumerate() {
        check_size(format!("the input of tensor {t}"), tensor.bytes, input.len())?;
    }
    check_encode_to(spec, codebooks, out)
}

/// Checks what is given to an encoder besides its inputs, and returns the layout.
///
/// # Errors
/// See [`Executor::encode`].
pub(crate) fn check_encode_to(spec: &FrameSpec, codebooks: &[CodebookChoice], out: &[u8]) -> Result<Layout> {
    let layout = spec.layout()?;
    let expected = spec.tensors.len();
    if !codebooks.is_empty() && codebooks.len() != expected {
        return Err(Error::Count { what: "codebooks", expected, got: codebooks.len() });
    }
    for (t, tensor) in layout.tensors.iter().enumerate() {
        match codebooks.get(t) {
            Some(CodebookChoice::Given(codebook))
                if tensor.scheme.has_codebook() && codebook.dtype() != tensor.dtype =>
            {
                let what = format!("the codebook of tensor {t}");
                return Err(Error::CodebookDtype { what, expected: tensor.dtype, found: codebook.dtype() });
            }
            _ => {}
        }
    }
    if (out.len() as u64) < layout.max_frame_bytes {
        let what = "the output (at least max_frame_bytes)".to_owned();
        return Err(Error::BufferSize { what, expected: layout.max_frame_bytes, got: out.len() as u64 });
    }
    Ok(layout)
}

/// Checks the outputs given to [`Executor::decode`].
///
/// # Errors
/// See [`Executor::decode`].
pub fn check_decode(layout: &Layout, outputs: &[&mut [u8]]) -> Result<()> {
    let expected = layout.tensors.len();
    if outputs.len() != expected {
        return Err(Error::Count { what: "outputs", expected, got: outputs.len() });
    }
    for (t, (tensor, output)) in layout.tensors.iter().zip(outputs).enumerate() {
        check_size(format!("the output of tensor {t}"), tensor.bytes, output.len())?;
    }
    Ok(())
}

/// Checks that a buffer has exactly so many bytes.
pub(crate) fn check_size(what: String, expected: u64, got: usize) -> Result<()> {
    if got as u64 == expected { Ok(()) } else { Err(Error::BufferSize { what, expected, got: got as u64 }) }
}

/// The codebook of a tensor: the given one, or that of its sample, counted by `executor`. `None` for schemes without one.
///
/// # Errors
/// What [`Executor::histogram`] returns.
pub fn choose_codebook(
    executor: &(impl Executor + ?Sized),
    scheme: Scheme,
    dtype: crate::Dtype,
    choice: CodebookChoice,
    input: &[u8],
) -> Result<Option<Codebook>> {
    match choice {
        _ if !scheme.has_codebook() => Ok(None),
        CodebookChoice::Given(codebook) => Ok(Some(codebook)),
        CodebookChoice::Auto => {
            let mut histogram = Histogram::new(dtype);
            let chunk_bytes = CHUNK * dtype.bytes();
            for chunk in sampled_chunks(input.len().div_ceil(chunk_bytes) as u64) {
                let start = chunk as usize * chunk_bytes;
                let end = input.len().min(start + chunk_bytes);
                histogram.merge(&executor.histogram(dtype, &input[start..end])?)?;
            }
            Codebook::from_histogram(&histogram).map(Some)
        }
    }
}

/// Writes the checksums of the chunks of tensor `tensor` where the layout wants them, and returns the checksum of the
/// tensor for its [`DynamicTensor`]: 0 without the flag.
pub fn checksums(layout: &Layout, tensor: usize, input: &[u8], frame: &mut [u8]) -> u64 {
    let of = &layout.tensors[tensor];
    if layout.flags.chunk_checksums {
        for (k, bytes) in input.chunks(of.chunk_bytes() as usize).enumerate() {
            let at = of.checksums_at as usize + 4 * k;
            frame[at..at + 4].copy_from_slice(&chunk_checksum(of.dtype, bytes).to_le_bytes());
        }
    }
    if layout.flags.tensor_checksums { tensor_checksum(of.dtype, input) } else { 0 }
}

/// Chunks of a group that exist.
pub(crate) fn chunks_of_group(chunks: u64, group: u64) -> std::ops::Range<u64> {
    group * GROUP as u64..chunks.min((group + 1) * GROUP as u64)
}
