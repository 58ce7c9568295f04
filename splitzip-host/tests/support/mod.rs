//! Real KV tensors for tests and examples: read from a safetensors file of bf16, cast to the other dtypes, with zeros put
//! in.
#![allow(dead_code, reason = "each test and example uses a part of it")]

use half::{bf16, f16};
use safetensors::{Dtype as FileDtype, SafeTensors};
use splitzip_host::{Bases, Dtype, Executor, Flags, FrameSpec, Reference, Result, Scheme, TensorSpec};
use std::path::Path;

/// A tensor of a file.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<u64>,
    pub dtype: Dtype,
    pub bytes: Vec<u8>,
}

/// The bf16 tensors of a file, in the order of names.
pub fn load(path: &Path) -> Vec<Tensor> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<Tensor> = file
        .iter()
        .filter(|(_, view)| view.dtype() == FileDtype::BF16)
        .map(|(name, view)| Tensor {
            name: name.to_owned(),
            shape: view.shape().iter().map(|&size| size as u64).collect(),
            dtype: Dtype::Bf16,
            bytes: view.data().to_vec(),
        })
        .collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
}

/// The same tensor in another dtype: rounded to nearest even, fp8 scaled so that the largest magnitude is the largest number.
pub fn cast(tensor: &Tensor, dtype: Dtype) -> Tensor {
    let values: Vec<f32> =
        tensor.bytes.chunks_exact(2).map(|word| bf16::from_le_bytes([word[0], word[1]]).to_f32()).collect();
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let bytes = match dtype {
        Dtype::Fp16 => values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
        Dtype::Bf16 | Dtype::Bytes => tensor.bytes.clone(),
        fp8 => values.iter().map(|&value| to_fp8(value * (largest_of(fp8) / largest), fp8)).collect(),
    };
    Tensor { dtype, bytes, ..tensor.clone() }
}

/// The largest number of an fp8: the last exponent is for infinity, but in the finite e4m3 only its last word is none.
fn largest_of(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::E4m3 => 448.0,
        _ => 2f32.powi(bias(dtype)) * (2.0 - 2f32.powi(-(dtype.mantissa_bits() as i32))),
    }
}

fn bias(dtype: Dtype) -> i32 {
    (1 << (dtype.exponent_bits() - 1)) - 1
}

/// The fp8 nearest to a finite number, ties to even, clamped to the largest.
fn to_fp8(value: f32, dtype: Dtype) -> u8 {
    let (mantissa, bias) = (dtype.mantissa_bits() as i32, bias(dtype));
    let magnitude = f64::from(value.abs().min(largest_of(dtype)));
    // The exponent of the number, not below that of denormals.
    let exponent = (((magnitude.to_bits() >> 52) as i32) - 1023).max(1 - bias);
    // In units of the last mantissa bit: scaling by a power of two is exact, and so is the rest.
    let units = (magnitude * 2f64.powi(mantissa - exponent)).round_ties_even() as i32;
    let word = units + ((exponent + bias - 1) << mantissa);
    (word as u8) | (u8::from(value.is_sign_negative()) << 7)
}

/// Where zeros are put.
#[derive(Clone, Copy, Debug)]
pub enum Zeros {
    HalfChunks,
    Rows,
    Channels,
    Random,
    /// So many of a thousand elements, at random.
    Share(u64),
}

/// The same tensor with half of its elements zero, or another share.
pub fn with_zeros(tensor: &Tensor, zeros: Zeros) -> Tensor {
    let channels = *tensor.shape.last().unwrap() as usize;
    let mut tensor = tensor.clone();
    let mut random = 0x1234_5678_9abc_def1u64;
    for (element, word) in tensor.bytes.chunks_exact_mut(tensor.dtype.bytes()).enumerate() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let zero = match zeros {
            Zeros::HalfChunks => element / 512 % 2,
            Zeros::Rows => element / channels % 2,
            Zeros::Channels => element % channels % 2,
            Zeros::Random => (random >> 40) as usize % 2,
            Zeros::Share(share) => usize::from((random >> 40) % 1000 < share),
        };
        if zero == 1 {
            word.fill(0);
        }
    }
    tensor
}

/// Raw bytes over the bytes of one frame with all tensors, everything counted; channel bases for those whose name ends in `channel`.
pub fn ratio(tensors: &[Tensor], scheme: Scheme, channel: &str) -> Result<f64> {
    let specs = tensors.iter().map(|tensor| {
        let spec = TensorSpec::new(&tensor.name, tensor.dtype, scheme, &tensor.shape);
        spec.with_bases(if tensor.name.ends_with(channel) { Bases::Channel } else { Bases::Chunk })
    });
    let spec = FrameSpec::new(specs.collect(), Flags::default());
    let inputs: Vec<&[u8]> = tensors.iter().map(|tensor| tensor.bytes.as_slice()).collect();
    let frame = Reference.encode_to_vec(&spec, &[], &inputs)?;
    let raw: usize = inputs.iter().map(|input| input.len()).sum();
    Ok(raw as f64 / frame.len() as f64)
}
