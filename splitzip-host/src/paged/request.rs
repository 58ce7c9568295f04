//! The tensors of a request: forms, places, and the tables that say which pages are its own.

use super::error::described;
use super::{Form, PageIds, PageTable, PagedError, Place, PoolTensor, Runs};
use crate::format::{Frame, FrameSpec, TensorSpec};
use crate::{Dtype, Flags, Result, Scheme};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;

/// A tensor of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagedTensor<'a> {
    tensor: PoolTensor,
    table: PageTable<'a>,
    runs: Runs,
}

impl<'a> PagedTensor<'a> {
    pub(super) fn new(tensor: PoolTensor, table: PageTable<'a>) -> Result<PagedTensor<'a>, PagedError> {
        let (page_tokens, layout) = (table.page_tokens(), tensor.place.page_tokens);
        if page_tokens != layout {
            return Err(PagedError::PageSize { table: page_tokens, layout });
        }
        let runs = Runs::new(&tensor, &table)?;
        Ok(PagedTensor { tensor, table, runs })
    }

    /// What it is.
    pub fn form(&self) -> &Form {
        &self.tensor.form
    }

    /// Where it lies in its pool.
    pub fn place(&self) -> &Place {
        &self.tensor.place
    }

    /// Its pages.
    pub fn table(&self) -> &PageTable<'a> {
        &self.table
    }

    /// Its tokens.
    pub fn tokens(&self) -> u64 {
        self.table.tokens()
    }

    /// Its bytes as runs: what a kernel evaluates, with the numbers of the pages.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(super) fn pool_bytes(&self) -> Result<u64, PagedError> {
        self.tensor.pool_bytes()
    }

    /// The numbers of its pages.
    pub(crate) fn ids(&self) -> PageIds<'a> {
        self.table.ids()
    }
}

/// The tensors of a request, in the order of its frame: a batch that is encoded from pages or decoded into them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paged<'a> {
    tensors: Vec<PagedTensor<'a>>,
    layout_id: u64,
}

impl<'a> Paged<'a> {
    /// Made by [`KvLayout::bind`](super::KvLayout::bind), which has checked that no two tensors share bytes.
    pub(super) fn new(tensors: Vec<PagedTensor<'a>>) -> Paged<'a> {
        let layout_id = layout_id(&tensors, &[]);
        Paged { tensors, layout_id }
    }

    /// The tensors.
    pub fn tensors(&self) -> &[PagedTensor<'a>] {
        &self.tensors
    }

    /// A number for the logical form: names, dtypes, heads and dimensions of the tensors, whatever their order, and what was [mixed in](Paged::salted). Places, pages and the
    /// number of tokens are not in it, so it is the same for all layouts that can exchange frames. Never 0, which in a frame means that it has none.
    pub fn layout_id(&self) -> u64 {
        self.layout_id
    }

    /// The same with other bytes mixed into the layout id: whatever else both sides must agree on, as the name of the model or the scales of its fp8.
    pub fn salted(mut self, salt: &[u8]) -> Paged<'a> {
        self.layout_id = layout_id(&self.tensors, salt);
        self
    }

    /// Some of the tensors, with the layout id of all: what is decoded alone from a frame with more.
    pub fn select(&self, keep: impl Fn(&Form) -> bool) -> Paged<'a> {
        let tensors = self.tensors.iter().filter(|tensor| keep(tensor.form())).cloned().collect();
        Paged { tensors, layout_id: self.layout_id }
    }

    /// The same tensors in the order of a key, equal ones as they were: those that are coded alike one behind the other, which a device encodes in one launch. Frames are
    /// decoded by names, so the order matters to nobody else.
    ///
    /// ```
    /// # use splitzip_host::paged::{KvLayout, KvShape};
    /// # use splitzip_host::{Bases, Dtype, Flags, Scheme};
    /// # fn main() -> splitzip_host::Result<()> {
    /// # let shape = KvShape { layers: 3, pages: 4, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };
    /// // All keys, then all values.
    /// let request = KvLayout::vllm(&shape)?.bind_consecutive(0, 64)?.arranged(|form| form.name.ends_with(".v"));
    /// let mut spec = request.spec(Scheme::W2x2x3, Flags::default());
    /// spec.tensors[..3].iter_mut().for_each(|key| key.bases = Bases::Channel);
    /// assert_eq!(spec.tensors[2].name, "layers.2.k");
    /// # Ok(())
    /// # }
    /// ```
    pub fn arranged<K: Ord>(mut self, key: impl Fn(&Form) -> K) -> Paged<'a> {
        self.tensors.sort_by_key(|tensor| key(tensor.form()));
        self
    }

    /// Some of the tokens of every tensor, which need not start or end with a page, with the layout id of all.
    ///
    /// # Errors
    /// [`PagedError::TokensOutOfRange`] for tokens that a tensor does not have.
    pub fn slice(&self, tokens: Range<u64>) -> Result<Paged<'a>, PagedError> {
        self.part((0..self.tensors.len()).map(|tensor| (tensor, tokens.clone())))
    }

    /// Some tokens of some tensors, by their numbers.
    pub(crate) fn part(
        &self,
        of: impl Iterator<Item = (usize, Range<u64>)>,
    ) -> Result<Paged<'a>, PagedError> {
        let part = |(tensor, tokens): (usize, Range<u64>)| {
            let of = &self.tensors[tensor];
            if tokens == (0..of.tokens()) {
                return Ok(of.clone());
            }
            PagedTensor::new(of.tensor.clone(), of.table.slice(tokens)?)
        };
        Ok(Paged { tensors: of.map(part).collect::<Result<_, _>>()?, layout_id: self.layout_id })
    }

    /// The tensors of two layouts as one request: tensors with pages of another size, or with tables of their own.
    ///
    /// # Errors
    /// [`PagedError::Overlap`] for tensors of the same pool whose pages may share bytes, [`PagedError::Name`] for equal names,
    /// [`PagedError::DeviceIds`] for tables that cannot be looked at and would have to be.
    pub fn join(&self, other: &Paged<'a>) -> Result<Paged<'a>, PagedError> {
        for first in &self.tensors {
            for second in &other.tensors {
                if first.form().name == second.form().name {
                    return Err(PagedError::Name { tensor: first.form().name.clone(), found: 2 });
                }
                super::pages_apart(first, second)?;
            }
        }
        Ok(Paged::new([&self.tensors[..], &other.tensors[..]].concat()))
    }

    /// A frame for these tensors: floats with `scheme` and a base per chunk, bytes stored. What differs between tensors (channel bases, other schemes) may be
    /// changed in the result.
    pub fn spec(&self, scheme: Scheme, flags: Flags) -> FrameSpec {
        let spec = |tensor: &PagedTensor<'_>| {
            let form = tensor.form();
            let scheme = if form.dtype.is_float() { scheme } else { Scheme::Stored };
            TensorSpec::new(&form.name, form.dtype, scheme, &form.shape(tensor.tokens()))
        };
        FrameSpec { tensors: self.tensors.iter().map(spec).collect(), flags, layout_id: self.layout_id }
    }

    /// Says whether `spec` is a frame of just these tensors, in this order.
    pub(crate) fn check_spec(&self, spec: &FrameSpec) -> Result<()> {
        let (expected, got) = (spec.tensors.len(), self.tensors.len());
        if expected != got {
            return Err(crate::Error::Count { what: "paged tensors", expected, got });
        }
        self.check_layout_id(spec.layout_id)?;
        for (tensor, spec) in self.tensors.iter().zip(&spec.tensors) {
            if tensor.form().name != spec.name {
                return Err(PagedError::Name { tensor: tensor.form().name.clone(), found: 0 }.into());
            }
            check_pair(tensor, spec.dtype, &spec.shape, tensor.tokens())?;
        }
        Ok(())
    }

    /// The tensors of a frame that these are, by their names, and the bytes of each that are wanted: those of all tokens, or of `tokens`.
    pub(crate) fn pair(
        &self,
        frame: &FrameSpec,
        tokens: Option<Range<u64>>,
    ) -> Result<Vec<(usize, Range<u64>)>> {
        self.check_layout_id(frame.layout_id)?;
        let mut numbers: HashMap<&str, (usize, usize)> = HashMap::new();
        for (number, spec) in frame.tensors.iter().enumerate() {
            numbers.entry(&spec.name).or_insert((number, 0)).1 += 1;
        }
        let mut pairs = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let name = tensor.form().name.as_str();
            let (number, found) = numbers.get(name).copied().unwrap_or((0, 0));
            if found != 1 {
                return Err(PagedError::Name { tensor: name.to_owned(), found }.into());
            }
            let spec = &frame.tensors[number];
            let all = spec.shape.first().copied().unwrap_or(0);
            let wanted = tokens.clone().unwrap_or(0..all);
            let Range { start, end } = wanted;
            if start > end || end > all {
                return Err(PagedError::TokensOutOfRange { start, end, tokens: all }.into());
            }
            if end - start != tensor.tokens() {
                let here = format!("place for {} tokens", tensor.tokens());
                let frame = match &tokens {
                    Some(_) => format!("{} tokens, {start} to {end},", end - start),
                    None => format!("{all} tokens"),
                };
                return Err(PagedError::Pairing { tensor: name.to_owned(), frame, here }.into());
            }
            check_pair(tensor, spec.dtype, &spec.shape, all)?;
            // Below the bytes of the tensor in the frame, whose shape this is.
            let token_bytes = tensor.form().token_bytes()?;
            pairs.push((number, start * token_bytes..end * token_bytes));
        }
        Ok(pairs)
    }

    /// Compares checksums of a frame with what was decoded from it: of chunks that are there in whole, and of tensors of which all is.
    pub(crate) fn verify(
        &self,
        frame: &Frame<'_>,
        tokens: Option<Range<u64>>,
        pools: &[&[u8]],
    ) -> Result<()> {
        for (number, (of, bytes)) in self.pair(frame.spec(), tokens)?.into_iter().enumerate() {
            let (tensor, elements) = (frame.tensor(of)?, super::naive::gather(self, number, pools)?);
            let layout = tensor.layout();
            let first = bytes.start.div_ceil(layout.chunk_bytes());
            let skipped = (first * layout.chunk_bytes() - bytes.start).min(bytes.end - bytes.start) as usize;
            let whole = match bytes.end {
                end if end == layout.bytes => elements.len(),
                end => elements.len().saturating_sub((end % layout.chunk_bytes()) as usize),
            };
            if skipped < whole {
                tensor.verify_chunks(first, &elements[skipped..whole])?;
            }
            if bytes == (0..layout.bytes) && tensor.checksum().is_some() {
                tensor.verify_checksum(crate::format::tensor_checksum(layout.dtype, &elements))?;
            }
        }
        Ok(())
    }

    fn check_layout_id(&self, frame: u64) -> Result<(), PagedError> {
        if frame == 0 || frame == self.layout_id {
            return Ok(());
        }
        Err(PagedError::LayoutId { frame, here: self.layout_id })
    }

    /// Says whether these pools of so many bytes hold all pages; those of a destination (`unique`) no page twice.
    pub(crate) fn check_pools(&self, pools: &[u64], unique: bool) -> Result<(), PagedError> {
        self.check_pools_on(pools, unique, false)
    }

    /// The same, where page numbers may be in device memory.
    pub(crate) fn check_pools_on(
        &self,
        pools: &[u64],
        unique: bool,
        on_device: bool,
    ) -> Result<(), PagedError> {
        let mut checked: Option<(PageTable<'_>, u64)> = None;
        for tensor in &self.tensors {
            let (name, place) = (&tensor.form().name, tensor.place());
            let got = pools.get(place.pool).copied();
            let (pool, given) = (place.pool, pools.len());
            let got = got.ok_or_else(|| PagedError::PoolMissing { tensor: name.clone(), pool, given })?;
            let needed = tensor.pool_bytes()?;
            if needed > got {
                return Err(PagedError::PoolBytes { tensor: name.clone(), pool, needed, got });
            }
            // Most requests have one table for all tensors.
            if checked != Some((tensor.table, place.pages)) {
                match tensor.table.ids() {
                    // Kernels look at them.
                    PageIds::Device { .. } if on_device => {}
                    _ => tensor.table.check(place.pages, unique)?,
                }
                checked = Some((tensor.table, place.pages));
            }
        }
        Ok(())
    }
}

fn check_pair(tensor: &PagedTensor<'_>, dtype: Dtype, shape: &[u64], tokens: u64) -> Result<(), PagedError> {
    let form = tensor.form();
    let expected = form.shape(tokens);
    if dtype == form.dtype && shape == expected {
        return Ok(());
    }
    let (frame, here) = (described(dtype, shape), described(form.dtype, &expected));
    Err(PagedError::Pairing { tensor: form.name.clone(), frame, here })
}

/// The first 8 bytes of a SHA-256 over the forms, sorted by name.
fn layout_id(tensors: &[PagedTensor<'_>], salt: &[u8]) -> u64 {
    let mut forms: Vec<&Form> = tensors.iter().map(PagedTensor::form).collect();
    forms.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut digest = Sha256::new();
    digest.update(b"SplitZip logical form 1");
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    part(salt);
    for form in forms {
        part(form.name.as_bytes());
        part(&[form.dtype.id()]);
        part(&form.heads.to_le_bytes());
        part(&form.dim.to_le_bytes());
    }
    let digest = digest.finalize();
    let id = digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    id.max(1)
}
