//! `histogram` beside a loop that counts.

use crate::{Aligned, LENGTHS, Random};
use splitzip_kernels::dtype::{Bf16, Dtype};
use splitzip_kernels::kernels::histogram;
use splitzip_kernels::launch::{Programs, Source, Target};
use splitzip_kernels::tile::TAIL_BYTES;

/// What the kernel counts, by `programs` programs, in `samples` of the chunks.
fn counted(words: &Aligned, elements: u64, samples: u64, programs: u64, before: u64) -> Vec<u64> {
    let mut counts = Aligned::of_u64(&[before; 256]);
    let mut tail = Aligned::zeros(TAIL_BYTES as usize);
    histogram::Arguments::<Bf16> {
        programs: Programs { programs },
        words: Source::of(words.bytes()),
        elements,
        samples,
        counts: Target::of(counts.bytes_mut()),
        tail: Target::of(tail.bytes_mut()),
    }
    .run_all()
    .unwrap();
    (0..256).map(|exponent| counts.u64(exponent)).collect()
}

/// The same, one element at a time.
fn naive(words: &[u8], samples: u64, before: u64) -> Vec<u64> {
    let mut counts = vec![before; 256];
    let elements: Vec<u16> =
        words.chunks_exact(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect();
    let chunks: Vec<&[u16]> = elements.chunks(1024).collect();
    for sample in 0..samples {
        let chunk = (sample * chunks.len() as u64 / samples) as usize;
        for word in chunks[chunk] {
            counts[usize::from(word >> Bf16::MANTISSA_BITS & 0xff)] += 1;
        }
    }
    counts
}

#[test]
fn all_chunks_of_any_length_are_counted() {
    let mut random = Random(1);
    for length in LENGTHS {
        let words = random.bytes(2 * length);
        let (samples, aligned) = (length.div_ceil(1024) as u64, Aligned::of(&words));
        for programs in [1, 3, 64] {
            let got = counted(&aligned, length as u64, samples, programs, 0);
            assert_eq!(got, naive(&words, samples, 0), "{length} elements, {programs} programs");
        }
    }
}

#[test]
fn samples_are_spread_evenly() {
    let mut random = Random(2);
    for (length, samples) in
        [(5000, 1), (5000, 2), (5000, 4), (70_000, 64), (69_632, 64), (200_000, 64), (200_000, 7)]
    {
        // Every chunk has an exponent of its own, so that counts say which chunks were counted.
        let words: Vec<u8> = (0..length)
            .flat_map(|element| ((element as u16 / 1024) << 7 | random.below(128) as u16).to_le_bytes())
            .collect();
        let got = counted(&Aligned::of(&words), length as u64, samples, samples, 0);
        assert_eq!(got, naive(&words, samples, 0), "{samples} of {length} elements");
    }
}

#[test]
fn counts_are_added_to_what_is_there() {
    let words = Random(3).bytes(2 * 3000);
    assert_eq!(counted(&Aligned::of(&words), 3000, 3, 2, 1 << 40), naive(&words, 3, 1 << 40));
}

#[test]
fn one_exponent_alone_does_not_overflow_its_counter() {
    // All lanes add to the same counter of the program.
    let words = [0x80u8, 0x3f].repeat(70 * 1024);
    assert_eq!(counted(&Aligned::of(&words), 70 * 1024, 70, 1, 0)[0x7f], 70 * 1024);
}
