//! `#[kernel]`: from one generic function to entries of the GPU, checked launchers and runs on the CPU.
//!
//! The attribute reads its settings and the signature, never the body: a kernel is ordinary Rust to the compiler, to editors
//! and to its readers. Use it as `splitzip_kernels::kernel`.
//!
//! ```ignore
//! /// Encodes a chunk.
//! #[kernel(dtype = [Bf16, E5m2], scheme = [W4, W2x3], warps = 8, blocks = 8, block_shared = S::TABLE_BYTES)]
//! pub fn encode<D: Dtype, S: Scheme>(
//!     program: &Program,
//!     chunks: Chunks,
//!     /// The tensor.
//!     words: In<D::Words>,
//!     residuals: Out<D::Residuals>,
//!     codes: Out<S::Codes>,
//! ) {
//!     ..
//! }
//! ```
//!
//! # What comes out
//!
//! The function stays where it is, with one more generic at the end, `const LEVEL: u32`: 0 on the GPU and on any CPU, 1 for
//! x86-64-v3, 2 for AVX-512 with VBMI2. The body may hand it on (`helper::<D, S, LEVEL>(..)`), and should, to a function that has a
//! closure and is not made for this kernel alone: a closure that two levels share stays a call.
//!
//! Beside it stands a module of the same name:
//!
//! | item | what |
//! | --- | --- |
//! | `encode::Arguments { chunks, words, .. }` | the arguments of a launch by name, as the host has them; memory is borrowed |
//! | `.check()` | are all buffers long enough for the grid? An error names the parameter |
//! | `.launch()` | checks; then what a GPU needs: the entry, blocks, argument slots |
//! | `.run_all()` | checks; then runs every program on this thread, in order |
//! | `unsafe .run(programs)` | runs a range of programs, unchecked, for callers with threads of their own |
//! | `encode::Member` | implemented for what the kernel is made for: `(Bf16, W4)`, `(Bf16,)` with one list, `()` without |
//! | `encode::Member::ENTRY` | description of one entry: name, parameters, warps, blocks, shared memory |
//! | `encode::ENTRIES` | all of them, in the order of the lists |
//! | `encode::on_member("bf16", "w4", f)` | from names to types: does what `f` says for that member, if there is one |
//!
//! For `nvptx64` there is instead an entry for each member: `encode_bf16_w4`, an unmangled `extern "ptx-kernel"` function with
//! the raw arguments in order and one more, `zero: u32`, for which a launch passes 0. Launch bounds are no matter of Rust,
//! and device code can have no data, so an entry starts with a comment for `nvptx-builder`:
//!
//! ```text
//! // nvptx-builder: threads=256 min_blocks=8 shared=256
//! ```
//!
//! # Settings
//!
//! | key | value | |
//! | --- | --- | --- |
//! | `warps` | a `u32`, 1 to 32, may use `D` and `S` | warps of a block, the same for every target; each runs one program, or with a `Block` all of them run one |
//! | `blocks` | a `u32`, 1 to 32, may use `D` and `S` | blocks that must fit on a multiprocessor; bounds the registers. `warps` x `blocks` is at most 64 |
//! | `dtype` | a list of types | what `D: Dtype` stands for |
//! | `scheme` | a list of types | what `S: Scheme` stands for |
//! | `except` | a list of pairs | members that the product of the lists has and the kernel has not |
//! | `shared` | a `u32`, may use `D` and `S` | bytes of shared memory of a warp |
//! | `block_shared` | a `u32`, may use `D` and `S` | bytes of shared memory that the warps of a block have in common |
//!
//! # Rules
//!
//! A fault is answered with a sentence that says what is allowed and how to go on; all faults of a kernel are reported together.
//! `tests/refused/` has a case for each rule, named as the rule, with its sentence beside it.
//!
//! **The function.** It is a free function with a body. It is not `const`, `async`, `unsafe`, `extern` or variadic; it returns
//! nothing, for there is nobody to return it to. It has no `inline`, `target_feature`, `no_mangle` or `export_name` of its
//! own. It does not stand inside another function, for its module looks for names in the module around it.
//!
//! **Generics.** At most `D: Dtype` and `S: Scheme`, by any names, in this order, with this one bound each; no lifetimes, no
//! constants, no defaults, no `where`. Each has a list, each list has its generic; and each occurs in the type of an argument, since
//! a launch knows its member from the types of its arguments. `LEVEL` is taken.
//!
//! **Lists.** At least one member, each once. A member is the plain name of a type, because its lower-case form becomes a part of
//! the entry's name; it must be the type's `NAME`. A pair of which the codes are not narrower than the exponents would
//! save nothing and does not compile: take it out with `except`, which leaves at least one member.
//!
//! **Parameters.** First who runs the body: `program: &Program` where every warp works alone, `block: &mut Block` where the warps of a
//! block work together (a program is then a whole block). Then the grid: a type that says how many programs run, `Chunks` for example. Behind
//! them, at most 22 arguments (23 with the grid). Each has a plain name: no pattern, no `mut`, no `_` in front, since it is a field of `Arguments`;
//! `zero` and `LEVEL` are taken. Each has a named type that crosses a launch by value: `In<..>` for memory that is read, `Out<..>` for
//! memory that is written, a number; no reference, slice or pointer, for the launcher could not check their lengths, and nothing
//! with a lifetime. Documentation at a parameter moves to the field; no other attribute may stand there.
//!
//! **Paths.** Types of the signature, `blocks`, `shared` and `block_shared` are looked up in the module of the kernel, which has everything that the
//! module around it has. So no path starts with `self` or `super`, and a type called `Arguments` or `Member` needs a
//! path that starts with `crate`.
//!
//! **Blocks.** A number is checked where it stands. An expression (`S::ENCODE_BLOCKS`, `decode_blocks::<D, S>()`) is a constant of
//! each member, and keeps the same bounds for every member; it is checked when the crate is compiled for a host.
//!
//! **Memory.** `warps` x `shared` + `block_shared` is at most 48 KiB for every member.
//!
//! **Types.** The rest belongs to the types, not to the attribute: an argument implements `splitzip_kernels::launch::Argument`, a grid
//! `splitzip_kernels::launch::Grid`; a lane holds elements; a tile, the program and memory stay out of the closure of `map`.
//!
//! The page below has all rules with their answers. It is made from the cases, and a test compares both with the sentences in the sources.
#![doc = include_str!("../MESSAGES.md")]

mod expand;
mod parse;

use proc_macro::TokenStream;

/// Makes entries, launchers and CPU runs of a kernel; the [crate] has the rules.
#[proc_macro_attribute]
pub fn kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(attribute.into(), item.into()).into()
}
