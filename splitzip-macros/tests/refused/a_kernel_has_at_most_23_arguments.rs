#[path = "../stand_in/mod.rs"]
mod stand_in;
use stand_in::prelude::*;

#[kernel(warps = 8, blocks = 8)]
pub fn copy(
    program: &Program,
    chunks: Chunks,
    number_2: u32,
    number_3: u32,
    number_4: u32,
    number_5: u32,
    number_6: u32,
    number_7: u32,
    number_8: u32,
    number_9: u32,
    number_10: u32,
    number_11: u32,
    number_12: u32,
    number_13: u32,
    number_14: u32,
    number_15: u32,
    number_16: u32,
    number_17: u32,
    number_18: u32,
    number_19: u32,
    number_20: u32,
    number_21: u32,
    number_22: u32,
    number_23: u32,
    number_24: u32,
) {
}

fn main() {}
