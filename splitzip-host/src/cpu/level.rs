//! What the CPU executor takes of the machine.

use super::Cpu;
use splitzip_kernels::arch;

impl Cpu {
    /// The instructions that it takes, chosen when the program starts: `avx512` (with VBMI2 and what came with it), `avx2`, or `baseline`, those
    /// that it was compiled for.
    pub fn instructions() -> &'static str {
        match arch::level() {
            0 => "baseline",
            1 => "avx2",
            _ => "avx512",
        }
    }
}
