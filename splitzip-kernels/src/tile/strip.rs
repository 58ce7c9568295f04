//! Which elements a program works on: strips of plain tensors, of one dimension or of two.
//!
//! The grids here differ from `Chunks` in one thing: what the kernel gets was made by the launcher and by nobody else. So a [`Strip`] lies
//! within the tensor whose buffers the launcher has measured, and loading and storing by strips is safe. They may also stand behind the grid, as another
//! view of the same tensor; the launcher refuses one of another size.

use super::Program;
use crate::launch::{Argument, ArgumentError, Grid, Kind, Size};

/// `N` elements for each of the 32 lanes, one behind the other: lane `l` has `l N` to `l N + N - 1`. Some of them, or all, may not exist.
///
/// 16 bytes a lane are one access of the GPU (`N = 4` for `f32`), where the strip is whole and its address a multiple of 16; otherwise there is
/// an access for every element.
#[derive(Clone, Copy, Debug)]
pub struct Strip<const N: usize> {
    pub(super) first: u64,
    pub(super) exist: u32,
}

impl<const N: usize> Strip<N> {
    /// Elements of a whole one.
    pub const ELEMENTS: u32 = 32 * N as u32;

    /// Elements that exist.
    #[inline(always)]
    pub fn exist(&self) -> u32 {
        self.exist
    }

    /// Of `elements` elements from `first` on, the strip that starts at `at`.
    #[inline(always)]
    fn of(first: u64, elements: u64, at: u64) -> Self {
        let left = elements.saturating_sub(at);
        let exist = if left < Self::ELEMENTS as u64 { left as u32 } else { Self::ELEMENTS };
        Strip { first: first.wrapping_add(at), exist }
    }
}

/// A grid: a program for every strip of `N` elements a lane. The launcher takes the number of elements, a `u64`.
#[derive(Clone, Copy, Debug)]
pub struct Strips<const N: usize>(u64);

impl<const N: usize> Strips<N> {
    /// The strip with the number of the program. Of a program too many, one with no elements.
    #[inline(always)]
    pub fn of(self, program: &Program) -> Strip<N> {
        self.at(program.index())
    }

    /// The strip with this number.
    #[inline(always)]
    pub fn at(self, index: u32) -> Strip<N> {
        Strip::of(0, self.0, index as u64 * Strip::<N>::ELEMENTS as u64)
    }
}

impl<const N: usize> Argument for Strips<N> {
    type Raw = u64;
    type Host<'a> = u64;
    const KIND: Kind = Kind::U64;
    #[inline(always)]
    unsafe fn from_raw(raw: u64) -> Self {
        Strips(raw)
    }
    fn slot(host: &u64) -> u64 {
        *host
    }
    fn raw(host: &u64) -> u64 {
        *host
    }
    fn check(host: &u64, name: &'static str, size: Size) -> Result<(), ArgumentError> {
        const { assert!(N > 0, "a strip has at least one element a lane") };
        at_most(name, *host, u32::MAX as u64 * Strip::<N>::ELEMENTS as u64)?;
        // A vector does not say how many rows there are.
        same_size(name, Size { elements: *host, rows: size.rows }, size)
    }
}

impl<const N: usize> Grid for Strips<N> {
    fn programs(host: &u64) -> u64 {
        host.div_ceil(Strip::<N>::ELEMENTS as u64)
    }
    fn elements(host: &u64) -> u64 {
        *host
    }
}

/// The shape of a tensor of two dimensions, row after row; what launchers of [`Rows`] and [`RowStrips`] take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Rows.
    pub rows: u32,
    /// Elements of a row, at most 2^30.
    pub columns: u32,
}

impl Matrix {
    const MOST_COLUMNS: u32 = 1 << 30;

    fn elements(self) -> u64 {
        u64::from(self.rows) * u64::from(self.columns)
    }
}

/// One row of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub(super) number: u32,
    pub(super) exists: bool,
    first: u64,
    columns: u32,
}

impl Row {
    /// Its elements: at most 2^30, none for a program too many.
    #[inline(always)]
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// The strip of it that starts at a column, and ends with the row. Behind the end, one with no elements.
    #[inline(always)]
    pub fn strip<const N: usize>(&self, column: u32) -> Strip<N> {
        Strip::of(self.first, self.columns as u64, column as u64)
    }
}

/// A grid: a program for every row. The launcher takes a [`Matrix`].
#[derive(Clone, Copy, Debug)]
pub struct Rows(u64);

impl Rows {
    /// The row with this number. Behind the last, one with no elements.
    #[inline(always)]
    pub fn row(self, number: u32) -> Row {
        let (rows, columns) = ((self.0 >> 32) as u32, self.0 as u32);
        let exists = number < rows;
        let first = number as u64 * columns as u64;
        Row { number, exists, first, columns: if exists { columns } else { 0 } }
    }
}

/// A grid of two dimensions: a program for every strip of `N` elements a lane of every row. The launcher takes a [`Matrix`].
#[derive(Clone, Copy, Debug)]
pub struct RowStrips<const N: usize>(Rows);

impl<const N: usize> RowStrips<N> {
    /// The row of the program, and the strip in it. Of a program too many, no elements. (A division of 32 bits a program.)
    #[inline(always)]
    pub fn of(self, program: &Program) -> (Row, Strip<N>) {
        let strips = (self.0.0 as u32).div_ceil(Strip::<N>::ELEMENTS).max(1);
        let (number, strip) = (program.index() / strips, program.index() % strips);
        let row = self.0.row(number);
        (row, row.strip(strip * Strip::<N>::ELEMENTS))
    }

    fn programs_of(host: Matrix) -> u64 {
        u64::from(host.rows) * u64::from(host.columns.div_ceil(Strip::<N>::ELEMENTS))
    }
}

macro_rules! matrix_grids { ($([$($generics:tt)*] $type:ty, $make:expr, $programs:expr;)*) => { $(
    impl<$($generics)*> Argument for $type {
        type Raw = u64;
        type Host<'a> = Matrix;
        const KIND: Kind = Kind::U64;
        #[inline(always)]
        unsafe fn from_raw(raw: u64) -> Self {
            ($make)(raw)
        }
        fn slot(host: &Matrix) -> u64 {
            u64::from(host.rows) << 32 | u64::from(host.columns)
        }
        fn raw(host: &Matrix) -> u64 {
            Self::slot(host)
        }
        fn check(host: &Matrix, name: &'static str, size: Size) -> Result<(), ArgumentError> {
            at_most(name, u64::from(host.columns), u64::from(Matrix::MOST_COLUMNS))?;
            at_most(name, ($programs)(*host), u64::from(u32::MAX))?;
            same_size(name, <Self as Grid>::size(host), size)
        }
    }
    impl<$($generics)*> Grid for $type {
        fn programs(host: &Matrix) -> u64 {
            ($programs)(*host)
        }
        fn elements(host: &Matrix) -> u64 {
            host.elements()
        }
        fn rows(host: &Matrix) -> u64 {
            u64::from(host.rows)
        }
    }
)* } }
matrix_grids! {
    [] Rows, Rows, |host: Matrix| u64::from(host.rows);
    [const N: usize] RowStrips<N>, |raw| RowStrips(Rows(raw)), Self::programs_of;
}

fn at_most(name: &'static str, given: u64, most: u64) -> Result<(), ArgumentError> {
    if given > most { Err(ArgumentError::TooLarge { name, given, most }) } else { Ok(()) }
}

fn same_size(name: &'static str, given: Size, grid: Size) -> Result<(), ArgumentError> {
    if given == grid { Ok(()) } else { Err(ArgumentError::OtherSize { name, given, grid }) }
}
