//! What a build depends on, pinned to the commit and the digit.
//!
//! PTX that is committed and compared byte for byte is a function of four things outside the source: the compiler (and the LLVM inside
//! it), the `core` it compiles, the flags, and, for the resource table, the assembler. A nightly one day younger moves register
//! numbers in most files, so "some recent nightly" is not a version. All of it changes here, in one commit, with one `bless`.

/// Commit of the only compiler whose output counts.
///
/// An installed toolchain is the pinned one if its commit matches, whatever its name is: `nightly`, a dated nightly, a custom link.
pub const COMPILER_COMMIT: &str = "e50aa6fba4e63ab34c72bf9acfd2c307c1155d1a";
/// The release that [`COMPILER_COMMIT`] calls itself.
pub const COMPILER_RELEASE: &str = "1.97.0-nightly";
/// What rustup calls [`COMPILER_COMMIT`]; a dated nightly is the commit of the day before.
pub const TOOLCHAIN_NAME: &str = "nightly-2026-05-20";

/// Debian's package that holds the standard library's sources, for machines where rustup cannot fetch the component.
pub const LIBRARY_PACKAGE: &str = "rust-src";
/// Version of [`LIBRARY_PACKAGE`] that the pinned compiler compiles: a stable release two months younger. Older and newer ones use
/// lang items that the compiler does not have.
pub const LIBRARY_VERSION: &str = "1.97.1";
/// Suites that hold it, in the order they are tried.
pub const LIBRARY_SUITES: [&str; 2] = ["trixie-backports", "sid"];

/// A binary and the wheel that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wheel {
    /// Name of the binary.
    pub tool: &'static str,
    /// Name of the package.
    pub package: &'static str,
    /// Exact version of package and binary.
    pub version: &'static str,
}

/// The assembler. From the CUDA 13.0 line, the newest whose cubins a driver of the 580 branch loads.
pub const PTXAS: Wheel = Wheel { tool: "ptxas", package: "nvidia-cuda-nvcc", version: "13.0.88" };
/// The disassembler that `cuobjdump` calls. No 13.0 wheel of it exists; a younger disassembler reads older cubins.
pub const NVDISASM: Wheel = Wheel { tool: "nvdisasm", package: "nvidia-cuda-nvdisasm", version: "13.2.78" };
/// The tool that prints the machine code of a cubin.
pub const CUOBJDUMP: Wheel =
    Wheel { tool: "cuobjdump", package: "nvidia-cuda-cuobjdump", version: "13.2.78" };
/// The three wheels.
pub const WHEELS: [Wheel; 3] = [PTXAS, NVDISASM, CUOBJDUMP];
