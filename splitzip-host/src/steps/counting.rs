//! Counting exponents: of a sample that a frame's codebook is made of, or of what is to be calibrated.

use super::{COUNTS_BYTES, HistogramStep, Step, kernel_dtype, source, target};
use crate::{Dtype, Error, Result};
use splitzip_kernels::dtype;
use splitzip_kernels::kernels::histogram;
use splitzip_kernels::launch::Programs;
use splitzip_kernels::tile::TAIL_BYTES;

/// Counting the exponents of some of the chunks of a tensor: addresses as in [`Steps`](super::Steps).
#[derive(Clone, Copy)]
pub(crate) struct Counting {
    pub words: u64,
    pub bytes: u64,
    pub samples: u64,
    pub programs: u64,
    pub counts: u64,
    pub tail: u64,
}

impl Counting {
    pub fn step(&self, dtype: Dtype) -> Result<Box<dyn Step>> {
        histogram::on_member(kernel_dtype(dtype), HistogramStep(self)).ok_or_else(|| Error::Unsupported {
            executor: "kernel".to_owned(),
            what: format!("a histogram of {dtype}"),
            instead: "reference".to_owned(),
        })
    }

    pub(super) fn of<D: dtype::Dtype>(&self) -> histogram::Arguments<'static, D> {
        histogram::Arguments {
            programs: Programs { programs: self.programs },
            words: source(self.words, self.bytes),
            elements: self.bytes / u64::from(D::BITS / 8),
            samples: self.samples,
            counts: target(self.counts, COUNTS_BYTES),
            tail: target(self.tail, TAIL_BYTES),
        }
    }
}
