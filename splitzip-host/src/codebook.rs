//! Histograms of exponents, and the codebooks of 16 that `w4` makes of them.

use crate::{Dtype, Error, Result};

/// How often every exponent occurs in elements of one dtype.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    dtype: Dtype,
    counts: Box<[u64; 256]>,
}

impl Histogram {
    /// A histogram of nothing.
    pub fn new(dtype: Dtype) -> Histogram {
        Histogram { dtype, counts: Box::new([0; 256]) }
    }

    /// A histogram with these counts, one for every exponent of `dtype`.
    ///
    /// # Errors
    /// [`Error::BufferSize`] when there are more or fewer counts than the dtype has exponents.
    pub fn from_counts(dtype: Dtype, counts: &[u64]) -> Result<Histogram> {
        if counts.len() != dtype.exponents() {
            return Err(Error::BufferSize {
                what: format!("a histogram of {dtype} (one count an exponent)"),
                expected: dtype.exponents() as u64,
                got: counts.len() as u64,
            });
        }
        let mut histogram = Histogram::new(dtype);
        histogram.counts[..counts.len()].copy_from_slice(counts);
        Ok(histogram)
    }

    /// The dtype whose exponents are counted.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// One count for every exponent of the dtype.
    pub fn counts(&self) -> &[u64] {
        &self.counts[..self.dtype.exponents()]
    }

    /// Elements counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts one element.
    pub fn count(&mut self, word: u16) {
        self.counts[usize::from(self.dtype.split(word).0)] += 1;
    }

    /// Adds the counts of another histogram.
    ///
    /// # Errors
    /// [`Error::CodebookDtype`] when it is of another dtype.
    pub fn merge(&mut self, other: &Histogram) -> Result<()> {
        if other.dtype != self.dtype {
            let what = "the histogram to merge".to_owned();
            return Err(Error::CodebookDtype { what, expected: self.dtype, found: other.dtype });
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        Ok(())
    }

    /// Entropy of the exponents in bits an element; 0 when nothing was counted.
    pub fn entropy(&self) -> f64 {
        let total = self.total() as f64;
        let shares = self.counts.iter().filter(|&&count| count != 0).map(|&count| count as f64 / total);
        shares.map(|share| -share * share.log2()).sum::<f64>().abs()
    }

    /// The share of elements (0 to 1) that the `k` most frequent exponents cover; 1 when nothing was counted.
    pub fn coverage(&self, k: usize) -> f64 {
        let mut counts = *self.counts;
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (covered, total) = (counts.iter().take(k).sum::<u64>(), self.total());
        if total == 0 { 1.0 } else { covered as f64 / total as f64 }
    }
}

/// The 16 exponents that have a code in `w4`, ascending: the code of an exponent is its index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Codebook {
    dtype: Dtype,
    exponents: [u8; Codebook::LEN],
}

impl Codebook {
    /// Exponents of a codebook.
    pub const LEN: usize = 16;

    /// A codebook of these exponents.
    ///
    /// # Errors
    /// [`Error::Codebook`] unless the dtype has more than 16 exponents, and these are ascending and among them.
    pub fn new(dtype: Dtype, exponents: [u8; Codebook::LEN]) -> Result<Codebook> {
        let refuse = |reason| Err(Error::Codebook { reason });
        if dtype.exponents() <= Codebook::LEN {
            return refuse(format!(
                "{dtype} has {} exponents, so a codebook of 16 is pointless",
                dtype.exponents()
            ));
        }
        if let Some(pair) = exponents.windows(2).find(|pair| pair[0] >= pair[1]) {
            return refuse(format!("exponents must be ascending, and {} follows {}", pair[1], pair[0]));
        }
        let last = exponents[Codebook::LEN - 1];
        if usize::from(last) >= dtype.exponents() {
            return refuse(format!(
                "exponents of {dtype} are below {}, and it has {last}",
                dtype.exponents()
            ));
        }
        Ok(Codebook { dtype, exponents })
    }

    /// The 16 most frequent exponents. Ties go to the smaller exponent, so exponents that do not occur fill it up from the
    /// smallest.
    ///
    /// # Errors
    /// [`Error::Codebook`] when the dtype has no more than 16 exponents.
    pub fn from_histogram(histogram: &Histogram) -> Result<Codebook> {
        let mut order: Vec<(u64, u8)> = histogram.counts().iter().copied().zip(0u8..=255).collect();
        order.sort_by_key(|&(count, exponent)| (std::cmp::Reverse(count), exponent));
        let mut exponents = [0; Codebook::LEN];
        for (slot, (_, exponent)) in exponents.iter_mut().zip(order) {
            *slot = exponent;
        }
        exponents.sort_unstable();
        Codebook::new(histogram.dtype(), exponents)
    }

    /// The dtype that it is for.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The exponents, ascending.
    pub fn exponents(&self) -> &[u8; Codebook::LEN] {
        &self.exponents
    }

    /// The code of an exponent, if it has one.
    pub fn code(&self, exponent: u8) -> Option<u8> {
        self.exponents.iter().position(|&e| e == exponent).map(|code| code as u8)
    }
}
