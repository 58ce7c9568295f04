//! `histogram` beside a loop that counts.

use crate::{Aligned, LENGTHS, Random};
use splitzip_kernels::dtype::{Bf16, Dtype};
use splitzip_kernels::kernels::histogram;
use splitzip_kernels::launch::{OnMember, Programs, Source, Target};
use splitzip_kernels::tile::TAIL_BYTES;

/// What the kernel counts, by `programs` programs, in `samples` of the chunks.
fn counted<D: Dtype>(words: &Aligned, elements: u64, samples: u64, programs: u64, before: u64) -> Vec<u64>
where
    (D,): histogram::Member,
{
    let mut counts = Aligned::of_u64(&[before; 256]);
    let mut tail = Aligned::zeros(TAIL_BYTES as usize);
    histogram::Arguments::<D> {
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
fn naive<D: Dtype>(words: &[u8], samples: u64, before: u64) -> Vec<u64> {
    let mut counts = vec![before; 256];
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    let elements: Vec<u32> = words.chunks_exact(D::BITS as usize / 8).map(word).collect();
    let chunks: Vec<&[u32]> = elements.chunks(1024).collect();
    for sample in 0..samples {
        let chunk = (sample * chunks.len() as u64 / samples) as usize;
        for word in chunks[chunk] {
            counts[(word >> D::MANTISSA_BITS & ((1 << D::EXPONENT_BITS) - 1)) as usize] += 1;
        }
    }
    counts
}

fn any_length<D: Dtype>()
where
    (D,): histogram::Member,
{
    let mut random = Random(1);
    for length in LENGTHS {
        let words = random.bytes(D::BITS as usize / 8 * length);
        let (samples, aligned) = (length.div_ceil(1024) as u64, Aligned::of(&words));
        for programs in [1, 3, 64] {
            let got = counted::<D>(&aligned, length as u64, samples, programs, 0);
            assert_eq!(
                got,
                naive::<D>(&words, samples, 0),
                "{}, {length} elements, {programs} programs",
                D::NAME
            );
        }
    }
}

struct AnyLength;
impl<D: Dtype> OnMember<(D,), ()> for AnyLength
where
    (D,): histogram::Member,
{
    fn on_member(self) {
        any_length::<D>();
    }
}

#[test]
fn all_chunks_of_any_length_are_counted() {
    for entry in histogram::ENTRIES {
        histogram::on_member(entry.dtype.unwrap(), AnyLength).unwrap();
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
        let got = counted::<Bf16>(&Aligned::of(&words), length as u64, samples, samples, 0);
        assert_eq!(got, naive::<Bf16>(&words, samples, 0), "{samples} of {length} elements");
    }
}

#[test]
fn counts_are_added_to_what_is_there() {
    let words = Random(3).bytes(2 * 3000);
    assert_eq!(counted::<Bf16>(&Aligned::of(&words), 3000, 3, 2, 1 << 40), naive::<Bf16>(&words, 3, 1 << 40));
}

#[test]
fn one_exponent_alone_does_not_overflow_its_counter() {
    // All lanes add to the same counter of the program.
    let words = [0x80u8, 0x3f].repeat(70 * 1024);
    assert_eq!(counted::<Bf16>(&Aligned::of(&words), 70 * 1024, 70, 1, 0)[0x7f], 70 * 1024);
}
