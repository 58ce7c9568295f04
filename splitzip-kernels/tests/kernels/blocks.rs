//! Blocks of several warps: who runs what, what they share, and what a kernel cannot get wrong silently.

use splitzip_kernels::kernel;
use splitzip_kernels::launch::{Source, Target};
use splitzip_kernels::tile::{Block, Elements, ElementsOut, Matrix, Program, RowValuesOut, Rows, map};

/// Every warp of 4 gets the 32 elements of the next one, through the memory of the block; and in turns, each adds a digit to a number.
#[kernel(warps = 4, blocks = 2, shared = 128, block_shared = 128 * 4 + 4)]
pub fn rotate(
    block: &mut Block,
    rows: Rows,
    from: Elements<u32>,
    to: ElementsOut<u32>,
    digits: RowValuesOut<u32>,
) {
    let row = rows.row(block.index());
    let (values, number) = (block.array::<u32, 128>(), block.array::<u32, 1>());
    block.each_warp(|warp| {
        let own = from.load(&row.strip::<1>(warp.number() * 32), 0);
        values.store(warp, warp.number() * 32, &own.slot(0));
        if warp.number() == 3 {
            number.set(warp, 0, 0);
            number.set(warp, 1, 99); // behind the end: nothing happens
        }
    });
    let mut turn = 0;
    while turn < block.warps() {
        block.each_warp(|warp| {
            if warp.number() == turn {
                let program: &Program = warp;
                number.set(warp, 0, number.get(warp, 0) * 100 + program.index());
            }
        });
        turn += 1;
    }
    let total = block.read(number, 0);
    block.each_warp(|warp| {
        let next = values.load(warp, (warp.number() + 1) % 4 * 32, 0);
        to.store(&row.strip::<1>(warp.number() * 32), &map(&next, |value| [value]));
        if warp.number() == 0 {
            digits.store(&row, total);
        }
    });
}

#[test]
fn warps_hand_on_what_they_have_written() {
    let from: Vec<u32> = (0..3 * 128).collect();
    let (mut to, mut digits) = (vec![0u32; 3 * 128], [0u32; 3]);
    let mut arguments = rotate::Arguments {
        rows: Matrix { rows: 3, columns: 128 },
        from: Source::of_elements(&from),
        to: Target::of_elements(&mut to),
        digits: Target::of_elements(&mut digits),
    };
    // A block is one program, and has the memory of its warps and its own.
    let launch = arguments.launch().unwrap();
    assert_eq!((launch.blocks, launch.entry.warps, launch.entry.shared_bytes), (3, 4, 4 * 128 + 516));
    arguments.run_all().unwrap();
    let expected = (0..3 * 128u32).map(|i| i / 128 * 128 + (i + 32) % 128);
    assert!(to.iter().copied().eq(expected), "{to:?}");
    assert_eq!(digits, [1_02_03, 4_05_06_07, 8_09_10_11]);
}

/// What is behind the end of an array is `fill`, and is not written.
#[kernel(warps = 1, blocks = 1, block_shared = 41 * 4)]
pub fn ends(block: &mut Block, rows: Rows, to: ElementsOut<u32>) {
    let row = rows.row(block.index());
    let (short, behind) = (block.array::<u16, 40>(), block.array::<u32, 1>());
    block.each_warp(|warp| {
        behind.set(warp, 0, 5);
        let counted = map(&behind.load(warp, 0, 0), |_| 3u16);
        short.store(warp, 0, &counted);
        short.store(warp, 32, &counted);
        let tail = map(&short.load(warp, 32, 9), |value| [value as u32]);
        to.store(&row.strip::<1>(0), &tail);
        let after = map(&behind.load(warp, 0, 1), |value| [value]);
        to.store(&row.strip::<1>(32), &after);
        let nothing = map(&short.load(warp, u32::MAX, 8), |value| [value as u32]);
        to.store(&row.strip::<1>(64), &nothing);
    });
}

#[test]
fn arrays_end_where_they_end() {
    let mut to = vec![0u32; 96];
    ends::Arguments { rows: Matrix { rows: 1, columns: 96 }, to: Target::of_elements(&mut to) }
        .run_all()
        .unwrap();
    let expected = [vec![3; 8], vec![9; 24], vec![5], vec![1; 31], vec![8; 32]].concat();
    assert_eq!(to, expected);
}

#[kernel(warps = 2, blocks = 1, block_shared = 60)]
pub fn wants_too_much(block: &mut Block, rows: Rows) {
    let _ = (rows, block.array::<f32, 8>(), block.array::<f32, 8>());
}

#[test]
#[should_panic(expected = "the arrays of the block need more bytes than it has: raise `block_shared`")]
fn a_block_has_no_more_memory_than_its_kernel_says() {
    let _ = wants_too_much::Arguments { rows: Matrix { rows: 1, columns: 0 } }.run_all();
}
