//! The same list as `nvptx.rs`, on a CPU: a program is a loop over its 32 lanes, collectives are plain loops.
//!
//! The loops over lanes are the vectors: [`Lanes`] keeps the 32 values of one slot together, so that LLVM makes two
//! AVX-512 or four AVX2 instructions of one line of lane code. What it does not find by itself is in `x86.rs`.

mod block;
mod memory;

pub use block::Block;
pub use memory::*;

#[cfg(target_arch = "x86_64")]
use super::x86;

/// Which wrapper of a kernel this machine can run: 0 the build's own target, 1 x86-64-v3 (AVX2), 2 AVX-512 with VBMI2.
///
/// The features tested here are those that `#[kernel]` turns on. `SPLITZIP_CPU_LEVEL` lowers the level, for tests.
pub fn level() -> u32 {
    use std::sync::OnceLock;
    static LEVEL: OnceLock<u32> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let found = found_level();
        let wanted = std::env::var("SPLITZIP_CPU_LEVEL").ok().and_then(|level| level.parse().ok());
        wanted.map_or(found, |level: u32| level.min(found))
    })
}

#[cfg(target_arch = "x86_64")]
fn found_level() -> u32 {
    macro_rules! all { ($($feature:tt)*) => { true $(&& std::arch::is_x86_feature_detected!($feature))* } }
    let v3 = all!("avx2" "bmi1" "bmi2" "fma" "lzcnt" "movbe" "popcnt" "f16c");
    let v4 = v3
        && all!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512vbmi" "avx512vbmi2" "avx512bitalg"
            "avx512vpopcntdq" "gfni");
    u32::from(v3) + u32::from(v4)
}

#[cfg(not(target_arch = "x86_64"))]
fn found_level() -> u32 {
    0
}

// ------------------------------------------------------------------------------------------------------- lanes

/// One value a lane. Here: an array, aligned for the widest vectors.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Lanes<T>([T; 32]);

impl<T: Copy> Lanes<T> {
    /// The value of a lane.
    #[inline(always)]
    pub fn get(&self, lane: u32) -> T {
        self.0[(lane & 31) as usize]
    }

    /// Sets the value of a lane.
    ///
    /// # Safety
    /// `this` is valid for writes, `lane` is below 32.
    #[inline(always)]
    pub unsafe fn put(this: *mut Self, lane: u32, value: T) {
        // SAFETY: in the array, by contract.
        unsafe { (this as *mut T).add(lane as usize).write(value) }
    }
}

/// The numbers of the lanes.
#[inline(always)]
pub fn lanes() -> core::ops::Range<u32> {
    0..32
}

// ----------------------------------------------------------------------------------------------- shared memory

/// An address in the memory of a program.
#[derive(Clone, Copy)]
pub struct Shared(*mut u8);

// SAFETY: a closure of a lane may hold it; a program runs on one thread.
unsafe impl Sync for Shared {}

// SAFETY of all blocks below: the address lies in the memory that `Program::on_cpu` was given; sizes are those of the kernel.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Shared {
    /// `bytes` further on.
    #[inline(always)]
    pub fn at(self, bytes: u32) -> Self {
        Shared(self.0.wrapping_add(bytes as usize))
    }

    /// Loads a byte.
    #[inline(always)]
    pub fn load8(self) -> u32 {
        u32::from(unsafe { self.0.read() })
    }

    /// Stores a byte.
    #[inline(always)]
    pub fn store8(self, value: u32) {
        unsafe { self.0.write(value as u8) }
    }

    /// Loads a word.
    #[inline(always)]
    pub fn load32(self) -> u32 {
        unsafe { (self.0 as *const u32).read() }
    }

    /// Stores a word.
    #[inline(always)]
    pub fn store32(self, value: u32) {
        unsafe { (self.0 as *mut u32).write(value) }
    }

    /// Loads two words; the address is a multiple of 8.
    #[inline(always)]
    pub fn load64(self) -> [u32; 2] {
        unsafe { (self.0 as *const [u32; 2]).read() }
    }

    /// Loads four words; the address is a multiple of 16.
    #[inline(always)]
    pub fn load128(self) -> [u32; 4] {
        unsafe { (self.0 as *const [u32; 4]).read() }
    }

    /// Stores two words; the address is a multiple of 8.
    #[inline(always)]
    pub fn store64(self, value: [u32; 2]) {
        unsafe { (self.0 as *mut [u32; 2]).write(value) }
    }

    /// Sets bits of a word; other lanes may set others of the same one.
    #[inline(always)]
    pub fn or32(self, value: u32) {
        self.store32(self.load32() | value)
    }

    /// The same, unless there are none to set.
    #[inline(always)]
    pub fn or32_if_any(self, value: u32) {
        if value != 0 {
            self.or32(value)
        }
    }

    /// Puts the low bits of every lane at a bit position; positions rise from lane to lane by as many bits as there are, and
    /// the other bits of a lane are 0. One running word: reading back what the lane before has just written would stall (-18 %).
    #[inline(always)]
    pub fn put_bits(self, at: &Lanes<u32>, bits: &Lanes<u32>, _: bool) {
        let mut word = at.0[0] >> 5;
        let mut pending = u64::from(self.at(word * 4).load32());
        for lane in 0..32 {
            let (next, shift) = (at.0[lane] >> 5, at.0[lane] & 31);
            self.at(word * 4).store32(pending as u32);
            pending = pending >> (((next - word) * 32) & 63) | u64::from(bits.0[lane]) << shift;
            word = next;
        }
        self.at(word * 4).store32(pending as u32);
        let last = self.at(word * 4 + 4);
        last.store32(last.load32() | (pending >> 32) as u32);
    }

    /// 32 bits from a bit position on.
    #[inline(always)]
    pub fn bits(self, at: u32) -> u32 {
        let word = self.at((at >> 5) * 4).0 as *const u64;
        (unsafe { word.read_unaligned() } >> (at & 31)) as u32
    }

    /// Adds to a word; other lanes may add to the same one.
    #[inline(always)]
    pub fn add32(self, value: u32) {
        self.store32(self.load32().wrapping_add(value))
    }

    /// As a pointer, for `x86.rs`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn pointer(self) -> *const u8 {
        self.0
    }
}

// ----------------------------------------------------------------------------------------------------- program

/// The loop that runs a program, and its memory.
#[derive(Clone, Copy)]
pub struct Program {
    own: Shared,
    index: u32,
    level: u32,
}

impl Program {
    /// The program with this number.
    ///
    /// # Safety
    /// `memory` is valid for the shared bytes of the kernel and aligned to 64; this machine has the features of `level`.
    #[inline(always)]
    pub unsafe fn on_cpu(index: u64, memory: *mut u8, level: u32) -> Self {
        Program { own: Shared(memory), index: index as u32, level }
    }

    /// The number of this program in the grid.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What the code around may use: a constant once everything is inlined.
    #[inline(always)]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The memory of this program.
    #[inline(always)]
    pub fn shared(&self) -> Shared {
        self.own
    }

    /// See [`crate::tile::Program::gather`]: a block of one program.
    #[inline(always)]
    pub fn gather(&self, value: u32) -> Option<(Lanes<u32>, u32)> {
        let mut gathered = Lanes([0; 32]);
        gathered.0[0] = value;
        Some((gathered, 1))
    }

    /// `value`: there is one lane after the other.
    #[inline(always)]
    pub fn uniform(&self, value: u32) -> u32 {
        value
    }

    /// 0: there are registers enough.
    #[inline(always)]
    pub fn zero(&self) -> u32 {
        0
    }

    /// `value`; nothing moves loads here.
    #[inline(always)]
    pub fn after(&self, value: u32, _: &Lanes<u32>) -> u32 {
        value
    }

    /// What was written to memory before is seen by all lanes after.
    #[inline(always)]
    pub fn sync(&self) {}

    /// Is a flag set in any lane?
    #[inline(always)]
    pub fn any(&self, flags: &Lanes<u32>) -> bool {
        let mut all = 0;
        for lane in 0..32 {
            all |= flags.0[lane];
        }
        all != 0
    }

    /// The sum over the lanes, modulo 2^32.
    #[inline(always)]
    pub fn sum(&self, values: &Lanes<u32>) -> u32 {
        let mut sum = 0u32;
        for lane in 0..32 {
            sum = sum.wrapping_add(values.0[lane]);
        }
        sum
    }

    /// The largest of the lanes.
    #[inline(always)]
    pub fn max(&self, values: &Lanes<u32>) -> u32 {
        let mut max = 0;
        for lane in 0..32 {
            max = max.max(values.0[lane]);
        }
        max
    }

    /// The value of one lane, for all.
    #[inline(always)]
    pub fn pick(&self, values: &Lanes<u32>, lane: u32) -> u32 {
        values.get(lane)
    }

    /// The sum of the lanes before each, and of all.
    #[inline(always)]
    pub fn scan(&self, values: &Lanes<u32>) -> (Lanes<u32>, u32) {
        let (mut before, mut total) = (Lanes([0; 32]), 0u32);
        for lane in 0..32 {
            before.0[lane] = total;
            total = total.wrapping_add(values.0[lane]);
        }
        (before, total)
    }

    /// Planes with numbers of `N` bits under the mask, those of a lane one behind the other in a string of bits, from its bit `at` on.
    #[inline(always)]
    pub fn insert_numbers<const N: usize>(
        &self,
        string: Shared,
        mask: &Lanes<u32>,
        at: &Lanes<u32>,
        planes: &[Lanes<u32>; N],
    ) -> [Lanes<u32>; N] {
        let mut out = *planes;
        self.for_each_bit(mask, &Lanes([0; 32]), |lane, bit, rank| {
            let number = string.bits(at.get(lane) + rank * N as u32);
            for (j, plane) in out.iter_mut().enumerate() {
                let plane = &mut plane.0[lane as usize];
                *plane = *plane & !(1 << bit) | (number >> j & 1) << bit;
            }
        });
        out
    }

    /// Calls `f(lane, bit, rank)` for every set bit; the ranks of a lane's bits start at its `first`. Most lanes have
    /// none, so only the others are visited: that alone was a third of decoding in the study.
    #[inline(always)]
    pub fn for_each_bit(&self, mask: &Lanes<u32>, first: &Lanes<u32>, mut f: impl FnMut(u32, u32, u32)) {
        let mut lanes = 0u32;
        for lane in 0..32 {
            lanes |= u32::from(mask.0[lane] != 0) << lane;
        }
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            let (mut bits, mut rank) = (mask.get(lane), first.get(lane));
            while bits != 0 {
                f(lane, bits.trailing_zeros(), rank);
                bits &= bits - 1;
                rank += 1;
            }
        }
    }

    /// Moves something for every set bit: `store(lane, rank, load(lane, bit))`, with ranks as in [`Self::for_each_bit`].
    #[inline(always)]
    pub fn move_each_bit(
        &self,
        mask: &Lanes<u32>,
        first: &Lanes<u32>,
        load: impl Fn(u32, u32) -> u32,
        store: impl Fn(u32, u32, u32),
    ) {
        self.for_each_bit(mask, first, |lane, bit, rank| store(lane, rank, load(lane, bit)));
    }

    /// Every byte of `x` (below 256) replaced by that byte of a table of 256 in the memory of the program.
    #[inline(always)]
    pub fn look_up_256<const N: usize>(&self, table: Shared, x: &[Lanes<u32>; N]) -> [Lanes<u32>; N] {
        let mut out = *x;
        #[cfg(target_arch = "x86_64")]
        if self.level >= 2 {
            // SAFETY: level 2 has these instructions, the table has 256 bytes.
            unsafe { x86::look_up_256(table, x, &mut out) };
            return out;
        }
        for i in 0..N {
            for lane in 0..32 {
                let x = x[i].0[lane];
                let look = |byte: u32| table.at(byte & 255).load8();
                out[i].0[lane] = look(x) | look(x >> 8) << 8 | look(x >> 16) << 16 | look(x >> 24) << 24;
            }
        }
        out
    }

    /// Every nibble of `codes` replaced by that byte of a table of 16: word `g` gives words `2 g` and `2 g + 1`.
    #[inline(always)]
    pub fn look_up_16(&self, table: [u32; 4], codes: &[Lanes<u32>; 4]) -> [Lanes<u32>; 8] {
        let mut out = [Lanes([0; 32]); 8];
        for g in 0..4 {
            for lane in 0..32 {
                let word = codes[g].0[lane];
                out[2 * g].0[lane] = spread_nibbles(word & 0xffff);
                out[2 * g + 1].0[lane] = spread_nibbles(word >> 16);
            }
        }
        #[cfg(target_arch = "x86_64")]
        if self.level >= 1 {
            // SAFETY: level 1 has these instructions.
            unsafe { x86::look_up_16(table, &mut out) };
            return out;
        }
        let (mut high, mut low) = ([0; 4], [0; 4]);
        for i in 0..4 {
            high[i] = table[i] >> 1 & 0x7f7f7f7f;
            low[i] = table[i] & 0x01010101;
        }
        for g in 0..4 {
            for lane in 0..32 {
                let word = codes[g].0[lane];
                out[2 * g].0[lane] = look_up_4(high, word) << 1 | look_up_4(low, word);
                out[2 * g + 1].0[lane] = look_up_4(high, word >> 16) << 1 | look_up_4(low, word >> 16);
            }
        }
        out
    }
}

/// Four nibbles to four bytes.
#[inline(always)]
fn spread_nibbles(word: u32) -> u32 {
    let halves = (word & 0xff) | (word & 0xff00) << 8;
    (halves | halves << 4) & 0x0f0f0f0f
}

// --------------------------------------------------------------------------------------------- lane arithmetic

#[inline(always)]
fn squeeze(x: u32) -> u32 {
    (x | x >> 8) & 0xffff // bytes 0 and 2
}

#[inline(always)]
fn stretch(x: u32) -> u32 {
    (x | x << 8) & 0x00ff00ff // the low half to bytes 0 and 2
}

/// Bytes 0 and 2 of `a`, then of `b`.
#[inline(always)]
pub fn even_bytes(a: u32, b: u32) -> u32 {
    squeeze(a & 0x00ff00ff) | squeeze(b & 0x00ff00ff) << 16
}

/// Bytes 1 and 3 of `a`, then of `b`.
#[inline(always)]
pub fn odd_bytes(a: u32, b: u32) -> u32 {
    even_bytes(a >> 8, b >> 8)
}

/// Bytes `a0 b0 a1 b1`.
#[inline(always)]
pub fn zip_bytes_low(a: u32, b: u32) -> u32 {
    stretch(a & 0xffff) | stretch(b & 0xffff) << 8
}

/// Bytes `a2 b2 a3 b3`.
#[inline(always)]
pub fn zip_bytes_high(a: u32, b: u32) -> u32 {
    zip_bytes_low(a >> 16, b >> 16)
}

/// Byte 1.
#[inline(always)]
pub fn byte1(a: u32) -> u32 {
    a >> 8 & 0xff
}

/// Byte 2.
#[inline(always)]
pub fn byte2(a: u32) -> u32 {
    a >> 16 & 0xff
}

/// Low bytes `a0 b0`; the upper half is anything.
#[inline(always)]
pub fn pair_bytes(a: u32, b: u32) -> u32 {
    (a & 0xff) | (b & 0xff) << 8
}

/// Low halves of `a` and `b`.
#[inline(always)]
pub fn pair_halves(a: u32, b: u32) -> u32 {
    (a & 0xffff) | b << 16
}

/// `a * b + c`.
#[inline(always)]
pub fn multiply_add(a: u32, b: u32, c: u32) -> u32 {
    a.wrapping_mul(b).wrapping_add(c)
}

/// The four bytes of `a`, added to `sum`.
#[inline(always)]
pub fn sum_bytes(a: u32, sum: u32) -> u32 {
    let pairs = (a & 0x00ff00ff) + (a >> 8 & 0x00ff00ff);
    sum.wrapping_add((pairs & 0xffff) + (pairs >> 16))
}

/// The halves of `a` times bytes 0 and 1 of `b`, added to `sum`.
#[inline(always)]
pub fn dot_low(a: u32, b: u32, sum: u32) -> u32 {
    sum.wrapping_add((a & 0xffff) * (b & 255)).wrapping_add((a >> 16) * (b >> 8 & 255))
}

/// The halves of `a` times bytes 2 and 3 of `b`, added to `sum`.
#[inline(always)]
pub fn dot_high(a: u32, b: u32, sum: u32) -> u32 {
    dot_low(a, b >> 16, sum)
}

/// The low word of `high:low >> (s & 31)`.
#[inline(always)]
pub fn funnel_right(low: u32, high: u32, s: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> (s & 31)) as u32
}

/// The high word of `high:low << (s & 31)`.
#[inline(always)]
pub fn funnel_left(low: u32, high: u32, s: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) << (s & 31) >> 32) as u32
}

/// Per half: `min(a + b, limit)`.
#[inline(always)]
pub fn add_min_halves(a: u32, b: u32, limit: u32) -> u32 {
    let low = (a.wrapping_add(b) & 0xffff).min(limit & 0xffff);
    let high = ((a >> 16).wrapping_add(b >> 16) & 0xffff).min(limit >> 16);
    low | high << 16
}

/// Per half, as numbers with a sign: `a + b`, but no less than 0 and no more than `limit`.
#[inline(always)]
pub fn add_clamp_halves(a: u32, b: u32, limit: u32) -> u32 {
    let clamp =
        |a: u32, b: u32, limit: u32| (a as i16).wrapping_add(b as i16).min(limit as i16).max(0) as u32;
    clamp(a, b, limit) | clamp(a >> 16, b >> 16, limit >> 16) << 16
}

/// Per bit: `mask ? a : b`.
#[inline(always)]
pub fn select(mask: u32, a: u32, b: u32) -> u32 {
    b ^ ((a ^ b) & mask)
}

/// Bytes of `b:a`, each by a nibble of `selector`: three bits say which, the fourth repeats its sign.
#[inline(always)]
pub fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    let mut i = 0;
    while i < 4 {
        let nibble = selector >> (4 * i);
        let byte = (bytes >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        out |= u32::from(byte) << (8 * i);
        i += 1;
    }
    out
}

/// Four nibbles (the low half of `codes`) look up four bytes of a table of 16 values below 128. As selects and variable
/// shifts, which LLVM vectorises over the lanes (a lookup through memory it does not).
#[inline(always)]
pub fn look_up_4(table: [u32; 4], codes: u32) -> u32 {
    let mut out = 0;
    let mut i = 0;
    while i < 4 {
        let code = codes >> (4 * i);
        let low = if code & 4 != 0 { table[1] } else { table[0] };
        let high = if code & 4 != 0 { table[3] } else { table[2] };
        let word = if code & 8 != 0 { high } else { low };
        out |= (word >> (8 * (code & 3)) & 255) << (8 * i);
        i += 1;
    }
    out
}

// ------------------------------------------------------------------------------------------------------ floats

/// `a * b + c`, rounded once.
#[inline(always)]
pub fn multiply_add_f32(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// The larger number; NaN (0x7fffffff) if either is; +0 above -0.
#[inline(always)]
pub fn maximum_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        return f32::from_bits(0x7fff_ffff);
    }
    // Bits of unlike signs come to the larger: +0 above -0.
    if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else if a > b {
        a
    } else {
        b
    }
}
