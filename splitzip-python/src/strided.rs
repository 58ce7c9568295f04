//! Elements with strides: gathered into one piece, and scattered from it.

use std::ops::Range;

/// Whether elements with these strides (in bytes) lie in one piece, in order. Dimensions of one element have any stride.
pub fn contiguous(shape: &[u64], strides: &[i64], item: u64) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = item;
    shape.iter().zip(strides).rev().all(|(&size, &stride)| {
        let fits = size == 1 || u64::try_from(stride) == Ok(expected);
        expected *= size;
        fits
    })
}

/// From the first byte of all elements to the one behind the last.
pub fn hull(address: u64, shape: &[u64], strides: &[i64], item: u64) -> Range<u64> {
    if shape.contains(&0) {
        return address..address;
    }
    let (mut start, mut end) = (address, address + item);
    for (&size, &stride) in shape.iter().zip(strides) {
        let reach = stride.unsigned_abs().saturating_mul(size - 1);
        if stride < 0 { start = start.saturating_sub(reach) } else { end = end.saturating_add(reach) }
    }
    start..end
}

/// Whether two elements may share memory: a stride is smaller than what it steps over. So no output is written twice.
pub fn overlaps(shape: &[u64], strides: &[i64], item: u64) -> bool {
    let mut steps: Vec<_> = shape
        .iter()
        .zip(strides)
        .filter(|(size, _)| **size > 1)
        .map(|(&size, &stride)| (stride.unsigned_abs(), size))
        .collect();
    steps.sort_unstable();
    let mut extent = item;
    steps.into_iter().any(|(stride, size)| {
        let crowded = stride < extent;
        extent = stride.saturating_mul(size - 1).saturating_add(extent);
        crowded
    })
}

/// Elements that lie side by side, again and again at a stride.
struct Row {
    address: u64,
    stride: i64,
    count: u64,
    /// Bytes of each.
    run: u64,
}

/// Calls `row` with all elements, in order.
fn rows(address: u64, shape: &[u64], strides: &[i64], item: u64, row: &mut impl FnMut(Row)) {
    let (mut run, mut dims) = (item, shape.len());
    while dims > 0 && (shape[dims - 1] == 1 || u64::try_from(strides[dims - 1]) == Ok(run)) {
        run *= shape[dims - 1];
        dims -= 1;
    }
    walk(address, &shape[..dims], &strides[..dims], run, row);
}

fn walk(address: u64, shape: &[u64], strides: &[i64], run: u64, row: &mut impl FnMut(Row)) {
    match (shape, strides) {
        (&[size, ref inner @ ..], &[stride, ref inner_strides @ ..]) if !inner.is_empty() => {
            for i in 0..size {
                let at = address.wrapping_add_signed(stride.wrapping_mul(i as i64));
                walk(at, inner, inner_strides, run, row);
            }
        }
        (&[count], &[stride]) => row(Row { address, stride, count, run }),
        _ => row(Row { address, stride: 0, count: 1, run }),
    }
}

/// Copies the elements of a row, of `N` bytes each, or of `run` if that is 0, between their places and a piece.
///
/// # Safety
/// The elements and `row.count * row.run` bytes at `piece` can be read, or written.
unsafe fn copy_row<const N: usize>(row: &Row, piece: u64, gathers: bool) {
    let run = if N == 0 { row.run } else { N as u64 };
    for i in 0..row.count {
        let element = row.address.wrapping_add_signed(row.stride.wrapping_mul(i as i64));
        let (from, to) = if gathers { (element, piece + i * run) } else { (piece + i * run, element) };
        // SAFETY: by contract. The number of bytes is known when it is compiled: a move, and no call.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, run as usize) };
    }
}

/// Copies all elements between their places and one piece.
///
/// # Safety
/// All elements, and as many bytes at `piece` as they have, can be read, or written.
unsafe fn copy(address: u64, shape: &[u64], strides: &[i64], item: u64, mut piece: u64, gathers: bool) {
    if shape.contains(&0) {
        return;
    }
    rows(address, shape, strides, item, &mut |row| {
        // SAFETY: by contract; rows are as long as all of them.
        unsafe {
            match row.run {
                1 => copy_row::<1>(&row, piece, gathers),
                2 => copy_row::<2>(&row, piece, gathers),
                4 => copy_row::<4>(&row, piece, gathers),
                8 => copy_row::<8>(&row, piece, gathers),
                _ => copy_row::<0>(&row, piece, gathers),
            }
        }
        piece += row.count * row.run;
    });
}

/// Copies the elements into one piece.
///
/// # Safety
/// All elements can be read.
pub unsafe fn gather(address: u64, shape: &[u64], strides: &[i64], item: u64) -> Vec<u8> {
    let mut bytes = vec![0; (shape.iter().product::<u64>() * item) as usize];
    // SAFETY: by contract; the vector has the bytes of all.
    unsafe { copy(address, shape, strides, item, bytes.as_mut_ptr() as u64, true) };
    bytes
}

/// Copies them back.
///
/// # Safety
/// All elements can be written, and `bytes` are as many as they have.
pub unsafe fn scatter(bytes: &[u8], address: u64, shape: &[u64], strides: &[i64], item: u64) {
    // SAFETY: by contract.
    unsafe { copy(address, shape, strides, item, bytes.as_ptr() as u64, false) };
}
