//! How the exponents of a chunk are coded: with a window or with a codebook, as one list of functions for the loop over chunks.

use super::codebook;
use super::dtype::Dtype;
use super::ladder::Ladder;
use super::vector::Vector;
use super::window::{self, Base, Scratch, Shape};
use splitzip_kernels::stream::{MODE_CODED, MODE_ZEROS};
use std::marker::PhantomData;

/// A way to code exponents, which are in the scratch.
///
/// # Safety
/// Of all functions: the machine has the instructions of `V`. `codes` has 128 bytes for each bit of a code, `lows` a byte for each element with channel bases.
pub(super) trait Coder {
    /// Bits of a code of the first level.
    const CODE_BITS: usize;
    /// Does every channel have its own base?
    const CHANNELS: bool;
    /// What is made once for a piece.
    type Prepared<V: Vector>;
    /// What is known of a coded chunk before its part is written.
    type Coded: Copy;

    /// Prepares the table of a codebook, 256 bytes.
    unsafe fn prepare<V: Vector>(table: *const u8) -> Self::Prepared<V>;
    /// Codes exponents, whose sum is `sum`.
    unsafe fn code<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        prepared: &Self::Prepared<V>,
        lows: *const u8,
        sum: u64,
        codes: *mut u8,
        equal: bool,
    ) -> Self::Coded;
    /// Words of the part, and the mode.
    fn shape(coded: Self::Coded) -> (usize, u32);
    /// Writes the part; there are 128 bytes behind it.
    unsafe fn write<V: Vector, D: Dtype>(scratch: &mut Scratch, coded: Self::Coded, part: *mut u8);
    /// Decodes exponents. False if the part does not hold together, or has a mode that the coder does not know. There are 128 bytes behind it.
    unsafe fn decode<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        known: *const u8,
        codes: *const u8,
        part: *const u8,
        words: usize,
        mode: u32,
    ) -> bool;
    /// Writes exponents as they are. False where there is no fast path for that.
    unsafe fn write_raw<V: Vector, D: Dtype>(scratch: &mut Scratch, codes: *mut u8, part: *mut u8) -> bool;
    /// Reads exponents as they are. False where there is no fast path for that.
    unsafe fn read_raw<V: Vector, D: Dtype>(scratch: &mut Scratch, codes: *const u8, part: *const u8)
    -> bool;

    /// Words of the part of a raw chunk: more than any coded one has.
    fn raw_words<D: Dtype>() -> usize {
        32 * (D::EXPONENT_BITS as usize - Self::CODE_BITS)
    }
}

/// A window.
pub(super) struct Window<L, const CHANNELS: bool>(PhantomData<L>);
/// A codebook.
pub(super) struct Codebook;

// SAFETY of all blocks: by contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<L: Ladder, const CHANNELS: bool> Coder for Window<L, CHANNELS> {
    const CODE_BITS: usize = L::BITS[0];
    const CHANNELS: bool = CHANNELS;
    type Prepared<V: Vector> = ();
    type Coded = (Base, Shape);

    #[inline(always)]
    unsafe fn prepare<V: Vector>(_: *const u8) {}
    #[inline(always)]
    unsafe fn code<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        (): &(),
        lows: *const u8,
        sum: u64,
        codes: *mut u8,
        equal: bool,
    ) -> (Base, Shape) {
        unsafe { window::choose::<V, D, L, CHANNELS>(scratch, lows, sum, codes, equal) }
    }
    #[inline(always)]
    fn shape((base, shape): (Base, Shape)) -> (usize, u32) {
        (shape.words, if base.zeros { MODE_ZEROS } else { MODE_CODED })
    }
    #[inline(always)]
    unsafe fn write<V: Vector, D: Dtype>(scratch: &mut Scratch, (_, shape): (Base, Shape), part: *mut u8) {
        unsafe { window::write_part::<V, D, L>(scratch, shape, part) }
    }
    #[inline(always)]
    unsafe fn decode<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        known: *const u8,
        codes: *const u8,
        part: *const u8,
        words: usize,
        mode: u32,
    ) -> bool {
        unsafe { window::decode::<V, D, L, CHANNELS>(scratch, codes, known, part, words, mode == MODE_ZEROS) }
    }
    #[inline(always)]
    unsafe fn write_raw<V: Vector, D: Dtype>(scratch: &mut Scratch, codes: *mut u8, part: *mut u8) -> bool {
        unsafe { window::write_raw::<V, D, L>(scratch, codes, part) }
        true
    }
    #[inline(always)]
    unsafe fn read_raw<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        codes: *const u8,
        part: *const u8,
    ) -> bool {
        unsafe { window::read_raw::<V, D, L>(scratch, codes, part) }
        true
    }
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Coder for Codebook {
    const CODE_BITS: usize = 4;
    const CHANNELS: bool = false;
    type Prepared<V: Vector> = V::Table;
    /// Escapes.
    type Coded = usize;

    #[inline(always)]
    unsafe fn prepare<V: Vector>(table: *const u8) -> V::Table {
        unsafe { V::table(table) }
    }
    #[inline(always)]
    unsafe fn code<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        table: &V::Table,
        _: *const u8,
        _: u64,
        codes: *mut u8,
        _: bool,
    ) -> usize {
        unsafe { codebook::code::<V>(scratch, table, codes) }
    }
    #[inline(always)]
    fn shape(escapes: usize) -> (usize, u32) {
        (escapes, MODE_CODED)
    }
    #[inline(always)]
    unsafe fn write<V: Vector, D: Dtype>(scratch: &mut Scratch, escapes: usize, part: *mut u8) {
        if escapes != 0 {
            unsafe { scratch.escapes.put_records(&scratch.exponents, part) }
        }
    }
    #[inline(always)]
    unsafe fn decode<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        known: *const u8,
        codes: *const u8,
        part: *const u8,
        words: usize,
        mode: u32,
    ) -> bool {
        mode == MODE_CODED && unsafe { codebook::decode::<V, D>(scratch, codes, known, part, words) }
    }
    #[inline(always)]
    unsafe fn write_raw<V: Vector, D: Dtype>(scratch: &mut Scratch, codes: *mut u8, part: *mut u8) -> bool {
        if D::EXPONENT_BITS == 8 {
            unsafe { codebook::write_raw::<V>(scratch, codes, part) }
        }
        D::EXPONENT_BITS == 8
    }
    #[inline(always)]
    unsafe fn read_raw<V: Vector, D: Dtype>(
        scratch: &mut Scratch,
        codes: *const u8,
        part: *const u8,
    ) -> bool {
        if D::EXPONENT_BITS == 8 {
            unsafe { codebook::read_raw::<V>(scratch, codes, part) }
        }
        D::EXPONENT_BITS == 8
    }
}
