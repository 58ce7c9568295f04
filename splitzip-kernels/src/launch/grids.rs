//! Grids: how many programs run, over what.

use super::{Argument, ArgumentError, Grid, Kind, Size};
use crate::stream::{CHUNK, GROUP, chunks, groups};

/// Grids: a number of elements that says how many programs there are.
macro_rules! grids {
    ($($(#[$doc:meta])* $name:ident { $field:ident } = $programs:expr, $elements:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            /// See the type.
            pub $field: u64,
        }
        impl Argument for $name {
            type Raw = u64;
            type Host<'a> = $name;
            const KIND: Kind = Kind::U64;
            #[inline(always)]
            unsafe fn from_raw(raw: u64) -> Self { $name { $field: raw } }
            fn slot(host: &$name) -> u64 { host.$field }
            fn raw(host: &$name) -> u64 { host.$field }
            fn check(_: &$name, _: &'static str, _: Size) -> Result<(), ArgumentError> { Ok(()) }
        }
        impl Grid for $name {
            fn programs(host: &$name) -> u64 { ($programs)(host.$field) }
            fn elements(host: &$name) -> u64 { ($elements)(host.$field) }
        }
    )* };
}
grids! {
    /// A program for every chunk of a tensor of `elements` elements.
    Chunks { elements } = chunks, |n| n;
    /// A program for every group of 16 chunks of a tensor of `elements` elements.
    Groups { elements } = groups, |n| n;
    /// `programs` programs that share the work among themselves; buffers are measured by their own sizes.
    Programs { programs } = |n| n, |_| 0;
}

macro_rules! group_grids { ($($(#[$doc:meta])* $name:ident, $any_blocks:literal;)*) => { $(
    $(#[$doc])*
    #[derive(Clone, Copy, Debug)]
    pub struct $name {
        /// See the type.
        pub elements: u64,
    }

    impl Argument for $name {
        type Raw = u64;
        type Host<'a> = $name;
        const KIND: Kind = Kind::U64;
        #[inline(always)]
        unsafe fn from_raw(raw: u64) -> Self {
            $name { elements: raw }
        }
        fn slot(host: &$name) -> u64 {
            host.elements
        }
        fn raw(host: &$name) -> u64 {
            host.elements
        }
        fn check(host: &$name, name: &'static str, _: Size) -> Result<(), ArgumentError> {
            if host.elements > Queue::MOST {
                return Err(ArgumentError::TooLarge { name, given: host.elements, most: Queue::MOST });
            }
            Ok(())
        }
    }

    impl Grid for $name {
        fn programs(host: &$name) -> u64 {
            groups(host.elements) * GROUP as u64
        }
        fn elements(host: &$name) -> u64 {
            host.elements
        }
        const ANY_BLOCKS: bool = $any_blocks;
        fn blocks(host: &$name, _: u64) -> u64 {
            groups(host.elements)
        }
    }
)* } }
group_grids! {
    /// Blocks that stay take the groups of a tensor of `elements` elements one after the other, as many blocks as there is room for.
    Queue, true;
    /// A block for every group of a tensor of `elements` elements.
    BlockForGroup, false;
}

macro_rules! batch_grids { ($($(#[$doc:meta])* $name:ident, $any_blocks:literal, $blocks:expr;)*) => { $(
    $(#[$doc])*
    #[derive(Clone, Copy, Debug)]
    pub struct $name {
        /// Groups of all tensors.
        pub groups: u64,
    }

    impl Argument for $name {
        type Raw = u64;
        type Host<'a> = $name;
        const KIND: Kind = Kind::U64;
        #[inline(always)]
        unsafe fn from_raw(raw: u64) -> Self {
            $name { groups: raw }
        }
        fn slot(host: &$name) -> u64 {
            host.groups
        }
        fn raw(host: &$name) -> u64 {
            host.groups
        }
        fn check(host: &$name, name: &'static str, _: Size) -> Result<(), ArgumentError> {
            let (given, most) = (host.groups, Queue::MOST / GROUP_ELEMENTS);
            if given > most { Err(ArgumentError::TooLarge { name, given, most }) } else { Ok(()) }
        }
    }

    impl Grid for $name {
        fn programs(host: &$name) -> u64 {
            host.groups * GROUP as u64
        }
        fn elements(host: &$name) -> u64 {
            host.groups * GROUP_ELEMENTS
        }
        const ANY_BLOCKS: bool = $any_blocks;
        fn blocks(host: &$name, warps: u64) -> u64 {
            ($blocks)(host.groups, warps)
        }
    }
)* } }
batch_grids! {
    /// Blocks that stay take the groups of the tensors of a batch one after the other, as many blocks as there is room for.
    BatchQueue, true, |groups: u64, _: u64| groups;
    /// A program for every chunk of the groups of a batch.
    BatchChunks, false, |groups: u64, warps: u64| (groups * GROUP as u64).div_ceil(warps);
}

/// Elements of a whole group.
const GROUP_ELEMENTS: u64 = (CHUNK * GROUP) as u64;

impl Queue {
    /// The most elements: 32 GiB of bf16. A prefix is then 32 bits, and one trip to memory.
    pub const MOST: u64 = 1 << 34;

    /// Groups of the tensor.
    #[inline(always)]
    pub fn groups(&self) -> u32 {
        groups(self.elements) as u32
    }

    /// Its chunks.
    #[inline(always)]
    pub fn chunks(&self) -> Chunks {
        Chunks { elements: self.elements }
    }
}

impl Chunks {
    /// Elements of the chunk with this number: 1024, fewer in the last one, 0 behind it.
    #[inline(always)]
    pub fn valid(&self, chunk: u32) -> u32 {
        self.count(chunk, crate::arch::rare)
    }

    /// The same with a branch for chunks that are not whole: fewer instructions, and one wait.
    #[inline(always)]
    pub fn valid_apart(&self, chunk: u32) -> u32 {
        self.count(chunk, crate::arch::branched)
    }

    #[inline(always)]
    fn count(&self, chunk: u32, rare: impl Fn()) -> u32 {
        let whole = (self.elements / CHUNK as u64) as u32;
        let mut valid = CHUNK;
        if chunk >= whole {
            rare();
            valid = if chunk == whole { (self.elements % CHUNK as u64) as u32 } else { 0 };
        }
        valid
    }
}
