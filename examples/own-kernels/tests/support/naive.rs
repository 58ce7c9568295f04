//! What the kernels compute, as anybody would write it.

/// `a x + y`.
pub fn saxpy(a: f32, x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(x, y)| a * x + y).collect()
}

/// The same, rounded once.
pub fn saxpy_fused(a: f32, x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(&x, &y)| a.mul_add(x, y)).collect()
}

/// Low bytes, high bytes.
pub fn split_bytes(words: &[u16]) -> (Vec<u8>, Vec<u8>) {
    words.iter().map(|word| word.to_le_bytes()).map(|[low, high]| (low, high)).unzip()
}

/// NaN if there is one (0x7fffffff), of both zeros +0, -inf if there is nothing.
pub fn maximum(row: &[f32]) -> f32 {
    if row.iter().any(|x| x.is_nan()) {
        return f32::from_bits(0x7fff_ffff);
    }
    row.iter().copied().max_by(f32::total_cmp).unwrap_or(f32::NEG_INFINITY)
}

/// The maximum of every row of so many columns.
pub fn row_maximum(rows: usize, columns: usize, values: &[f32]) -> Vec<f32> {
    (0..rows).map(|row| maximum(&values[row * columns..(row + 1) * columns])).collect()
}

/// From every element the number of its row.
pub fn subtract_from_rows(columns: usize, numbers: &[f32], values: &[f32]) -> Vec<f32> {
    values.iter().enumerate().map(|(i, value)| value - numbers[i / columns]).collect()
}
