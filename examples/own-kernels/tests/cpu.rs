//! The kernels on the CPU, beside naive code. No GPU, no PTX.

mod support;

use own_kernels::{join_bytes, row_maximum, saxpy, saxpy_fused, split_bytes, subtract_from_rows};
use splitzip_kernels::launch::{ArgumentError, Source, Target};
use splitzip_kernels::tile::Matrix;
use support::inputs::{LENGTHS, Random, SHAPES, same};
use support::naive;

#[test]
fn saxpy_is_a_product_and_a_sum() {
    for n in LENGTHS {
        let mut random = Random(n as u64);
        let (x, y) = (random.floats(n, true), random.floats(n, true));
        let mut result = y.clone();
        saxpy::Arguments {
            strips: n as u64,
            a: 1.7,
            x: Source::of_elements(&x),
            y: Target::of_elements(&mut result),
        }
        .run_all()
        .unwrap();
        assert!(same(&result, &naive::saxpy(1.7, &x, &y)), "{n} elements");
    }
}

/// One rounding instead of two is another number, now and then.
#[test]
fn a_fused_saxpy_rounds_once() {
    let mut random = Random(3);
    let (x, y) = (random.floats(1000, true), random.floats(1000, true));
    let mut result = y.clone();
    saxpy_fused::Arguments {
        strips: 1000,
        a: 1.7,
        x: Source::of_elements(&x),
        y: Target::of_elements(&mut result),
    }
    .run_all()
    .unwrap();
    assert!(same(&result, &naive::saxpy_fused(1.7, &x, &y)));
    assert!(!same(&result, &naive::saxpy(1.7, &x, &y)));
}

#[test]
fn bytes_are_split_and_joined() {
    for n in LENGTHS {
        let words = Random(n as u64).words(n);
        let (mut low, mut high) = (vec![0u8; n], vec![0u8; n]);
        split_bytes::Arguments {
            strips: n as u64,
            words: Source::of_elements(&words),
            low: Target::of_elements(&mut low),
            high: Target::of_elements(&mut high),
        }
        .run_all()
        .unwrap();
        assert_eq!(
            (&low, &high),
            (&naive::split_bytes(&words).0, &naive::split_bytes(&words).1),
            "{n} words"
        );
        let mut joined = vec![0u16; n];
        join_bytes::Arguments {
            strips: n as u64,
            low: Source::of_elements(&low),
            high: Source::of_elements(&high),
            words: Target::of_elements(&mut joined),
        }
        .run_all()
        .unwrap();
        assert_eq!(joined, words, "{n} words");
    }
}

fn maxima(rows: usize, columns: usize, values: &[f32]) -> Vec<f32> {
    let mut maxima = vec![0.0; rows];
    row_maximum::Arguments {
        rows: Matrix { rows: rows as u32, columns: columns as u32 },
        values: Source::of_elements(values),
        maxima: Target::of_elements(&mut maxima),
    }
    .run_all()
    .unwrap();
    maxima
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn rows_of_any_length_have_their_maximum() {
    for (rows, columns) in SHAPES {
        for nan in [false, true] {
            let values = Random((rows * columns) as u64).floats(rows * columns, nan);
            let expected = naive::row_maximum(rows, columns, &values);
            assert_eq!(bits(&maxima(rows, columns, &values)), bits(&expected), "{rows} x {columns}");
        }
    }
}

#[test]
fn a_nan_anywhere_in_a_row_is_its_maximum() {
    for at in [0, 1, 127, 128, 1023, 1024, 1499] {
        let mut values = vec![f32::INFINITY; 1500];
        values[at] = f32::from_bits(0xff80_0001);
        assert_eq!(bits(&maxima(1, 1500, &values)), [0x7fff_ffff], "NaN at {at}");
    }
}

#[test]
fn every_row_has_its_own_number() {
    for (rows, columns) in SHAPES {
        let mut random = Random((rows + columns) as u64);
        let (numbers, values) = (random.floats(rows, false), random.floats(rows * columns, true));
        let mut result = values.clone();
        subtract_from_rows::Arguments {
            strips: Matrix { rows: rows as u32, columns: columns as u32 },
            numbers: Source::of_elements(&numbers),
            values: Target::of_elements(&mut result),
        }
        .run_all()
        .unwrap();
        let expected = naive::subtract_from_rows(columns, &numbers, &values);
        assert!(same(&result, &expected), "{rows} x {columns}");
    }
}

#[test]
fn a_short_buffer_is_refused_by_name() {
    let (x, mut y) = ([0f32; 100], [0f32; 99]);
    let mut arguments =
        saxpy::Arguments { strips: 100, a: 1.0, x: Source::of_elements(&x), y: Target::of_elements(&mut y) };
    let error = ArgumentError::TooShort { name: "y", given: 396, needed: 400 };
    assert_eq!(arguments.run_all(), Err(error));
    assert_eq!(error.to_string(), "`y` has 396 bytes, but the kernel needs 400; pass a larger buffer");
}
