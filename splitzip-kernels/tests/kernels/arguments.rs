//! What launchers refuse: short buffers and addresses that a device would fault on. Nothing runs then.

use crate::Aligned;
use splitzip_kernels::dtype::Bf16;
use splitzip_kernels::kernels::{checksum, decode, encode, entries, histogram, pick};
use splitzip_kernels::launch::{
    ArgumentError, Chunks, Kind, MAX_SLOTS, Programs, Queue, Source, Target, directory_bytes,
};
use splitzip_kernels::scheme::W4;
use splitzip_kernels::tile::{Order, TAIL_BYTES};
use std::collections::BTreeSet;

const ELEMENTS: u64 = 5000;

/// The sizes of what `encode` takes, by name, and the multiples that addresses must be.
fn sizes() -> Vec<(&'static str, u64, u64)> {
    vec![
        ("words", 2 * ELEMENTS, 16),
        ("given", 256, 8),
        ("residuals", ELEMENTS, 16),
        ("upper_residuals", 0, 16),
        ("codes", ELEMENTS / 2, 16),
        ("directory", directory_bytes(ELEMENTS), 8),
        ("order", Order::bytes_for(ELEMENTS), 16),
        ("start", 8, 8),
        ("end", 8, 8),
        ("check", 4, 4),
        ("tail", TAIL_BYTES, 16),
    ]
}

/// An encode whose buffer `changed` has fewer bytes or another address. It is checked, and never run.
fn checked(changed: &str, less: u64, off: u64) -> Result<(), ArgumentError> {
    let of = |name: &str| {
        let &(_, bytes, _) = sizes().iter().find(|(other, ..)| *other == name).unwrap();
        let (less, off) = if name == changed { (less, off) } else { (0, 0) };
        (0x10_0000 + off, bytes - less)
    };
    // SAFETY: nothing runs, so nothing is read or written.
    let (source, target) = (
        |name: &str| unsafe { Source::at(of(name).0, of(name).1) },
        |name: &str| unsafe { Target::at(of(name).0, of(name).1) },
    );
    encode::Arguments::<Bf16, W4> {
        queue: Queue { elements: ELEMENTS },
        words: source("words"),
        given: source("given"),
        channels: 0,
        residuals: target("residuals"),
        upper_residuals: target("upper_residuals"),
        codes: target("codes"),
        directory: target("directory"),
        // SAFETY: nothing runs.
        parts: unsafe { Target::at(0x20_0000, 0) },
        order: target("order"),
        // SAFETY: as above.
        prologue: unsafe { Source::at(0, 0) },
        prologue_bytes: 0,
        // SAFETY: as above.
        header: unsafe { Target::at(0x30_0000, 0) },
        start: target("start"),
        end: target("end"),
        // SAFETY: as above.
        dynamic: unsafe { Source::at(0x40_0000, 0) },
        dynamic_bytes: 0,
        check: target("check"),
        // SAFETY: as above.
        sum: unsafe { Target::at(0, 0) },
        // SAFETY: as above.
        chunk_sums: unsafe { Target::at(0, 0) },
        wanted: 0,
        tail: target("tail"),
    }
    .launch()
    .map(|launch| {
        // 5 chunks are one group, which is one block; the hidden argument is the last slot.
        assert_eq!((launch.entry.name, launch.blocks), ("encode_bf16_w4", 1));
        assert_eq!(launch.slots.as_slice().len(), launch.entry.parameters.len() + 1);
        assert_eq!((launch.slots.as_slice()[0], launch.slots.as_slice().last()), (ELEMENTS, Some(&0)));
    })
}

#[test]
fn right_buffers_are_taken() {
    assert_eq!(checked("", 0, 0), Ok(()));
}

#[test]
fn a_byte_too_few_is_refused_by_name() {
    for (name, bytes, _) in sizes().into_iter().filter(|(_, bytes, _)| *bytes != 0) {
        let expected = ArgumentError::TooShort { name, given: bytes - 1, needed: bytes };
        assert_eq!(checked(name, 1, 0), Err(expected), "{name}");
        let text = expected.to_string();
        assert!(text.contains(name) && text.contains(&bytes.to_string()), "{text}");
    }
}

#[test]
fn a_misaligned_address_is_refused_by_name() {
    for (name, _, align) in sizes().into_iter().filter(|(_, bytes, _)| *bytes != 0) {
        let expected = ArgumentError::Misaligned { name, address: 0x10_0000 + align / 2, align };
        assert_eq!(checked(name, 0, align / 2), Err(expected), "{name}");
        assert!(expected.to_string().contains(&format!("no multiple of {align}")), "{expected}");
        assert_eq!(checked(name, 0, align), Ok(()), "{name}");
    }
}

#[test]
fn run_all_refuses_before_it_writes() {
    let (words, mut counts, mut tail) = (Aligned::zeros(2 * 1024), Aligned::zeros(2047), Aligned::zeros(0));
    let refused = histogram::Arguments::<Bf16> {
        programs: Programs { programs: 1 },
        words: Source::of(words.bytes()),
        elements: 1024,
        samples: 1,
        counts: Target::of(counts.bytes_mut()),
        tail: Target::of(tail.bytes_mut()),
    }
    .run_all();
    assert_eq!(refused, Err(ArgumentError::TooShort { name: "counts", given: 2047, needed: 2048 }));
    assert!(counts.bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn whole_chunks_need_no_tail_and_nothing_needs_nothing() {
    let mut sum = Aligned::zeros(8);
    let mut check = |elements: u64, tail: u64| {
        // SAFETY: nothing runs.
        let (words, tail) = unsafe { (Source::at(0x1000, 2 * elements), Target::at(0, tail)) };
        let (tensor_sum, chunk_sums) = (Target::of(sum.bytes_mut()), Target::of(&mut []));
        let chunks = Chunks { elements };
        checksum::Arguments::<Bf16> { chunks, words, tensor_sum, chunk_sums, keep: 0, tail }.check()
    };
    assert_eq!(check(2048, 0), Ok(()));
    assert_eq!(check(0, 0), Ok(()));
    assert_eq!(check(2049, 0), Err(ArgumentError::TooShort { name: "tail", given: 0, needed: TAIL_BYTES }));
}

#[test]
fn sizes_of_huge_tensors_do_not_overflow() {
    // SAFETY: nothing runs.
    let (words, tensor_sum) = unsafe { (Source::at(0x1000, 1 << 40), Target::at(0x1000, 8)) };
    let (chunk_sums, tail) = (Target::of(&mut []), Target::of(&mut []));
    let chunks = Chunks { elements: 1 << 61 };
    let refused =
        checksum::Arguments::<Bf16> { chunks, words, tensor_sum, chunk_sums, keep: 0, tail }.check();
    assert_eq!(refused, Err(ArgumentError::TooShort { name: "words", given: 1 << 40, needed: 1 << 62 }));
}

#[test]
fn entries_have_names_of_their_own_and_room_for_their_arguments() {
    let names: Vec<&str> = entries().map(|entry| entry.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    for entry in entries() {
        assert!(entry.name.starts_with(entry.kernel), "{}", entry.name);
        assert!(entry.parameters.len() < MAX_SLOTS, "{}", entry.name);
        assert!(entry.warps * 32 <= 1024 && entry.min_blocks >= 1, "{}", entry.name);
        // The first parameter is the grid.
        assert_eq!(entry.parameters[0].kind, Kind::U64, "{}", entry.name);
    }
    assert_eq!(decode::ENTRIES.len(), encode::ENTRIES.len());
    assert_eq!(
        pick::ENTRIES[0].parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>(),
        ["programs", "counts", "exponents", "codebook", "table"]
    );
}

#[test]
fn a_cpu_takes_any_address() {
    let mut memory = vec![0u8; 3 * 2048];
    let at = memory.as_ptr().align_offset(16) + 3;
    let (mut sum, words) = ([0u8; 24], memory[at..at + 2048].to_vec());
    memory[at..at + 2048].copy_from_slice(&words);
    let mut sums = |words: &[u8], place: usize| {
        let place = sum.as_ptr().align_offset(8) + place;
        sum[place..place + 8].fill(0);
        checksum::Arguments::<Bf16> {
            chunks: Chunks { elements: 1024 },
            words: Source::of(words),
            tensor_sum: Target::of(&mut sum[place..place + 8]),
            chunk_sums: Target::of(&mut []),
            keep: 0,
            tail: Target::of(&mut []),
        }
        .run_all()
        .unwrap();
        sum[place..place + 8].to_vec()
    };
    assert_eq!(sums(&memory[at..at + 2048], 5), sums(&words, 0));
}
