//! Runs PTX without a GPU, and says where a kernel does what it must not do.
//!
//! Text goes in as it ships: [`Module::parse`] refuses, by name, whatever it does not know. [`Module::launch`] then runs an entry on a [`Memory`],
//! warp by warp, 32 lanes at a time, several blocks alive at once, in an order that is as unkind as [`Options`] say. What the driver
//! would let pass, or answer with "an illegal memory access was encountered", is a [`Fault`] with entry, block, warp, lane, line and instruction:
//!
//! - registers, shared and global memory that are read before they are written;
//! - accesses out of bounds, misaligned, or of read-only memory;
//! - accesses of the same byte, one of them a write, that no barrier orders, between lanes of a warp as well;
//! - collectives and barriers that some lanes or warps do not reach, shuffles from lanes that are not there;
//! - divisions by zero, code without an end, loops without one ([`Options::steps`]), `trap`.
//!
//! ```
//! use nvptx_builder::interpret::{BlockOrder, Memory, Module, Options};
//!
//! let module = Module::parse(r"
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry double(.param .u64 numbers)
//!     .reqntid 32, 1, 1
//!     {
//!         .reg .b32 %r<3>;
//!         .reg .b64 %rd<3>;
//!         ld.param.u64 %rd0, [numbers];
//!         mov.u32 %r0, %tid.x;
//!         mul.wide.u32 %rd1, %r0, 4;
//!         add.s64 %rd2, %rd0, %rd1;
//!         ld.global.u32 %r1, [%rd2];
//!         add.s32 %r2, %r1, %r1;
//!         st.global.u32 [%rd2], %r2;
//!         ret;
//!     }")?;
//! let mut memory = Memory::new();
//! let numbers = memory.upload(&[7; 128]);
//! module.launch("double", 1, &[numbers], &mut memory, &Options::default())?;
//! assert_eq!(memory.read(numbers, 128)?, [14; 128]);
//!
//! // One byte less, and the last lane is out of bounds.
//! let short = memory.upload(&[7; 127]);
//! let error = module.launch("double", 1, &[short], &mut memory, &Options::default()).unwrap_err();
//! let fault = error.fault().unwrap();
//! assert_eq!((fault.lane, fault.instruction.as_str()), (Some(31), "ld.global.u32 %r1, [%rd2]"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it does not do: local memory (spills, arrays on the stack), calls, textures, `mbarrier`, matrix instructions, `f16` and `f64`
//! arithmetic, clusters, grids of more than one axis. Such PTX is refused when it is parsed.

mod access;
mod collective;
mod decode;
mod decode_compare;
mod decode_convert;
mod decode_float;
mod decode_memory;
mod decode_number;
mod error;
mod execute;
mod grid;
mod memory;
mod op;
mod order;
mod parse;
mod scalar;
mod token;
mod warp;

pub use error::{Fault, FaultKind, LaunchError, MemoryError, ParseError, Space};
pub use memory::Memory;

/// A text of PTX, ready to be run.
#[derive(Clone, Debug)]
pub struct Module {
    text: String,
    target: String,
    entries: Vec<parse::Entry>,
    variables: Vec<parse::Variable>,
}

impl Module {
    /// Reads a text.
    ///
    /// # Errors
    /// [`ParseError`] for what is no PTX, and for instructions and directives that the interpreter does not know.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        let (target, entries, variables) = parse::parse(text)?;
        Ok(Module { text: text.to_owned(), target, entries, variables })
    }

    /// What it was compiled for: `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The names of its entries.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Runs `blocks` blocks of an entry. `arguments` has a slot of 8 bytes for each parameter, in order: an address, or a number in the low
    /// bytes.
    ///
    /// What the kernel has written before a fault stays written.
    ///
    /// # Errors
    /// [`LaunchError`]: no such entry, arguments that do not fit, a fault.
    pub fn launch(
        &self,
        entry: &str,
        blocks: u64,
        arguments: &[u64],
        memory: &mut Memory,
        options: &Options,
    ) -> Result<Report, LaunchError> {
        let found = self.entries.iter().find(|found| found.name == entry);
        let found = found.ok_or_else(|| LaunchError::NoEntry {
            entry: entry.to_owned(),
            entries: self.entries().collect::<Vec<_>>().join(", "),
        })?;
        grid::launch(self, found, blocks, arguments, memory, options)
    }
}

/// In which order blocks, and warps in them, get their turns. A device promises none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockOrder {
    /// The first ones first.
    #[default]
    Ascending,
    /// The last ones first.
    Descending,
    /// At random, with turns of random lengths; the same for the same seed.
    Random(u64),
}

/// How to run.
///
/// ```
/// use nvptx_builder::interpret::{BlockOrder, Options};
/// let unkind = Options::default().order(BlockOrder::Random(7)).resident(3).steps(1_000_000);
/// # let _ = unkind;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    order: BlockOrder,
    resident: usize,
    slice: u32,
    steps: u64,
    threads: Option<u32>,
    unwritten_shared: bool,
    unordered: bool,
}

impl Default for Options {
    /// Ascending order, 4 blocks at once, turns of 256 instructions, at most 2^30 instructions.
    fn default() -> Options {
        Options {
            order: BlockOrder::Ascending,
            resident: 4,
            slice: 256,
            steps: 1 << 30,
            threads: None,
            unwritten_shared: false,
            unordered: false,
        }
    }
}

impl Options {
    /// In which order blocks and warps get their turns.
    pub fn order(self, order: BlockOrder) -> Options {
        Options { order, ..self }
    }

    /// How many blocks are alive at once, 1 at least: a block that waits for one that is not alive waits for ever.
    pub fn resident(self, blocks: usize) -> Options {
        Options { resident: blocks.max(1), ..self }
    }

    /// Instructions of a turn, 1 at least; the most of them for [`BlockOrder::Random`].
    pub fn slice(self, instructions: u32) -> Options {
        Options { slice: instructions.max(1), ..self }
    }

    /// The instructions of warps that a launch may take. More are a fault: what waits for ever ends there.
    pub fn steps(self, steps: u64) -> Options {
        Options { steps, ..self }
    }

    /// Threads of a block, for entries that do not say so themselves (`.reqntid`).
    pub fn threads(self, threads: u32) -> Options {
        Options { threads: Some(threads), ..self }
    }

    /// May shared memory be read that nobody has written? It gives garbage then, another one in each block.
    ///
    /// For kernels that read a word more than they have and shift its bits out: what they compute still says whether they are right.
    pub fn unwritten_shared(self, allowed: bool) -> Options {
        Options { unwritten_shared: allowed, ..self }
    }

    /// May accesses of a byte be in no order? One of them then comes last, as it happens.
    ///
    /// For kernels that promise to stay in their buffers on damaged input, and nothing about what they write there.
    pub fn unordered(self, allowed: bool) -> Options {
        Options { unordered: allowed, ..self }
    }

    fn seed(&self) -> u64 {
        match self.order {
            BlockOrder::Random(seed) => seed,
            _ => 0,
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    instructions: u64,
    lines: Vec<(u32, u64)>,
}

impl Report {
    /// Instructions of warps that were run.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The line of every instruction of the entry, and how often a warp has run it.
    pub fn lines(&self) -> &[(u32, u64)] {
        &self.lines
    }
}
