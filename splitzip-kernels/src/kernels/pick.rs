//! Pick: the codebook of a histogram, on the device, so that `auto` needs no trip to the host.

use crate::kernel;
use crate::launch::Programs;
use crate::scheme::W4Table;
use crate::tile::{Program, Table, Tile, Update, map};

/// The 16 most frequent exponents (ties to the smaller one, exponents that do not occur fill up from the smallest), ascending, to `codebook`,
/// and the encoder's table to `table`. `exponents` is how many exponents the dtype has. Counts must be below 2^24.
#[kernel(warps = 1, blocks = 1)]
pub fn pick(
    program: &Program,
    programs: Programs,
    counts: Table<2048>,
    exponents: u32,
    codebook: Update<16>,
    table: Update<256>,
) {
    let _ = programs;
    // Lane `l` has the exponents `8 l` to `8 l + 7`. The largest key is the most frequent exponent, of equals the smallest.
    let mut keys: Tile<[u32; 8]> = counts.keys(exponents);
    let mut chosen = map(&keys, |_| 0u32);
    let mut round = 0;
    while round < 16 {
        let best = program.max(&map(&keys, |k| {
            let mut best = 0;
            crate::unroll!(i < 8 => best = if k[i] > best { k[i] } else { best });
            best
        }));
        (keys, chosen) = map((&keys, &chosen), |(mut k, mut c)| {
            crate::unroll!(i < 8 => if k[i] == best {
                k[i] = 0;
                c |= 1 << i;
            });
            (k, c)
        });
        round += 1;
    }
    let (before, _) = program.scan(&map(&chosen, u32::count_ones));
    codebook.store_bytes(program, &chosen, &before, |lane, bit| lane * 8 + bit);
    table.store_pairs(&map((&chosen, &before), |(c, first)| W4Table::eight(c, first)));
}
