//! KV in pages, on any executor: the frame of the elements in one piece, and back into another layout.

use super::{Content, Member, difference};
use crate::paged::{KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, PagedError, VllmOrder, naive};
use crate::{Codebook, CodebookChoice, Dtype, Error, Executor, Flags, Frame, Reference};

/// Odd enough that chunks end within heads and heads within chunks, small enough for an interpreter.
const ODD: KvShape =
    KvShape { layers: 1, pages: 60, page_tokens: 16, heads: 3, head_dim: 24, dtype: Dtype::Bf16 };
/// Pages of whole chunks, and of groups: what engines have.
const EVEN: KvShape =
    KvShape { layers: 1, pages: 24, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };

/// A request in two places, and some tokens of it.
struct Exchange<'a> {
    source: KvLayout,
    from: Paged<'a>,
    target: KvLayout,
    to: Paged<'a>,
    /// Tokens of the values alone, and where they go.
    part: (u64, u64, Paged<'a>),
    token_bytes: u64,
}

/// Checks one member: from the blocks of a fused cache, from a token within one on, to tokens that follow each other in pools of their own; and from pages in any order to
/// pages in another one. All of it, then some tokens of the values, with checksums and without.
///
/// # Errors
/// What went wrong, and where.
pub fn check_paged(executor: &dyn Executor, member: Member, content: Content) -> Result<(), String> {
    let text = |error: PagedError| error.to_string();
    let ids: Vec<i32> = (0..52).map(|page| (page * 17 + 5) % 60).collect();
    let (there, back): (Vec<i64>, Vec<i64>) =
        (0..16).map(|page| ((page * 5 + 3) % 24, (page * 7 + 2) % 24)).unzip();
    for (exchange, name) in
        [(odd(member, &ids).map_err(text)?, "odd"), (even(member, &there, &back).map_err(text)?, "even")]
    {
        for flags in [Flags::CHECKSUMS, Flags::default(), Flags { arrival: true, ..Flags::default() }] {
            check_member(executor, member, content, &exchange, flags).map_err(|error| {
                format!("{}: {member}, {content:?}, in {name} pages, {flags:?}: {error}", executor.name())
            })?;
        }
    }
    Ok(())
}

fn odd(member: Member, ids: &[i32]) -> Result<Exchange<'_>, PagedError> {
    let shape = KvShape { dtype: member.dtype, ..ODD };
    let source = KvLayout::vllm_fused(&shape, VllmOrder::Lbhnc)?;
    let target = KvLayout::sglang(&KvShape { page_tokens: 100, pages: 10, ..shape })?;
    let from = source.bind(PageTable::new(PageIds::I32(ids), 16, 830)?.slice(7..826)?)?;
    let to = target.bind_consecutive(1, 819)?;
    // They start and end within chunks and pages.
    let part = (100, 655, target.bind_consecutive(2, 555)?);
    exchange(shape, (source, from), (target, to), part)
}

fn even<'a>(member: Member, there: &'a [i64], back: &'a [i64]) -> Result<Exchange<'a>, PagedError> {
    let shape = KvShape { dtype: member.dtype, ..EVEN };
    let source = KvLayout::flash_infer(&shape, PageOrder::Nhd)?;
    let target = KvLayout::sglang(&shape)?;
    let from = source.bind(PageTable::new(PageIds::I64(there), 16, 256)?)?;
    let to = target.bind(PageTable::new(PageIds::I64(back), 16, 256)?)?;
    // They start with a group, and end within a page.
    let part = (128, 250, target.bind(PageTable::new(PageIds::I64(&back[..8]), 16, 122)?)?);
    exchange(shape, (source, from), (target, to), part)
}

fn exchange<'a>(
    shape: KvShape,
    (source, from): (KvLayout, Paged<'a>),
    (target, to): (KvLayout, Paged<'a>),
    (start, end, part): (u64, u64, Paged<'a>),
) -> Result<Exchange<'a>, PagedError> {
    let part = (start, end, part.select(|form| form.name.ends_with('v')));
    let token_bytes = shape.heads * shape.head_dim * shape.dtype.bytes() as u64;
    Ok(Exchange { source, from, target, to, part, token_bytes })
}

fn check_member(
    executor: &dyn Executor,
    member: Member,
    content: Content,
    exchange: &Exchange<'_>,
    flags: Flags,
) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let Exchange { source, from, target, to, part, token_bytes } = exchange;
    let mut spec = from.spec(member.scheme, flags);
    spec.tensors.iter_mut().for_each(|tensor| tensor.bases = member.bases);
    let elements: Vec<Vec<u8>> = from
        .tensors()
        .iter()
        .map(|tensor| content.bytes(member.dtype, tensor.runs().bytes as usize / member.dtype.bytes(), 24))
        .collect();
    let pools = filled(source, from, &elements)?;
    let pools: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
    // Without any flag a codebook of a sample, otherwise a given one.
    let given = |bytes: &Vec<u8>| {
        let histogram = Reference.histogram(member.dtype, bytes)?;
        Ok(CodebookChoice::Given(Codebook::from_histogram(&histogram)?))
    };
    let codebooks: Vec<CodebookChoice> = match member.scheme.has_codebook() && flags != Flags::default() {
        true => elements.iter().map(given).collect::<Result<_, Error>>().map_err(text)?,
        false => Vec::new(),
    };
    let encode = |executor: &dyn Executor| {
        let mut out = vec![0xa5; spec.layout().map_err(text)?.max_frame_bytes as usize];
        let bytes = executor.encode_paged(&spec, &codebooks, from, &pools, &mut out).map_err(text)?;
        out.truncate(bytes);
        Ok::<_, String>(out)
    };
    let (got, expected) = (encode(executor)?, encode(&Reference)?);
    // Parts that stand as they come are not a function of the elements.
    if let Some(difference) = difference(&got, &expected).filter(|_| !flags.arrival) {
        return Err(format!("its frame is not that of the reference: {difference}"));
    }
    let frame = Frame::parse(&got).map_err(text)?;
    check_decode(executor, &frame, None, target, to, &elements)?;
    let (start, end, to) = part;
    let part = elements[1][(start * token_bytes) as usize..(end * token_bytes) as usize].to_vec();
    check_decode(executor, &frame, Some(*start..*end), target, to, &[part])
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
