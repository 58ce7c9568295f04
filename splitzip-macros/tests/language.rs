//! `#[kernel]` with the language itself: a kernel that runs, and the rules that types enforce.

use splitzip_kernels::dtype::{Bf16, Dtype};
use splitzip_kernels::kernel;
use splitzip_kernels::launch::{ArgumentError, Chunks, Source, Target};
use splitzip_kernels::tile::{Chunk, Fill, In, Out, Program, Tail, TailArea, map};

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

#[test]
fn misuse_of_the_language_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/language/*.rs");
}
