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
        let reach = stride.unsigned_abs() * (size - 1);
        if stride < 0 { start -= reach } else { end += reach }
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
        extent += stride * (size - 1);
        crowded
    })
}

/// Calls `piece` with the address of every run of elements that lie side by side, and its bytes, in order.
fn runs(address: u64, shape: &[u64], strides: &[i64], item: u64, piece: &mut impl FnMut(u64, u64)) {
    let (mut run, mut dims) = (item, shape.len());
    while dims > 0 && (shape[dims - 1] == 1 || u64::try_from(strides[dims - 1]) == Ok(run)) {
        run *= shape[dims - 1];
        dims -= 1;
    }
    walk(address, &shape[..dims], &strides[..dims], run, piece);
}

fn walk(address: u64, shape: &[u64], strides: &[i64], run: u64, piece: &mut impl FnMut(u64, u64)) {
    let (Some((&size, inner)), Some((&stride, inner_strides))) = (shape.split_first(), strides.split_first())
    else {
        return piece(address, run);
    };
    for i in 0..size {
        let at = address.wrapping_add_signed(stride.wrapping_mul(i as i64));
        if inner.is_empty() { piece(at, run) } else { walk(at, inner, inner_strides, run, piece) }
    }
}

/// Copies the elements into one piece.
///
/// # Safety
/// All elements can be read.
pub unsafe fn gather(address: u64, shape: &[u64], strides: &[i64], item: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((shape.iter().product::<u64>() * item) as usize);
    if !shape.contains(&0) {
        runs(address, shape, strides, item, &mut |at, run| {
            // SAFETY: by contract.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, run as usize) });
        });
    }
    bytes
}

/// Copies them back.
///
/// # Safety
/// All elements can be written, and `bytes` are as many as they have.
pub unsafe fn scatter(bytes: &[u8], address: u64, shape: &[u64], strides: &[i64], item: u64) {
    let mut from = 0;
    if !shape.contains(&0) {
        runs(address, shape, strides, item, &mut |at, run| {
            // SAFETY: by contract; runs are as long as all of them.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(from), at as *mut u8, run as usize) };
            from += run as usize;
        });
    }
}
