//! The memory that encoding a frame needs besides the frame.

use crate::format::Layout;
use crate::steps::{COUNTS_BYTES, TABLE_BYTES};
use splitzip_kernels::tile::{Order, TAIL_BYTES};

/// Where things lie in the memory that encoding a frame needs besides the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workspace {
    /// Counters of a sample, for one tensor after the other.
    pub counts_at: u64,
    /// Planes of a short chunk.
    pub tail_at: u64,
    /// Tables of the codebooks, one a tensor.
    pub tables_at: u64,
    /// Orders, one a tensor: see [`order_at`].
    pub orders_at: u64,
    /// All of it.
    pub bytes: u64,
}

impl Workspace {
    /// The workspace of a frame.
    pub fn of(layout: &Layout) -> Workspace {
        let tail_at = COUNTS_BYTES;
        let tables_at = tail_at + TAIL_BYTES;
        let orders_at = (tables_at + TABLE_BYTES * layout.tensors.len() as u64).next_multiple_of(128);
        let bytes = orders_at + order_at(layout, layout.tensors.len());
        Workspace { counts_at: 0, tail_at, tables_at, orders_at, bytes }
    }

    /// That of decoding: planes of a short chunk, and nothing else.
    pub const fn tail_only() -> Workspace {
        Workspace { counts_at: 0, tail_at: 0, tables_at: 0, orders_at: 0, bytes: TAIL_BYTES }
    }

    /// Where the table of a tensor lies.
    pub fn table_at(&self, number: usize) -> u64 {
        self.tables_at + TABLE_BYTES * number as u64
    }
}

/// Where the [`Order`] of a tensor lies behind that of the first one.
pub(crate) fn order_at(layout: &Layout, number: usize) -> u64 {
    layout.tensors[..number].iter().map(|tensor| Order::bytes_for(tensor.elements)).sum()
}
