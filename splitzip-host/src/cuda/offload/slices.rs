//! How KV is cut: into slices that are a frame each.
//!
//! A slice is what the codec and the copy engine hand to each other: the smaller, the earlier the link starts and the less scratch memory is needed; the larger, the
//! less launches and events count. Small tensors share one, large ones are cut where a group of chunks ends, so that cutting costs no bytes but those of the
//! headers.

use crate::format::{CHUNK, GROUP};
use crate::{FrameSpec, Result, TensorSpec};
use std::ops::Range;

/// What of a tensor is in a slice: rows, which are what the first dimension counts (tokens, mostly), or else the last one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub tensor: usize,
    pub rows: Range<u64>,
    /// Bytes of a row.
    pub row_bytes: u64,
}

impl Piece {
    /// Where its bytes are in the tensor.
    pub fn bytes(&self) -> Range<u64> {
        self.rows.start * self.row_bytes..self.rows.end * self.row_bytes
    }
}

/// A frame of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slice {
    pub spec: FrameSpec,
    pub pieces: Vec<Piece>,
}

/// What rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    /// All dimensions but the first: tokens, where KV is in pages.
    Tokens,
    /// The same, but the last dimension alone where a slice has not even a group of those.
    Any,
}

impl Rows {
    /// Elements of a row of a tensor.
    fn elements(self, tensor: &TensorSpec, slice_bytes: u64) -> u64 {
        // A shape whose product fits was checked before. Dimensions that are 0 leave nothing to cut.
        let product = |sizes: &[u64]| sizes.iter().product::<u64>().max(1);
        let tokens = product(tensor.shape.get(1..).unwrap_or_default());
        let least = whole_groups(tokens).saturating_mul(tokens).saturating_mul(tensor.dtype.bytes() as u64);
        if self == Rows::Tokens || least <= slice_bytes {
            return tokens;
        }
        product(tensor.shape.last().map_or(&[][..], std::slice::from_ref))
    }
}

/// Cuts tensors into slices of about `slice_bytes` raw bytes, in their order.
///
/// # Errors
/// Shapes that no frame can hold.
pub(super) fn cut(spec: &FrameSpec, rows: Rows, slice_bytes: u64) -> Result<Vec<Slice>> {
    let empty = || Slice { spec: FrameSpec { tensors: Vec::new(), ..spec.clone() }, pieces: Vec::new() };
    let (mut slices, mut open, mut open_bytes) = (Vec::new(), empty(), 0);
    for (number, tensor) in spec.tensors.iter().enumerate() {
        tensor.check()?;
        let elements = tensor.elements()?;
        let row = rows.elements(tensor, slice_bytes);
        let count = elements / row;
        let row_bytes = row.saturating_mul(tensor.dtype.bytes() as u64);
        let bytes = count.saturating_mul(row_bytes);
        let piece = |rows: Range<u64>| Piece { tensor: number, rows, row_bytes };
        if open_bytes != 0 && open_bytes + bytes.min(slice_bytes) > slice_bytes {
            slices.push(std::mem::replace(&mut open, empty()));
            open_bytes = 0;
        }
        let parts = bytes.div_ceil(slice_bytes.max(1)).max(1);
        // Whole groups of chunks, if the rows of one slice hold some.
        let unit = whole_groups(row);
        let step = count.div_ceil(parts).next_multiple_of(unit);
        if parts == 1 || step >= count {
            open.spec.tensors.push(tensor.clone());
            open.pieces.push(piece(0..count));
            open_bytes += bytes;
            continue;
        }
        for start in (0..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let end = (start + step).min(count);
            let mut slice = empty();
            slice.spec.tensors.push(part_of(tensor, row, end - start));
            slice.pieces.push(piece(start..end));
            slices.push(slice);
        }
    }
    if !open.pieces.is_empty() {
        slices.push(open);
    }
    Ok(slices)
}

/// The same tensor with so many of its rows.
fn part_of(tensor: &TensorSpec, row: u64, count: u64) -> TensorSpec {
    let rest = tensor.shape.get(1..).unwrap_or_default();
    let shape = match rest.iter().product::<u64>() == row {
        true => std::iter::once(count).chain(rest.iter().copied()).collect(),
        false => vec![count, row],
    };
    TensorSpec { shape, ..tensor.clone() }
}

/// The fewest rows of so many elements that are whole groups.
fn whole_groups(row: u64) -> u64 {
    let group = (CHUNK * GROUP) as u64;
    // A power of two: what they have in common is the smaller one of two powers.
    group >> row.trailing_zeros().min(group.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bases, Dtype, Flags, Scheme};
    use proptest::prelude::*;

    fn spec(shapes: &[&[u64]]) -> FrameSpec {
        let tensor = |(i, shape): (usize, &&[u64])| {
            TensorSpec::new(&format!("t{i}"), Dtype::Bf16, Scheme::W2x3, shape).with_id(i as u64)
        };
        FrameSpec {
            layout_id: 9,
            ..FrameSpec::new(shapes.iter().enumerate().map(tensor).collect(), Flags::default())
        }
    }

    fn shapes(slices: &[Slice]) -> Vec<Vec<Vec<u64>>> {
        slices
            .iter()
            .map(|slice| slice.spec.tensors.iter().map(|tensor| tensor.shape.clone()).collect())
            .collect()
    }

    #[test]
    fn small_tensors_share_a_slice_and_large_ones_are_cut_at_groups() {
        let spec = spec(&[&[64, 2, 64], &[64, 2, 64], &[1024, 2, 64], &[0, 2, 64], &[64, 2, 64]]);
        // 16 KiB a small tensor, 256 KiB the large one; a group has 32 KiB, which are 128 tokens.
        let slices = cut(&spec, Rows::Tokens, 40 << 10).unwrap();
        let large = |tokens| vec![vec![tokens, 2, 64]];
        assert_eq!(
            shapes(&slices),
            [
                vec![vec![64, 2, 64], vec![64, 2, 64]],
                large(256),
                large(256),
                large(256),
                large(256),
                vec![vec![0, 2, 64], vec![64, 2, 64]],
            ]
        );
        assert_eq!(slices[2].pieces, [Piece { tensor: 2, rows: 256..512, row_bytes: 256 }]);
        assert_eq!(slices[2].pieces[0].bytes(), 256 * 256..512 * 256);
        assert!(slices.iter().all(|slice| slice.spec.layout_id == 9));
        assert_eq!(cut(&spec, Rows::Tokens, u64::MAX).unwrap().len(), 1);
    }

    #[test]
    fn tensors_are_cut_between_tokens_unless_those_are_large() {
        let of = spec(&[&[4000, 2, 64], &[2, 4000, 64]]);
        let slices = cut(&of, Rows::Any, 256 << 10).unwrap();
        assert!(slices[..3].iter().all(|slice| slice.spec.tensors[0].shape[1..] == [2, 64]));
        assert_eq!(slices.last().unwrap().spec.tensors[0].shape[1..], [64]);
    }

    #[test]
    fn channels_stay_together() {
        let mut of = spec(&[&[7, 3000, 96]]);
        of.tensors[0].bases = Bases::Channel;
        let slices = cut(&of, Rows::Any, 1 << 20).unwrap();
        assert!(slices.len() >= 4, "{}", slices.len());
        assert!(slices.iter().all(|slice| slice.spec.tensors[0].shape[1] == 96));
        let rows: u64 = slices.iter().map(|slice| slice.spec.tensors[0].shape[0]).sum();
        assert_eq!(rows, 21000);
    }

    #[test]
    fn nothing_is_no_slice_and_a_scalar_is_one() {
        assert_eq!(cut(&spec(&[]), Rows::Any, 1).unwrap(), []);
        assert_eq!(shapes(&cut(&spec(&[&[]]), Rows::Any, 1).unwrap()), [[Vec::<u64>::new()]]);
    }

    proptest! {
        /// The pieces of every tensor are all of it, in order, and slices are not much larger than wanted.
        #[test]
        fn every_row_is_in_one_piece(
            shapes in prop::collection::vec((0u64..5000, 1u64..5, prop::sample::select(vec![1u64, 24, 64, 128])), 0..6),
            slice_bytes in prop::sample::select(vec![1u64, 4096, 1 << 16, 1 << 20, 1 << 30]),
            rows in prop::sample::select(vec![Rows::Tokens, Rows::Any]),
        ) {
            let shapes: Vec<Vec<u64>> = shapes.into_iter().map(|(tokens, heads, dim)| vec![tokens, heads, dim]).collect();
            let of = spec(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let slices = cut(&of, rows, slice_bytes).unwrap();
            let mut ends = vec![0; shapes.len()];
            for slice in &slices {
                prop_assert_eq!(slice.pieces.len(), slice.spec.tensors.len());
                let mut bytes = 0;
                for (piece, tensor) in slice.pieces.iter().zip(&slice.spec.tensors) {
                    prop_assert_eq!(piece.bytes().start, ends[piece.tensor]);
                    ends[piece.tensor] = piece.bytes().end;
                    prop_assert_eq!(piece.bytes().end - piece.bytes().start, 2 * tensor.elements().unwrap());
                    prop_assert_eq!(&tensor.name, &of.tensors[piece.tensor].name);
                    bytes += 2 * tensor.elements().unwrap();
                }
                // A slice of one piece may be as large as the groups that its rows share.
                let row = rows.elements(&of.tensors[slice.pieces[0].tensor], slice_bytes);
                let group = 2 * whole_groups(row) * row;
                prop_assert!(bytes <= slice_bytes || (slice.pieces.iter().filter(|piece| !piece.rows.is_empty()).count() == 1 && bytes <= slice_bytes + group));
            }
            for (end, shape) in ends.iter().zip(&shapes) {
                prop_assert_eq!(*end, 2 * shape.iter().product::<u64>());
            }
        }
    }
}
