use splitzip_kernels::kernel;
use splitzip_kernels::tile::{Elements, Program, Strips};

#[kernel(warps = 8, blocks = 8)]
pub fn read(program: &Program, strips: Strips<4>, values: Elements<f64>) {
    let _ = (program, strips, values);
}

fn main() {}
