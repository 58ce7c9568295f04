//! How small every way to code makes a file, estimated from a few groups of every tensor: a moment for any size.

use super::contents;
use super::plan::with_ratios;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::shown;
use splitzip_host::file::Mapped;
use splitzip_host::policy::Codec;
use splitzip_host::select::{Sample, candidates};
use splitzip_host::{Bases, BasesChoice, Dtype, Scheme, SchemeChoice, TensorSpec};
use std::collections::BTreeMap;

pub struct Ratios {
    pub raw_bytes: u64,
    /// The dtype that has most of the bytes.
    pub dtype: Dtype,
    coded_bytes: BTreeMap<(Scheme, Bases), u64>,
}

impl Ratios {
    /// The same codecs, with the ratios of the file.
    pub fn codecs(&self, codecs: &[Codec]) -> Result<Vec<Codec>> {
        with_ratios(codecs, |codec| {
            let coded = self.coded_bytes.get(&(codec.scheme, codec.bases))?;
            Some(self.raw_bytes as f64 / *coded as f64)
        })
    }
}

/// Estimates the ratios of a safetensors file. Tensors that a scheme cannot code are stored; channel bases are taken where a tensor can have them.
pub fn sample(input: &Mapped, dtype: Option<Dtype>) -> Result<Ratios> {
    device::start_threads().map_err(|error| Failure::Failed(error.to_string()))?;
    let at = |error| Failure::at(input.path())(error);
    let contents = contents(input, input.path(), dtype)?;
    let raw_bytes = input.len() as u64;
    let all = || Scheme::coded().flat_map(|scheme| Bases::ALL.map(|bases| (scheme, bases)));
    let mut coded_bytes: BTreeMap<(Scheme, Bases), u64> = all()
        .filter(|(scheme, bases)| scheme.has_window() || *bases == Bases::Chunk)
        .map(|of| (of, raw_bytes))
        .collect();
    let mut dtypes: BTreeMap<Dtype, u64> = BTreeMap::new();
    for tensor in contents.tensors() {
        let Some(dtype) = tensor.coded(dtype).filter(|_| tensor.bytes >= 2048) else { continue };
        *dtypes.entry(dtype).or_default() += tensor.bytes;
        let bytes = &input[tensor.at as usize..(tensor.at + tensor.bytes) as usize];
        let sample = Sample::new(dtype, bytes);
        let flat = [tensor.bytes / dtype.bytes() as u64];
        let shape =
            if tensor.shape.len() <= splitzip_host::format::MAX_RANK { &tensor.shape[..] } else { &flat };
        for (&(scheme, bases), coded) in &mut coded_bytes {
            let given = BasesChoice::Given(bases);
            let Some(&(scheme, bases)) = candidates(dtype, shape, SchemeChoice::Given(scheme), given).first()
            else {
                continue;
            };
            let spec = TensorSpec::new(&tensor.name, dtype, scheme, shape).with_bases(bases);
            let takes = sample.coded_bytes(&spec, None).map_err(at)?;
            *coded -= tensor.bytes.saturating_sub(takes);
        }
    }
    let most = dtypes.into_iter().max_by_key(|&(_, bytes)| bytes);
    let Some((dtype, _)) = most else {
        let reason = "no tensor has a dtype that is coded; say which with --dtype";
        return Err(Failure::Failed(format!("{}: {reason}", shown(input.path()))));
    };
    Ok(Ratios { raw_bytes, dtype, coded_bytes })
}
