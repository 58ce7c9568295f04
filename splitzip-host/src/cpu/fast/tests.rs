//! The parts of the fast paths beside naive loops, with each kind of vector that the machine has.

use super::escapes::Escapes;
use super::planes::{Bytes, Plane, from_planes, to_planes};
use super::strings::{self, NO_STRINGS};
use super::vector::Vector;
use super::{avx2::Avx2, avx512::Avx512};
use crate::format::{coding_order, coding_place};
use splitzip_kernels::arch;
use std::io::Write;

/// Runs a check with each kind of vector.
macro_rules! with_vectors {
    ($check:ident) => {
        let level = arch::level();
        // SAFETY: the level was tested.
        unsafe {
            if level >= 1 {
                $check::<Avx2>();
            }
            if level >= 2 {
                $check::<Avx512>();
            }
        }
        if level < 2 {
            let line = format!("SKIPPED {} above level {level}: not on this machine\n", stringify!($check));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    };
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    *state ^ *state >> 29
}

/// Planes with `share` of 64 bits set, roughly; all of them for 64.
fn mask(state: &mut u64, share: u64) -> Plane {
    let mut plane = [0; 32];
    for place in 0..1024 {
        plane[place / 32] |= u32::from((random(state) >> 40) % 64 < share) << (place % 32);
    }
    plane
}

fn bit(plane: &Plane, place: usize) -> bool {
    plane[place / 32] >> (place % 32) & 1 != 0
}

unsafe fn planes_are_in_coding_order<V: Vector>() {
    let mut state = 1;
    let mut bytes = Bytes([0; 1024]);
    bytes.0.fill_with(|| (random(&mut state) >> 40) as u8 & 15);
    let lanes = V::BYTES / 4;
    for lane in (0..32).step_by(lanes) {
        // SAFETY: by contract; a vector of planes is `lanes` words.
        unsafe {
            let vectors = to_planes::<V>(bytes.0.as_ptr(), lane);
            for (b, vector) in vectors.into_iter().enumerate() {
                let mut words = [0u32; 16];
                vector.store(words.as_mut_ptr().cast());
                for (element, byte) in bytes.0.iter().enumerate() {
                    let (word, in_word) = (coding_place(element) / 32, coding_place(element) % 32);
                    if (lane..lane + lanes).contains(&word) {
                        assert_eq!(
                            words[word - lane] >> in_word & 1,
                            u32::from(byte >> b & 1),
                            "element {element}, plane {b}"
                        );
                    }
                }
            }
            for (run, (first, second)) in from_planes(vectors).into_iter().enumerate() {
                let mut back = [0; 128];
                first.store(back.as_mut_ptr());
                second.store(back.as_mut_ptr().add(V::BYTES));
                let at = 256 * run + 8 * lane;
                assert_eq!(back[..2 * V::BYTES], bytes.0[at..at + 2 * V::BYTES], "run {run}");
            }
        }
    }
}

unsafe fn strings_come_back<V: Vector>() {
    let mut state = 2;
    let mut strings = NO_STRINGS;
    for share in [0, 1, 3, 21, 40, 60, 63, 64].repeat(4) {
        let planes = [0; 3].map(|_| mask(&mut state, 32));
        let marks = mask(&mut state, share);
        let places: Vec<usize> = (0..1024).filter(|&place| bit(&marks, place)).collect();
        assert_eq!(strings::count(&marks), places.len());
        for at in [0, 8, 61] {
            let mut part = [0xa5u8; 1024];
            let mut before = 0x0123_4567_89ab_cdefu64 & ((1 << at) - 1);
            let low = before;
            // SAFETY: by contract; 61 and 3072 bits and 128 bytes are less than 1024 bytes.
            let end = unsafe {
                strings::put::<V, 3>(
                    part.as_mut_ptr(),
                    at,
                    &mut before,
                    &planes,
                    &marks,
                    places.len(),
                    &mut strings,
                )
            };
            assert_eq!(end, at + 3 * places.len());
            let part_bit = |i: usize| part[i / 8] >> (i % 8) & 1 != 0;
            assert!((0..at).all(|i| part_bit(i) == (low >> i & 1 != 0)), "in front of the string");
            for (p, plane) in planes.iter().enumerate() {
                for (i, &place) in places.iter().enumerate() {
                    assert_eq!(
                        part_bit(at + p * places.len() + i),
                        bit(plane, place),
                        "share {share}, at {at}"
                    );
                }
            }
            assert!((end..end.next_multiple_of(8)).all(|i| !part_bit(i)), "filling");
            let tail = (end / 64 * 64..end).map(|i| u64::from(part_bit(i)) << (i % 64)).sum::<u64>();
            assert_eq!(before, tail, "what the next string starts with");
            let mut back = [[0u32; 32]; 3];
            // SAFETY: as above.
            unsafe { strings::take::<3>(part.as_ptr(), at, &mut back, &marks, places.len()) };
            for (back, plane) in back.iter().zip(&planes) {
                assert!(
                    (0..32).all(|word| back[word] == plane[word] & marks[word]),
                    "share {share}, at {at}"
                );
            }
        }
    }
}

unsafe fn escapes_are_in_coding_order<V: Vector>() {
    let (mut state, mut escapes) = (3, Escapes::new());
    let mut bytes = Bytes([0; 1024]);
    bytes.0.fill_with(|| (random(&mut state) >> 40) as u8 & 31);
    for share in [0, 1, 2, 5, 30, 64] {
        let marks = mask(&mut state, share);
        let elements: Vec<usize> =
            coding_order(1024).into_iter().filter(|&element| bit(&marks, coding_place(element))).collect();
        let (mut five, mut eight) = ([0xffu8; 1024], [0xffu8; 1024 + 8]);
        // SAFETY: by contract; 1024 escapes are 640 or 1024 bytes.
        unsafe {
            escapes.find::<V>(&marks);
            escapes.put::<5>(&bytes, five.as_mut_ptr());
            escapes.put::<8>(&bytes, eight.as_mut_ptr());
        }
        assert_eq!(escapes.count(), elements.len());
        for (i, &element) in elements.iter().enumerate() {
            let number =
                (0..5).fold(0, |number, b| number | (five[(5 * i + b) / 8] >> ((5 * i + b) % 8) & 1) << b);
            assert_eq!([number, eight[i]], [bytes.0[element]; 2], "escape {i} of {}", elements.len());
        }
        let mut back = [Bytes([0; 1024]); 2];
        // SAFETY: as above.
        unsafe {
            escapes.take::<5>(five.as_ptr(), &mut back[0]);
            escapes.take::<8>(eight.as_ptr(), &mut back[1]);
        }
        for element in 0..1024 {
            let expected = if elements.contains(&element) { bytes.0[element] } else { 0 };
            assert_eq!([back[0].0[element], back[1].0[element]], [expected; 2]);
        }
    }
}

unsafe fn tables_look_up<V: Vector>() {
    // Neighbours, every second one, scattered, one in each row.
    for step in [1u8, 2, 7, 16] {
        let exponents: Vec<u8> = (0..16).map(|i: u8| i.wrapping_mul(step).wrapping_add(100)).collect();
        let mut table = [splitzip_kernels::scheme::ESCAPE; 256];
        exponents.iter().enumerate().for_each(|(code, &exponent)| table[usize::from(exponent)] = code as u8);
        let all: Vec<u8> = (0..=255).collect();
        let mut found = [0u8; 256];
        for at in (0..256).step_by(V::BYTES) {
            // SAFETY: by contract; 256 bytes.
            unsafe {
                let table = V::table(table.as_ptr());
                V::load(all.as_ptr().add(at)).look_up(&table).store(found.as_mut_ptr().add(at));
            }
        }
        assert_eq!(found, table);
    }
}

#[test]
fn parts_do_what_naive_loops_do() {
    with_vectors!(planes_are_in_coding_order);
    with_vectors!(strings_come_back);
    with_vectors!(escapes_are_in_coding_order);
    with_vectors!(tables_look_up);
}
