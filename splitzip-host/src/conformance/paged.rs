//! KV in pages, on any executor: the frame of the elements in one piece, and back into another layout.

use super::{Content, Member, difference};
use crate::paged::{KvLayout, KvShape, PageIds, PageTable, Paged, VllmOrder, naive};
use crate::{Dtype, Error, Executor, Flags, Frame, Reference};

/// The shape of all: odd enough that chunks end within heads, small enough for an interpreter.
const SHAPE: KvShape =
    KvShape { layers: 1, pages: 60, page_tokens: 16, heads: 3, head_dim: 24, dtype: Dtype::Bf16 };

/// Checks one member: from the blocks of a fused cache, from a token within one on, to tokens that follow each other in pools of their own; all of it, then some tokens of the values.
///
/// # Errors
/// What went wrong, and where.
pub fn check_paged(executor: &dyn Executor, member: Member, content: Content) -> Result<(), String> {
    check_member(executor, member, content)
        .map_err(|error| format!("{}: {member}, {content:?}, in pages: {error}", executor.name()))
}

fn check_member(executor: &dyn Executor, member: Member, content: Content) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let shape = KvShape { dtype: member.dtype, ..SHAPE };
    let blocks = KvLayout::vllm_fused(&shape, VllmOrder::Lbhnc).map_err(|error| error.to_string())?;
    let pair = KvLayout::sglang(&KvShape { page_tokens: 100, pages: 10, ..shape });
    let pair = pair.map_err(|error| error.to_string())?;
    let ids: Vec<i32> = (0..52).map(|page| (page * 17 + 5) % 60).collect();
    let table = PageTable::new(PageIds::I32(&ids), 16, 830).and_then(|table| table.slice(7..826));
    let from = table.and_then(|table| blocks.bind(table)).map_err(|error| error.to_string())?;
    let to = pair.bind_consecutive(1, 819).map_err(|error| error.to_string())?;

    let mut spec = from.spec(member.scheme, Flags::CHECKSUMS);
    spec.tensors.iter_mut().for_each(|tensor| tensor.bases = member.bases);
    let elements: Vec<Vec<u8>> = from
        .tensors()
        .iter()
        .map(|tensor| content.bytes(member.dtype, tensor.runs().bytes as usize / member.dtype.bytes(), 24))
        .collect();
    let pools = filled(&blocks, &from, &elements)?;
    let pools: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
    let encode = |executor: &dyn Executor| {
        let mut out = vec![0xa5; spec.layout().map_err(text)?.max_frame_bytes as usize];
        let bytes = executor.encode_paged(&spec, &[], &from, &pools, &mut out).map_err(text)?;
        out.truncate(bytes);
        Ok::<_, String>(out)
    };
    let (got, expected) = (encode(executor)?, encode(&Reference)?);
    if let Some(difference) = difference(&got, &expected) {
        return Err(format!("its frame is not that of the reference: {difference}"));
    }
    let frame = Frame::parse(&got).map_err(text)?;
    check_decode(executor, &frame, None, &pair, &to, &elements)?;

    // Some tokens of the values, which start and end within chunks and pages.
    let (start, end, token) = (100, 655, shape.heads * shape.head_dim * member.dtype.bytes() as u64);
    let part = elements[1][(start * token) as usize..(end * token) as usize].to_vec();
    let to = pair.bind_consecutive(2, end - start).map_err(|error| error.to_string())?;
    let to = to.select(|form| form.name.ends_with('v'));
    check_decode(executor, &frame, Some(start..end), &pair, &to, &[part])
}

/// Decodes into pools full of a byte that nobody writes, and compares all of them.
fn check_decode(
    executor: &dyn Executor,
    frame: &Frame<'_>,
    tokens: Option<std::ops::Range<u64>>,
    layout: &KvLayout,
    to: &Paged<'_>,
    elements: &[Vec<u8>],
) -> Result<(), String> {
    let expected = filled(layout, to, elements)?;
    let mut got: Vec<Vec<u8>> = expected.iter().map(|pool| vec![UNTOUCHED; pool.len()]).collect();
    let mut slices: Vec<&mut [u8]> = got.iter_mut().map(Vec::as_mut_slice).collect();
    executor.decode_paged(frame, tokens, to, &mut slices).map_err(|error| error.to_string())?;
    for (pool, (got, expected)) in got.iter().zip(&expected).enumerate() {
        if let Some(difference) = difference(got, expected) {
            return Err(format!("pool {pool} is not what it must be: {difference}"));
        }
    }
    Ok(())
}

const UNTOUCHED: u8 = 0xc5;

/// Pools with these elements in their places, and a few bytes more than the layout needs.
fn filled(layout: &KvLayout, paged: &Paged<'_>, elements: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let bytes = layout.pool_bytes().map_err(|error| error.to_string())?;
    let mut pools: Vec<Vec<u8>> =
        bytes.into_iter().map(|bytes| vec![UNTOUCHED; bytes as usize + 3]).collect();
    let mut slices: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
    for (number, bytes) in elements.iter().enumerate() {
        naive::scatter(paged, number, bytes, &mut slices).map_err(|error| error.to_string())?;
    }
    Ok(pools)
}
