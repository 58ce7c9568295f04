//! Every kernel, on every length and shape, on a machine that runs PTX: the interpreter, or a GPU.

use super::inputs::{LENGTHS, Random, SHAPES, same};
use super::naive;
use own_kernels::{join_bytes, row_maximum, saxpy, saxpy_fused, split_bytes, subtract_from_rows};
use splitzip_kernels::launch::{ArgumentError, Launch, Source, Target};
use splitzip_kernels::tile::{Element, Matrix};

/// Runs launches; has memory of its own. A failure is a sentence.
pub trait Machine {
    /// Memory that holds these bytes, `shift` bytes behind a multiple of 16. Its address.
    fn put(&mut self, bytes: &[u8], shift: usize) -> Result<u64, String>;
    /// What is there now. A machine that can looks whether anything around it was written.
    fn get(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, String>;
    /// Runs a launch to its end.
    fn run(&mut self, launch: &Launch) -> Result<(), String>;
    /// Gives all memory back.
    fn clear(&mut self);
}

/// Elements in the memory of a machine.
#[derive(Clone, Copy)]
pub struct Buffer {
    /// Where they are.
    pub address: u64,
    /// How many bytes.
    pub bytes: usize,
}

impl Buffer {
    /// Puts elements there, `shift` elements behind a multiple of 16 bytes.
    pub fn of<T: Element>(machine: &mut dyn Machine, values: &[T], shift: usize) -> Result<Buffer, String> {
        let size = T::BYTES as usize;
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| value.to_word().to_le_bytes().into_iter().take(size)).collect();
        Ok(Buffer { address: machine.put(&bytes, shift * size)?, bytes: bytes.len() })
    }

    /// What is there now.
    pub fn values<T: Element>(self, machine: &mut dyn Machine) -> Result<Vec<T>, String> {
        let bytes = machine.get(self.address, self.bytes)?;
        let word = |bytes: &[u8]| {
            bytes.iter().rev().fold(0, |word: u32, &byte| word.wrapping_shl(8) | u32::from(byte))
        };
        Ok(bytes.chunks(T::BYTES as usize).map(|bytes| T::from_word(word(bytes))).collect())
    }

    /// As an argument that is read.
    pub fn source(self) -> Source<'static> {
        // SAFETY: the machine has it until it is told to clear.
        unsafe { Source::at(self.address, self.bytes as u64) }
    }

    /// As an argument that is written.
    pub fn target(self) -> Target<'static> {
        // SAFETY: the machine has it until it is told to clear, and runs one launch at a time.
        unsafe { Target::at(self.address, self.bytes as u64) }
    }
}

fn launched(
    machine: &mut dyn Machine,
    launch: Result<Launch, ArgumentError>,
) -> Result<&'static str, String> {
    let launch = launch.map_err(|error| error.to_string())?;
    machine.run(&launch)?;
    Ok(launch.entry.name)
}

fn check(what: &str, entry: &str, is_right: bool) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(format!("{entry}: {what}: not what naive code gives")) }
}

/// One run of each kernel for each length or shape, with memory at multiples of 16 bytes and an element behind. Returns how many runs each
/// entry had, and what went wrong.
pub fn run_all(machine: &mut dyn Machine) -> (Vec<(&'static str, usize)>, Vec<String>) {
    let mut failures = Vec::new();
    let mut vectors = |run: fn(&mut dyn Machine, usize, usize) -> Result<(), String>| {
        for (n, shift) in LENGTHS.iter().flat_map(|&n| [(n, 0), (n, 1)]) {
            failures.extend(run(machine, n, shift).err());
            machine.clear();
        }
    };
    vectors(run_saxpy);
    vectors(run_bytes);
    let mut matrices = |run: fn(&mut dyn Machine, Matrix, usize) -> Result<(), String>| {
        for (&(rows, columns), shift) in SHAPES.iter().flat_map(|shape| [(shape, 0), (shape, 1)]) {
            let matrix = Matrix { rows: rows as u32, columns: columns as u32 };
            failures.extend(run(machine, matrix, shift).err());
            machine.clear();
        }
    };
    matrices(run_row_maximum);
    matrices(run_subtract_from_rows);
    let (lengths, shapes) = (2 * LENGTHS.len(), 2 * SHAPES.len());
    let runs = own_kernels::entries()
        .map(|entry| (entry.name, if entry.name.contains("row") { shapes } else { lengths }));
    (runs.collect(), failures)
}

fn run_saxpy(machine: &mut dyn Machine, n: usize, shift: usize) -> Result<(), String> {
    let mut random = Random(n as u64);
    let (x, y) = (random.floats(n, true), random.floats(n, true));
    let (x_there, y_there) = (Buffer::of(machine, &x, 0)?, Buffer::of(machine, &y, shift)?);
    let arguments = saxpy::Arguments { strips: n as u64, a: 1.7, x: x_there.source(), y: y_there.target() };
    let entry = launched(machine, arguments.launch())?;
    let what = format!("{n} elements, shifted by {shift}");
    check(&what, entry, same(&y_there.values(machine)?, &naive::saxpy(1.7, &x, &y)))?;
    let y_there = Buffer::of(machine, &y, shift)?;
    let arguments =
        saxpy_fused::Arguments { strips: n as u64, a: 1.7, x: x_there.source(), y: y_there.target() };
    let entry = launched(machine, arguments.launch())?;
    check(&what, entry, same(&y_there.values(machine)?, &naive::saxpy_fused(1.7, &x, &y)))
}

fn run_bytes(machine: &mut dyn Machine, n: usize, shift: usize) -> Result<(), String> {
    let words = Random(n as u64).words(n);
    let there = Buffer::of(machine, &words, shift)?;
    let (low, high) = (Buffer::of(machine, &vec![0u8; n], shift)?, Buffer::of(machine, &vec![0u8; n], 0)?);
    let arguments = split_bytes::Arguments {
        strips: n as u64,
        words: there.source(),
        low: low.target(),
        high: high.target(),
    };
    let entry = launched(machine, arguments.launch())?;
    let what = format!("{n} words, shifted by {shift}");
    let planes = (low.values(machine)?, high.values(machine)?);
    check(&what, entry, planes == naive::split_bytes(&words))?;
    let back = Buffer::of(machine, &vec![0u16; n], shift)?;
    let arguments = join_bytes::Arguments {
        strips: n as u64,
        low: low.source(),
        high: high.source(),
        words: back.target(),
    };
    let entry = launched(machine, arguments.launch())?;
    check(&what, entry, back.values::<u16>(machine)? == words)
}

fn run_row_maximum(machine: &mut dyn Machine, matrix: Matrix, shift: usize) -> Result<(), String> {
    let (rows, columns) = (matrix.rows as usize, matrix.columns as usize);
    let values = Random((rows + columns) as u64).floats(rows * columns, rows % 2 != 0);
    let there = Buffer::of(machine, &values, shift)?;
    let maxima = Buffer::of(machine, &vec![0f32; rows], shift)?;
    let arguments = row_maximum::Arguments { rows: matrix, values: there.source(), maxima: maxima.target() };
    let entry = launched(machine, arguments.launch())?;
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let (found, expected) = (maxima.values::<f32>(machine)?, naive::row_maximum(rows, columns, &values));
    check(&format!("{rows} x {columns}, shifted by {shift}"), entry, bits(&found) == bits(&expected))
}

fn run_subtract_from_rows(machine: &mut dyn Machine, matrix: Matrix, shift: usize) -> Result<(), String> {
    let (rows, columns) = (matrix.rows as usize, matrix.columns as usize);
    let mut random = Random((rows + columns) as u64);
    let (numbers, values) = (random.floats(rows, false), random.floats(rows * columns, true));
    let (numbers_there, there) = (Buffer::of(machine, &numbers, 0)?, Buffer::of(machine, &values, shift)?);
    let arguments = subtract_from_rows::Arguments {
        strips: matrix,
        numbers: numbers_there.source(),
        values: there.target(),
    };
    let entry = launched(machine, arguments.launch())?;
    let expected = naive::subtract_from_rows(columns, &numbers, &values);
    check(&format!("{rows} x {columns}, shifted by {shift}"), entry, same(&there.values(machine)?, &expected))
}
