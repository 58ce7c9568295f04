//! Memory of the launch: loads and stores, and what kernels in other threads see.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

macro_rules! memory { ($($(#[$doc:meta])* $load:ident $store:ident = $value:ty, $of:ty;)*) => { $(
    $(#[$doc])*
    /// # Safety
    /// `p` is valid for reads of that size; any alignment.
    #[inline(always)]
    pub unsafe fn $load(p: *const u8) -> $value {
        // SAFETY: by contract.
        unsafe { (p as *const $of).read_unaligned() as $value }
    }
    $(#[$doc])*
    /// # Safety
    /// `p` is valid for writes of that size; any alignment.
    #[inline(always)]
    pub unsafe fn $store(p: *mut u8, value: $value) {
        // SAFETY: by contract.
        unsafe { (p as *mut $of).write_unaligned(value as $of) }
    }
)* } }
memory! {
    /// A byte.
    load8 store8 = u32, u8;
    /// 2 bytes.
    load16 store16 = u32, u16;
    /// A word.
    load32 store32 = u32, u32;
    /// Two words.
    load64 store64 = [u32; 2], [u32; 2];
    /// Four words.
    load128 store128 = [u32; 4], [u32; 4];
}

/// Adds to a word that other programs add to as well.
///
/// # Safety
/// `p` is valid for it; where it is not aligned, no other thread adds to it at the same time.
#[inline(always)]
pub unsafe fn add32(p: *mut u8, value: u32) {
    if (p as usize).is_multiple_of(4) {
        // SAFETY: by contract.
        unsafe { AtomicU32::from_ptr(p as *mut u32) }.fetch_add(value, Ordering::Relaxed);
    } else {
        // SAFETY: by contract.
        unsafe { store32(p, load32(p).wrapping_add(value)) }
    }
}

/// Adds to a double word that other programs add to as well.
///
/// # Safety
/// `p` is valid for it; where it is not aligned, no other thread adds to it at the same time.
#[inline(always)]
pub unsafe fn add64(p: *mut u8, value: u64) {
    if (p as usize).is_multiple_of(8) {
        // SAFETY: by contract.
        unsafe { AtomicU64::from_ptr(p as *mut u64) }.fetch_add(value, Ordering::Relaxed);
    } else {
        // SAFETY: by contract.
        unsafe { (p as *mut u64).write_unaligned((p as *const u64).read_unaligned().wrapping_add(value)) }
    }
}

/// Who will want it is known on the GPU only.
///
/// # Safety
/// As on the GPU.
#[inline(always)]
pub unsafe fn prefetch(_: *const u8) {}

/// What follows is rare: see `nvptx.rs`.
#[inline(always)]
pub fn rare() {}

/// See `nvptx.rs`.
#[inline(always)]
pub fn branched() {}

/// See `nvptx.rs`.
#[inline(always)]
pub fn not_unrolled() {}

/// `value`: see `nvptx.rs`.
#[inline(always)]
pub fn rarely(value: u32) -> u32 {
    value
}

/// The `bytes` behind `p` and as many more will be wanted soon: worth 15 to 50 % on one thread.
#[inline(always)]
pub fn prefetch_next(p: *const u8, bytes: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut line = bytes;
        while line < 2 * bytes {
            // SAFETY: a hint; it never faults.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                    p.wrapping_add(line as usize) as *const i8,
                )
            };
            line += 64;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (p, bytes);
}
