//! `place` with lengths that hurt: empty groups, full ones, one long part among short ones, tensors behind others.

use crate::{Aligned, Random};
use splitzip_kernels::kernels::place;
use splitzip_kernels::launch::{Groups, Source, Target, directory_bytes};
use splitzip_kernels::tile::Totals;

/// Places parts of `lengths` words, of all modes, behind `start` words of other tensors.
fn check(what: &str, lengths: &[u32], slot_words: u32, start: u64) {
    let elements = lengths.len() as u64 * 1024;
    let groups = lengths.len().div_ceil(16);
    let word = |chunk: usize, at: u32| (chunk as u32) << 12 | at;

    let mut slots = vec![0xdead_beef; lengths.len() * slot_words as usize];
    let mut totals = vec![0u32; Totals::bytes_for(elements) as usize / 4];
    let mut directory = vec![0x5a; directory_bytes(elements) as usize];
    for (chunk, &length) in lengths.iter().enumerate() {
        let (group, slot) = (chunk / 16, chunk * slot_words as usize);
        (0..length).for_each(|at| slots[slot + at as usize] = word(chunk, at));
        totals[group] += length;
        totals[groups + group / 32] += length;
        totals[groups + groups.div_ceil(32) + group / 1024] += length;
        // A mode above the length: `place` must not count it.
        let (at, entry) = (group * 40 + 8 + chunk % 16 * 2, length | (chunk as u32 % 4) << 12);
        directory[at..at + 2].copy_from_slice(&(entry as u16).to_le_bytes());
    }
    let all: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let (mut totals, mut directory, slots) =
        (Aligned::of_u32(&totals), Aligned::of(&directory), Aligned::of_u32(&slots));
    let mut parts = Aligned::of_u32(&vec![0x7777_7777; (start + all) as usize + 1]);
    let (mut first, mut end) = (Aligned::of_u64(&[start]), Aligned::of_u64(&[!0]));
    place::Arguments {
        grid: Groups { elements },
        slots: Source::of(slots.bytes()),
        slot_words,
        totals: Target::of(totals.bytes_mut()),
        directory: Target::of(directory.bytes_mut()),
        start: Target::of(first.bytes_mut()),
        end: Target::of(end.bytes_mut()),
        parts: Target::of(parts.bytes_mut()),
    }
    .run_all()
    .unwrap();

    let mut at = start;
    for (group, lengths) in lengths.chunks(16).enumerate() {
        assert_eq!(directory.u64(group * 5), at, "{what}: where group {group} starts");
        for (i, &length) in lengths.iter().enumerate() {
            let chunk = group * 16 + i;
            for k in 0..length {
                assert_eq!(
                    parts.u32((at + u64::from(k)) as usize),
                    word(chunk, k),
                    "{what}: chunk {chunk}, word {k}"
                );
            }
            at += u64::from(length);
        }
        for missing in lengths.len()..16 {
            let entry = group * 40 + 8 + missing * 2;
            assert_eq!(
                directory.bytes()[entry..entry + 2],
                [0, 0],
                "{what}: entry {missing} of group {group}"
            );
        }
    }
    assert_eq!(end.u64(0), start + all, "{what}: the end");
    (0..start as usize)
        .for_each(|at| assert_eq!(parts.u32(at), 0x7777_7777, "{what}: word {at} of another tensor"));
    assert_eq!(parts.u32((start + all) as usize), 0x7777_7777, "{what}: writes behind the end");
}

const SLOT: u32 = 128;

#[test]
fn every_number_of_chunks_in_a_short_group() {
    for chunks in 1..50 {
        check("one word each", &vec![1; chunks], SLOT, 3);
        check("full slots", &vec![SLOT; chunks], SLOT, 0);
    }
}

#[test]
fn nothing_to_move() {
    for chunks in [1, 16, 17, 600] {
        check("empty parts", &vec![0; chunks], SLOT, 5);
    }
}

#[test]
fn lengths_around_what_one_lane_moves_and_what_a_round_moves() {
    for length in [7, 8, 9, 31, 32, 33, 63, 64, 65, 127] {
        check("all alike", &[length; 40], SLOT, 1);
        for place in 0..16 {
            let mut lengths = vec![0; 32];
            lengths[place] = length;
            lengths[31 - place] = 1;
            check("one among empty ones", &lengths, SLOT, 1);
        }
    }
}

#[test]
fn random_lengths_of_many_groups() {
    let mut random = Random(8);
    // 33 groups have a second word in the middle level of the totals, 1100 groups in the upper one.
    for groups in [1, 2, 31, 32, 33, 64, 65, 1023, 1024, 1025, 1100] {
        for most in [2, 9, u64::from(SLOT) + 1] {
            let mut lengths: Vec<u32> = (0..groups * 16 - 5).map(|_| random.below(most) as u32).collect();
            // Whole groups without words, so that starts repeat.
            lengths.chunks_mut(16).step_by(3).for_each(|group| group.fill(0));
            check(&format!("{groups} groups, below {most}"), &lengths, SLOT, 7);
        }
    }
}

#[test]
fn words_beyond_32_bits_are_counted() {
    // Nothing moves here but the starts: 2 ^ 32 words of other tensors do not fit into a test.
    let elements = 16 * 1024;
    let mut directory = Aligned::zeros(directory_bytes(elements) as usize);
    let mut totals = Aligned::zeros(Totals::bytes_for(elements) as usize);
    let start = (1 << 40) + 12_345;
    let (mut first, mut end) = (Aligned::of_u64(&[start]), Aligned::of_u64(&[0]));
    place::Arguments {
        grid: Groups { elements },
        slots: Source::of(&[]),
        slot_words: SLOT,
        totals: Target::of(totals.bytes_mut()),
        directory: Target::of(directory.bytes_mut()),
        start: Target::of(first.bytes_mut()),
        end: Target::of(end.bytes_mut()),
        parts: Target::of(&mut []),
    }
    .run_all()
    .unwrap();
    assert_eq!((directory.u64(0), end.u64(0)), (start, start));
}
