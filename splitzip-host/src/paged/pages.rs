//! Page tables: which pages hold the tokens of a request, in order.

use super::PagedError;
use super::error::{plus, times};
use std::ops::Range;

/// The numbers of pages, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PageIds<'a> {
    /// Page `first`, the one behind it, and so on: `count` pages. What lies in one piece is one page, or such a row of them.
    Consecutive {
        /// The first page.
        first: u64,
        /// How many.
        count: u64,
    },
    /// As most engines keep them.
    I32(&'a [i32]),
    /// As PyTorch keeps indices.
    I64(&'a [i64]),
    /// An array in device memory, which the host neither reads nor checks: for launches whose tables exist on a device alone.
    Device {
        /// Its address on the device.
        address: u64,
        /// How many pages.
        count: u64,
        /// Bytes of an entry: 4 (`i32`) or 8 (`i64`).
        entry_bytes: u32,
    },
}

impl PageIds<'_> {
    /// How many there are.
    pub fn len(&self) -> u64 {
        match *self {
            PageIds::Consecutive { count, .. } | PageIds::Device { count, .. } => count,
            PageIds::I32(ids) => ids.len() as u64,
            PageIds::I64(ids) => ids.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entry number `entry`, as it is; `None` behind the last one, and for what only a device can read.
    pub fn get(&self, entry: u64) -> Option<i64> {
        match *self {
            PageIds::Consecutive { first, count } if entry < count => {
                first.checked_add(entry).and_then(|page| i64::try_from(page).ok())
            }
            PageIds::I32(ids) => ids.get(usize::try_from(entry).ok()?).map(|&id| id.into()),
            PageIds::I64(ids) => ids.get(usize::try_from(entry).ok()?).copied(),
            _ => None,
        }
    }

    /// Entries of a range that lies in it.
    fn part(self, range: Range<u64>) -> Self {
        let indices = range.start as usize..range.end as usize;
        let count = range.end - range.start;
        match self {
            PageIds::Consecutive { first, .. } => {
                PageIds::Consecutive { first: first.saturating_add(range.start), count }
            }
            PageIds::I32(ids) => PageIds::I32(&ids[indices]),
            PageIds::I64(ids) => PageIds::I64(&ids[indices]),
            PageIds::Device { address, entry_bytes, .. } => PageIds::Device {
                address: address.wrapping_add(range.start.wrapping_mul(entry_bytes.into())),
                count,
                entry_bytes,
            },
        }
    }
}

/// The tokens of a request, and the pages that hold them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageTable<'a> {
    ids: PageIds<'a>,
    page_tokens: u64,
    first: u64,
    tokens: u64,
}

impl<'a> PageTable<'a> {
    /// `tokens` tokens from the start of the first page on; the last page may be filled in part.
    ///
    /// # Errors
    /// [`PagedError::PageCount`] unless there are just as many pages as the tokens need, [`PagedError::Layout`] for pages of
    /// no tokens.
    pub fn new(ids: PageIds<'a>, page_tokens: u64, tokens: u64) -> Result<PageTable<'a>, PagedError> {
        if page_tokens == 0 {
            let reason = "pages of 0 tokens hold nothing; a page has at least 1".to_owned();
            return Err(PagedError::Layout { what: "the page table".to_owned(), reason });
        }
        if let PageIds::Device { entry_bytes, .. } = ids
            && entry_bytes != 4
            && entry_bytes != 8
        {
            let reason = format!("entries of {entry_bytes} bytes are unknown; use 4 (i32) or 8 (i64)");
            return Err(PagedError::Layout { what: "the page table".to_owned(), reason });
        }
        let (expected, got) = (tokens.div_ceil(page_tokens), ids.len());
        if expected != got {
            return Err(PagedError::PageCount { tokens, first: 0, page_tokens, expected, got });
        }
        Ok(PageTable { ids, page_tokens, first: 0, tokens })
    }

    /// The same from the number of valid tokens in the last page, as FlashInfer's `kv_last_page_len` says it.
    ///
    /// # Errors
    /// [`PagedError::LastPage`] for a number that is not 1 to `page_tokens` (0 for no pages), [`PagedError::Overflow`].
    pub fn with_last_page(
        ids: PageIds<'a>,
        page_tokens: u64,
        valid: u64,
    ) -> Result<PageTable<'a>, PagedError> {
        let pages = ids.len();
        let possible = if pages == 0 { valid == 0 } else { (1..=page_tokens).contains(&valid) };
        if !possible {
            return Err(PagedError::LastPage { valid, pages, page_tokens });
        }
        let what = || "the number of tokens in the pages".to_owned();
        let before = times(what, pages.saturating_sub(1), page_tokens)?;
        PageTable::new(ids, page_tokens, plus(what, before, valid)?)
    }

    /// A part of the tokens, which need not start or end with a page. Pages that hold none of them are left out.
    ///
    /// # Errors
    /// [`PagedError::TokensOutOfRange`].
    pub fn slice(&self, tokens: Range<u64>) -> Result<PageTable<'a>, PagedError> {
        let Range { start, end } = tokens;
        if start > end || end > self.tokens {
            return Err(PagedError::TokensOutOfRange { start, end, tokens: self.tokens });
        }
        // `new` has counted the pages, so places of tokens stay below pages times their tokens.
        let (first, last) = (self.first + start, self.first + end);
        let pages = first / self.page_tokens..last.div_ceil(self.page_tokens);
        let pages = if start == end { pages.start..pages.start } else { pages };
        let first = if start == end { 0 } else { first % self.page_tokens };
        Ok(PageTable { ids: self.ids.part(pages), page_tokens: self.page_tokens, first, tokens: end - start })
    }

    /// The numbers of the pages.
    pub fn ids(&self) -> PageIds<'a> {
        self.ids
    }

    /// Tokens of a page.
    pub fn page_tokens(&self) -> u64 {
        self.page_tokens
    }

    /// Tokens of the first page in front of those of the table.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Tokens in the table.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Says whether a pool of `pages` pages has all of them, and, for a destination, has none twice.
    pub(crate) fn check(&self, pages: u64, unique: bool) -> Result<(), PagedError> {
        let out_of_range = |entry, page| PagedError::PageOutOfRange { entry, page, pages };
        match self.ids {
            PageIds::Device { .. } => Err(PagedError::DeviceIds),
            PageIds::Consecutive { count: 0, .. } => Ok(()),
            PageIds::Consecutive { first, count } => match first.checked_add(count) {
                Some(end) if end <= pages => Ok(()),
                _ => {
                    let entry = pages.saturating_sub(first);
                    Err(out_of_range(entry, i64::try_from(first.saturating_add(entry)).unwrap_or(i64::MAX)))
                }
            },
            PageIds::I32(ids) => check_ids(ids, pages, unique, out_of_range),
            PageIds::I64(ids) => check_ids(ids, pages, unique, out_of_range),
        }
    }
}

fn check_ids<T: Copy + Ord + Into<i64>>(
    ids: &[T],
    pages: u64,
    unique: bool,
    out_of_range: impl Fn(u64, i64) -> PagedError,
) -> Result<(), PagedError> {
    let inside = |&id: &T| u64::try_from(id.into()).is_ok_and(|id| id < pages);
    if let Some(entry) = ids.iter().position(|id| !inside(id)) {
        return Err(out_of_range(entry as u64, ids[entry].into()));
    }
    if unique && !ids.is_sorted_by(|a, b| a < b) {
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PagedError::DuplicatePage { page: pair[0].into() });
        }
    }
    Ok(())
}
