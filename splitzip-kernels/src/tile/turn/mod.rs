//! Turns: the groups of a tensor, one after the other, and the places of their variable parts.
//!
//! Parts stand in chunk order in a frame, but a program does not know how many words come before its own. A kernel says in three calls what it
//! needs, and a [`Placement`] says how it is done:
//!
//! | call | when |
//! | --- | --- |
//! | [`Turn::count`] | the length of the part is known |
//! | [`Turn::next`] | the part stands in the memory of the program |
//! | [`Turn::leave`] | there is no group left |
//!
//! On the GPU (`block.rs`) blocks of 16 programs stay and take groups from a queue; on the CPU (`sequential.rs`) programs run in order, and a part
//! stands where the one before it ends: that is what all others must give.

#[cfg(target_arch = "nvptx64")]
mod block;
#[cfg(not(target_arch = "nvptx64"))]
mod sequential;

#[cfg(target_arch = "nvptx64")]
pub use block::Turn;
#[cfg(not(target_arch = "nvptx64"))]
pub use sequential::Turn;

use crate::arch;
use crate::launch::{Extent, Size, memory_arguments};
use crate::stream::groups;

/// In which order variable parts stand in a frame.
pub trait Placement: Copy + 'static {
    /// In the order of the chunks?
    const IN_ORDER: bool;
}

/// Chunk order: the bytes are a function of the input.
#[derive(Clone, Copy, Debug)]
pub struct InOrder;

impl Placement for InOrder {
    const IN_ORDER: bool = true;
}

/// Groups stand as they come: one atomic a group, nobody waits. For frames that live as long as a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival;

impl Placement for Arrival {
    const IN_ORDER: bool = false;
}

/// Who knows where the parts of a tensor end.
#[derive(Clone, Copy)]
pub struct Ended {
    /// Not 0: this program does.
    pub here: u32,
    /// Words of the frame after this tensor.
    pub words: u64,
}

/// Bytes of block memory that turns take.
pub const TURN_BYTES: u32 = 608;
/// Parts that a program holds at once.
pub const PARTS_HELD: u32 = 3;

/// What blocks tell each other while a tensor is encoded. It must be [`Order::prepared`] before it is used for the first time, and cleans itself.
///
/// A header, then words by 32, 1024, 32768 groups, then by group: the places of all earlier groups are one trip to memory away, for any number
/// of them up to 32768 (1 GiB of bf16), and two beyond.
#[derive(Clone, Copy)]
pub struct Order(*mut u8);

impl Order {
    /// Bytes of the header.
    pub const HEADER_BYTES: u64 = 32;
    /// A double word of the header that nobody uses.
    pub const SPARE: u64 = 24;
    /// Says that this is an order and not just any memory.
    const MAGIC: u32 = 0x5350_4c5a;

    /// Bytes for a tensor of so many elements.
    pub const fn bytes_for(elements: u64) -> u64 {
        let groups = groups(elements);
        let sums = groups.div_ceil(1 << 5) + groups.div_ceil(1 << 10) + groups.div_ceil(1 << 15);
        (Self::HEADER_BYTES + 8 * (sums + groups)).next_multiple_of(16)
    }

    /// What the header must be before the first use; everything behind it is zero.
    pub const fn prepared() -> [u32; 8] {
        [0, 0, 1, Self::MAGIC, 0, 0, 0, 0]
    }
}

impl Extent for Order {
    fn bytes(size: Size) -> u64 {
        Order::bytes_for(size.elements)
    }
    const ALIGN: u64 = 16;
}
memory_arguments! { target [] Order = Order; }

/// The variable parts of a frame that is encoded.
#[derive(Clone, Copy)]
pub struct PartsOut(*mut u8);

impl Extent for PartsOut {
    fn bytes(_: Size) -> u64 {
        0 // measured by the caller: it depends on what is coded
    }
    const ALIGN: u64 = 4;
}
memory_arguments! { target [] PartsOut = PartsOut; }

impl PartsOut {
    /// From word `start` on.
    #[inline(always)]
    fn at(self, start: u64) -> PartsOut {
        PartsOut(self.0.wrapping_add(start as usize * 4))
    }

    /// Word `at`, for one lane.
    ///
    /// # Safety
    /// The frame has room for it.
    #[inline(always)]
    unsafe fn store(self, at: u32, value: u32) {
        // SAFETY: by contract.
        unsafe { arch::store32(self.0.add(at as usize * 4), value) }
    }
}
