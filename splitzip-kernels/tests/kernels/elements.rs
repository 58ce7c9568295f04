//! Plain tensors: every element, every width of an access, every end, at every address; and grids of two dimensions.

use crate::{Aligned, Random};
use splitzip_kernels::kernel;
use splitzip_kernels::launch::{ArgumentError, Kind, Size, Source, Target};
use splitzip_kernels::tile::{
    Element, Elements, ElementsOut, Matrix, Program, RowStrips, RowValues, RowValuesOut, Rows, Strips,
    map_each,
};

/// Kernels that copy elements and mark what the strip lacks: of one tile, two tiles are made and one of them is stored.
macro_rules! copies { ($($name:ident: $type:ty, $n:literal;)*) => { $(
    #[kernel(warps = 3, blocks = 4)]
    pub fn $name(program: &Program, strips: Strips<$n>, from: Elements<$type>, to: ElementsOut<$type>) {
        let strip = strips.of(program);
        let (copied, _) = map_each(&from.load(&strip, 7 as $type), |x| (x, x));
        let before = to.load(&strip, 0 as $type);
        to.store(&strip, &map_each((&copied, &before), |(copied, before)| copied + before));
    }
)* } }
// Accesses of 4 bytes, of 16, of none at once, of 4 again, of 16 twice, of 8.
copies! {
    copy_u8_12: u8, 12; copy_u8_16: u8, 16; copy_u16_3: u16, 3; copy_u32_5: u32, 5; copy_u32_8: u32, 8; copy_f32_6: f32, 6;
}

/// Every length around the edges of strips and of blocks, `shift` elements behind an aligned address.
fn check<T: Element + PartialEq + std::fmt::Debug>(
    strip: usize,
    number: impl Fn(u8) -> T,
    run: impl Fn(u64, Source<'_>, Target<'_>) -> Result<(), ArgumentError>,
) {
    let size = T::BYTES as usize;
    for n in [0, 1, 2, strip - 1, strip, strip + 1, 3 * strip - 1, 3 * strip, 3 * strip + 1, 7 * strip + 5] {
        for shift in [0, 1, 3] {
            let of = |byte: &u8| number(byte & 63).to_word().to_le_bytes().into_iter().take(size);
            let bytes: Vec<u8> = Random(n as u64).bytes(shift + n).iter().flat_map(of).collect();
            let from = Aligned::of(&bytes);
            let mut to = Aligned::zeros((shift + n + 1) * size);
            run(
                n as u64,
                Source::of(&from.bytes()[shift * size..]),
                Target::of(&mut to.bytes_mut()[shift * size..][..n * size]),
            )
            .unwrap();
            assert_eq!(&to.bytes()[shift * size..][..n * size], &bytes[shift * size..], "{n} behind {shift}");
            let around = (&to.bytes()[..shift * size], &to.bytes()[(shift + n) * size..]);
            assert!(around.0.iter().chain(around.1).all(|&byte| byte == 0), "{n} behind {shift}");
        }
    }
}

#[test]
fn every_element_is_copied_and_no_other() {
    macro_rules! check_all { ($($name:ident: $type:ty, $n:literal;)*) => { $(
        check::<$type>($n * 32, |byte| byte as $type, |strips, from, to| {
            $name::Arguments { strips, from, to }.run_all()
        });
    )* } }
    check_all! {
        copy_u8_12: u8, 12; copy_u8_16: u8, 16; copy_u16_3: u16, 3; copy_u32_5: u32, 5; copy_u32_8: u32, 8; copy_f32_6: f32, 6;
    }
}

/// Adds its row's number to every element, in strips.
#[kernel(warps = 2, blocks = 4)]
pub fn add_to_rows(
    program: &Program,
    strips: RowStrips<2>,
    numbers: RowValues<u16>,
    values: ElementsOut<u32>,
) {
    let (row, strip) = strips.of(program);
    let number = numbers.load(&row, 0) as u32;
    values.store(&strip, &map_each(&values.load(&strip, 0), |value| value + number));
}

/// The first element of every row, times `factor`. Programs count rows from the last.
#[kernel(warps = 4, blocks = 4)]
pub fn first_of_rows(
    program: &Program,
    rows: Rows,
    values: Elements<f32>,
    factor: f32,
    first: RowValuesOut<f32>,
) {
    let row = rows.row(program.index());
    let strip = row.strip::<1>(0);
    let first_lane = map_each(&values.load(&strip, 0.0), f32::to_bits);
    let element = program.pick(&first_lane.slot(0), 0);
    first.store(&row, f32::from_bits(element) * factor);
}

const SHAPES: [(u32, u32); 8] = [(0, 0), (0, 7), (7, 0), (1, 1), (5, 63), (5, 64), (5, 65), (4, 1000)];

#[test]
fn every_element_belongs_to_its_row() {
    for (rows, columns) in SHAPES {
        let numbers: Vec<u16> = (0..rows as u16).map(|row| row * 1000).collect();
        let mut values: Vec<u32> = (0..rows * columns).collect();
        add_to_rows::Arguments {
            strips: Matrix { rows, columns },
            numbers: Source::of_elements(&numbers),
            values: Target::of_elements(&mut values),
        }
        .run_all()
        .unwrap();
        let expected = (0..rows * columns).map(|i| i + i / columns * 1000);
        assert!(values.iter().copied().eq(expected), "{rows} x {columns}");
    }
}

#[test]
fn every_row_has_its_value() {
    for (rows, columns) in SHAPES {
        let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let mut first = vec![9.0f32; rows as usize];
        first_of_rows::Arguments {
            rows: Matrix { rows, columns },
            values: Source::of_elements(&values),
            factor: 0.5,
            first: Target::of_elements(&mut first),
        }
        .run_all()
        .unwrap();
        let expected = (0..rows).map(|row| (row * columns) as f32 * 0.5);
        assert!(first.iter().copied().eq(expected), "{rows} x {columns}: {first:?}");
    }
}

#[test]
fn launchers_measure_elements_and_rows() {
    let (numbers, mut values) = ([0u16; 4], [0u32; 40]);
    let mut check = |rows, columns, numbers| {
        let arguments = add_to_rows::Arguments {
            strips: Matrix { rows, columns },
            numbers: Source::of_elements(numbers),
            values: Target::of_elements(&mut values),
        };
        arguments.launch().map(|launch| (launch.blocks, launch.slots.as_slice()[0]))
    };
    // A strip of 64 a row, two programs a block; both numbers in one slot.
    assert_eq!(check(4, 10, &numbers), Ok((2, 4 << 32 | 10)));
    let short = |name, given, needed| Err(ArgumentError::TooShort { name, given, needed });
    assert_eq!(check(4, 10, &numbers[..3]), short("numbers", 6, 8));
    assert_eq!(check(4, 11, &numbers), short("values", 160, 176));
    let large = |given, most| Err(ArgumentError::TooLarge { name: "strips", given, most });
    assert_eq!(check(1, (1 << 30) + 1, &numbers), large((1 << 30) + 1, 1 << 30));
    assert_eq!(check(1 << 30, 1 << 30, &numbers), large(1 << 54, (1 << 32) - 1));
    let error = ArgumentError::TooLarge { name: "strips", given: 9, most: 8 };
    assert_eq!(
        error.to_string(),
        "`strips` says 9, but the kernel counts to 8; split the work into several launches"
    );
}

/// Two views of one tensor.
#[kernel(warps = 1, blocks = 1)]
pub fn two_views(program: &Program, strips: Strips<1>, again: Strips<2>, rows: Rows, to: ElementsOut<u8>) {
    let _ = (strips, rows.row(0));
    to.store(&again.of(program), &to.load(&again.of(program), 0));
}

#[test]
fn a_second_view_has_the_size_of_the_grid() {
    let mut bytes = [0u8; 12];
    let mut check = |again, rows, columns| {
        let to = Target::of_elements(&mut bytes);
        two_views::Arguments { strips: 12, again, rows: Matrix { rows, columns }, to }.check()
    };
    assert_eq!(check(12, 1, 12), Ok(()));
    let (one, four) = (Size { elements: 12, rows: 1 }, Size { elements: 12, rows: 4 });
    let other = |name, given| Err(ArgumentError::OtherSize { name, given, grid: one });
    assert_eq!(check(13, 1, 12), other("again", Size { elements: 13, rows: 1 }));
    assert_eq!(check(12, 4, 3), other("rows", four));
    assert_eq!(
        ArgumentError::OtherSize { name: "rows", given: four, grid: one }.to_string(),
        "`rows` has 12 elements in 4 rows, but the grid has 12 in 1; give both the same size"
    );
}

#[test]
fn elements_may_be_at_any_multiple_of_their_size() {
    let at = |address| {
        // SAFETY: nothing runs.
        let (from, to) = unsafe { (Source::at(address, 400), Target::at(0x2000, 400)) };
        copy_f32_6::Arguments { strips: 100, from, to }.launch().map(|launch| launch.blocks)
    };
    assert_eq!(at(0x1004), Ok(1));
    assert_eq!(at(0x1002), Err(ArgumentError::Misaligned { name: "from", address: 0x1002, align: 4 }));
}

#[test]
fn a_float_crosses_a_launch_as_its_bits() {
    let mut first = [0f32];
    let arguments = first_of_rows::Arguments {
        rows: Matrix { rows: 1, columns: 0 },
        values: Source::of(&[]),
        factor: -1.5,
        first: Target::of_elements(&mut first),
    };
    let launch = arguments.launch().unwrap();
    assert_eq!(launch.entry.parameters[2].kind, Kind::F32);
    assert_eq!(launch.slots.as_slice()[2], u64::from((-1.5f32).to_bits()));
}
