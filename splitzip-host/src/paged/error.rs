//! What can be wrong with layouts, page tables and pairs of them.

use crate::Dtype;

/// Why elements in pages cannot be reached, or must not be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagedError {
    /// A number that makes no layout: a size of zero, strides that let elements overlap, fields outside of a row.
    #[error("{what}: {reason}")]
    Layout {
        /// Which layout, tensor or field.
        what: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// Sizes and strides whose products do not fit.
    #[error("{what} does not fit into 64 bits; check sizes and strides")]
    Overflow {
        /// Which number.
        what: String,
    },
    /// Another number of pages than the tokens need.
    #[error(
        "{tokens} tokens from token {first} of the first page on, {page_tokens} in a page, take {expected} pages, but the \
         table has {got}; leave out the pages that are not used"
    )]
    PageCount {
        /// Tokens in the table.
        tokens: u64,
        /// Tokens of the first page in front of them.
        first: u64,
        /// Tokens of a page.
        page_tokens: u64,
        /// Pages that they take.
        expected: u64,
        /// Pages in the table.
        got: u64,
    },
    /// A number of tokens in the last page that it cannot have.
    #[error(
        "{valid} valid tokens in the last of {pages} pages are not possible; a page has {page_tokens}, so say 1 to \
         {page_tokens}, or 0 for an empty table"
    )]
    LastPage {
        /// What was given.
        valid: u64,
        /// Pages in the table.
        pages: u64,
        /// Tokens of a page.
        page_tokens: u64,
    },
    /// A table for pages of another size than those of the layout.
    #[error("the table is for pages of {table} tokens, and the layout has pages of {layout}")]
    PageSize {
        /// What the table says.
        table: u64,
        /// What the layout says.
        layout: u64,
    },
    /// A page that the pool does not have.
    #[error("entry {entry} of the page table is page {page}, but the pool has pages 0 to {}", last(*.pages))]
    PageOutOfRange {
        /// Which entry of the table.
        entry: u64,
        /// The page it names.
        page: i64,
        /// Pages of the pool.
        pages: u64,
    },
    /// A page that is written twice.
    #[error(
        "page {page} is more than once in the table of a destination; each page can hold the tokens of one entry only"
    )]
    DuplicatePage {
        /// The page.
        page: i64,
    },
    /// Tokens outside of a table.
    #[error("tokens {start} to {end} are out of range: there are {tokens}")]
    TokensOutOfRange {
        /// The first one that was asked for.
        start: u64,
        /// The one behind the last.
        end: u64,
        /// How many there are.
        tokens: u64,
    },
    /// Page numbers in device memory, where the host wants to read them.
    #[error("the page numbers are in device memory; give this executor a slice of host memory")]
    DeviceIds,
    /// A pool that was not given.
    #[error("tensor {tensor:?} lies in pool {pool}, but {given} pools were given")]
    PoolMissing {
        /// Name of the tensor.
        tensor: String,
        /// The number of its pool.
        pool: usize,
        /// How many pools there are.
        given: usize,
    },
    /// A pool that is smaller than its layout says.
    #[error("tensor {tensor:?} needs {needed} bytes of pool {pool}, which has {got}")]
    PoolBytes {
        /// Name of the tensor.
        tensor: String,
        /// The number of its pool.
        pool: usize,
        /// Bytes that all pages of the layout take.
        needed: u64,
        /// Bytes of the pool.
        got: u64,
    },
    /// Two tensors of a destination that may share bytes.
    #[error("tensors {first:?} and {second:?} of pool {pool} overlap, or may: {reason}")]
    Overlap {
        /// Name of one.
        first: String,
        /// Name of the other.
        second: String,
        /// The number of the pool.
        pool: usize,
        /// What is known about them.
        reason: String,
    },
    /// A frame of another logical form.
    #[error(
        "the frame has layout id {frame:#018x} and the tensors here {here:#018x}: names, dtypes or shapes of their rows \
         differ, or what was mixed in"
    )]
    LayoutId {
        /// That of the frame.
        frame: u64,
        /// That of the tensors.
        here: u64,
    },
    /// A tensor that is not what its namesake is.
    #[error("tensor {tensor:?} is {frame} in the frame and {here} here")]
    Pairing {
        /// Name of the tensor.
        tensor: String,
        /// What the frame says: dtype and shape.
        frame: String,
        /// What is asked for.
        here: String,
    },
    /// A tensor that the frame does not have, or has more than once.
    #[error("the frame has {found} tensors named {tensor:?}, and one is needed")]
    Name {
        /// The name.
        tensor: String,
        /// How many it has.
        found: usize,
    },
}

fn last(pages: u64) -> String {
    pages.checked_sub(1).map_or_else(|| "none".to_owned(), |last| last.to_string())
}

/// A dtype and a shape, for messages: `bf16 [160, 8, 128]`.
pub(crate) fn described(dtype: Dtype, shape: &[u64]) -> String {
    format!("{dtype} {shape:?}")
}

/// A product that has to fit.
pub(crate) fn times(what: impl FnOnce() -> String, a: u64, b: u64) -> Result<u64, PagedError> {
    a.checked_mul(b).ok_or_else(|| PagedError::Overflow { what: what() })
}

/// A sum that has to fit.
pub(crate) fn plus(what: impl FnOnce() -> String, a: u64, b: u64) -> Result<u64, PagedError> {
    a.checked_add(b).ok_or_else(|| PagedError::Overflow { what: what() })
}
