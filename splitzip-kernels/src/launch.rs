//! What `#[kernel]` builds on: descriptions of entries, and arguments that are checked before a launch.
//!
//! A launch through the driver reads as many argument slots as the kernel declares, whatever the caller pushed: a
//! missing one is a crash, a short buffer is somebody else's memory. So every parameter of a kernel has a type that
//! implements [`Argument`]; the macro makes a struct with one named field for each, and no launch leaves that struct unchecked.
//!
//! Other crates have types of their own there: memory by [`memory_arguments!`](crate::memory_arguments), which says how many bytes the kernel
//! may touch ([`Extent`]), anything else by [`Argument`] itself; a [`Grid`] says how many programs run.

use crate::stream::{RECORD_BYTES, groups};
use crate::tile::Element;
use core::fmt;
use core::marker::PhantomData;

mod grids;
pub use grids::*;

/// What a parameter is, for descriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Memory that is read.
    Source,
    /// Memory that is written, and may be read.
    Target,
    /// A number of 32 bits.
    U32,
    /// A number of 64 bits.
    U64,
    /// A float of 32 bits.
    F32,
}

/// One parameter of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the source.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
}

/// One entry in the PTX: a member of a kernel's product of dtypes and schemes.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The symbol, `encode_bf16_w4`.
    pub name: &'static str,
    /// The function it comes from, `encode`.
    pub kernel: &'static str,
    /// Name of the dtype, where the kernel has that axis.
    pub dtype: Option<&'static str>,
    /// Name of the scheme, where the kernel has that axis.
    pub scheme: Option<&'static str>,
    /// The parameters in order. The entry has one more, the hidden `zero: u32` (see [`crate::tile::Program::after`]).
    pub parameters: &'static [Parameter],
    /// Warps (programs) in a block.
    pub warps: u32,
    /// Blocks that must fit on a multiprocessor: a launch bound, and a floor in the resource snapshot.
    pub min_blocks: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// The blocks of the grid share its work: any number of them will do, and as many as are resident at once do best.
    pub any_blocks: bool,
}

/// The most argument slots of an entry, the hidden one included.
pub const MAX_SLOTS: usize = 24;

/// The values of the parameters, 8 bytes each: an address, or a number in the low bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    values: [u64; MAX_SLOTS],
    count: usize,
}

impl Slots {
    /// Takes the first [`MAX_SLOTS`] values; the macro refuses longer signatures.
    pub fn new(values: &[u64]) -> Self {
        let mut slots = Slots { values: [0; MAX_SLOTS], count: values.len().min(MAX_SLOTS) };
        slots.values[..slots.count].copy_from_slice(&values[..slots.count]);
        slots
    }

    /// The values, in the order of the parameters.
    pub fn as_slice(&self) -> &[u64] {
        &self.values[..self.count]
    }
}

/// A checked launch, for whoever owns a stream.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// What to launch.
    pub entry: &'static Entry,
    /// Blocks in the grid.
    pub blocks: u64,
    /// The arguments.
    pub slots: Slots,
}

/// An argument that a launch would not survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A buffer is shorter than the kernel would read or write.
    TooShort {
        /// The parameter.
        name: &'static str,
        /// Bytes given.
        given: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// An address does not allow the accesses of the kernel.
    Misaligned {
        /// The parameter.
        name: &'static str,
        /// The address.
        address: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// A number is larger than the kernel can count.
    TooLarge {
        /// The parameter.
        name: &'static str,
        /// The number given.
        given: u64,
        /// The largest one allowed.
        most: u64,
    },
    /// A second view of the tensor has another size than the grid, by which the buffers are measured.
    OtherSize {
        /// The parameter.
        name: &'static str,
        /// Its size.
        given: Size,
        /// That of the grid.
        grid: Size,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentError::TooShort { name, given, needed } => {
                write!(f, "`{name}` has {given} bytes, but the kernel needs {needed}; pass a larger buffer")
            }
            ArgumentError::Misaligned { name, address, align } => {
                write!(f, "`{name}` is at {address:#x}, which is no multiple of {align}; align the buffer")
            }
            ArgumentError::OtherSize { name, given, grid } => {
                write!(
                    f,
                    "`{name}` has {} elements in {} rows, but the grid has {} in {}; give both the same size",
                    given.elements, given.rows, grid.elements, grid.rows
                )
            }
            ArgumentError::TooLarge { name, given, most } => {
                write!(
                    f,
                    "`{name}` says {given}, but the kernel counts to {most}; split the work into several launches"
                )
            }
        }
    }
}

impl core::error::Error for ArgumentError {}

/// Memory that a kernel reads: on the host for a CPU run, on a device for a launch.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    address: u64,
    bytes: u64,
    memory: PhantomData<&'a [u8]>,
}

/// Memory that a kernel writes.
#[derive(Debug)]
pub struct Target<'a> {
    address: u64,
    bytes: u64,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Source<'a> {
    /// Host memory, for a CPU run.
    pub fn of(bytes: &'a [u8]) -> Self {
        Source { address: bytes.as_ptr() as u64, bytes: bytes.len() as u64, memory: PhantomData }
    }

    /// Elements in host memory, for a CPU run.
    pub fn of_elements<T: Element>(elements: &'a [T]) -> Self {
        Source { address: elements.as_ptr() as u64, bytes: size_of_val(elements) as u64, memory: PhantomData }
    }

    /// Memory at an address, of a device for a launch.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are readable by whoever runs the kernel, until it has run.
    pub unsafe fn at(address: u64, bytes: u64) -> Self {
        Source { address, bytes, memory: PhantomData }
    }

    /// The address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<'a> Target<'a> {
    /// Host memory, for a CPU run.
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Target { address: bytes.as_mut_ptr() as u64, bytes: bytes.len() as u64, memory: PhantomData }
    }

    /// Elements in host memory, for a CPU run.
    pub fn of_elements<T: Element>(elements: &'a mut [T]) -> Self {
        let bytes = size_of_val(elements) as u64;
        Target { address: elements.as_mut_ptr() as u64, bytes, memory: PhantomData }
    }

    /// Memory at an address, of a device for a launch.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are writable by whoever runs the kernel, and nobody else uses them until it has run.
    pub unsafe fn at(address: u64, bytes: u64) -> Self {
        Target { address, bytes, memory: PhantomData }
    }

    /// The address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// How large the tensor of a launch is, by which buffers are measured; the grid says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Elements.
    pub elements: u64,
    /// Rows that they are in; 1 where the grid knows of none.
    pub rows: u64,
}

/// What may stand in the signature of a kernel.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a kernel",
    label = "does not cross a launch",
    note = "take memory as `Elements<..>` or `ElementsOut<..>` (chunks of the codec: `In<..>`, `Out<..>`), a number as `u32`, `u64` or `f32`"
)]
pub trait Argument: Copy {
    /// What crosses the launch: `*const u8`, `*mut u8`, `u32`, `u64` or `f32`.
    type Raw: Copy;
    /// What the host passes.
    type Host<'a>;
    /// What it is, for descriptions.
    const KIND: Kind;

    /// The argument inside the kernel.
    ///
    /// # Safety
    /// `raw` comes from a host value that [`Argument::check`] accepted.
    unsafe fn from_raw(raw: Self::Raw) -> Self;
    /// The value as a launch slot.
    fn slot(host: &Self::Host<'_>) -> u64;
    /// The value as the kernel gets it on the CPU.
    fn raw(host: &Self::Host<'_>) -> Self::Raw;
    /// Is it fit for a tensor of this size?
    fn check(host: &Self::Host<'_>, name: &'static str, size: Size) -> Result<(), ArgumentError>;
    /// Does a device allow the kernel's accesses there? (A CPU takes any address.)
    fn check_address(_: &Self::Host<'_>, _: &'static str, _: Size) -> Result<(), ArgumentError> {
        Ok(())
    }
}

/// The first argument of every kernel: how many programs there are, over how many elements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no grid, and the second parameter of a kernel is one",
    label = "does not say how many programs run",
    note = "put `chunks: Chunks`, `strips: Strips<4>` or `rows: Rows` in front of this parameter, for example"
)]
pub trait Grid: Argument {
    /// Programs.
    fn programs(host: &Self::Host<'_>) -> u64;
    /// Elements of the tensor, by which buffers are measured.
    fn elements(host: &Self::Host<'_>) -> u64;
    /// Rows of the tensor.
    fn rows(_: &Self::Host<'_>) -> u64 {
        1
    }
    /// Do the blocks share the work, so that any number of them will do?
    const ANY_BLOCKS: bool = false;
    /// Blocks of a launch, of `warps` warps each.
    fn blocks(host: &Self::Host<'_>, warps: u64) -> u64 {
        Self::programs(host).div_ceil(warps)
    }
    /// Both.
    fn size(host: &Self::Host<'_>) -> Size {
        Size { elements: Self::elements(host), rows: Self::rows(host) }
    }
}

/// What to do with a member of a kernel that is known by its names: see `on_member` in the module of a kernel. `M` is the member, `(Bf16, W4)`
/// for example. An implementation for all `(D, S)` serves every kernel, and a member that is added to the lists needs no line anywhere else.
pub trait OnMember<M, R> {
    /// Does it.
    fn on_member(self) -> R;
}

/// What a parameter that is memory needs: see [`memory_arguments!`](crate::memory_arguments).
pub trait Extent {
    /// Bytes that the kernel may touch in a tensor of this size.
    fn bytes(size: Size) -> u64;
    /// What a device address must be a multiple of. (The CPU takes any.)
    const ALIGN: u64;
}

/// Is a buffer of `given` bytes long enough?
///
/// # Errors
/// [`ArgumentError::TooShort`].
pub fn check_size<T: Extent>(given: u64, name: &'static str, size: Size) -> Result<(), ArgumentError> {
    let needed = T::bytes(size);
    if given < needed { Err(ArgumentError::TooShort { name, given, needed }) } else { Ok(()) }
}

/// Does the address allow the kernel's accesses? One that is not used may be anything.
///
/// # Errors
/// [`ArgumentError::Misaligned`].
pub fn check_address<T: Extent>(address: u64, name: &'static str, size: Size) -> Result<(), ArgumentError> {
    let (align, used) = (T::ALIGN, T::bytes(size) != 0);
    if used && !address.is_multiple_of(align) {
        Err(ArgumentError::Misaligned { name, address, align })
    } else {
        Ok(())
    }
}

/// Implements [`Argument`] for types that are a pointer: `source` (read) or `target` (written), generics, type, how to make one.
/// The type implements [`Extent`], which says how long the buffer must be.
///
/// ```
/// use splitzip_kernels::launch::{Extent, Size};
///
/// /// Two words that all programs read.
/// #[derive(Clone, Copy)]
/// pub struct Limits(*const u8);
///
/// impl Extent for Limits {
///     fn bytes(_: Size) -> u64 {
///         8
///     }
///     const ALIGN: u64 = 8;
/// }
/// splitzip_kernels::memory_arguments! { source [] Limits = Limits; }
///
/// impl Limits {
///     /// The two words.
///     pub fn words(self) -> [u32; 2] {
///         // SAFETY: the launcher has checked 8 bytes and the alignment.
///         unsafe { splitzip_kernels::arch::load64(self.0) }
///     }
/// }
/// ```
#[macro_export]
macro_rules! memory_arguments {
    ($(source [$($generics:tt)*] $type:ty = $make:expr;)*) => { $(
        // SAFETY: never used: see `MemoryInsideALane`.
        unsafe impl<$($generics)*> Sync for $type where for<'a> $crate::tile::AnyMemory<'a>: $crate::tile::MemoryInsideALane {}
        impl<$($generics)*> $crate::launch::Argument for $type {
            type Raw = *const u8;
            type Host<'a> = $crate::launch::Source<'a>;
            const KIND: $crate::launch::Kind = $crate::launch::Kind::Source;
            #[inline(always)]
            unsafe fn from_raw(raw: *const u8) -> Self { ($make)(raw) }
            fn slot(host: &$crate::launch::Source<'_>) -> u64 { host.address() }
            fn raw(host: &$crate::launch::Source<'_>) -> *const u8 { host.address() as usize as *const u8 }
            fn check(
                host: &$crate::launch::Source<'_>,
                name: &'static str,
                size: $crate::launch::Size,
            ) -> ::core::result::Result<(), $crate::launch::ArgumentError> {
                $crate::launch::check_size::<Self>(host.bytes(), name, size)
            }
            fn check_address(
                host: &$crate::launch::Source<'_>,
                name: &'static str,
                size: $crate::launch::Size,
            ) -> ::core::result::Result<(), $crate::launch::ArgumentError> {
                $crate::launch::check_address::<Self>(host.address(), name, size)
            }
        }
    )* };
    ($(target [$($generics:tt)*] $type:ty = $make:expr;)*) => { $(
        // SAFETY: never used: see `MemoryInsideALane`.
        unsafe impl<$($generics)*> Sync for $type where for<'a> $crate::tile::AnyMemory<'a>: $crate::tile::MemoryInsideALane {}
        impl<$($generics)*> $crate::launch::Argument for $type {
            type Raw = *mut u8;
            type Host<'a> = $crate::launch::Target<'a>;
            const KIND: $crate::launch::Kind = $crate::launch::Kind::Target;
            #[inline(always)]
            unsafe fn from_raw(raw: *mut u8) -> Self { ($make)(raw) }
            fn slot(host: &$crate::launch::Target<'_>) -> u64 { host.address() }
            fn raw(host: &$crate::launch::Target<'_>) -> *mut u8 { host.address() as usize as *mut u8 }
            fn check(
                host: &$crate::launch::Target<'_>,
                name: &'static str,
                size: $crate::launch::Size,
            ) -> ::core::result::Result<(), $crate::launch::ArgumentError> {
                $crate::launch::check_size::<Self>(host.bytes(), name, size)
            }
            fn check_address(
                host: &$crate::launch::Target<'_>,
                name: &'static str,
                size: $crate::launch::Size,
            ) -> ::core::result::Result<(), $crate::launch::ArgumentError> {
                $crate::launch::check_address::<Self>(host.address(), name, size)
            }
        }
    )* };
}
#[doc(no_inline)]
pub use crate::memory_arguments;

macro_rules! number_arguments {
    ($($type:ty, $kind:ident, $slot:expr;)*) => { $(
        impl Argument for $type {
            type Raw = $type;
            type Host<'a> = $type;
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            unsafe fn from_raw(raw: $type) -> Self { raw }
            fn slot(host: &$type) -> u64 { ($slot)(*host) }
            fn raw(host: &$type) -> $type { *host }
            fn check(_: &$type, _: &'static str, _: Size) -> Result<(), ArgumentError> { Ok(()) }
        }
    )* };
}
number_arguments! { u32, U32, u64::from; u64, U64, |x| x; f32, F32, |x: f32| u64::from(x.to_bits()); }

/// Bytes of the directory of a tensor.
pub const fn directory_bytes(elements: u64) -> u64 {
    groups(elements) * RECORD_BYTES as u64
}

/// Are these the same name? For checks at compile time.
pub const fn same_name(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}
