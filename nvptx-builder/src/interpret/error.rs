//! What is wrong with a text, with a launch, or with what a kernel did.

use std::fmt;

/// A text that is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
}

impl ParseError {
    pub(super) fn new(line: u32, message: impl Into<String>) -> ParseError {
        ParseError { line, message: message.into() }
    }
}

/// An address or a range of [`Memory`](super::Memory) that the host may not use like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// No allocation holds all of these bytes.
    #[error("no allocation holds the {bytes} bytes at {address:#x}; {nearest}")]
    OutOfBounds {
        /// The address.
        address: u64,
        /// Bytes from there.
        bytes: u64,
        /// What lies there.
        nearest: String,
    },
    /// Nobody wrote this byte.
    #[error(
        "the byte at {address:#x} was never written (byte {offset} of its allocation); write it before it is read"
    )]
    Uninitialised {
        /// Its address.
        address: u64,
        /// Its place in the allocation.
        offset: u64,
    },
}

/// What a launch ended with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The module has no such entry.
    #[error("there is no entry `{entry}` in this module, which has {entries}")]
    NoEntry {
        /// The name.
        entry: String,
        /// The names that there are.
        entries: String,
    },
    /// Too many or too few arguments, or one that does not fit.
    #[error("`{entry}`: {message}")]
    Arguments {
        /// The entry.
        entry: String,
        /// What is wrong with them.
        message: String,
    },
    /// The kernel did something that it must not do.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

impl LaunchError {
    /// The fault, if it is one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            LaunchError::Fault(fault) => Some(fault),
            _ => None,
        }
    }
}

/// Where a kernel did what it must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The entry.
    pub entry: String,
    /// The block.
    pub block: u64,
    /// The warp in the block.
    pub warp: u32,
    /// The first lane that did it, where it was not the warp as a whole.
    pub lane: Option<u32>,
    /// The line in the text, from 1.
    pub line: u32,
    /// The instruction, as it stands there.
    pub instruction: String,
    /// What it did.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, block {}, warp {}", self.entry, self.block, self.warp)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        write!(f, ", line {}: `{}`: {}", self.line, self.instruction, self.kind)
    }
}

impl std::error::Error for Fault {}

/// A memory that an access went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Space {
    /// Memory of the device.
    Global,
    /// Memory of the block.
    Shared,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Global => "global",
            Space::Shared => "shared",
        })
    }
}

/// What a kernel must not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// A register that was not written on this path.
    #[error("reads the register `{register}`, which this lane has not written")]
    UninitialisedRegister {
        /// Its name.
        register: String,
    },
    /// Bytes that no allocation holds.
    #[error("touches {bytes} bytes of {space} memory at {address:#x}, outside of what there is: {nearest}")]
    OutOfBounds {
        /// The memory.
        space: Space,
        /// The address.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// What lies there.
        nearest: String,
    },
    /// An address that is no multiple of the size of the access.
    #[error("touches {bytes} bytes of {space} memory at {address:#x}, which is no multiple of {bytes}")]
    Misaligned {
        /// The memory.
        space: Space,
        /// The address.
        address: u64,
        /// Bytes of the access, all elements of a vector together.
        bytes: u32,
    },
    /// A write to memory that is only to be read.
    #[error("writes to the read-only allocation at {address:#x}")]
    ReadOnly {
        /// The address.
        address: u64,
    },
    /// A read of bytes that nobody wrote.
    #[error("reads {space} memory at {address:#x} that nobody has written (byte {offset})")]
    UninitialisedMemory {
        /// The memory.
        space: Space,
        /// The address of the byte.
        address: u64,
        /// Its place in the allocation.
        offset: u64,
    },
    /// Two accesses of a byte, at least one of them a write, that nothing puts in an order.
    #[error(
        "{access} {space} memory at {address:#x} (byte {offset}) that {other}, and nothing orders the two: {advice}"
    )]
    Unordered {
        /// The memory.
        space: Space,
        /// The address of the byte.
        address: u64,
        /// Its place in the allocation.
        offset: u64,
        /// What this lane does: `reads` or `writes`.
        access: &'static str,
        /// Who did what before.
        other: String,
        /// What would order them.
        advice: &'static str,
    },
    /// A read through the non-coherent cache (`.nc`) of bytes that this launch has written.
    #[error(
        "reads global memory at {address:#x} with `.nc`, but this launch has written it; `.nc` is for memory that stays as it is"
    )]
    NonCoherent {
        /// The address.
        address: u64,
    },
    /// Lanes of a mask that do not come.
    #[error("lanes {mask:#010x} wait here for lanes {missing:#010x}, which {why}")]
    Collective {
        /// Lanes that wait.
        mask: u32,
        /// Lanes that are missing.
        missing: u32,
        /// Where they are.
        why: String,
    },
    /// A lane that is not in the mask of the collective that it executes.
    #[error("the lane is not in the mask {mask:#010x} that it passes")]
    NotInMask {
        /// The mask.
        mask: u32,
    },
    /// A shuffle that reads from a lane that does not take part.
    #[error("reads from lane {source_lane}, which does not take part")]
    InactiveLane {
        /// The lane.
        source_lane: u32,
    },
    /// A barrier of the block that not all warps reach.
    #[error("waits at barrier {barrier} for ever: {why}")]
    Barrier {
        /// Its number.
        barrier: u32,
        /// Where the other warps are.
        why: String,
    },
    /// A division or remainder by zero.
    #[error("divides by zero")]
    DivisionByZero,
    /// An operand out of what PTX allows.
    #[error("{message}")]
    Operand {
        /// What is wrong.
        message: String,
    },
    /// The end of the code, without a `ret`.
    #[error("runs over the end of the entry, which needs a `ret`")]
    FellOff,
    /// `trap`.
    #[error("stops the kernel (`trap`)")]
    Trap,
    /// More instructions than [`Options::steps`](super::Options::steps) allows.
    #[error(
        "was next when {steps} instructions had run, which is the limit: a loop that does not end, or a lock that is not released; allow more with `Options::steps`"
    )]
    Budget {
        /// The limit.
        steps: u64,
    },
}
