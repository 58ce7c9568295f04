//! How fast the kernels are, on tensors that no cache holds, beside a copy that moves as many bytes.

use crate::gpu::Gpu;
use crate::support::inputs::Random;
use crate::support::machine::{Buffer, Machine};
use crate::support::naive;
use own_kernels::{join_bytes, row_maximum, saxpy, saxpy_fused, split_bytes, subtract_from_rows};
use splitzip_kernels::launch::{ArgumentError, Launch};
use splitzip_kernels::tile::Matrix;

/// Bytes of the largest tensors.
const BYTES: usize = 256 << 20;
/// Rows and columns of the same size in `f32`.
const MATRIX: Matrix = Matrix { rows: 16 << 10, columns: 4 << 10 };

/// One row of the table.
pub struct Speed {
    /// Bytes read and written.
    pub bytes: usize,
    /// Median.
    pub microseconds: f64,
    /// Bytes read and written, a second.
    pub gb_s: f64,
}

impl Speed {
    fn new(bytes: usize, microseconds: f64) -> Speed {
        Speed { bytes, microseconds, gb_s: bytes as f64 / microseconds / 1000.0 }
    }
}

/// The driver's copy from one tensor to another.
pub fn copy(gpu: &mut Gpu) -> Result<Speed, String> {
    let (from, to) = (gpu.allocate(BYTES)?, gpu.allocate(BYTES)?);
    let time = gpu.time(&mut |gpu| gpu.copy(to, from, BYTES))?;
    gpu.clear();
    Ok(Speed::new(2 * BYTES, time))
}

/// Every kernel; each must have computed what naive code does, or `failures` has one more.
pub fn kernels(gpu: &mut Gpu, failures: &mut Vec<String>) -> Result<Vec<(&'static str, Speed)>, String> {
    let mut speeds = Vec::new();
    let mut random = Random(1);
    let n = BYTES / 4;
    // Numbers of which sums are exact, so that y may be added to again and again.
    let whole: Vec<f32> = (0..n).map(|_| (random.bits() % 256) as f32).collect();
    let there = Buffer::of(gpu, &whole, 0)?;

    let y = Buffer::of(gpu, &whole, 0)?;
    let arguments = saxpy::Arguments { strips: n as u64, a: 2.0, x: there.source(), y: y.target() };
    let (runs, speed) = time(gpu, arguments.launch(), 3 * BYTES)?;
    let expected = (0..runs).fold(whole.clone(), |y, _| naive::saxpy(2.0, &whole, &y));
    note(failures, "saxpy", y.values::<f32>(gpu)? == expected);
    speeds.push(("saxpy", speed));

    let y = Buffer::of(gpu, &whole, 0)?;
    let arguments = saxpy_fused::Arguments { strips: n as u64, a: 2.0, x: there.source(), y: y.target() };
    let (runs, speed) = time(gpu, arguments.launch(), 3 * BYTES)?;
    let expected = (0..runs).fold(whole.clone(), |y, _| naive::saxpy_fused(2.0, &whole, &y));
    note(failures, "saxpy_fused", y.values::<f32>(gpu)? == expected);
    speeds.push(("saxpy_fused", speed));

    let maxima = Buffer::of(gpu, &vec![0f32; MATRIX.rows as usize], 0)?;
    let arguments = row_maximum::Arguments { rows: MATRIX, values: there.source(), maxima: maxima.target() };
    let (_, speed) = time(gpu, arguments.launch(), BYTES + maxima.bytes)?;
    let expected = naive::row_maximum(MATRIX.rows as usize, MATRIX.columns as usize, &whole);
    note(failures, "row_maximum", maxima.values::<f32>(gpu)? == expected);
    speeds.push(("row_maximum", speed));

    let arguments =
        subtract_from_rows::Arguments { strips: MATRIX, numbers: maxima.source(), values: there.target() };
    let (runs, speed) = time(gpu, arguments.launch(), 2 * BYTES + maxima.bytes)?;
    let subtract =
        |values: Vec<f32>, _| naive::subtract_from_rows(MATRIX.columns as usize, &expected, &values);
    note(failures, "subtract_from_rows", there.values::<f32>(gpu)? == (0..runs).fold(whole, subtract));
    speeds.push(("subtract_from_rows", speed));
    gpu.clear();

    let n = BYTES / 2;
    let words = random.words(n);
    let there = Buffer::of(gpu, &words, 0)?;
    let (low, high) = (Buffer::of(gpu, &vec![0u8; n], 0)?, Buffer::of(gpu, &vec![0u8; n], 0)?);
    let arguments = split_bytes::Arguments {
        strips: n as u64,
        words: there.source(),
        low: low.target(),
        high: high.target(),
    };
    let (_, speed) = time(gpu, arguments.launch(), 2 * BYTES)?;
    let planes = (low.values(gpu)?, high.values(gpu)?);
    note(failures, "split_bytes", planes == naive::split_bytes(&words));
    speeds.push(("split_bytes", speed));

    let back = Buffer::of(gpu, &vec![0u16; n], 0)?;
    let arguments = join_bytes::Arguments {
        strips: n as u64,
        low: low.source(),
        high: high.source(),
        words: back.target(),
    };
    let (_, speed) = time(gpu, arguments.launch(), 2 * BYTES)?;
    note(failures, "join_bytes", back.values::<u16>(gpu)? == words);
    speeds.push(("join_bytes", speed));
    gpu.clear();
    Ok(speeds)
}

fn note(failures: &mut Vec<String>, entry: &str, is_right: bool) {
    if !is_right {
        failures.push(format!("{entry}: {BYTES} bytes: not what naive code gives"));
    }
}

/// How often it ran, and how fast.
fn time(
    gpu: &mut Gpu,
    launch: Result<Launch, ArgumentError>,
    bytes: usize,
) -> Result<(usize, Speed), String> {
    let launch = launch.map_err(|error| error.to_string())?;
    let mut runs = 0;
    let time = gpu.time(&mut |gpu| {
        runs += 1;
        gpu.queue(&launch)
    })?;
    Ok((runs, Speed::new(bytes, time)))
}
