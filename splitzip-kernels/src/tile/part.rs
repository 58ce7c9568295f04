//! The variable part of a chunk while it is put together or taken apart, in the memory of the program.

use super::{Chunk, Mask, Parts, PartsOut, Program, Tile, Words, generate, map};
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

    #[inline(always)]
    pub(super) fn memory(self) -> Shared {
        self.0
    }

    /// Makes at least the first `words` words zero, but for `first` in the first one.
    #[inline(always)]
    pub fn clear(self, program: &Program, words: u32, first: u32) {
        for lane in arch::lanes() {
            // Nearly all parts have at most 64 words.
            self.0.at(lane * 4).store32(if lane == 0 { first } else { 0 });
            self.0.at(lane * 4 + 128).store32(0);
        }
        // What all lanes agree on is asked first: it costs the others one branch.
        if words > 64 {
            for lane in arch::lanes() {
                let mut at = lane + 64;
                while at < words {
                    self.0.at(at * 4).store32(0);
                    at += 32;
                }
            }
        }
        program.sync();
    }

    /// Puts every lane's compacted bits one behind the other: plane 0 from bit `at` of each lane, plane `p` from `p * stride` bits later. `dense`: are
    /// there some in most lanes?
    #[inline(always)]
    pub fn put_bits<W: Words>(self, at: &Tile<u32>, stride: u32, planes: &Tile<W>, dense: bool) {
        crate::unroll!(p < W::COUNT as usize => {
            let at = generate(|lane| at.at(lane) + p as u32 * stride);
            self.0.put_bits(at.lanes(), W::plane_of(planes.lanes(), p), dense)
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

    /// A number of `width` bits (at most 8) for every element under the mask, from the number `first` of each lane on; number 0 is at bit `start`, a multiple of 8.
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
        if width == 8 {
            // Whole bytes, which share words with bits that were put before.
            program.sync();
            let load = |lane, bit| value(Chunk::element(lane, bit));
            let store = |_, rank, value| self.0.at((start >> 3) + rank).store8(value);
            program.machine().move_each_bit(mask.lanes(), first.lanes(), load, store);
            return;
        }
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            let at = start + rank * width;
            let (word, value, shift) = (self.0.at((at >> 5) * 4), value(Chunk::element(lane, bit)), at & 31);
            word.or32(value << shift);
            if 32 % width != 0 && shift + width > 32 {
                word.at(4).or32(value >> (32 - shift));
            }
        });
    }

    /// One of those numbers: number `rank` of `width` bits, number 0 at bit `start`, a multiple of 8.
    #[inline(always)]
    pub fn number(self, start: u32, width: u32, rank: u32) -> u32 {
        let at = start + rank * width;
        if 8 % width == 0 {
            return self.0.at(at >> 3).load8() >> (at & 7) & ((1 << width) - 1);
        }
        self.0.bits(at) & ((1 << width) - 1)
    }

    /// Puts those numbers, of `N` bits, into bit planes: a number for every element under the mask, from the number `first` of each lane on.
    #[inline(always)]
    pub fn insert_numbers<const N: usize>(
        self,
        program: &Program,
        planes: &Tile<[u32; N]>,
        start: u32,
        mask: &Mask,
        first: &Tile<u32>,
    ) -> Tile<[u32; N]> {
        let at = map(first, |first| start + first * N as u32);
        Tile::of(program.machine().insert_numbers(self.0, mask.lanes(), at.lanes(), planes.lanes()))
    }

    /// The first byte, for all lanes.
    #[inline(always)]
    pub fn first_byte(self) -> u32 {
        self.0.load8()
    }

    /// One word, and nothing else.
    #[inline(always)]
    pub fn store_uniform(self, value: u32) {
        for lane in arch::lanes() {
            if lane == 0 {
                self.0.store32(value);
            }
        }
    }

    /// A word for every element under the mask, from word `first` of each lane.
    #[inline(always)]
    pub fn store_words(self, program: &Program, mask: &Mask, first: &Tile<u32>, value: impl Fn(u32) -> u32) {
        program.machine().for_each_bit(mask.lanes(), first.lanes(), |lane, bit, rank| {
            self.0.at(rank * 4).store32(value(Chunk::element(lane, bit)));
        });
    }

    /// Copies the first `words` words to a frame. Nearly all parts have at most 64.
    ///
    /// # Safety
    /// The frame has room for them.
    #[inline(always)]
    pub unsafe fn copy_to(self, words: u32, to: PartsOut) {
        for lane in arch::lanes() {
            let (own, to) = (self.0.at(lane * 4), to.at(lane as u64));
            // SAFETY: by contract.
            unsafe {
                if lane < words {
                    to.store(0, own.load32());
                }
                if lane + 32 < words {
                    to.store(32, own.at(128).load32());
                }
                let mut at = 64;
                while lane + at < words {
                    to.store(at, own.at(at * 4).load32());
                    at += 32;
                }
            }
        }
    }

    /// Reads `words` words, at most [`Part::WORDS`].
    #[inline(always)]
    pub fn load(self, program: &Program, from: Parts, words: u32) {
        for lane in arch::lanes() {
            self.load_from(from, words, lane);
        }
        program.sync();
    }

    /// The same, with the first 64 words, which nearly all parts have at most, under way at once; those that are not in the part become 0. For who has a
    /// register more: decoding e4m3 gets from 0.735 of a copy to 0.753 with it, and bf16 `w2x2x3` from 0.952 to 0.940.
    #[inline(always)]
    pub fn load_at_once(self, program: &Program, from: Parts, words: u32) {
        for lane in arch::lanes() {
            let word = |at: u32| if at < words { from.word(at) } else { 0 };
            let (first, second) = (word(lane), word(lane + 32));
            let own = self.0.at(lane * 4);
            own.store32(first);
            own.at(128).store32(second);
        }
        // What all lanes agree on is asked first: it costs the others one branch.
        if words > 64 {
            for lane in arch::lanes() {
                self.load_from(from, words, lane + 64);
            }
        }
        program.sync();
    }

    #[inline(always)]
    fn load_from(self, from: Parts, words: u32, first: u32) {
        let mut at = first;
        while at < words {
            self.0.at(at * 4).store32(from.word(at));
            at += 32;
        }
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
