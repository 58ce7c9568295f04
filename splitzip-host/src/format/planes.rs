//! Planes: a fixed number of bits for every element.
//!
//! A whole chunk of 2-bit or 3-bit values lies as bit planes in the order in which a warp holds them: word `l` of a
//! bit plane is what lane `l` has after a 4 x 4 bit transpose, so a GPU stores it without any shuffle. Everything else,
//! and every short chunk, is in element order.

use super::CHUNK;
use std::sync::LazyLock;

/// How the bits of a plane lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlaneKind {
    /// So many bits an element, in element order, the lowest bit first.
    Packed(u32),
    /// So many bit planes of 128 bytes a whole chunk, the lowest bit first.
    Bits(u32),
}

impl PlaneKind {
    /// Bits an element.
    pub const fn bits(self) -> u32 {
        match self {
            PlaneKind::Packed(bits) | PlaneKind::Bits(bits) => bits,
        }
    }

    /// Bytes of the part of a whole chunk.
    pub const fn whole_bytes(self) -> usize {
        CHUNK / 8 * self.bits() as usize
    }

    /// Bytes of the part of a chunk of `elements` elements.
    pub const fn part_bytes(self, elements: usize) -> usize {
        (elements * self.bits() as usize).div_ceil(8)
    }

    /// Where bit `bit` of element `element` lies in the part of a chunk of `elements` elements, as a bit number.
    pub const fn place(self, elements: usize, element: usize, bit: u32) -> usize {
        match self {
            PlaneKind::Bits(_) if elements == CHUNK => CHUNK * bit as usize + coding_place(element),
            PlaneKind::Packed(bits) | PlaneKind::Bits(bits) => element * bits as usize + bit as usize,
        }
    }

    /// The value of one element in the part of a chunk.
    ///
    /// # Panics
    /// When the part is shorter than [`PlaneKind::part_bytes`].
    pub fn get(self, part: &[u8], elements: usize, element: usize) -> u16 {
        (0..self.bits()).fold(0, |value, bit| {
            let place = self.place(elements, element, bit);
            value | u16::from(part[place / 8] >> (place % 8) & 1) << bit
        })
    }

    /// Sets the value of one element in the part of a chunk, which must be zero there.
    ///
    /// # Panics
    /// When the part is shorter than [`PlaneKind::part_bytes`].
    pub fn set(self, part: &mut [u8], elements: usize, element: usize, value: u16) {
        for bit in 0..self.bits() {
            let place = self.place(elements, element, bit);
            part[place / 8] |= ((value >> bit & 1) as u8) << (place % 8);
        }
    }
}

/// The place of element `element` of a chunk in coding order: `32 * lane + bit`.
pub const fn coding_place(element: usize) -> usize {
    let (in_run, run, lane) = (element % 8, element / 256, element / 8 % 32);
    32 * lane + 8 * (in_run % 4) + 4 * (in_run / 4) + run
}

/// The elements of a chunk of `elements` elements in coding order.
pub fn coding_order(elements: usize) -> Vec<usize> {
    static ORDER: LazyLock<[usize; CHUNK]> = LazyLock::new(|| {
        let mut order = [0; CHUNK];
        for element in 0..CHUNK {
            order[coding_place(element)] = element;
        }
        order
    });
    ORDER.iter().copied().filter(|&element| element < elements).collect()
}
