//! The one description that every layout comes down to, and that a kernel evaluates: runs of contiguous bytes.

use super::error::times;
use super::{PageIds, PageTable, PagedError, PoolTensor};
use std::ops::Range;

/// Where the bytes of a tensor lie, in runs of contiguous bytes. All numbers are bytes, but for the two that count.
///
/// Byte `b` of the tensor, 0 to `bytes`, in the order in which elements are encoded, is found so:
///
/// ```text
/// q      = first_byte + b                       its place among all bytes of the pages in the table
/// run    = q / run_bytes                        its run, and its place there: q % run_bytes
/// row    = run / runs_in_row                    its row, and the run there:   run % runs_in_row
/// entry  = row / rows_in_page                   its entry of the page table, and the row there: row % rows_in_page
/// offset = base + ids[entry] * page_stride + (row % rows_in_page) * row_stride + (run % runs_in_row) * run_stride
///        + q % run_bytes
/// ```
///
/// A row is a token and a run is a head of it. Where heads lie behind each other (`NHD`), a run is a token and `runs_in_row` is 1; where tokens do
/// as well, a run is a page, and so is a row. So `rows_in_page` and `runs_in_row` are 1 in most layouts of serving engines, and `HND` has
/// `rows_in_page` tokens of `runs_in_row` heads. A stride that is never taken is 0. The last page may be filled in part: only `bytes` ends the tensor.
///
/// Divisions are the cost of this: [`Runs::shifts`] says whether all are shifts, and [`Runs::whole_in_run`] whether a chunk needs only one place.
/// [`Runs::alignment`] says how wide loads may be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Runs {
    /// Where the first run of page 0 starts in the pool.
    pub base: u64,
    /// From a page to the next one of the pool.
    pub page_stride: u64,
    /// From a row to the next one of its page.
    pub row_stride: u64,
    /// From a run to the next one of its row.
    pub run_stride: u64,
    /// Bytes of a run, at least 1.
    pub run_bytes: u64,
    /// Runs of a row, at least 1.
    pub runs_in_row: u64,
    /// Rows of a page, at least 1.
    pub rows_in_page: u64,
    /// Bytes of the first page, in the order of the tensor, in front of it: not 0 for a table that starts within a page.
    pub first_byte: u64,
    /// Bytes of the tensor.
    pub bytes: u64,
}

/// The divisions of [`Runs`] as shifts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shifts {
    /// The logarithm of `run_bytes`.
    pub run_bytes: u32,
    /// That of `runs_in_row`.
    pub runs_in_row: u32,
    /// That of `rows_in_page`.
    pub rows_in_page: u32,
}

impl Runs {
    /// The runs of the tokens of `table`.
    pub(super) fn new(tensor: &PoolTensor, table: &PageTable<'_>) -> Result<Runs, PagedError> {
        let (form, place) = (&tensor.form, &tensor.place);
        let token_bytes = form.token_bytes()?;
        let bytes = |tokens| times(|| format!("{tokens} tokens of {:?}", form.name), tokens, token_bytes);
        let runs = Runs {
            base: place.base,
            page_stride: place.page_stride,
            row_stride: place.token_stride,
            run_stride: place.head_stride,
            run_bytes: form.head_bytes()?,
            runs_in_row: form.heads,
            rows_in_page: place.page_tokens,
            first_byte: bytes(table.first())?,
            bytes: bytes(table.tokens())?,
        };
        // The end of the last page in the order of the tensor: what a cursor may reach.
        bytes(table.first().saturating_add(table.tokens()))?;
        Ok(Runs { page_stride: if place.pages > 1 { place.page_stride } else { 0 }, ..runs }.merged())
    }

    /// The same bytes in as few and long runs as the strides alone allow.
    fn merged(mut self) -> Runs {
        if self.runs_in_row == 1 || self.run_stride == self.run_bytes {
            self.run_bytes *= self.runs_in_row;
            (self.runs_in_row, self.run_stride) = (1, 0);
            if self.rows_in_page == 1 || self.row_stride == self.run_bytes {
                self.run_bytes *= self.rows_in_page;
                (self.rows_in_page, self.row_stride) = (1, 0);
            }
        } else if self.rows_in_page == 1 {
            self.row_stride = 0;
        }
        self
    }

    /// The largest power of two that divides the place of every run and its bytes: loads of so many bytes never cross the end of a run, and are aligned if the pool is.
    pub fn alignment(&self) -> u64 {
        let all = self.base
            | self.page_stride
            | self.row_stride
            | self.run_stride
            | self.run_bytes
            | self.first_byte;
        1 << all.trailing_zeros().min(63)
    }

    /// The divisions as shifts, if all three divisors are powers of two.
    pub fn shifts(&self) -> Option<Shifts> {
        let shift = |divisor: u64| divisor.is_power_of_two().then(|| divisor.trailing_zeros());
        Some(Shifts {
            run_bytes: shift(self.run_bytes)?,
            runs_in_row: shift(self.runs_in_row)?,
            rows_in_page: shift(self.rows_in_page)?,
        })
    }

    /// Does every piece of `piece` bytes (counted from the start of the tensor; the last one may be shorter) lie within one run?
    pub fn whole_in_run(&self, piece: u64) -> bool {
        let whole = piece != 0
            && self.run_bytes.is_multiple_of(piece)
            && (self.first_byte % self.run_bytes).is_multiple_of(piece);
        whole || self.first_byte % self.run_bytes + self.bytes <= self.run_bytes
    }

    /// Where byte `byte` of the tensor lies in the pool: the formula of the type, with `page` for the number of the page of an entry of the table.
    pub fn place(&self, byte: u64, page: impl Fn(u64) -> u64) -> u64 {
        let from = self.first_byte + byte;
        let run = from / self.run_bytes;
        let row = run / self.runs_in_row;
        self.base
            + page(row / self.rows_in_page) * self.page_stride
            + row % self.rows_in_page * self.row_stride
            + run % self.runs_in_row * self.run_stride
            + from % self.run_bytes
    }

    /// Calls `visit` with place in the pool and length of the pieces of a range of bytes of the tensor, in order, until it says `false`; pieces that
    /// touch are one.
    ///
    /// The range lies in the tensor, and `ids` are those of a checked table.
    pub(crate) fn segments(
        &self,
        ids: &PageIds<'_>,
        range: Range<u64>,
        mut visit: impl FnMut(u64, u64) -> bool,
    ) {
        if range.start >= range.end {
            return;
        }
        let (from, mut left) = (self.first_byte + range.start, range.end - range.start);
        let (run, mut inside) = (from / self.run_bytes, from % self.run_bytes);
        let (row, mut run) = (run / self.runs_in_row, run % self.runs_in_row);
        let (mut entry, mut row) = (row / self.rows_in_page, row % self.rows_in_page);
        let mut page = self.base + page_of(ids, entry) * self.page_stride;
        let mut open = (0, 0);
        loop {
            let at = page + row * self.row_stride + run * self.run_stride + inside;
            let bytes = left.min(self.run_bytes - inside);
            if open.0 + open.1 == at {
                open.1 += bytes;
            } else {
                if open.1 != 0 && !visit(open.0, open.1) {
                    return;
                }
                open = (at, bytes);
            }
            left -= bytes;
            if left == 0 {
                visit(open.0, open.1);
                return;
            }
            (inside, run) = (0, run + 1);
            if run == self.runs_in_row {
                (run, row) = (0, row + 1);
                if row == self.rows_in_page {
                    (row, entry) = (0, entry + 1);
                    page = self.base + page_of(ids, entry) * self.page_stride;
                }
            }
        }
    }

    /// Where a range of bytes of the tensor starts in the pool, if it lies there in one piece. As [`Runs::segments`].
    pub(crate) fn piece(&self, ids: &PageIds<'_>, range: Range<u64>) -> Option<u64> {
        let (mut found, bytes) = (None, range.end - range.start);
        self.segments(ids, range, |at, length| {
            found = Some(at).filter(|_| length == bytes);
            false
        });
        found
    }
}

/// The page of an entry. Entries of checked tables are there and not negative.
fn page_of(ids: &PageIds<'_>, entry: u64) -> u64 {
    match *ids {
        PageIds::Consecutive { first, .. } => first + entry,
        PageIds::I32(ids) => ids[entry as usize] as u64,
        PageIds::I64(ids) => ids[entry as usize] as u64,
        PageIds::Device { .. } => 0,
    }
}
