//! The cases of the list, for the kernels that work on batches: every tensor in a page of its own.

use splitzip_host::conformance::Case;
use splitzip_host::paged::{Form, KvLayout, Paged, PagedError, Place, PoolTensor};
use splitzip_host::{Codebook, CodebookChoice, Error, Executor, Flags, Frame, FrameSpec, Reference};

/// A case in pages, with the frame that it must give.
pub struct InPages {
    paged: Paged<'static>,
    spec: FrameSpec,
    codebooks: Vec<CodebookChoice>,
    inputs: Vec<Vec<u8>>,
    frame: Vec<u8>,
}

impl InPages {
    /// The case without checksums, and with codebooks that are given: what is done in one launch. Nothing for a case without elements.
    pub fn new(case: &Case) -> Option<InPages> {
        let mut paged: Option<Paged<'static>> = None;
        let (mut of, mut inputs) = (Vec::new(), Vec::new());
        for (number, tensor) in case.spec.tensors.iter().enumerate() {
            if case.inputs[number].is_empty() {
                continue;
            }
            let (pool, bytes) = (inputs.len(), case.inputs[number].len() as u64);
            let next =
                one_page(pool, tensor.dtype, tensor.shape.last().copied().unwrap_or(1), bytes).unwrap();
            paged = Some(match paged {
                None => next,
                Some(before) => before.join(&next).unwrap(),
            });
            of.push(number);
            inputs.push(case.inputs[number].clone());
        }
        let paged = paged?;
        let mut spec = paged.spec(case.spec.tensors[of[0]].scheme, Flags::default());
        for (tensor, &number) in spec.tensors.iter_mut().zip(&of) {
            tensor.scheme = case.spec.tensors[number].scheme;
            tensor.bases = case.spec.tensors[number].bases;
        }
        let codebook =
            |(tensor, input): (&splitzip_host::TensorSpec, &Vec<u8>)| match tensor.scheme.has_codebook() {
                true => {
                    let histogram = Reference.histogram(tensor.dtype, input).unwrap();
                    CodebookChoice::Given(Codebook::from_histogram(&histogram).unwrap())
                }
                false => CodebookChoice::Auto,
            };
        let codebooks: Vec<CodebookChoice> = spec.tensors.iter().zip(&inputs).map(codebook).collect();
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let frame = Reference.encode_to_vec(&spec, &codebooks, &slices).unwrap();
        Some(InPages { paged, spec, codebooks, inputs, frame })
    }

    /// Does an executor give this frame, and take it back?
    pub fn check(&self, executor: &dyn Executor) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let pools: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut out = vec![0; self.spec.layout().map_err(text)?.max_frame_bytes as usize];
        let bytes = executor
            .encode_paged(&self.spec, &self.codebooks, &self.paged, &pools, &mut out)
            .map_err(text)?;
        if out[..bytes] != self.frame {
            return Err("in pages: another frame".to_owned());
        }
        let mut back: Vec<Vec<u8>> = self.inputs.iter().map(|input| vec![0xa5; input.len()]).collect();
        let mut slices: Vec<&mut [u8]> = back.iter_mut().map(Vec::as_mut_slice).collect();
        let frame = Frame::parse(&self.frame).map_err(text)?;
        executor.decode_paged(&frame, None, &self.paged, &mut slices).map_err(text)?;
        if back != self.inputs {
            return Err("in pages: other elements".to_owned());
        }
        Ok(())
    }
}

/// Bytes in the only page of a pool, in rows of `dim` elements.
fn one_page(
    pool: usize,
    dtype: splitzip_host::Dtype,
    dim: u64,
    bytes: u64,
) -> Result<Paged<'static>, PagedError> {
    let row = dim * dtype.bytes() as u64;
    let place = Place {
        pool,
        base: 0,
        pages: 1,
        page_tokens: bytes / row,
        page_stride: bytes,
        token_stride: row,
        head_stride: row,
    };
    let form = Form::new(format!("tensor {pool}"), dtype, 1, dim);
    KvLayout::new(vec![PoolTensor { form, place }])?.bind_consecutive(0, bytes / row)
}
