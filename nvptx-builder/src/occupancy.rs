//! How many blocks of a kernel a multiprocessor holds at once.
//!
//! Zero spills can be bought by taking more registers, and the price is latency hiding: at 256 threads, 32 registers leave 8 blocks,
//! 33 leave 6. So the number is computed, snapshotted, and has a floor, the entry's `min_blocks`. The arithmetic is that of the
//! runtime's own occupancy calculator.

use crate::arch::{Arch, Limits};

/// Registers are handed to a warp in portions of this many.
const REGISTER_UNIT: u32 = 256;
/// A multiprocessor has this many partitions, each with its own part of the registers; a warp lives in one.
const PARTITIONS: u32 = 4;
/// Shared memory is handed to a block in portions of this many bytes.
const SHARED_UNIT: u32 = 128;
/// Threads of a warp.
const WARP: u32 = 32;

/// Blocks that are resident at once, 0 if not one fits.
pub fn resident_blocks(limits: Limits, threads: u32, registers: u32, shared: u32) -> u32 {
    let warps = threads.div_ceil(WARP).max(1);
    let by_warps = limits.warps / warps;
    let by_registers = match (registers * WARP).next_multiple_of(REGISTER_UNIT) {
        0 => u32::MAX,
        a_warp => limits.registers / PARTITIONS / a_warp * PARTITIONS / warps,
    };
    let by_shared = match (shared + limits.shared_reserved).next_multiple_of(SHARED_UNIT) {
        0 => u32::MAX,
        a_block => limits.shared / a_block,
    };
    limits.blocks.min(by_warps).min(by_registers).min(by_shared)
}

/// The floor that a `min_blocks` sets on this architecture; `None` where the hardware cannot hold so many threads, or so much shared memory: the bound is
/// for registers, and meant for others.
///
/// Eight blocks of 256 threads are 2048; a multiprocessor of `sm_120` holds 1536, and there `ptxas` says that it ignores the bound.
pub fn floor(arch: Arch, threads: u32, shared: u32, min_blocks: Option<u32>) -> Option<u32> {
    let (limits, floor) = (arch.limits()?, min_blocks?);
    (resident_blocks(limits, threads, 0, shared) >= floor).then_some(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(arch: u32, threads: u32, registers: u32, shared: u32) -> u32 {
        resident_blocks(Arch::new(arch).limits().unwrap(), threads, registers, shared)
    }

    #[test]
    fn known_values_of_the_occupancy_calculator() {
        // sm_80: 256 threads, by registers.
        for (registers, expected) in
            [(16, 8), (32, 8), (33, 6), (40, 6), (48, 5), (64, 4), (65, 3), (96, 2), (128, 2), (255, 1)]
        {
            assert_eq!(blocks(80, 256, registers, 0), expected, "{registers} registers");
        }
        // By shared memory: 48 KiB and its reserved 1 KiB fit 3 times into 164, 4 times into 228, 2 times into 100.
        assert_eq!(blocks(80, 256, 32, 48 * 1024), 3);
        assert_eq!(blocks(90, 256, 32, 48 * 1024), 4);
        assert_eq!(blocks(120, 256, 32, 48 * 1024), 2);
        // By threads and by blocks.
        assert_eq!(blocks(80, 1024, 32, 0), 2);
        assert_eq!(blocks(80, 32, 32, 0), 32);
        assert_eq!(blocks(86, 32, 32, 0), 16);
        assert_eq!(blocks(89, 256, 32, 0), 6);
        assert_eq!(blocks(120, 256, 32, 0), 6);
        assert_eq!(blocks(75, 256, 32, 0), 4);
        // More than one block can ever have.
        assert_eq!(blocks(80, 1024, 65, 0), 0);
        assert_eq!(blocks(120, 256, 32, 100 * 1024), 0);
    }

    #[test]
    fn the_floor_holds_where_the_hardware_holds_the_blocks() {
        assert_eq!(floor(Arch::new(90), 256, 0, Some(8)), Some(8));
        assert_eq!(floor(Arch::new(120), 256, 0, Some(8)), None);
        assert_eq!(floor(Arch::new(120), 256, 0, Some(6)), Some(6));
        assert_eq!(floor(Arch::new(90), 256, 0, None), None);
        // Four times 47 KiB fit into 228 KiB, not into 100.
        assert_eq!(floor(Arch::new(90), 320, 47 * 1024, Some(4)), Some(4));
        assert_eq!(floor(Arch::new(120), 320, 47 * 1024, Some(4)), None);
        assert_eq!(floor(Arch::new(120), 320, 47 * 1024, Some(2)), Some(2));
    }
}
