//! A round of a request in pages: out of one layout, into another.

use super::frames::elements_of;
use super::{Counts, Executors, Random};
use splitzip_host::conformance::{Member, members};
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, PagedError, VllmOrder};
use splitzip_host::{Executor, Flags, Frame, FrameSpec};

/// Raw bytes up to which the naive reference takes part.
const REFERENCE: u64 = 1 << 17;

fn layout(random: &mut Random, shape: &KvShape) -> Result<KvLayout, PagedError> {
    match random.below(8) {
        0 => KvLayout::vllm(shape),
        1 => KvLayout::vllm_blocks_first(shape),
        2 => KvLayout::flash_infer(shape, PageOrder::Hnd),
        3 => KvLayout::flash_infer_pair(shape, PageOrder::Hnd),
        4 => KvLayout::lmcache(shape),
        5 => KvLayout::vllm_fused(shape, random.one_of(&VllmOrder::ALL)),
        _ => KvLayout::sglang(shape),
    }
}

/// `count` pages of a pool, none twice.
fn pages(random: &mut Random, count: u64, pages: u64) -> Vec<i32> {
    let mut all: Vec<i32> = (0..pages as i32).collect();
    for at in 0..count as usize {
        let other = at + random.below(pages - at as u64) as usize;
        all.swap(at, other);
    }
    all.truncate(count as usize);
    all
}

pub fn run(
    executors: &Executors<'_>,
    random: &mut Random,
    most: u64,
    counts: &mut Counts,
) -> Result<(), String> {
    let member = random.one_of(&members());
    let shape = KvShape {
        layers: 1 + random.below(3),
        pages: 0,
        page_tokens: random.one_of(&[1, 3, 16, 16, 32, 64, 100]),
        heads: 1 + random.below(8),
        head_dim: random.one_of(&[8, 24, 64, 64, 128, 128, 200]),
        dtype: member.dtype,
    };
    let token = shape.layers * 2 * shape.heads * shape.head_dim * shape.dtype.bytes() as u64;
    let tokens = random.size(most / token);
    let with_pages = |page_tokens: u64, random: &mut Random| {
        let needed = tokens.div_ceil(page_tokens);
        let shape = KvShape { page_tokens, pages: needed + random.below(1 + needed / 2), ..shape };
        (shape, pages(random, needed, shape.pages))
    };
    let (from_shape, from_ids) = with_pages(shape.page_tokens, random);
    let to_page_tokens = random.one_of(&[1, 7, 16, 16, 48, 100]);
    let (to_shape, to_ids) = with_pages(to_page_tokens, random);
    let text = |error: PagedError| error.to_string();
    let (source, target) =
        (layout(random, &from_shape).map_err(text)?, layout(random, &to_shape).map_err(text)?);
    let table = |ids, page_tokens| PageTable::new(PageIds::I32(ids), page_tokens, tokens);
    let from = source.bind(table(&from_ids, from_shape.page_tokens).map_err(text)?).map_err(text)?;
    let to = target.bind(table(&to_ids, to_page_tokens).map_err(text)?).map_err(text)?;
    let pools: Vec<Vec<u8>> = (source.pool_bytes().map_err(text)?.iter())
        .map(|&bytes| elements_of(random, shape.dtype, bytes / shape.dtype.bytes() as u64, shape.head_dim))
        .collect();
    let request = Request { member, from, pools, target, to, raw: token * tokens };
    let at = format!("{from_shape:?}, {tokens} tokens, into {to_shape:?}");
    request.check(executors, random, counts).map_err(|what| format!("{what}; {member}, {at}"))
}

struct Request<'a> {
    member: Member,
    from: Paged<'a>,
    pools: Vec<Vec<u8>>,
    target: KvLayout,
    to: Paged<'a>,
    raw: u64,
}

impl Request<'_> {
    fn check(
        &self,
        executors: &Executors<'_>,
        random: &mut Random,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let text = |error: splitzip_host::Error| error.to_string();
        let flags = Flags {
            arrival: false,
            packed: false,
            tensor_checksums: random.one_in(2),
            chunk_checksums: random.one_in(2),
        };
        let mut spec = self.from.spec(self.member.scheme, flags);
        // Channel bases are those of the last dimension, which a head of every size here allows.
        spec.tensors.iter_mut().for_each(|tensor| tensor.bases = self.member.bases);
        let second = if self.raw <= REFERENCE { executors.reference } else { executors.other };
        let [ours, expected] = [executors.device, second].map(|executor| self.encode(executor, &spec));
        let (ours, expected) = (ours.map_err(text)?, expected.map_err(text)?);
        counts.encoded += 2;
        counts.frame_bytes += ours.len() as u64;
        if ours != expected {
            return Err(format!("another frame than that of {}", second.name()));
        }
        let frame = Frame::parse(&ours).map_err(text)?;
        let [ours, expected] = [executors.device, second].map(|executor| self.decode(executor, &frame));
        let (ours, expected) = (ours.map_err(text)?, expected.map_err(text)?);
        if ours != expected {
            return Err(format!("other pools than those of {}", second.name()));
        }
        // Out of the other layout comes the same frame.
        let slices: Vec<&[u8]> = ours.iter().map(Vec::as_slice).collect();
        let mut again = vec![0; frame.layout().max_frame_bytes as usize];
        let length =
            executors.device.encode_paged(&spec, &[], &self.to, &slices, &mut again).map_err(text)?;
        if again[..length] != *frame.bytes() {
            return Err("the elements do not come back".to_owned());
        }
        counts.encoded += 1;
        counts.decoded += 2;
        counts.paged += 5;
        counts.raw_bytes += 2 * self.raw;
        Ok(())
    }

    fn encode(&self, executor: &dyn Executor, spec: &FrameSpec) -> splitzip_host::Result<Vec<u8>> {
        let slices: Vec<&[u8]> = self.pools.iter().map(Vec::as_slice).collect();
        let mut out = vec![0; spec.layout()?.max_frame_bytes as usize];
        let length = executor.encode_paged(spec, &[], &self.from, &slices, &mut out)?;
        out.truncate(length);
        Ok(out)
    }

    /// The pools, full of one byte where nobody writes.
    fn decode(&self, executor: &dyn Executor, frame: &Frame<'_>) -> splitzip_host::Result<Vec<Vec<u8>>> {
        let mut pools: Vec<Vec<u8>> =
            self.target.pool_bytes()?.iter().map(|&bytes| vec![0xa5; bytes as usize]).collect();
        let mut slices: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
        executor.decode_paged(frame, None, &self.to, &mut slices)?;
        Ok(pools)
    }
}
