//! The variable part of a chunk while it is put together or taken apart, in the memory of the program.

use super::{Chunk, Mask, Parts, Program, Slot, Tile, Words, generate, map};
use crate::arch::{self, Shared};

/// A string of bits, the lowest bit of a word first.
#[derive(Clone, Copy)]
pub struct Part(Shared);

impl Part {
    /// The most words that a part may have (a raw one of 8-bit exponents under 2-bit codes).
    pub const WORDS: u32 = 192;
    /// Bytes of memory: a reader of 32 bits may touch two words more.
    pub const BYTES: u32 = 784;

    /// A part at `at` bytes in the memory of the program.
    #[inline(always)]
    pub fn new(program: &Program, at: u32) -> Self {
        Part(program.shared().at(at))
    }

    /// Makes the first `words` words zero, but for `first` in the first one.
    #[inline(always)]
    pub fn clear(self, program: &Program, words: u32, first: u32) {
        for lane in arch::lanes() {
            let mut at = lane;
            while at < words {
                self.0.at(at * 4).store32(if at == 0 { first } else { 0 });
                at += 32;
            }
        }
        program.sync();
    }

    /// Puts every lane's compacted bits one behind the other: plane 0 from bit `at` of each lane, plane `p` from `p * stride` bits later.
    #[inline(always)]
    pub fn put_bits<W: Words>(self, at: &Tile<u32>, stride: u32, planes: &Tile<W>) {
        crate::unroll!(p < W::COUNT as usize => {
            let at = generate(|lane| at.at(lane) + p as u32 * stride);
            self.0.put_bits(at.lanes(), W::plane_of(planes.lanes(), p))
        });
    }

    /// The way back: 32 bits from where each lane's bits start, for every plane.
    #[inline(always)]
    pub fn bits<W: Words>(self, at: &Tile<u32>, stride: u32) -> Tile<W> {
        generate(|lane| {
            let at = at.at(lane);
            W::from_fn(|p| self.0.bits(at + p * stride))
        })
    }

    /// A number of `width` bits (at most 8) for every element under the mask, from the number `first` of each lane on; number 0 is at bit `start`.
    #[inline(always)]
    pub fn put_numbers(
        self,
        program: &Program,
        start: u32,
        width: u32,
        mask: &Mask,
        first: &Tile<u32>,
        value: impl Fn(u32) -> u32,
    ) {
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            let at = start + rank * width;
            let (word, value, shift) = (self.0.at((at >> 5) * 4), value(Chunk::element(lane, bit)), at & 31);
            word.or32(value << shift);
            if shift + width > 32 {
                word.at(4).or32(value >> (32 - shift));
            }
        });
    }

    /// A number of `width` bits at bit `at`.
    #[inline(always)]
    pub fn number(self, at: u32, width: u32) -> u32 {
        self.0.bits(at) & ((1 << width) - 1)
    }

    /// The first byte, for all lanes.
    #[inline(always)]
    pub fn first_byte(self) -> u32 {
        self.0.load32() & 255
    }

    /// Writes the first `words` words to a slot.
    #[inline(always)]
    pub fn store(self, program: &Program, slot: Slot, words: u32) {
        program.sync();
        for lane in arch::lanes() {
            let mut at = lane;
            while at < words {
                slot.store_word(at, self.0.at(at * 4).load32());
                at += 32;
            }
        }
    }

    /// Reads `words` words, at most [`Part::WORDS`].
    #[inline(always)]
    pub fn load(self, program: &Program, from: Parts, words: u32) {
        for lane in arch::lanes() {
            let mut at = lane;
            while at < words {
                self.0.at(at * 4).store32(from.word(at));
                at += 32;
            }
        }
        program.sync();
    }
}

/// Puts numbers of a part into bytes: element by element under the mask, in coding order.
#[inline(always)]
pub(crate) fn patch(
    program: &Program,
    bytes: &Tile<[u32; 8]>,
    mask: &Mask,
    first: &Tile<u32>,
    value: impl Fn(u32) -> u32,
) -> Tile<[u32; 8]> {
    let shared = program.share_bytes(bytes);
    program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
        shared.set(Chunk::element(lane, bit), value(rank));
    });
    shared.load(program)
}

/// The number of elements under the mask in the lanes before each, and in all.
#[inline(always)]
pub(crate) fn count_before(program: &Program, mask: &Mask) -> (Tile<u32>, u32) {
    program.scan(&map(mask, u32::count_ones))
}
