//! Schemes: how exponents become codes.
//!
//! Two families: [`W4`] looks exponents up in a calibrated codebook, [`Window`] codes their distance to the low end of a window that
//! each chunk (or each channel) finds for itself. To add a window scheme: a [`Ladder`] like `w2x3.rs`, its two names here, and its names
//! in the `scheme = [..]` lists of the kernels; `CONTRIBUTING.md` has every step, `docs/recipes/w5.patch` a whole example.

mod decoded;
mod ladder;
mod shape;
mod spread;
mod w2x2x3;
mod w2x3;
mod w3;
mod w4;
mod window;
mod zeros;

pub use decoded::Decoded;
pub use ladder::Ladder;
pub use shape::{Coded, Shape};
pub use spread::Spread;
pub use w4::{ESCAPE, W4, W4Table, encode_table};
pub use window::{Base, ValuePlanes, Window, low_of};
pub use zeros::zeros_and_sum;

/// `w3` with a base per chunk.
pub type W3 = Window<w3::W3, false>;
/// `w2x3` with a base per chunk.
pub type W2x3 = Window<w2x3::W2x3, false>;
/// `w2x2x3` with a base per chunk.
pub type W2x2x3 = Window<w2x2x3::W2x2x3, false>;
/// `w3` with channel bases.
pub type W3Channel = Window<w3::W3, true>;
/// `w2x3` with channel bases.
pub type W2x3Channel = Window<w2x3::W2x3, true>;
/// `w2x2x3` with channel bases.
pub type W2x2x3Channel = Window<w2x2x3::W2x2x3, true>;

use crate::dtype::Dtype;
use crate::launch::Argument;
use crate::tile::{
    BatchFrame, BatchFrameIn, Chunk, GroupSums, InChunk, OfBatch, Part, Parts, Program, Tile, Words,
};

/// A scheme: a ladder of code widths.
///
/// `LEVEL` is the hidden level of the kernel's body: closures of [`crate::tile::map`] must be unique for every level, or they stay
/// calls on a CPU (3 to 10 times slower).
pub trait Scheme: Copy + 'static {
    /// As in entry names: `w4`.
    const NAME: &'static str;
    /// Bits of a code of the first level, the one in the code plane.
    const CODE_BITS: u32;
    /// Is the code plane a packed one (in element order)?
    const PACKED: bool;
    /// Does every channel have its own base?
    const CHANNELS: bool;
    /// Does a chunk of equal elements show in its shape: nothing is marked, or everything? (It gets one value from a base that is its mean.)
    const EQUAL_SHOWS: bool;
    /// The value of the mean exponent in the window, and how many values have a code; nothing for a scheme without a window.
    const WINDOW: [u32; 2] = [0, 0];
    /// Bytes of memory that encoding takes a program, beside its parts.
    const ENCODE_SHARED: u32;
    /// Bytes of memory that decoding takes a program.
    const DECODE_SHARED: u32;
    /// 32 codes of the first level, of the second, of the third (`[u32; 0]` where there is none).
    type Codes: Words;
    /// See [`Scheme::Codes`].
    type Second: Words;
    /// See [`Scheme::Codes`].
    type Third: Words;
    /// The exponents that decoding gives.
    type Decoded<D: Dtype>: Words;
    /// What the encoder is given for a tensor: a table, bases, or nothing.
    type Given: Argument + OfBatch<BatchFrame>;
    /// What the decoder is given: a codebook, bases, or nothing.
    type Known: Argument + OfBatch<BatchFrameIn>;
    /// What a chunk is coded with.
    type Book: Copy;

    /// Brings what is given to where coding wants it. Asked for right after the elements, so that the loads overlap.
    fn stage(program: &Program, given: Self::Given) -> Self::Book;
    /// What this chunk is coded with, at the first try. `sums` are those of the channels of its group, if wanted; `first` gets its first element, which a short one is filled up with.
    fn first_book<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        staged: Self::Book,
        channels: u32,
        sums: GroupSums,
        spread: &Tile<D::Spread>,
        first: impl Fn() -> u32,
    ) -> Self::Book;
    /// Codes the exponents.
    fn code<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        book: Self::Book,
        spread: &Tile<D::Spread>,
    ) -> Coded<Self>;
    /// Does a chunk of this shape deserve a second try?
    fn is_bad(shape: &Shape, raw: u32) -> bool;
    /// What the second try is coded with, from how many exponents are 0, and the sum of all. Asked only if [`Scheme::is_bad`].
    fn second_book<D: Dtype>(
        program: &Program,
        chunk: &Chunk,
        book: Self::Book,
        zeros: u32,
        sum: u32,
    ) -> Self::Book;
    /// Does a chunk get the same codes from both?
    fn is_same(book: Self::Book, other: Self::Book) -> bool;
    /// How long the variable part will be.
    fn shape<D: Dtype>(program: &Program, book: Self::Book, coded: &Coded<Self>) -> Shape;
    /// The mode of a coded chunk.
    fn mode(book: Self::Book) -> u32;
    /// Writes the variable part.
    fn write<D: Dtype, const LEVEL: u32>(
        program: &Program,
        book: Self::Book,
        coded: &Coded<Self>,
        shape: &Shape,
        input: InChunk<D::Words>,
        part: Part,
    );

    /// The first-level codes of a raw chunk: the low bits of its exponents.
    fn raw_codes<D: Dtype>(spread: D::Spread) -> Self::Codes;
    /// The way back, from the codes and the upper bits: in bytes, in their places, for packed codes; else bit planes from [`Scheme::CODE_BITS`] on.
    fn raw_exponents<D: Dtype>(codes: Self::Codes, high: [u32; 8]) -> Self::Decoded<D>;

    /// Exponents of a chunk without a variable part, a byte each; for one that has one, what [`Scheme::decode`] wants to have been loaded with the codes.
    fn decode_alone<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        known: Self::Known,
        channels: u32,
        codes: &Tile<Self::Codes>,
    ) -> Tile<[u32; 8]>;
    /// Exponents of a byte each, as decoding gives them.
    fn decoded<D: Dtype>(bytes: [u32; 8]) -> Self::Decoded<D>;
    /// Exponents of a coded chunk with its variable part of `length` words; false if that does not hold together.
    #[allow(clippy::too_many_arguments)]
    fn decode<D: Dtype, const LEVEL: u32>(
        program: &Program,
        chunk: &Chunk,
        known: Self::Known,
        channels: u32,
        codes: &Tile<Self::Codes>,
        alone: &Tile<[u32; 8]>,
        mode: u32,
        part: Parts,
        length: u32,
    ) -> (Tile<Self::Decoded<D>>, bool);
    /// Exponents, signs and mantissas to elements.
    fn join<D: Dtype>(
        exponents: Self::Decoded<D>,
        residuals: D::Residuals,
        upper: D::UpperResiduals,
    ) -> D::Words;
}

/// Refuses a member that can gain nothing, when it is compiled.
///
/// # Panics
/// At compile time, with the sentence, if codes are not narrower than exponents.
pub const fn check_member(exponent_bits: u32, code_bits: u32, sentence: &'static str) {
    if code_bits >= exponent_bits {
        panic!("{}", sentence);
    }
}

/// Where a window scheme has its part while it decodes: behind the bytes that are patched.
pub(crate) const DECODE_PART: u32 = 1024;
const _: () = assert!(DECODE_PART.is_multiple_of(16) && Part::BYTES.is_multiple_of(16));
