//! A small `splitzip_kernels`: what `#[kernel]` builds on, with memory as plain slices and one element to a program.
//!
//! The rules of the macro are tested against this one, so that they do not depend on the language; kernels.rs tests it
//! against the real crate.
#![allow(dead_code, missing_docs, unused_imports)]

pub use splitzip_macros::kernel;

pub mod prelude {
    pub use super::dtype::{self, Bf16, Dtype, E4m3};
    pub use super::launch::{self, Chunks};
    pub use super::scheme::{self, Scheme, W3, W4};
    pub use super::tile::{Block, In, Out, Program};
    pub use splitzip_macros::kernel;
}

pub mod arch {
    use std::cell::Cell;

    thread_local! {
        /// The level that a test wants.
        pub static MOST: Cell<u32> = const { Cell::new(2) };
    }

    macro_rules! has {
        ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
    }

    #[cfg(target_arch = "x86_64")]
    pub fn level() -> u32 {
        let level_1 = has!("avx2" "bmi1" "bmi2" "fma" "lzcnt" "movbe" "popcnt" "f16c");
        let level_2 = level_1
            && has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512vbmi" "avx512vbmi2" "avx512bitalg"
                "avx512vpopcntdq" "gfni");
        MOST.get().min(u32::from(level_1) + u32::from(level_2))
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn level() -> u32 {
        0
    }
}

pub mod dtype {
    pub trait Dtype: Copy + 'static {
        const NAME: &'static str;
        const EXPONENT_BITS: u32;
        type Words: Copy;
    }
    #[derive(Clone, Copy)]
    pub struct Bf16;
    #[derive(Clone, Copy)]
    pub struct E4m3;
    impl Dtype for Bf16 {
        const NAME: &'static str = "bf16";
        const EXPONENT_BITS: u32 = 8;
        type Words = u16;
    }
    impl Dtype for E4m3 {
        const NAME: &'static str = "e4m3";
        const EXPONENT_BITS: u32 = 4;
        type Words = u8;
    }
}

pub mod scheme {
    pub trait Scheme: Copy + 'static {
        const NAME: &'static str;
        const CODE_BITS: u32;
        const ENCODE_BLOCKS: u32;
        type Codes: Copy;
    }
    #[derive(Clone, Copy)]
    pub struct W3;
    #[derive(Clone, Copy)]
    pub struct W4;
    impl Scheme for W3 {
        const NAME: &'static str = "w3";
        const CODE_BITS: u32 = 3;
        const ENCODE_BLOCKS: u32 = 8;
        type Codes = u8;
    }
    impl Scheme for W4 {
        const NAME: &'static str = "w4";
        const CODE_BITS: u32 = 4;
        const ENCODE_BLOCKS: u32 = 6;
        type Codes = u8;
    }
    pub const fn check_member(exponent_bits: u32, code_bits: u32, sentence: &'static str) {
        if code_bits >= exponent_bits {
            panic!("{}", sentence)
        }
    }
}

pub mod tile {
    use core::marker::PhantomData;

    pub struct Program {
        pub index: u64,
        pub memory: *mut u8,
        pub level: u32,
    }

    impl Program {
        /// # Safety
        /// As in the real one.
        pub unsafe fn on_cpu(index: u64, memory: *mut u8, level: u32) -> Self {
            Program { index, memory, level }
        }
    }

    pub struct Block {
        pub index: u64,
        pub memory: *mut u8,
        pub level: u32,
        pub warps: u32,
        pub shared: u32,
        pub block_shared: u32,
    }

    impl Block {
        /// # Safety
        /// As in the real one.
        pub unsafe fn on_cpu(
            index: u64,
            memory: *mut u8,
            level: u32,
            warps: u32,
            shared: u32,
            block_shared: u32,
        ) -> Self {
            Block { index, memory, level, warps, shared, block_shared }
        }
    }

    #[derive(Clone, Copy)]
    pub struct In<T>(pub(crate) *const u8, pub(crate) PhantomData<T>);
    #[derive(Clone, Copy)]
    pub struct Out<T>(pub(crate) *mut u8, pub(crate) PhantomData<T>);

    impl<T> In<T> {
        pub fn load(&self, program: &Program) -> u8 {
            // SAFETY: the launcher has checked that there is a byte for every program.
            unsafe { *self.0.add(program.index as usize) }
        }
    }
    impl<T> Out<T> {
        pub fn store(&self, program: &Program, value: u8) {
            // SAFETY: the launcher has checked that there is a byte for every program.
            unsafe { *self.0.add(program.index as usize) = value }
        }
    }
}

pub mod launch {
    use super::tile::{In, Out};
    use core::marker::PhantomData;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        Source,
        Target,
        U32,
        U64,
    }
    #[derive(Debug, PartialEq, Eq)]
    pub struct Parameter {
        pub name: &'static str,
        pub kind: Kind,
    }
    #[derive(Debug, PartialEq, Eq)]
    pub struct Entry {
        pub name: &'static str,
        pub kernel: &'static str,
        pub dtype: Option<&'static str>,
        pub scheme: Option<&'static str>,
        pub parameters: &'static [Parameter],
        pub warps: u32,
        pub min_blocks: u32,
        pub shared_bytes: u32,
        pub any_blocks: bool,
    }
    #[derive(Debug)]
    pub struct Launch {
        pub entry: &'static Entry,
        pub blocks: u64,
        pub slots: Slots,
    }
    #[derive(Clone, Copy)]
    pub struct Size {
        pub elements: u64,
    }
    #[derive(Debug)]
    pub struct Slots(pub Vec<u64>);
    impl Slots {
        pub fn new(values: &[u64]) -> Self {
            Slots(values.to_vec())
        }
    }
    #[derive(Debug, PartialEq, Eq)]
    pub struct ArgumentError {
        pub name: &'static str,
        pub given: u64,
        pub needed: u64,
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be an argument of a kernel",
        label = "does not cross a launch",
        note = "take memory as `Elements<..>` or `ElementsOut<..>` (chunks of the codec: `In<..>`, `Out<..>`), a number as `u32`, `u64` or `f32`"
    )]
    pub trait Argument: Copy {
        type Raw: Copy;
        type Host<'a>;
        const KIND: Kind;
        /// # Safety
        /// As in the real one.
        unsafe fn from_raw(raw: Self::Raw) -> Self;
        fn slot(host: &Self::Host<'_>) -> u64;
        fn raw(host: &Self::Host<'_>) -> Self::Raw;
        fn check(host: &Self::Host<'_>, name: &'static str, size: Size) -> Result<(), ArgumentError>;
        fn check_address(_: &Self::Host<'_>, _: &'static str, _: Size) -> Result<(), ArgumentError> {
            Ok(())
        }
    }
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no grid, and the second parameter of a kernel is one",
        label = "does not say how many programs run",
        note = "put `chunks: Chunks`, `strips: Strips<4>` or `rows: Rows` in front of this parameter, for example"
    )]
    pub trait Grid: Argument {
        fn programs(host: &Self::Host<'_>) -> u64;
        fn elements(host: &Self::Host<'_>) -> u64;
        fn size(host: &Self::Host<'_>) -> Size {
            Size { elements: Self::elements(host) }
        }
        const ANY_BLOCKS: bool = false;
        fn blocks(host: &Self::Host<'_>, warps: u64) -> u64 {
            Self::programs(host).div_ceil(warps)
        }
    }

    pub trait OnMember<M, R> {
        fn on_member(self) -> R;
    }

    pub struct Source<'a>(u64, u64, PhantomData<&'a [u8]>);
    pub struct Target<'a>(u64, u64, PhantomData<&'a mut [u8]>);
    impl<'a> Source<'a> {
        pub fn of(bytes: &'a [u8]) -> Self {
            Source(bytes.as_ptr() as u64, bytes.len() as u64, PhantomData)
        }
    }
    impl<'a> Target<'a> {
        pub fn of(bytes: &'a mut [u8]) -> Self {
            Target(bytes.as_mut_ptr() as u64, bytes.len() as u64, PhantomData)
        }
    }
    fn fits(name: &'static str, given: u64, needed: u64) -> Result<(), ArgumentError> {
        if given < needed { Err(ArgumentError { name, given, needed }) } else { Ok(()) }
    }
    impl<T: Copy> Argument for In<T> {
        type Raw = *const u8;
        type Host<'a> = Source<'a>;
        const KIND: Kind = Kind::Source;
        unsafe fn from_raw(raw: *const u8) -> Self {
            In(raw, PhantomData)
        }
        fn slot(host: &Source<'_>) -> u64 {
            host.0
        }
        fn raw(host: &Source<'_>) -> *const u8 {
            host.0 as usize as *const u8
        }
        fn check(host: &Source<'_>, name: &'static str, size: Size) -> Result<(), ArgumentError> {
            fits(name, host.1, size.elements)
        }
    }
    impl<T: Copy> Argument for Out<T> {
        type Raw = *mut u8;
        type Host<'a> = Target<'a>;
        const KIND: Kind = Kind::Target;
        unsafe fn from_raw(raw: *mut u8) -> Self {
            Out(raw, PhantomData)
        }
        fn slot(host: &Target<'_>) -> u64 {
            host.0
        }
        fn raw(host: &Target<'_>) -> *mut u8 {
            host.0 as usize as *mut u8
        }
        fn check(host: &Target<'_>, name: &'static str, size: Size) -> Result<(), ArgumentError> {
            fits(name, host.1, size.elements)
        }
    }
    impl Argument for u32 {
        type Raw = u32;
        type Host<'a> = u32;
        const KIND: Kind = Kind::U32;
        unsafe fn from_raw(raw: u32) -> Self {
            raw
        }
        fn slot(host: &u32) -> u64 {
            u64::from(*host)
        }
        fn raw(host: &u32) -> u32 {
            *host
        }
        fn check(_: &u32, _: &'static str, _: Size) -> Result<(), ArgumentError> {
            Ok(())
        }
    }

    /// One program for each element.
    #[derive(Clone, Copy, Debug)]
    pub struct Chunks {
        pub elements: u64,
    }
    impl Argument for Chunks {
        type Raw = u64;
        type Host<'a> = Chunks;
        const KIND: Kind = Kind::U64;
        unsafe fn from_raw(elements: u64) -> Self {
            Chunks { elements }
        }
        fn slot(host: &Chunks) -> u64 {
            host.elements
        }
        fn raw(host: &Chunks) -> u64 {
            host.elements
        }
        fn check(_: &Chunks, _: &'static str, _: Size) -> Result<(), ArgumentError> {
            Ok(())
        }
    }
    impl Grid for Chunks {
        fn programs(host: &Chunks) -> u64 {
            host.elements
        }
        fn elements(host: &Chunks) -> u64 {
            host.elements
        }
    }

    pub const fn same_name(a: &str, b: &str) -> bool {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut i = 0;
        while i < a.len() && i < b.len() && a[i] == b[i] {
            i += 1;
        }
        a.len() == b.len() && i == a.len()
    }
}
