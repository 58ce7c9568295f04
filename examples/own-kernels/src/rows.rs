//! Matrices, row by row.

use splitzip_kernels::kernel;
use splitzip_kernels::tile::{
    Block, Elements, ElementsOut, Program, RowStrips, RowValues, RowValuesOut, Rows, Tile, map, map_each,
    maximum,
};

/// Warps that share a row.
const WARPS: u32 = 8;
/// Columns that a warp reads at once.
const STEP: u32 = 32 * 4;

/// The maximum of every row: NaN if the row has one, of both zeros +0, -inf for a row without columns.
#[kernel(warps = 8, blocks = 8, block_shared = WARPS * 4)]
pub fn row_maximum(block: &mut Block, rows: Rows, values: Elements<f32>, maxima: RowValuesOut<f32>) {
    let row = rows.row(block.index());
    let of_warps = block.array::<f32, { WARPS as usize }>();
    block.each_warp(|warp| {
        let mut best = Tile::splat([f32::NEG_INFINITY; 4]);
        let mut column = warp.number() * STEP;
        while column < row.columns() {
            let next = values.load(&row.strip(column), f32::NEG_INFINITY);
            best = map_each((&best, &next), |(a, b)| maximum(a, b));
            column += WARPS * STEP;
        }
        let best = map(&best, |[a, b, c, d]| maximum(maximum(a, b), maximum(c, d)));
        of_warps.set(warp, warp.number(), warp.maximum(&best));
    });
    block.each_warp(|warp| {
        if warp.number() == 0 {
            let of_warps = of_warps.load(warp, 0, f32::NEG_INFINITY);
            maxima.store(&row, warp.maximum(&of_warps));
        }
    });
}

/// Subtracts from every element the number of its row: what a softmax begins with, where that is the row's maximum.
#[kernel(warps = 8, blocks = 8)]
pub fn subtract_from_rows(
    program: &Program,
    strips: RowStrips<4>,
    numbers: RowValues<f32>,
    values: ElementsOut<f32>,
) {
    let (row, strip) = strips.of(program);
    let number = numbers.load(&row, 0.0);
    values.store(&strip, &map_each(&values.load(&strip, 0.0), |value| value - number));
}
