//! The kernels beside naive code, through the public interface: what they compute, and what their launchers refuse.

mod arguments;
mod bases;
mod blocks;
mod checksum;
mod dtypes;
mod elements;
mod histogram;
mod language;
mod list;
mod pick;

/// `splitmix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Bytes at an address that every kernel accepts.
struct Aligned(Vec<u128>, usize);

impl Aligned {
    fn zeros(bytes: usize) -> Aligned {
        Aligned(vec![0; bytes.div_ceil(16)], bytes)
    }

    fn of(bytes: &[u8]) -> Aligned {
        let mut aligned = Aligned::zeros(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    fn of_u64(values: &[u64]) -> Aligned {
        Aligned::of(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    fn of_u32(values: &[u32]) -> Aligned {
        Aligned::of(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the vector has at least so many bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the vector has at least so many bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.1) }
    }

    fn u64(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.bytes()[8 * index..8 * index + 8].try_into().unwrap())
    }

    fn u32(&self, index: usize) -> u32 {
        u32::from_le_bytes(self.bytes()[4 * index..4 * index + 4].try_into().unwrap())
    }
}

/// Lengths at which something changes: within a lane's run, a chunk, a group.
const LENGTHS: [usize; 19] = [
    0,
    1,
    2,
    7,
    8,
    9,
    31,
    255,
    256,
    257,
    1000,
    1023,
    1024,
    1025,
    2048,
    5000,
    16 * 1024,
    16 * 1024 + 1,
    40_000,
];
