//! Every machine instruction of the GPU, one function each. `cpu.rs` has the same list.
//!
//! Collectives go through LLVM intrinsics: rustc does not mark `asm!` as convergent, so LLVM may sink a shuffle written
//! in assembly into a branch that some lanes do not take. Memory and lane arithmetic that LLVM would not find by itself are
//! `asm!`. Shared memory has 32-bit addresses and no Rust pointer: a pointer would compile to generic loads.

mod block;
mod memory;

pub use block::Block;
pub use memory::*;

use core::arch::asm;
use core::arch::nvptx::{_block_idx_x, _grid_dim_x, _syncthreads, _thread_idx_x};

unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn llvm_shuffle(mask: i32, value: i32, lane: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn llvm_any(mask: i32, flag: bool) -> bool;
    #[link_name = "llvm.nvvm.redux.sync.add"]
    fn llvm_sum(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    fn llvm_max(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.barrier.cta.arrive.aligned.count"]
    fn llvm_arrive(barrier: i32, threads: i32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    fn llvm_wait(barrier: i32, threads: i32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn llvm_sync(mask: i32);
}

// ------------------------------------------------------------------------------------------------------- lanes

/// One value a lane. Here: the value of this lane, in a register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Lanes<T>(T);

impl<T: Copy> Lanes<T> {
    /// The value of a lane; `lane` is this one.
    #[inline(always)]
    pub fn get(&self, _lane: u32) -> T {
        self.0
    }

    /// Sets the value of a lane.
    ///
    /// # Safety
    /// `this` is valid for writes.
    #[inline(always)]
    pub unsafe fn put(this: *mut Self, _lane: u32, value: T) {
        unsafe { (*this).0 = value }
    }
}

/// The numbers of the lanes. Here: this thread is the lane.
#[inline(always)]
pub fn lanes() -> core::iter::Once<u32> {
    core::iter::once(lane())
}

/// The lane of this thread. Read anew after every access to memory (`readonly`, and not a constant of the compiler's intrinsic): otherwise addresses
/// that depend on it are computed before the loop of a block that stays, and spill.
#[inline(always)]
fn lane() -> u32 {
    let lane;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {0}, %laneid;", out(reg32) lane, options(pure, readonly, nostack, preserves_flags))
    };
    lane
}

/// The warp of this thread in its block.
#[inline(always)]
fn warp() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _thread_idx_x() as u32 >> 5 }
}

// ----------------------------------------------------------------------------------------------- shared memory

/// An address in the memory of a program.
#[derive(Clone, Copy)]
pub struct Shared(u32);

// SAFETY of all blocks below: the address lies in the block that `Program::on_gpu` declared; sizes are those of the kernel.
impl Shared {
    /// `bytes` further on.
    #[inline(always)]
    pub fn at(self, bytes: u32) -> Self {
        Shared(self.0 + bytes)
    }

    /// Loads a byte.
    #[inline(always)]
    pub fn load8(self) -> u32 {
        let value;
        unsafe { asm!("ld.shared.u8 {0}, [{1}];", out(reg32) value, in(reg32) self.0) };
        value
    }

    /// Stores a byte.
    #[inline(always)]
    pub fn store8(self, value: u32) {
        unsafe { asm!("st.shared.u8 [{1}], {0};", in(reg32) value, in(reg32) self.0) }
    }

    /// Loads a word.
    #[inline(always)]
    pub fn load32(self) -> u32 {
        let value;
        unsafe { asm!("ld.shared.u32 {0}, [{1}];", out(reg32) value, in(reg32) self.0) };
        value
    }

    /// Stores a word.
    #[inline(always)]
    pub fn store32(self, value: u32) {
        unsafe { asm!("st.shared.u32 [{1}], {0};", in(reg32) value, in(reg32) self.0) }
    }

    /// Loads two words; the address is a multiple of 8.
    #[inline(always)]
    pub fn load64(self) -> [u32; 2] {
        let (x, y): (u32, u32);
        unsafe { asm!("ld.shared.v2.u32 {{{0},{1}}}, [{2}];", out(reg32) x, out(reg32) y, in(reg32) self.0) };
        [x, y]
    }

    /// Loads four words; the address is a multiple of 16.
    #[inline(always)]
    pub fn load128(self) -> [u32; 4] {
        let (x, y, z, w): (u32, u32, u32, u32);
        unsafe {
            asm!("ld.shared.v4.u32 {{{0},{1},{2},{3}}}, [{4}];",
                out(reg32) x, out(reg32) y, out(reg32) z, out(reg32) w, in(reg32) self.0)
        };
        [x, y, z, w]
    }

    /// Stores two words; the address is a multiple of 8.
    #[inline(always)]
    pub fn store64(self, value: [u32; 2]) {
        unsafe {
            asm!("st.shared.v2.u32 [{2}], {{{0},{1}}};", in(reg32) value[0], in(reg32) value[1], in(reg32) self.0)
        }
    }

    /// Sets bits of a word; other lanes may set others of the same one.
    #[inline(always)]
    pub fn or32(self, value: u32) {
        unsafe { asm!("red.shared.or.b32 [{1}], {0};", in(reg32) value, in(reg32) self.0) }
    }

    /// The same, unless there are none to set.
    #[inline(always)]
    pub fn or32_if_any(self, value: u32) {
        unsafe {
            asm!("{{.reg .pred q; setp.ne.u32 q, {0}, 0; @q red.shared.or.b32 [{1}], {0};}}",
                in(reg32) value, in(reg32) self.0)
        }
    }

    /// Puts the low bits of every lane at a bit position; positions rise from lane to lane by as many bits as there are, and
    /// the other bits of a lane are 0, so lanes meet in a word. Are they `dense`, some lane reaches into a second word nearly always: then that is
    /// not asked.
    #[inline(always)]
    pub fn put_bits(self, at: &Lanes<u32>, bits: &Lanes<u32>, dense: bool) {
        let word = self.at((at.0 >> 5) * 4);
        word.or32(bits.0 << (at.0 & 31));
        let (next, rest) = (word.at(4), funnel_left(bits.0, 0, at.0));
        if dense { next.or32(rest) } else { next.or32_if_any(rest) }
    }

    /// 32 bits from a bit position on.
    #[inline(always)]
    pub fn bits(self, at: u32) -> u32 {
        // By hand: LLVM takes a shift, a mask and an addition.
        let word = Shared(multiply_add(at >> 5, 4, self.0));
        funnel_right(word.load32(), word.at(4).load32(), at)
    }

    /// Adds to a word; other lanes may add to the same one.
    #[inline(always)]
    pub fn add32(self, value: u32) {
        unsafe { asm!("red.shared.add.u32 [{1}], {0};", in(reg32) value, in(reg32) self.0) }
    }
}

// ----------------------------------------------------------------------------------------------------- program

/// The barrier of [`Program::gather`].
const GATHERED: u32 = 1;

/// The warp that runs a program, and its memory.
#[derive(Clone, Copy)]
pub struct Program {
    own: Shared,
    block: Shared,
    warps: u32,
    index: u32,
    zero: u32,
}

impl Program {
    /// The program of this warp. `WARPS` warps make a block; each has `SHARED` bytes of its own, and the block has `BLOCK` bytes.
    ///
    /// # Safety
    /// Called once in an entry (the shared memory is declared here), whose launch has `WARPS` warps a block.
    #[inline(always)]
    pub unsafe fn on_gpu<const WARPS: u32, const SHARED: u32, const BLOCK: u32>(zero: u32) -> Self {
        let start: u32 = if WARPS * SHARED + BLOCK == 0 {
            0
        } else {
            let start;
            unsafe {
                asm!(".shared .align 16 .b8 block_memory[{bytes}];", "mov.u32 {start}, block_memory;",
                    bytes = const WARPS * SHARED + BLOCK, start = out(reg32) start)
            };
            start
        };
        let warp = warp();
        // SAFETY: reads a special register.
        let block = unsafe { _block_idx_x() as u32 };
        let (own, index) = (Shared(start + warp * SHARED), block * WARPS + warp);
        Program { own, block: Shared(start + WARPS * SHARED), warps: WARPS, index, zero }
    }

    /// The number of this program in the grid.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The number of this program in its block: a value of which ptxas knows that it is the same for all lanes.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        self.uniform(warp())
    }

    /// What all lanes say alike, in a uniform register: branches on it need no copies for lanes that differ.
    #[inline(always)]
    pub fn uniform(&self, value: u32) -> u32 {
        self.max(&Lanes(value))
    }

    /// The number of this block, and how many there are.
    #[inline(always)]
    pub fn block_index(&self) -> (u32, u32) {
        // SAFETY: reads special registers.
        unsafe { (_block_idx_x() as u32, _grid_dim_x() as u32) }
    }

    /// The memory of the block.
    #[inline(always)]
    pub fn block_shared(&self) -> Shared {
        self.block
    }

    /// Says at a barrier (1 to 15) of the block that this program has come so far, and goes on.
    #[inline(always)]
    pub fn arrive(&self, barrier: u32) {
        unsafe { llvm_arrive(barrier as i32, self.warps as i32 * 32) }
    }

    /// Waits at a barrier of the block until all other programs have arrived or wait there; what they wrote to memory before is seen after.
    #[inline(always)]
    pub fn wait(&self, barrier: u32) {
        unsafe { llvm_wait(barrier as i32, self.warps as i32 * 32) }
    }

    /// The same among `programs` of the block.
    #[inline(always)]
    pub fn wait_among(&self, barrier: u32, programs: u32) {
        unsafe { llvm_wait(barrier as i32, programs as i32 * 32) }
    }

    /// Waits for all programs of the block; what they wrote to memory before is seen after.
    #[inline(always)]
    pub fn sync_block(&self) {
        // SAFETY: every thread of the block comes here, by contract.
        unsafe { _syncthreads() }
    }

    /// See [`crate::tile::Program::gather`].
    #[inline(always)]
    pub fn gather(&self, value: u32) -> Option<(Lanes<u32>, u32)> {
        let (rank, lane) = (self.rank(), lane());
        if lane == 0 {
            self.block.at(rank * 4).store32(value);
        }
        self.sync();
        if rank != 0 {
            self.arrive(GATHERED);
            return None;
        }
        self.wait(GATHERED);
        let gathered = Lanes(if lane < self.warps { self.block.at(lane * 4).load32() } else { 0 });
        Some((gathered, self.warps))
    }

    /// The level of the machine that the body was compiled for: of a CPU, see `cpu.rs`.
    #[inline(always)]
    pub fn level(&self) -> u32 {
        0
    }

    /// The memory of this program.
    #[inline(always)]
    pub fn shared(&self) -> Shared {
        self.own
    }

    /// 0, which no compiler knows: an address plus this is another one to them, so they keep no register for it from before.
    #[inline(always)]
    pub fn zero(&self) -> u32 {
        self.zero
    }

    /// `value`, tied to `arrived` in a way that the compiler does not see through.
    #[inline(always)]
    pub fn after(&self, value: u32, arrived: &Lanes<u32>) -> u32 {
        value ^ (arrived.0 & self.zero)
    }

    // SAFETY of the collectives: all 32 lanes of a warp run a program together, branches are uniform.

    /// What was written to memory before is seen by all lanes after.
    #[inline(always)]
    pub fn sync(&self) {
        unsafe { llvm_sync(-1) }
    }

    /// Is a flag set in any lane?
    #[inline(always)]
    pub fn any(&self, flags: &Lanes<u32>) -> bool {
        unsafe { llvm_any(-1, flags.0 != 0) }
    }

    /// The sum over the lanes, modulo 2^32.
    #[inline(always)]
    pub fn sum(&self, values: &Lanes<u32>) -> u32 {
        unsafe { llvm_sum(values.0 as i32, -1) as u32 }
    }

    /// The largest of the lanes.
    #[inline(always)]
    pub fn max(&self, values: &Lanes<u32>) -> u32 {
        unsafe { llvm_max(values.0 as i32, -1) as u32 }
    }

    /// The value of one lane, for all.
    #[inline(always)]
    pub fn pick(&self, values: &Lanes<u32>, lane: u32) -> u32 {
        unsafe { llvm_shuffle(-1, values.0 as i32, lane as i32, 31) as u32 }
    }

    /// The sum of the lanes before each, and of all.
    #[inline(always)]
    pub fn scan(&self, values: &Lanes<u32>) -> (Lanes<u32>, u32) {
        let mut sum = values.0;
        // SAFETY: as all collectives. Not `pure`, so it stays where it is, though rustc does not call it convergent; the predicate, which says
        // whether there is such a lane, has no intrinsic.
        unsafe {
            asm!(
                "{{.reg .pred p; .reg .b32 t;",
                "shfl.sync.up.b32 t|p, {s}, 1, 0, -1; @p add.u32 {s}, {s}, t;",
                "shfl.sync.up.b32 t|p, {s}, 2, 0, -1; @p add.u32 {s}, {s}, t;",
                "shfl.sync.up.b32 t|p, {s}, 4, 0, -1; @p add.u32 {s}, {s}, t;",
                "shfl.sync.up.b32 t|p, {s}, 8, 0, -1; @p add.u32 {s}, {s}, t;",
                "shfl.sync.up.b32 t|p, {s}, 16, 0, -1; @p add.u32 {s}, {s}, t;}}",
                s = inout(reg32) sum, options(nomem, nostack)
            );
        }
        (Lanes(sum - values.0), self.sum(values))
    }

    /// Calls `f(lane, bit, rank)` for every set bit; the ranks of a lane's bits start at its `first`.
    #[inline(always)]
    pub fn for_each_bit(&self, mask: &Lanes<u32>, first: &Lanes<u32>, mut f: impl FnMut(u32, u32, u32)) {
        let (lane, mut mask, mut rank) = (lane(), mask.0, first.0);
        while mask != 0 {
            f(lane, mask.trailing_zeros(), rank);
            mask &= mask - 1;
            rank += 1;
        }
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
        let (mut out, mut mask, mut at) = (*planes, mask.0, at.0);
        let mut insert = |mask: &mut u32, numbers: u32| {
            let bit = *mask & mask.wrapping_neg();
            let rest = select(bit, 0, *mask);
            // One multiplication moves the number to the bit; its own bits come there one after the other.
            let moved = numbers as u64 * bit as u64;
            crate::unroll!(j < N => out[j].0 = select(bit, (moved >> j) as u32, out[j].0));
            *mask = rest;
        };
        // Those that do not fit a word, one by one: rare.
        while mask.count_ones() > 32 / N as u32 {
            insert(&mut mask, string.bits(at));
            at += N as u32;
        }
        let mut numbers = string.bits(at);
        // Once for lanes without any, too: no bit is set then.
        loop {
            insert(&mut mask, numbers);
            if mask == 0 {
                break;
            }
            numbers >>= N;
        }
        out
    }

    /// Moves something for every set bit: `store(lane, rank, load(lane, bit))`, with ranks as in [`Self::for_each_bit`]. Two at a time, so that their
    /// loads wait together.
    #[inline(always)]
    pub fn move_each_bit(
        &self,
        mask: &Lanes<u32>,
        first: &Lanes<u32>,
        load: impl Fn(u32, u32) -> u32,
        store: impl Fn(u32, u32, u32),
    ) {
        let (lane, mut mask, mut rank) = (lane(), mask.0, first.0);
        while mask != 0 {
            let (bit, rest) = (mask.trailing_zeros(), mask & (mask - 1));
            let next = if rest != 0 { rest.trailing_zeros() } else { bit };
            let (x, y) = (load(lane, bit), load(lane, next));
            store(lane, rank, x);
            if rest != 0 {
                store(lane, rank + 1, y);
            }
            mask = rest & rest.wrapping_sub(1);
            rank += 2;
        }
    }

    /// Every byte of `x` (below 256) replaced by that byte of a table of 256 in the memory of the program.
    #[inline(always)]
    pub fn look_up_256<const N: usize>(&self, table: Shared, x: &[Lanes<u32>; N]) -> [Lanes<u32>; N] {
        let mut out = *x;
        crate::unroll!(i < N => {
            let x = x[i].0;
            let look = |byte: u32| table.at(byte).load8();
            out[i] = Lanes((look(x & 255) | look(byte1(x)) << 8) | (look(byte2(x)) << 16 | look(x >> 24) << 24));
        });
        out
    }

    /// Every nibble of `codes` replaced by that byte of a table of 16: word `g` gives words `2 g` and `2 g + 1`. Bytes of the
    /// table may be anything, so their upper seven bits and their lowest one are looked up apart (see [`look_up_4`]).
    #[inline(always)]
    pub fn look_up_16(&self, table: [u32; 4], codes: &[Lanes<u32>; 4]) -> [Lanes<u32>; 8] {
        let (mut high, mut low) = ([0; 4], [0; 4]);
        crate::unroll!(i < 4 => {
            high[i] = table[i] >> 1 & 0x7f7f7f7f;
            low[i] = table[i] & 0x01010101
        });
        let look = |codes: u32| look_up_4(high, codes) << 1 | look_up_4(low, codes);
        let mut out = [Lanes(0); 8];
        crate::unroll!(g < 4 => {
            out[2 * g] = Lanes(look(codes[g].0));
            out[2 * g + 1] = Lanes(look(codes[g].0 >> 16))
        });
        out
    }
}

// --------------------------------------------------------------------------------------------- lane arithmetic

macro_rules! instruction { ($(#[$doc:meta])* $name:ident($($a:ident),*) = $text:literal) => {
    $(#[$doc])*
    #[inline(always)]
    pub fn $name($($a: u32),*) -> u32 {
        let r: u32;
        // SAFETY: arithmetic on registers.
        unsafe { asm!($text, r = lateout(reg32) r, $($a = in(reg32) $a),*, options(pure, nomem, nostack)) };
        r
    }
} }
instruction!(/// Bytes 1 and 3 of `a`, then of `b`.
    odd_bytes(a, b) = "prmt.b32 {r}, {a}, {b}, 0x7531;");
instruction!(/// Bytes 0 and 2 of `a`, then of `b`.
    even_bytes(a, b) = "prmt.b32 {r}, {a}, {b}, 0x6420;");
instruction!(/// Bytes `a0 b0 a1 b1`.
    zip_bytes_low(a, b) = "prmt.b32 {r}, {a}, {b}, 0x5140;");
instruction!(/// Bytes `a2 b2 a3 b3`.
    zip_bytes_high(a, b) = "prmt.b32 {r}, {a}, {b}, 0x7362;");
instruction!(/// Byte 1.
    byte1(a) = "prmt.b32 {r}, {a}, 0, 0x4441;");
instruction!(/// Byte 2.
    byte2(a) = "prmt.b32 {r}, {a}, 0, 0x4442;");
instruction!(/// Per bit: `mask ? a : b`. By hand, because LLVM splits it in two.
    select(mask, a, b) = "lop3.b32 {r}, {a}, {b}, {mask}, 0xE4;");
instruction!(/// Low bytes `a0 b0`; the upper half is anything.
    pair_bytes(a, b) = "prmt.b32 {r}, {a}, {b}, 0x4440;");
instruction!(/// Low halves of `a` and `b`.
    pair_halves(a, b) = "prmt.b32 {r}, {a}, {b}, 0x5410;");
instruction!(/// `a * b + c`.
    multiply_add(a, b, c) = "mad.lo.u32 {r}, {a}, {b}, {c};");
instruction!(/// The four bytes of `a`, added to `sum`.
    sum_bytes(a, sum) = "dp4a.u32.u32 {r}, {a}, 0x01010101, {sum};");
instruction!(/// The halves of `a` times bytes 0 and 1 of `b`, added to `sum`.
    dot_low(a, b, sum) = "dp2a.lo.u32.u32 {r}, {a}, {b}, {sum};");
instruction!(/// The halves of `a` times bytes 2 and 3 of `b`, added to `sum`.
    dot_high(a, b, sum) = "dp2a.hi.u32.u32 {r}, {a}, {b}, {sum};");
instruction!(/// The low word of `high:low >> (s & 31)`.
    funnel_right(low, high, s) = "shf.r.wrap.b32 {r}, {low}, {high}, {s};");
instruction!(/// The high word of `high:low << (s & 31)`.
    funnel_left(low, high, s) = "shf.l.wrap.b32 {r}, {low}, {high}, {s};");
#[cfg(not(feature = "sm80"))]
instruction!(/// Per half: `min(a + b, limit)`. One instruction since sm_90.
    add_min_halves(a, b, limit) = "{{.reg .b32 t; add.u16x2 t, {a}, {b}; min.u16x2 {r}, t, {limit};}}");
/// Per half: `min(a + b, limit)`.
#[cfg(feature = "sm80")]
#[inline(always)]
pub fn add_min_halves(a: u32, b: u32, limit: u32) -> u32 {
    let low = (a.wrapping_add(b) & 0xffff).min(limit & 0xffff);
    let high = (a & 0xffff0000).wrapping_add(b & 0xffff0000).min(limit & 0xffff0000);
    high | low
}
#[cfg(not(feature = "sm80"))]
instruction!(/// Per half, as numbers with a sign: `a + b`, but no less than 0 and no more than `limit`. One instruction since sm_90.
    add_clamp_halves(a, b, limit) = "{{.reg .b32 t; add.s16x2 t, {a}, {b}; min.s16x2.relu {r}, t, {limit};}}");
/// Per half, as numbers with a sign: `a + b`, but no less than 0 and no more than `limit`.
#[cfg(feature = "sm80")]
#[inline(always)]
pub fn add_clamp_halves(a: u32, b: u32, limit: u32) -> u32 {
    let clamp =
        |a: u32, b: u32, limit: u32| (a as i16).wrapping_add(b as i16).min(limit as i16).max(0) as u32;
    clamp(a, b, limit) | clamp(a >> 16, b >> 16, limit >> 16) << 16
}
instruction!(/// Bytes of `b:a`, each by a nibble of `selector`: three bits say which, the fourth repeats its sign.
    permute(a, b, selector) = "prmt.b32 {r}, {a}, {b}, {selector};");

/// Four nibbles (the low half of `codes`) look up four bytes of a table of 16 values below 128: `prmt` picks one of 8 bytes by
/// three bits and, where the fourth is set, repeats its sign, which is 0.
#[inline(always)]
pub fn look_up_4(table: [u32; 4], codes: u32) -> u32 {
    permute(table[0], table[1], codes) | permute(table[2], table[3], codes ^ 0x8888)
}

// ------------------------------------------------------------------------------------------------------ floats

macro_rules! float_instruction { ($(#[$doc:meta])* $name:ident($($a:ident),*) = $text:literal) => {
    $(#[$doc])*
    #[inline(always)]
    pub fn $name($($a: f32),*) -> f32 {
        let r: f32;
        // SAFETY: arithmetic on registers.
        unsafe { asm!($text, r = lateout(reg32) r, $($a = in(reg32) $a),*, options(pure, nomem, nostack)) };
        r
    }
} }
float_instruction!(/// `a * b + c`, rounded once.
    multiply_add_f32(a, b, c) = "fma.rn.f32 {r}, {a}, {b}, {c};");
float_instruction!(/// The larger number; NaN (0x7fffffff) if either is; +0 above -0.
    maximum_f32(a, b) = "max.NaN.f32 {r}, {a}, {b};");
