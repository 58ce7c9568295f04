//! What a tensor is, and where its elements lie in a pool.

use super::PagedError;
use super::error::{plus, times};
use crate::Dtype;

/// What a tensor is, wherever it lies: `[tokens, heads, dim]` elements, the last dimension contiguous. Elements are encoded in this order, whatever the
/// order in memory, so two layouts of the same form exchange frames.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    /// The name of the tensor in a frame: `layers.0.k`.
    pub name: String,
    /// The type of the elements. Pools often keep fp8 as bytes: it is what they are, not what the pool calls them.
    pub dtype: Dtype,
    /// Heads of a token; 1 where there are none.
    pub heads: u64,
    /// Elements of a head.
    pub dim: u64,
}

impl Form {
    /// A form with these numbers.
    pub fn new(name: impl Into<String>, dtype: Dtype, heads: u64, dim: u64) -> Form {
        Form { name: name.into(), dtype, heads, dim }
    }

    /// Its shape in a frame.
    pub fn shape(&self, tokens: u64) -> [u64; 3] {
        [tokens, self.heads, self.dim]
    }

    /// Bytes of a head of a token, which lie in one piece.
    ///
    /// # Errors
    /// [`PagedError::Overflow`].
    pub fn head_bytes(&self) -> Result<u64, PagedError> {
        times(|| format!("a head of {:?}", self.name), self.dim, self.dtype.bytes() as u64)
    }

    /// Bytes of a token.
    ///
    /// # Errors
    /// [`PagedError::Overflow`].
    pub fn token_bytes(&self) -> Result<u64, PagedError> {
        times(|| format!("a token of {:?}", self.name), self.heads, self.head_bytes()?)
    }
}

/// Where the elements of a tensor lie in a pool. All numbers are bytes, but for those of pages and tokens.
///
/// Token `t` of the table is in entry `t / page_tokens` of it; with `p` for the page which that entry names, head `h` of the token starts at
///
/// ```text
/// base + p * page_stride + t % page_tokens * token_stride + h * head_stride
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The number of the pool, in the list that an executor is given.
    pub pool: usize,
    /// Where token 0 of page 0 starts in the pool.
    pub base: u64,
    /// Pages of the pool.
    pub pages: u64,
    /// Tokens of a page.
    pub page_tokens: u64,
    /// From a page to the next.
    pub page_stride: u64,
    /// From a token to the next one of its page.
    pub token_stride: u64,
    /// From a head to the next one of its token.
    pub head_stride: u64,
}

/// A tensor in a pool.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoolTensor {
    /// What it is.
    pub form: Form,
    /// Where it lies.
    pub place: Place,
}

impl PoolTensor {
    /// A tensor of at most `tokens` tokens that lies in one piece at the start of pool `pool`: one page.
    ///
    /// # Errors
    /// [`PagedError::Overflow`].
    pub fn contiguous(form: Form, pool: usize, tokens: u64) -> Result<PoolTensor, PagedError> {
        let (token_stride, head_stride) = (form.token_bytes()?, form.head_bytes()?);
        let page_stride = times(|| format!("{tokens} tokens of {:?}", form.name), tokens, token_stride)?;
        let (pages, page_tokens) = (u64::from(tokens != 0), tokens.max(1));
        let place = Place { pool, base: 0, pages, page_tokens, page_stride, token_stride, head_stride };
        Ok(PoolTensor { form, place })
    }

    /// Bytes from the start of the pool that all its pages take.
    ///
    /// # Errors
    /// [`PagedError::Overflow`].
    pub fn pool_bytes(&self) -> Result<u64, PagedError> {
        let what = || format!("the place of {:?}", self.form.name);
        let mut end = plus(what, self.place.base, self.form.head_bytes()?)?;
        for (stride, count) in self.steps() {
            end = plus(what, end, times(what, stride, count - 1)?)?;
        }
        Ok(if self.place.pages == 0 { 0 } else { end })
    }

    /// Strides and how many of each there are, each at least one.
    fn steps(&self) -> [(u64, u64); 3] {
        let Place { pages, page_tokens, page_stride, token_stride, head_stride, .. } = self.place;
        [(page_stride, pages), (token_stride, page_tokens), (head_stride, self.form.heads)]
            .map(|(stride, count)| (stride, count.max(1)))
    }

    /// Refuses sizes of zero, places past 64 bits, and strides by which two elements would share bytes.
    pub(super) fn check(&self) -> Result<Lattice, PagedError> {
        let refuse =
            |reason: String| Err(PagedError::Layout { what: format!("tensor {:?}", self.form.name), reason });
        for (what, size) in [
            ("heads", self.form.heads),
            ("elements a head", self.form.dim),
            ("tokens a page", self.place.page_tokens),
        ] {
            if size == 0 {
                return refuse(format!("0 {what} hold nothing; there is at least 1"));
            }
        }
        self.form.token_bytes()?;
        self.pool_bytes()?;
        let page = || format!("a page of {:?}", self.form.name);
        times(page, self.form.token_bytes()?, self.place.page_tokens)?;
        let lattice = Lattice::new(self)?;
        match lattice.crowded() {
            None => Ok(lattice),
            Some((stride, extent)) => refuse(format!(
                "a stride of {stride} bytes steps over items that take {extent}, so two of them would share bytes; strides are \
                 at least as large as what they step over"
            )),
        }
    }
}

/// Where the heads of a tensor start: multiples of strides, ascending, without those that are there once only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lattice {
    base: u64,
    steps: Vec<(u64, u64)>,
    bytes: u64,
}

impl Lattice {
    fn new(tensor: &PoolTensor) -> Result<Lattice, PagedError> {
        let mut steps: Vec<_> = tensor.steps().into_iter().filter(|&(_, count)| count > 1).collect();
        steps.sort_unstable();
        Ok(Lattice { base: tensor.place.base, steps, bytes: tensor.form.head_bytes()? })
    }

    /// Bytes from the first to behind the last that `steps` steps lead to. They fit: `pool_bytes` did.
    fn extent(&self, steps: usize) -> u64 {
        self.steps[..steps].iter().fold(self.bytes, |sum, (stride, count)| sum + stride * (count - 1))
    }

    /// The first stride that is smaller than what it steps over. Without one no two heads share a byte.
    fn crowded(&self) -> Option<(u64, u64)> {
        let mut steps = self.steps.iter().enumerate().map(|(i, &(stride, _))| (stride, self.extent(i)));
        steps.find(|(stride, extent)| stride < extent)
    }

    /// Why the two may share bytes, if they may: exact for equal strides, else by their hulls. Neither is crowded.
    pub(super) fn overlap(&self, other: &Lattice) -> Option<&'static str> {
        let ends = |of: &Lattice| (of.base, of.base + of.extent(of.steps.len()));
        let ((start, end), (other_start, other_end)) = (ends(self), ends(other));
        if end <= other_start || other_end <= start {
            return None;
        }
        if self.steps != other.steps {
            return Some("they interleave with different strides, so it cannot be told that they do not");
        }
        let shift = i128::from(other.base) - i128::from(self.base);
        self.meets(other, self.steps.len(), shift).then_some("some of their heads share bytes")
    }

    /// Is there a head of `self` and one of `other` that share a byte when `other` starts `shift` bytes behind `self`? What lies below a step is
    /// smaller than it, so only the two multiples around the shift count.
    fn meets(&self, other: &Lattice, steps: usize, shift: i128) -> bool {
        let Some(&(stride, count)) = self.steps[..steps].last() else {
            return -i128::from(other.bytes) < shift && shift < self.bytes.into();
        };
        let below = shift.div_euclid(stride.into());
        [below, below + 1].into_iter().any(|multiple| {
            multiple.unsigned_abs() < count.into()
                && self.meets(other, steps - 1, shift - multiple * i128::from(stride))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn lattice(base: u64, steps: [(u64, u64); 3], dim: u64) -> (PoolTensor, Vec<u64>) {
        let [(page_stride, pages), (token_stride, page_tokens), (head_stride, heads)] = steps;
        let form = Form::new("t", Dtype::Bytes, heads, dim);
        let place = Place { pool: 0, base, pages, page_tokens, page_stride, token_stride, head_stride };
        let mut bytes = Vec::new();
        for page in 0..pages {
            for token in 0..page_tokens {
                for head in 0..heads {
                    let start = base + page * page_stride + token * token_stride + head * head_stride;
                    bytes.extend(start..start + dim);
                }
            }
        }
        (PoolTensor { form, place }, bytes)
    }

    proptest! {
        /// What is let through shares no byte; and two tensors with equal strides are told to overlap just when they do.
        #[test]
        fn overlaps_are_found(
            steps in prop::array::uniform3((1..40u64, 1..5u64)),
            dims in (1..9u64, 1..9u64),
            bases in (0..60u64, 0..60u64),
        ) {
            let (first, bytes) = lattice(bases.0, steps, dims.0);
            let (second, other_bytes) = lattice(bases.1, steps, dims.1);
            if let Ok(of_first) = first.check() {
                let set: HashSet<u64> = bytes.iter().copied().collect();
                prop_assert_eq!(set.len(), bytes.len(), "shares bytes with itself");
                prop_assert_eq!(first.pool_bytes().unwrap(), bytes.iter().max().unwrap() + 1);
                if let Ok(of_second) = second.check() {
                    let shared = other_bytes.iter().any(|byte| set.contains(byte));
                    prop_assert_eq!(of_first.overlap(&of_second).is_some(), shared);
                }
            }
        }

        /// With other strides whatever shares bytes is refused.
        #[test]
        fn different_strides_are_never_let_through(
            first in prop::array::uniform3((1..40u64, 1..4u64)),
            second in prop::array::uniform3((1..40u64, 1..4u64)),
            bases in (0..200u64, 0..200u64),
        ) {
            let ((first, bytes), (second, other_bytes)) = (lattice(bases.0, first, 2), lattice(bases.1, second, 2));
            if let (Ok(of_first), Ok(of_second)) = (first.check(), second.check()) {
                let set: HashSet<u64> = bytes.into_iter().collect();
                let shared = other_bytes.iter().any(|byte| set.contains(byte));
                prop_assert!(!shared || of_first.overlap(&of_second).is_some());
            }
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_errors() {
        let huge = 1 << 40;
        for steps in [[(huge, huge), (1, 1), (1, 1)], [(1, 1), (u64::MAX, 3), (1, 1)]] {
            let [(page_stride, pages), (token_stride, page_tokens), (head_stride, heads)] = steps;
            let place =
                Place { pool: 0, base: 0, pages, page_tokens, page_stride, token_stride, head_stride };
            let tensor = PoolTensor { form: Form::new("t", Dtype::Bf16, heads, 8), place };
            assert!(matches!(tensor.check(), Err(PagedError::Overflow { .. })));
        }
        let form = Form::new("t", Dtype::Bf16, u64::MAX, 3);
        assert!(matches!(form.token_bytes(), Err(PagedError::Overflow { .. })));
    }
}
