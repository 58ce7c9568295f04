//! Codebooks from files: the exponents of every tensor name are counted over all files that have it.

use super::inspect::histogram;
use super::original::Original;
use crate::{Codebook, CodebookFile, Dtype, Executor, Histogram, Result, Scheme};
use std::collections::BTreeMap;

/// Counts of exponents by tensor name, over the files seen so far.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    tensors: BTreeMap<String, Histogram>,
}

/// Adds the tensors of one original that would be coded with a codebook. `dtype` is as in [`Options`](super::Options).
///
/// # Errors
/// What is no original; a name that had another dtype in a file before
/// ([`CodebookDtype`](crate::Error::CodebookDtype)).
pub fn calibrate(
    executor: &dyn Executor,
    input: &[u8],
    dtype: Option<Dtype>,
    sum: &mut Calibration,
) -> Result<()> {
    let contents = Original::read(input, input.len() as u64, dtype)?.contents;
    for tensor in contents.tensors() {
        let fits = |dtype: &Dtype| tensor.bytes != 0 && Scheme::W4.check(*dtype).is_ok();
        let Some(dtype) = tensor.coded(dtype).filter(fits) else { continue };
        let bytes = &input[tensor.at as usize..(tensor.at + tensor.bytes) as usize];
        let counted = histogram(executor, dtype, bytes)?;
        match sum.tensors.get_mut(&tensor.name) {
            Some(sum) => sum.merge(&counted)?,
            None => {
                sum.tensors.insert(tensor.name.clone(), counted);
            }
        }
    }
    Ok(())
}

impl Calibration {
    /// The counts by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Histogram)> {
        self.tensors.iter().map(|(name, histogram)| (name.as_str(), histogram))
    }

    /// A codebook for every name, and one of all counts together for names that the files did not have.
    ///
    /// # Errors
    /// [`Codebook::from_histogram`]'s.
    pub fn codebooks(&self) -> Result<CodebookFile> {
        let mut file = CodebookFile::new();
        let mut all: Option<Histogram> = None;
        for (name, histogram) in &self.tensors {
            file.insert(name, Codebook::from_histogram(histogram)?);
            match &mut all {
                Some(all) if all.dtype() == histogram.dtype() => all.merge(histogram)?,
                Some(_) => {}
                None => all = Some(histogram.clone()),
            }
        }
        file.set_default(all.as_ref().map(Codebook::from_histogram).transpose()?);
        Ok(file)
    }
}
