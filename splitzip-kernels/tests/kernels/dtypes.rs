//! Split and join of every dtype, over all of its words, through planes in memory.

use crate::Aligned;
use splitzip_kernels::dtype::Dtype;
use splitzip_kernels::kernels::histogram;
use splitzip_kernels::launch::{Argument, Chunks, OnMember};
use splitzip_kernels::scheme::Decoded;
use splitzip_kernels::tile::{Chunk, Fill, In, Out, Program, TAIL_BYTES, Tail, TailArea, Tile, Words, map};

/// Calls `f` for every chunk of `bytes`, with its words, and stores what it returns in a plane.
fn through<D: Dtype, W: Words>(bytes: &[u8], f: impl Fn(&Tile<D::Words>) -> Tile<W>) -> Vec<u8> {
    let elements = (bytes.len() * 8 / D::BITS as usize) as u64;
    let (input, mut output) = (Aligned::of(bytes), Aligned::zeros(elements as usize * W::COUNT as usize / 8));
    let (mut tail, mut memory) = (Aligned::zeros(TAIL_BYTES as usize), Aligned::zeros(4096));
    let chunks = Chunks { elements };
    // SAFETY: input, output and tail are as long as the chunks say, and live until the end.
    let (words, out, tail) = unsafe {
        (
            In::<D::Words>::from_raw(input.bytes().as_ptr()),
            Out::<W>::from_raw(output.bytes_mut().as_mut_ptr()),
            Tail::from_raw(tail.bytes_mut().as_mut_ptr()),
        )
    };
    for index in 0..elements.div_ceil(1024) {
        // SAFETY: the memory is larger than any kernel's.
        let program = unsafe { Program::on_cpu(index, memory.bytes_mut().as_mut_ptr(), 0) };
        let chunk = Chunk::of(&program, chunks, tail);
        let tile = words.chunk(&program, &chunk, Fill::Zeros, TailArea::Words).load();
        out.store(&program, &chunk, TailArea::Words, &f(&tile));
    }
    output.bytes().to_vec()
}

/// All words of a dtype, in an order that puts neighbours into different lanes, and a short chunk at the end.
fn all_words<D: Dtype>() -> Vec<u8> {
    let count = 1u32 << D::BITS;
    let words = (0..count.max(2048) + 777).map(|i| i.wrapping_mul(0x6487) & (count - 1));
    words.flat_map(|word| word.to_le_bytes().into_iter().take(D::BITS as usize / 8)).collect()
}

fn word<D: Dtype>(bytes: &[u8], element: usize) -> u32 {
    let size = D::BITS as usize / 8;
    bytes[element * size..][..size].iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// `again(words, keep)` takes words apart and joins them: with their exponents, or with exponents of all zeros.
fn check<D: Dtype>(
    words: impl Fn(&Tile<D::Words>) -> Tile<D::Words>,
    without: impl Fn(&Tile<D::Words>) -> Tile<D::Words>,
) {
    let bytes = all_words::<D>();
    assert_eq!(through::<D, D::Words>(&bytes, words), bytes, "{}: join does not undo split", D::NAME);

    let exponent = ((1 << D::EXPONENT_BITS) - 1) << D::MANTISSA_BITS;
    let residuals = through::<D, D::Words>(&bytes, without);
    let exponents = through::<D, [u32; 8]>(&bytes, |words| map(words, D::exponents));
    for (element, found) in exponents.into_iter().enumerate() {
        let word_in = word::<D>(&bytes, element);
        assert_eq!(
            word::<D>(&residuals, element),
            word_in & !exponent,
            "{}: residual of {word_in:#x}",
            D::NAME
        );
        let found = u32::from(found);
        assert_eq!(found, (word_in & exponent) >> D::MANTISSA_BITS, "{}: exponent of {word_in:#x}", D::NAME);
    }
}

struct SplitAndJoin;
impl<D: Dtype> OnMember<(D,), ()> for SplitAndJoin
where
    D::Words: AsMut<[u32]>,
{
    fn on_member(self) {
        let joined = |exponents, (residuals, upper)| D::join(exponents, residuals, upper);
        check::<D>(
            |words| map(words, |w| joined(D::exponents(w), D::split(w))),
            |words| map(words, |w| joined([0; 8], D::split(w))),
        );
        let decoded = |exponents, (residuals, upper)| {
            D::join_decoded(D::Decoded::from_bytes(exponents), residuals, upper)
        };
        check::<D>(
            |words| map(words, |w| decoded(D::exponents(w), D::split(w))),
            |words| map(words, |w| decoded([0; 8], D::split(w))),
        );
        equal_elements::<D>(D::repeat(0x35), run_by_run::<D>, D::first);
    }
}

#[test]
fn every_dtype_is_split_and_joined() {
    for entry in histogram::ENTRIES {
        histogram::on_member(entry.dtype.unwrap(), SplitAndJoin).unwrap();
    }
}

/// What differs in any run of a lane.
fn run_by_run<D: Dtype>(words: D::Words, element: u32) -> u32 {
    let of_run = D::BITS as usize / 4;
    (0..4).fold(0, |differences, run| {
        let mut own = [0; 4];
        for (i, word) in own.iter_mut().take(of_run).enumerate() {
            *word = words.word(run * of_run + i);
        }
        differences | D::run_differences(own, element)
    })
}

/// Elements that are all equal have no differences; one bit anywhere is one.
fn equal_elements<D: Dtype>(
    words: D::Words,
    differences: impl Fn(D::Words, u32) -> u32,
    first: impl Fn(D::Words) -> u32,
) where
    D::Words: AsMut<[u32]> + Copy,
{
    assert_eq!((first(words), differences(words, 0x35)), (0x35, 0), "{}", D::NAME);
    for bit in 0..D::BITS * 32 {
        let mut other = words;
        other.as_mut()[bit as usize / 32] ^= 1 << (bit % 32);
        assert_ne!(differences(other, 0x35), 0, "{}: bit {bit}", D::NAME);
    }
}
