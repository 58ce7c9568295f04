//! What the exponents of a file look like, and what becomes of its tensors.

use super::compress::compress;
use super::decompress::{decode, hexadecimal};
use super::original::Original;
use super::report::{Accounts, Report};
use super::tensors::Contents;
use super::{Options, Progress, Reader};
use crate::{Dtype, Error, Executor, Histogram, Reference, Result};

/// The exponents of every tensor of a report, in the same order; `None` for tensors that have none, or no elements.
pub type Exponents = Vec<Option<Histogram>>;

/// Looks at an original: compresses it to nowhere, and counts exponents.
///
/// # Errors
/// As [`compress`](super::compress).
pub fn inspect_safetensors(
    executor: &dyn Executor,
    input: &[u8],
    options: &Options,
    progress: Progress<'_>,
) -> Result<(Report, Exponents)> {
    let contents = Original::read(input, input.len() as u64, options.dtype)?.contents;
    let report = compress(executor, input, std::io::sink(), options, progress)?;
    let of = |tensor: &super::Tensor| {
        let dtype = tensor.coded(options.dtype).filter(|_| tensor.bytes != 0);
        dtype.map(|dtype| {
            let bytes = &input[tensor.at as usize..(tensor.at + tensor.bytes) as usize];
            histogram(executor, dtype, bytes)
        })
    };
    let exponents = contents.tensors().iter().map(|tensor| of(tensor).transpose()).collect::<Result<_>>()?;
    Ok((report, exponents))
}

/// Looks at an `.spz` file: decodes it to nowhere, and counts exponents.
///
/// # Errors
/// As [`decompress`](super::decompress()).
pub fn inspect_file(
    executor: &dyn Executor,
    reader: &mut Reader<'_>,
    progress: Progress<'_>,
) -> Result<(Report, Exponents)> {
    let contents = match reader.contents()? {
        Some(contents) => contents,
        None => reader.pieces()?,
    };
    let mut accounts = Accounts::new(&contents);
    let mut exponents: Exponents = vec![None; contents.tensors().len()];
    let dtypes = dtypes(reader, &contents)?;
    let mut raw = Vec::new();
    for (number, record) in reader.frames().to_vec().into_iter().enumerate() {
        let bytes = reader.frame_bytes(number)?;
        let frame = reader.parse(number, &bytes)?;
        accounts.add(&frame, record.raw_at)?;
        decode(executor, &frame, number, &mut raw)?;
        let end = record.raw_at + record.raw_bytes;
        let first = contents.tensors().partition_point(|tensor| tensor.at + tensor.bytes <= record.raw_at);
        for ((tensor, dtype), sum) in contents.tensors().iter().zip(&dtypes).zip(&mut exponents).skip(first) {
            if tensor.at >= end {
                break;
            }
            let Some(dtype) = dtype.filter(|_| tensor.bytes != 0) else { continue };
            let part = |at: u64| (at.clamp(record.raw_at, end) - record.raw_at) as usize;
            let part = &raw[part(tensor.at)..part(tensor.at + tensor.bytes)];
            let counted = histogram(executor, dtype, part)?;
            match sum {
                Some(sum) => sum.merge(&counted)?,
                None => *sum = Some(counted),
            }
        }
        progress(end)?;
    }
    let report = Report {
        raw_bytes: reader.header().raw_bytes,
        coded_bytes: reader.file_bytes(),
        sha256: hexadecimal(reader.sha256()),
        frames: reader.frames().len() as u64,
        tensors: accounts.finish(),
    };
    Ok((report, exponents))
}

/// The dtypes as which tensors are coded. One that is stored has the dtype that the safetensors header says.
fn dtypes(reader: &mut Reader<'_>, contents: &Contents) -> Result<Vec<Option<Dtype>>> {
    let mut dtypes: Vec<Option<Dtype>> = contents.tensors().iter().map(super::Tensor::float).collect();
    for (number, record) in reader.frames().to_vec().into_iter().enumerate() {
        let bytes = reader.frame_bytes(number)?;
        let mut at = record.raw_at;
        for piece in reader.parse(number, &bytes)?.layout().tensors.iter().filter(|piece| piece.bytes != 0) {
            let number = contents.tensors().partition_point(|tensor| tensor.at + tensor.bytes <= at);
            if let Some(dtype) = dtypes.get_mut(number).filter(|_| piece.dtype.is_float()) {
                *dtype = Some(piece.dtype);
            }
            at += piece.bytes;
        }
    }
    Ok(dtypes)
}

/// Counts exponents; those of dtypes that the executor does not have are counted one by one.
pub(crate) fn histogram(executor: &dyn Executor, dtype: Dtype, bytes: &[u8]) -> Result<Histogram> {
    match executor.histogram(dtype, bytes) {
        Err(Error::Unsupported { .. }) => Reference.histogram(dtype, bytes),
        result => result,
    }
}
