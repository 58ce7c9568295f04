//! Escapes: a few elements of a chunk, one after the other.
//!
//! Which ones is a bit plane in coding order; a list of their numbers is made of it, and the rest are loops over that list.

use super::planes::{Bytes, Plane};
use super::vector::Vector;

/// The elements of a mask, in coding order, and room for those that were taken and were none.
pub(super) struct Escapes {
    elements: [u16; 1024 + 32],
    count: usize,
}

/// The element of each bit of the first two words of a plane.
static ELEMENTS: [u16; 64] = {
    let (mut out, mut bit) = ([0; 64], 0);
    while bit < 64 {
        let (lane, in_lane) = (bit / 32, bit % 32);
        out[bit] = (256 * (in_lane % 4) + 8 * lane + 4 * (in_lane / 4 % 2) + in_lane / 8) as u16;
        bit += 1;
    }
    out
};

impl Escapes {
    pub const fn new() -> Escapes {
        Escapes { elements: [0; 1024 + 32], count: 0 }
    }

    /// Finds the elements of a mask.
    ///
    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    pub unsafe fn find<V: Vector>(&mut self, mask: &Plane) {
        // SAFETY: a plane is 128 bytes, 16 double words; there are at most 1024 elements, and room for 32 more.
        unsafe {
            let words = mask.as_ptr().cast::<u64>();
            let (mut used, mut part) = (0, 0);
            while part < 128 / V::BYTES {
                used |=
                    V::load(words.cast::<u8>().add(part * V::BYTES)).words_in_use() << (part * V::BYTES / 8);
                part += 1;
            }
            let mut to = self.elements.as_mut_ptr();
            while used != 0 {
                let word = used.trailing_zeros();
                used &= used - 1;
                let bits = words.add(word as usize).read_unaligned();
                V::numbers_of_bits(bits, &ELEMENTS, 16 * word as u16, to);
                to = to.add(bits.count_ones() as usize);
            }
            self.count = to.offset_from(self.elements.as_ptr()) as usize;
        }
    }

    /// How many there are.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where they are. (All are below 1024.)
    #[inline(always)]
    fn elements(&self) -> &[u16] {
        &self.elements[..self.count.min(1024)]
    }

    /// Writes their exponents, `BITS` bits each, from a byte on.
    ///
    /// # Safety
    /// `to` has room for them and 8 more bytes.
    #[inline(always)]
    pub unsafe fn put<const BITS: u32>(&self, exponents: &Bytes, to: *mut u8) {
        let (mut to, mut filled, mut pending) = (to, 0, 0u64);
        for &element in self.elements() {
            let exponent = exponents.0[usize::from(element) & 1023];
            // SAFETY: by contract.
            unsafe {
                if BITS == 8 {
                    to.write(exponent);
                    to = to.add(1);
                } else {
                    pending |= u64::from(exponent) << filled;
                    filled += BITS;
                    to.cast::<u64>().write_unaligned(pending);
                    to = to.add((filled >> 3) as usize);
                    pending >>= filled & !7;
                    filled &= 7;
                }
            }
        }
        // SAFETY: by contract. What is behind the last one is filling.
        unsafe {
            if BITS == 8 {
                to.cast::<u64>().write_unaligned(0)
            } else {
                to.cast::<u64>().write_unaligned(pending)
            }
        }
    }

    /// Reads their exponents, `BITS` bits each.
    ///
    /// # Safety
    /// They and 8 more bytes are readable at `from`.
    #[inline(always)]
    pub unsafe fn take<const BITS: u32>(&self, from: *const u8, exponents: &mut Bytes) {
        for (i, &element) in self.elements().iter().enumerate() {
            let at = i * BITS as usize;
            // SAFETY: by contract.
            let exponent = unsafe {
                if BITS == 8 {
                    from.add(i).read()
                } else {
                    (from.add(at >> 3).cast::<u16>().read_unaligned() >> (at & 7)) as u8
                }
            };
            exponents.0[usize::from(element) & 1023] = exponent & (0xff >> (8 - BITS));
        }
    }

    /// Writes a word for each: its element, its exponent.
    ///
    /// # Safety
    /// `to` has room for them.
    #[inline(always)]
    pub unsafe fn put_records(&self, exponents: &Bytes, to: *mut u8) {
        for (i, &element) in self.elements().iter().enumerate() {
            let record = u32::from(element) | u32::from(exponents.0[usize::from(element) & 1023]) << 16;
            // SAFETY: by contract.
            unsafe { to.cast::<u32>().add(i).write_unaligned(record) }
        }
    }
}
