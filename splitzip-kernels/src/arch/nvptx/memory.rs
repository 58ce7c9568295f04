//! Global memory: loads, stores, and what blocks tell each other there.

use core::arch::asm;

macro_rules! load { ($(#[$doc:meta])* $name:ident = $text:literal) => {
    $(#[$doc])*
    /// # Safety
    /// `p` is a device address that is valid for it, and aligned.
    #[inline(always)]
    pub unsafe fn $name(p: *const u8) -> u32 {
        let value;
        unsafe { asm!($text, out(reg32) value, in(reg64) p) };
        value
    }
} }
macro_rules! store { ($(#[$doc:meta])* $name:ident = $text:literal) => {
    $(#[$doc])*
    /// # Safety
    /// `p` is a device address that is valid for it, and aligned.
    #[inline(always)]
    pub unsafe fn $name(p: *mut u8, value: u32) {
        unsafe { asm!($text, in(reg32) value, in(reg64) p) }
    }
} }
load!(/// Loads a byte.
    load8 = "ld.global.u8 {0}, [{1}];");
load!(/// Loads 2 bytes.
    load16 = "ld.global.u16 {0}, [{1}];");
load!(/// Loads a word.
    load32 = "ld.global.u32 {0}, [{1}];");
store!(/// Stores a byte.
    store8 = "st.global.u8 [{1}], {0};");
store!(/// Stores 2 bytes.
    store16 = "st.global.u16 [{1}], {0};");
store!(/// Stores a word.
    store32 = "st.global.u32 [{1}], {0};");
store!(/// Adds to a word that other programs add to as well.
    add32 = "red.relaxed.gpu.global.add.u32 [{1}], {0};");

/// Adds to a double word that other programs add to as well.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn add64(p: *mut u8, value: u64) {
    unsafe { asm!("red.relaxed.gpu.global.add.u64 [{1}], {0};", in(reg64) value, in(reg64) p) }
}

/// Adds to a word that blocks take numbers from; what it was before.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn take32(p: *mut u8, value: u32) -> u32 {
    let before;
    unsafe {
        asm!("atom.relaxed.gpu.global.add.u32 {0}, [{2}], {1};", out(reg32) before, in(reg32) value, in(reg64) p)
    };
    before
}

/// Adds to two words, the first one with a carry, that blocks take numbers from; what they were before.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn take64(p: *mut u8, given: [u32; 2]) -> [u32; 2] {
    let before: u64;
    let value = (given[1] as u64) << 32 | given[0] as u64;
    unsafe {
        asm!("atom.relaxed.gpu.global.add.u64 {0}, [{2}], {1};", out(reg64) before, in(reg64) value, in(reg64) p)
    };
    [before as u32, (before >> 32) as u32]
}

/// Adds to a word by which blocks say that they are done: what they wrote before is seen by who reads the last number.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn finish32(p: *mut u8, value: u32) -> u32 {
    let before;
    unsafe {
        asm!("atom.acq_rel.gpu.global.add.u32 {0}, [{2}], {1};", out(reg32) before, in(reg32) value, in(reg64) p)
    };
    before
}

/// Loads two words that other blocks may be writing, together.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn load_shared64(p: *const u8) -> [u32; 2] {
    let value: u64;
    unsafe { asm!("ld.relaxed.gpu.global.u64 {0}, [{1}];", out(reg64) value, in(reg64) p) };
    [value as u32, (value >> 32) as u32]
}

/// Stores two words that other blocks may be reading, together.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn store_shared64(p: *mut u8, v: [u32; 2]) {
    let value = (v[1] as u64) << 32 | v[0] as u64;
    unsafe { asm!("st.relaxed.gpu.global.u64 [{1}], {0};", in(reg64) value, in(reg64) p) }
}

/// Loads two words.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn load64(p: *const u8) -> [u32; 2] {
    let (x, y): (u32, u32);
    unsafe { asm!("ld.global.v2.u32 {{{0},{1}}}, [{2}];", out(reg32) x, out(reg32) y, in(reg64) p) };
    [x, y]
}

/// Stores two words.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn store64(p: *mut u8, v: [u32; 2]) {
    unsafe { asm!("st.global.v2.u32 [{2}], {{{0},{1}}};", in(reg32) v[0], in(reg32) v[1], in(reg64) p) }
}

/// Loads four words.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn load128(p: *const u8) -> [u32; 4] {
    let (x, y, z, w): (u32, u32, u32, u32);
    unsafe {
        asm!("ld.global.v4.u32 {{{0},{1},{2},{3}}}, [{4}];",
            out(reg32) x, out(reg32) y, out(reg32) z, out(reg32) w, in(reg64) p)
    };
    [x, y, z, w]
}

/// Stores four words.
///
/// # Safety
/// `p` is a device address that is valid for it, and aligned.
#[inline(always)]
pub unsafe fn store128(p: *mut u8, v: [u32; 4]) {
    unsafe {
        asm!("st.global.v4.u32 [{4}], {{{0},{1},{2},{3}}};",
            in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], in(reg64) p)
    }
}

/// The line of 128 bytes at `p` will be wanted by another program: brings it to the cache of the device.
///
/// # Safety
/// `p` is a device address that is valid for it.
#[inline(always)]
pub unsafe fn prefetch(p: *const u8) {
    unsafe { asm!("prefetch.global.L2 [{0}];", in(reg64) p, options(nostack, preserves_flags)) }
}

/// What follows in this branch is rare: it is branched over, and not computed always and thrown away.
#[inline(always)]
pub fn rare() {
    // SAFETY: does nothing. (Not `pure`: so it stays where it is.)
    unsafe { asm!("", options(nomem, nostack, preserves_flags)) }
}

/// The same for ptxas, which makes predicates of short branches: it branches over a loop. This one asks the clock once. (Encoding bf16 `w2x2x3` gets from
/// 0.885 of a copy to 0.92 with it and one question for all rare cases; but a branch at the start of a kernel is also a wait.)
#[allow(named_asm_labels)] // a label in braces is known there only
#[inline(always)]
pub fn branched() {
    // SAFETY: does nothing.
    unsafe {
        asm!(
            "{{.reg .pred q; .reg .b32 n; AGAIN: .pragma \"nounroll\"; mov.u32 n, %clock; setp.eq.u32 q, n, 0; @q bra AGAIN;}}",
            options(nomem, nostack, preserves_flags)
        )
    }
}

/// `value`, where it is rarely wanted: what is computed from it is computed there, and not before, where it would hold a register for all.
#[inline(always)]
pub fn rarely(value: u32) -> u32 {
    let same;
    // SAFETY: copies a register. (Not `pure`: so it stays where it is.)
    unsafe {
        asm!("mov.u32 {0}, {1};", out(reg32) same, in(reg32) value, options(nomem, nostack, preserves_flags))
    };
    same
}

/// The loop that starts here stays one.
#[inline(always)]
pub fn not_unrolled() {
    // SAFETY: a remark for ptxas.
    unsafe { asm!(".pragma \"nounroll\";", options(nomem, nostack, preserves_flags)) }
}

/// Leaves the memory to others for a while: about a trip to it.
#[inline(always)]
pub fn pause() {
    // SAFETY: does nothing.
    unsafe { asm!("nanosleep.u32 500;", options(nomem, nostack, preserves_flags)) }
}

/// The `bytes` behind `p` and as many more will be wanted soon. Here other programs hide the wait.
#[inline(always)]
pub fn prefetch_next(_: *const u8, _: u32) {}
