//! Vectors: every element by itself.

use splitzip_kernels::kernel;
use splitzip_kernels::tile::{Elements, ElementsOut, Program, Strips, map_each, multiply_add};

/// `y = a x + y`: a product and a sum, two roundings.
#[kernel(warps = 8, blocks = 8)]
pub fn saxpy(program: &Program, strips: Strips<4>, a: f32, x: Elements<f32>, y: ElementsOut<f32>) {
    let strip = strips.of(program);
    let (x, old) = (x.load(&strip, 0.0), y.load(&strip, 0.0));
    y.store(&strip, &map_each((&x, &old), |(x, y)| a * x + y));
}

/// The same with one rounding: what CUDA C makes of `a * x + y` unasked.
#[kernel(warps = 8, blocks = 8)]
pub fn saxpy_fused(program: &Program, strips: Strips<4>, a: f32, x: Elements<f32>, y: ElementsOut<f32>) {
    let strip = strips.of(program);
    let (x, old) = (x.load(&strip, 0.0), y.load(&strip, 0.0));
    y.store(&strip, &map_each((&x, &old), |(x, y)| multiply_add(a, x, y)));
}
