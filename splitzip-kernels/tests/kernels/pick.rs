//! `pick` beside a sort.

use crate::{Aligned, Random};
use splitzip_kernels::kernels::pick;
use splitzip_kernels::launch::{Programs, Source, Target};
use splitzip_kernels::scheme::{ESCAPE, encode_table};
use std::cmp::Reverse;

/// Codebook and encoder's table of a histogram.
fn picked(counts: &[u64; 256], exponents: u32) -> ([u8; 16], Vec<u8>) {
    let (counts, mut codebook, mut table) =
        (Aligned::of_u64(counts), Aligned::of(&[0xa5; 16]), Aligned::of(&[0xa5; 256]));
    pick::Arguments {
        programs: Programs { programs: 1 },
        counts: Source::of(counts.bytes()),
        exponents,
        codebook: Target::of(codebook.bytes_mut()),
        table: Target::of(table.bytes_mut()),
    }
    .run_all()
    .unwrap();
    (codebook.bytes().try_into().unwrap(), table.bytes().to_vec())
}

/// The 16 most frequent, ties to the smaller exponent, in ascending order.
fn naive(counts: &[u64; 256], exponents: u32) -> [u8; 16] {
    let mut order: Vec<u8> = (0..exponents).map(|exponent| exponent as u8).collect();
    order.sort_by_key(|&exponent| (Reverse(counts[usize::from(exponent)]), exponent));
    order.truncate(16);
    order.sort_unstable();
    order.try_into().unwrap()
}

fn check(counts: &[u64; 256], exponents: u32) {
    let (codebook, table) = picked(counts, exponents);
    assert_eq!(codebook, naive(counts, exponents), "of {exponents}: {counts:?}");
    assert_eq!(table, encode_table(&codebook), "of {exponents}: {counts:?}");
}

#[test]
fn random_histograms_and_ties() {
    let mut random = Random(4);
    // Few different counts are many ties; 32 exponents are those of fp16 and e5m2.
    for bound in [1, 2, 3, 5, 17, 1000, 1 << 24] {
        for exponents in [32, 256] {
            for _ in 0..40 {
                let mut counts = [0; 256];
                counts[..exponents as usize].fill_with(|| random.below(bound));
                check(&counts, exponents);
            }
        }
    }
}

#[test]
fn few_exponents_fill_up_from_the_smallest() {
    check(&[0; 256], 256);
    assert_eq!(picked(&[0; 256], 256).0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let mut random = Random(5);
    for used in 0..20 {
        let mut counts = [0; 256];
        (0..used).for_each(|_| counts[random.below(256) as usize] = 1 + random.below(9));
        check(&counts, 256);
    }
    let mut last = [0; 256];
    last[255] = 1;
    check(&last, 256);
}

#[test]
fn the_largest_counts_keep_their_order() {
    let mut counts = [0; 256];
    for (exponent, count) in counts.iter_mut().enumerate() {
        *count = (1 << 24) - 1 - (exponent as u64 * 7 % 20);
    }
    check(&counts, 256);
}

#[test]
fn exponents_that_do_not_exist_are_not_picked() {
    // Whatever lies behind the counters of a dtype with 32 exponents.
    let mut counts = [1000; 256];
    counts[..32].fill(1);
    let (codebook, table) = picked(&counts, 32);
    assert_eq!(codebook, naive(&counts, 32));
    assert!(table[32..].iter().all(|&code| code == ESCAPE));
}
