//! A small histogram of the exponents of K and V, for `inspect`.

use super::report::Part;
use crate::bars::bar;
use splitzip_host::file::TensorReport;
use splitzip_host::{Dtype, Histogram};

/// Characters of the longest bar.
const WIDTH: usize = 24;
/// The least share of a part for which an exponent has a row.
const LEAST: f64 = 0.005;

/// The histogram, a column for each part; empty when nothing has exponents. Tensors of the dtype that most elements have are counted.
pub fn histogram(tensors: &[TensorReport], exponents: &[Option<Histogram>]) -> String {
    let counted: Vec<(Part, &Histogram)> = tensors
        .iter()
        .zip(exponents)
        .filter_map(|(tensor, of)| of.as_ref().map(|of| (Part::of(&tensor.name), of)))
        .collect();
    let elements = |dtype: &Dtype| -> u64 {
        counted.iter().filter(|of| of.1.dtype() == *dtype).map(|of| of.1.total()).sum()
    };
    let Some(dtype) = Dtype::floats().max_by_key(elements).filter(|dtype| elements(dtype) != 0) else {
        return String::new();
    };
    let mut columns: Vec<(Part, usize, Histogram)> = Vec::new();
    for part in Part::ALL {
        let mut sum = Histogram::new(dtype);
        let of_part = counted.iter().filter(|(of, histogram)| *of == part && histogram.dtype() == dtype);
        // All have this dtype.
        let tensors = of_part.filter(|(_, histogram)| sum.merge(histogram).is_ok()).count();
        if sum.total() != 0 {
            columns.push((part, tensors, sum));
        }
    }
    let share = |of: &Histogram, exponent: usize| of.counts()[exponent] as f64 / of.total() as f64;
    let often = |exponent: &usize| columns.iter().any(|(.., of)| share(of, *exponent) >= LEAST);
    let rows: Vec<usize> = (0..dtype.exponents()).filter(often).collect();
    let longest =
        rows.iter().flat_map(|&row| columns.iter().map(move |(.., of)| share(of, row))).fold(0.0, f64::max);

    let cell = |value: f64| {
        let bar = bar(if longest > 0.0 { value / longest } else { 0.0 }, WIDTH);
        format!("  {:>8}  {bar:<WIDTH$}", format!("{:.2} %", 100.0 * value))
    };
    let title = |(part, tensors, of): &(Part, usize, Histogram)| {
        let many = if *tensors == 1 { "tensor" } else { "tensors" };
        let text = format!("{}, {tensors} {many}, {:.2} bits", part.name(), of.entropy());
        format!("  {text:<width$}", width = WIDTH + 10)
    };
    let mut lines = vec![format!("exponent{}", columns.iter().map(title).collect::<String>())];
    for &row in &rows {
        lines.push(format!(
            "{row:>8}{}",
            columns.iter().map(|(.., of)| cell(share(of, row))).collect::<String>()
        ));
    }
    let others = |of: &Histogram| {
        (0..dtype.exponents()).filter(|row| !rows.contains(row)).map(|row| share(of, row)).sum()
    };
    lines.push(format!(
        "{:>8}{}",
        "others",
        columns.iter().map(|(.., of)| cell(others(of))).collect::<String>()
    ));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}
