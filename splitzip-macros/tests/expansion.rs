//! What `#[kernel]` makes, used as a caller would.

extern crate self as splitzip_kernels;

#[path = "stand_in/mod.rs"]
mod stand_in;
pub use stand_in::{arch, dtype, launch, scheme, tile};

mod kernels {
    use crate::dtype::{Bf16, Dtype, E4m3};
    use crate::launch::Chunks;
    use crate::scheme::{Scheme, W3, W4};
    use crate::stand_in::kernel;
    use crate::tile::{Block, In, Out, Program};

    /// Subtracts a number that depends on both generics, and adds `flags`.
    #[kernel(
        dtype = [Bf16, E4m3],
        scheme = [W3, W4],
        except = [(E4m3, W4)],
        warps = 8,
        blocks = 4,
        shared = D::EXPONENT_BITS * 4,
        block_shared = S::CODE_BITS,
    )]
    pub fn encode<D: Dtype, S: Scheme>(
        program: &Program,
        /// Elements of the tensor.
        chunks: Chunks,
        words: In<D::Words>,
        codes: Out<S::Codes>,
        flags: u32,
    ) {
        let _ = chunks;
        let word = words.load(program);
        codes.store(program, word - (D::EXPONENT_BITS - S::CODE_BITS) as u8 + flags as u8);
    }

    /// What fits differs from member to member.
    const fn decode_blocks<D: Dtype, S: Scheme>() -> u32 {
        D::EXPONENT_BITS - S::CODE_BITS
    }

    #[kernel(dtype = [Bf16], scheme = [W3, W4], warps = 8, blocks = decode_blocks::<D, S>())]
    pub fn decode<D: Dtype, S: Scheme>(
        program: &Program,
        chunks: Chunks,
        codes: In<S::Codes>,
        words: Out<D::Words>,
    ) {
        let _ = chunks;
        words.store(program, codes.load(program));
    }

    #[kernel(scheme = [W3, W4], warps = 8, blocks = S::ENCODE_BLOCKS)]
    pub fn pack<S: Scheme>(program: &Program, chunks: Chunks, codes: Out<S::Codes>) {
        let _ = chunks;
        codes.store(program, 0);
    }

    #[kernel(dtype = [Bf16], warps = 1, blocks = 32)]
    pub fn copy<D: Dtype>(program: &Program, chunks: Chunks, raw: In<D::Words>, program_: Out<D::Words>) {
        let _ = chunks;
        program_.store(program, raw.load(program));
    }

    /// Says what a block has.
    #[kernel(dtype = [E4m3], warps = 3, blocks = 1, shared = D::EXPONENT_BITS * 4, block_shared = 100)]
    pub fn survey<D: Dtype>(block: &mut Block, chunks: Chunks, program: Out<D::Words>) {
        assert!(block.index < chunks.elements);
        assert_eq!(block.memory as usize % 64, 0);
        // SAFETY: the memory of three warps and of the block, from the first byte to the last.
        unsafe { block.memory.add((block.warps * block.shared + block.block_shared) as usize - 1).write(1) };
        block.index += 1;
        let alone = crate::tile::Program { index: block.index - 1, memory: block.memory, level: LEVEL };
        program.store(&alone, (block.warps * 50 + block.shared + block.block_shared / 100) as u8);
    }

    /// Names of the arguments are names that a careless macro would use.
    #[kernel(warps = 2, blocks = 1, shared = 16)]
    pub fn fill(
        program: &Program,
        chunks: Chunks,
        index: u32,
        raw: u32,
        programs: u32,
        scratch: Out<u32>,
        r#type: u32,
    ) {
        assert_eq!(program.memory as usize % 64, 0);
        assert_eq!(program.level, LEVEL);
        assert!(program.index < chunks.elements);
        scratch.store(program, (index + raw + programs + r#type) as u8);
    }
}

use dtype::{Bf16, E4m3};
use kernels::{copy, decode, encode, fill, pack, survey};
use launch::{ArgumentError, Chunks, Kind, Source, Target};
use scheme::{W3, W4};

#[test]
fn entries_are_described() {
    let names: Vec<_> = encode::ENTRIES.iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["encode_bf16_w3", "encode_bf16_w4", "encode_e4m3_w3"]);
    let entry = <(Bf16, W3) as encode::Member>::ENTRY;
    assert_eq!(entry, encode::ENTRIES[0]);
    assert_eq!((entry.kernel, entry.dtype, entry.scheme), ("encode", Some("bf16"), Some("w3")));
    assert_eq!((entry.warps, entry.min_blocks, entry.shared_bytes), (8, 4, 8 * 32 + 3));
    let parameters: Vec<_> =
        entry.parameters.iter().map(|parameter| (parameter.name, parameter.kind)).collect();
    let expected =
        [("chunks", Kind::U64), ("words", Kind::Source), ("codes", Kind::Target), ("flags", Kind::U32)];
    assert_eq!(parameters, expected);
    assert_eq!(<(Bf16,) as copy::Member>::ENTRY.name, "copy_bf16");
    let entry = <() as fill::Member>::ENTRY;
    assert_eq!((entry.name, entry.dtype, entry.scheme, entry.shared_bytes), ("fill", None, None, 32));
    assert_eq!(entry.parameters[5].name, "type");
}

#[test]
fn blocks_may_differ_between_members() {
    let blocks =
        |entries: &[&launch::Entry]| entries.iter().map(|entry| entry.min_blocks).collect::<Vec<_>>();
    assert_eq!(blocks(decode::ENTRIES), [5, 4]);
    assert_eq!(blocks(pack::ENTRIES), [8, 6]);
    assert_eq!(blocks(copy::ENTRIES), [32]);
}

#[test]
fn a_launch_has_slots_in_order_and_whole_blocks() {
    let (words, mut codes) = ([9; 17], [0; 17]);
    let (from, to) = (words.as_ptr() as u64, codes.as_mut_ptr() as u64);
    let arguments = encode::Arguments::<Bf16, W3> {
        chunks: Chunks { elements: 17 },
        words: Source::of(&words),
        codes: Target::of(&mut codes),
        flags: 5,
    };
    let launch = arguments.launch().unwrap();
    assert_eq!(launch.entry.name, "encode_bf16_w3");
    assert_eq!(launch.blocks, 3);
    assert_eq!(launch.slots.0, [17, from, to, 5, 0]);
}

#[test]
fn a_short_buffer_is_an_error_before_anything_runs() {
    let (words, mut codes) = ([9; 17], [7; 16]);
    let mut arguments = encode::Arguments::<Bf16, W4> {
        chunks: Chunks { elements: 17 },
        words: Source::of(&words),
        codes: Target::of(&mut codes),
        flags: 0,
    };
    let error = ArgumentError { name: "codes", given: 16, needed: 17 };
    assert_eq!(arguments.check(), Err(error));
    assert!(arguments.launch().is_err());
    assert!(arguments.run_all().is_err());
    assert_eq!(codes, [7; 16]);
}

#[test]
fn the_body_runs_on_the_cpu() {
    let (words, mut codes) = ([9; 17], [0; 17]);
    let mut arguments = encode::Arguments::<E4m3, W3> {
        chunks: Chunks { elements: 17 },
        words: Source::of(&words),
        codes: Target::of(&mut codes),
        flags: 5,
    };
    arguments.run_all().unwrap();
    assert_eq!(codes, [13; 17]);
}

#[test]
fn a_range_runs_alone_and_in_parallel() {
    let words: Vec<u8> = (0..100).collect();
    let mut out = vec![0; 100];
    let arguments = copy::Arguments::<Bf16> {
        chunks: Chunks { elements: 100 },
        raw: Source::of(&words),
        program_: Target::of(&mut out),
    };
    arguments.check().unwrap();
    std::thread::scope(|scope| {
        for start in [10, 40] {
            let arguments = &arguments;
            // SAFETY: checked, and the ranges do not meet.
            scope.spawn(move || unsafe { arguments.run(start..start + 20) });
        }
    });
    assert!(
        (0..100).all(|i| out[i] == if (10..30).contains(&i) || (40..60).contains(&i) { i as u8 } else { 0 })
    );
}

#[test]
fn a_kernel_without_generics_has_one_entry() {
    let mut out = [0; 3];
    let mut arguments = fill::Arguments {
        chunks: Chunks { elements: 3 },
        index: 1,
        raw: 2,
        programs: 3,
        scratch: Target::of(&mut out),
        r#type: 4,
    };
    assert_eq!(arguments.launch().unwrap().entry.name, "fill");
    arguments.run_all().unwrap();
    assert_eq!(out, [10; 3]);
}

#[test]
fn a_block_is_one_program_with_the_memory_of_its_warps() {
    let mut out = [0; 5];
    let mut arguments =
        survey::Arguments::<E4m3> { chunks: Chunks { elements: 5 }, program: Target::of(&mut out) };
    let launch = arguments.launch().unwrap();
    assert_eq!((launch.blocks, launch.entry.warps, launch.entry.shared_bytes), (5, 3, 3 * 16 + 100));
    arguments.run_all().unwrap();
    assert_eq!(out, [150 + 16 + 1; 5]);
}

#[test]
fn every_level_runs_the_same_body() {
    for most in [0, 1, 2] {
        arch::MOST.set(most);
        let mut out = [0; 3];
        let target = Target::of(&mut out);
        let chunks = Chunks { elements: 3 };
        let mut arguments =
            fill::Arguments { chunks, index: 1, raw: 2, programs: 3, scratch: target, r#type: most };
        arguments.run_all().unwrap();
        assert_eq!(out, [6 + most as u8; 3]);
    }
}

/// Callers may be generic over the members.
fn name_of<D: dtype::Dtype, S: scheme::Scheme>(arguments: &encode::Arguments<'_, D, S>) -> &'static str
where
    (D, S): encode::Member,
{
    // SAFETY: an empty range.
    unsafe { arguments.run(0..0) };
    arguments.launch().unwrap().entry.name
}

#[test]
fn generic_callers_name_the_member() {
    let mut nothing = [];
    let arguments = encode::Arguments::<Bf16, W4> {
        chunks: Chunks { elements: 0 },
        words: Source::of(&[]),
        codes: Target::of(&mut nothing),
        flags: 0,
    };
    assert_eq!(name_of(&arguments), "encode_bf16_w4");
}
