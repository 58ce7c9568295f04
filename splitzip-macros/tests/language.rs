//! `#[kernel]` with the language itself: a kernel that runs, and the rules that types enforce.

use splitzip_kernels::dtype::{Bf16, Dtype};
use splitzip_kernels::launch::{
    Argument, ArgumentError, Chunks, Extent, Grid, Kind, Size, Source, Target, memory_arguments,
};
use splitzip_kernels::tile::{Chunk, Fill, In, Out, Program, Tail, TailArea, map};
use splitzip_kernels::{arch, kernel};

/// Signs and mantissas of a tensor.
#[kernel(dtype = [Bf16], warps = 8, blocks = 8)]
pub fn residuals<D: Dtype>(
    program: &Program,
    chunks: Chunks,
    /// The tensor.
    words: In<D::Words>,
    residuals: Out<D::Residuals>,
    tail: Tail,
) {
    let chunk = Chunk::of(program, chunks, tail);
    if chunk.valid == 0 {
        return;
    }
    let elements = words.chunk(program, &chunk, Fill::Zeros, TailArea::Words).load();
    residuals.store(program, &chunk, TailArea::Residuals, &map(&elements, D::split).0);
}

fn run(words: &[u8], out: &mut [u8], tail: &mut [u8]) -> Result<(), ArgumentError> {
    residuals::Arguments::<Bf16> {
        chunks: Chunks { elements: words.len() as u64 / 2 },
        words: Source::of(words),
        residuals: Target::of(out),
        tail: Target::of(tail),
    }
    .run_all()
}

#[repr(align(16))]
struct Aligned<const N: usize>([u8; N]);

#[test]
fn a_kernel_outside_of_the_kernels_crate_runs() {
    const ELEMENTS: usize = 2500;
    let mut words = Aligned([0; 2 * ELEMENTS]);
    for (i, byte) in words.0.iter_mut().enumerate() {
        *byte = (i * 37 / 8) as u8;
    }
    let (mut out, mut tail) = (Aligned([0; ELEMENTS]), Aligned([0; 8192]));
    run(&words.0, &mut out.0, &mut tail.0).unwrap();
    for (i, &residual) in out.0.iter().enumerate() {
        let word = u16::from_le_bytes([words.0[2 * i], words.0[2 * i + 1]]);
        assert_eq!(residual, (word & 0x7f) as u8 | (word >> 8 & 0x80) as u8, "element {i}");
    }
}

#[test]
fn a_short_buffer_is_named() {
    let (words, mut out) = (Aligned([0; 2048]), Aligned([0; 1023]));
    let error = run(&words.0, &mut out.0, &mut []).unwrap_err();
    assert_eq!(error, ArgumentError::TooShort { name: "residuals", given: 1023, needed: 1024 });
}

/// A grid of this crate: a program for every pair of bytes.
#[derive(Clone, Copy)]
pub struct Pairs(u32);

impl Argument for Pairs {
    type Raw = u32;
    type Host<'a> = u32;
    const KIND: Kind = Kind::U32;
    unsafe fn from_raw(raw: u32) -> Self {
        Pairs(raw)
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

impl Grid for Pairs {
    fn programs(host: &u32) -> u64 {
        u64::from(*host)
    }
    fn elements(host: &u32) -> u64 {
        2 * u64::from(*host)
    }
}

/// Memory of this crate: a byte for every element.
#[derive(Clone, Copy)]
pub struct Bytes(*mut u8);

impl Extent for Bytes {
    fn bytes(size: Size) -> u64 {
        size.elements
    }
    const ALIGN: u64 = 1;
}
memory_arguments! { target [] Bytes = Bytes; }

impl Bytes {
    /// Swaps the bytes of a pair, if there is one with this number.
    fn swap(self, pairs: Pairs, index: u32) {
        let p = self.0.wrapping_add(2 * index as usize);
        for lane in arch::lanes() {
            if lane == 0 && index < pairs.0 {
                // SAFETY: the launcher has measured the buffer by the grid.
                unsafe {
                    let (first, second) = (arch::load8(p), arch::load8(p.add(1)));
                    arch::store8(p, second);
                    arch::store8(p.add(1), first);
                }
            }
        }
    }
}

/// Swaps bytes.
#[kernel(warps = 4, blocks = 1)]
pub fn swap(program: &Program, pairs: Pairs, bytes: Bytes) {
    bytes.swap(pairs, program.index());
}

#[test]
fn a_crate_may_have_a_grid_and_memory_of_its_own() {
    let mut bytes = [1, 2, 3, 4, 5, 6, 7];
    let mut arguments = swap::Arguments { pairs: 3, bytes: Target::of(&mut bytes) };
    assert_eq!(arguments.launch().unwrap().blocks, 1);
    arguments.run_all().unwrap();
    assert_eq!(bytes, [2, 1, 4, 3, 6, 5, 7]);
    let arguments = swap::Arguments { pairs: 4, bytes: Target::of(&mut bytes) };
    assert_eq!(arguments.check(), Err(ArgumentError::TooShort { name: "bytes", given: 7, needed: 8 }));
}

#[test]
fn misuse_of_the_language_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/language/*.rs");
}
