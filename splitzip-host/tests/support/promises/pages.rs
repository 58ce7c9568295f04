//! The promise about pages.

use super::Choices;
use splitzip_host::conformance::members;
use splitzip_host::paged::{
    KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, PagedError, RowMap, RowShape, VllmOrder,
};
use splitzip_host::{Cpu, Executor, Flags, Frame, Reference};

/// A layout with a name.
fn layout(number: usize, shape: &KvShape) -> Result<KvLayout, PagedError> {
    let rows = RowShape { layers: shape.layers, pages: shape.pages, page_tokens: shape.page_tokens };
    match number {
        0 => KvLayout::vllm(shape),
        1 => KvLayout::vllm_blocks_first(shape),
        2 => KvLayout::flash_infer(shape, PageOrder::Hnd),
        3 => KvLayout::flash_infer_pair(shape, PageOrder::Hnd),
        4 => KvLayout::sglang(shape),
        5 => KvLayout::lmcache(shape),
        6..12 => KvLayout::vllm_fused(shape, VllmOrder::ALL[number - 6]),
        12 => KvLayout::mla(&rows, shape.dtype, shape.head_dim, 8 * shape.heads),
        _ => KvLayout::rows(&rows, &RowMap::fp8_ds_mla()),
    }
}

/// Pages of any numbers are refused by all executors alike, or the request goes into a frame, the same one for all, and from it into pages of any other layout, where
/// no other byte is written.
pub fn pages(data: &[u8]) {
    let mut choices = Choices(data);
    let member = choices.one_of(&members());
    let number = choices.below(14);
    let mut shape = KvShape {
        layers: 1 + choices.below(2) as u64,
        pages: choices.below(12) as u64,
        page_tokens: choices.below(20) as u64,
        heads: choices.below(4) as u64,
        head_dim: choices.below(40) as u64,
        dtype: member.dtype,
    };
    let tokens = choices.below(100) as u64;
    let to_tokens = 1 + choices.below(20) as u64;
    let (flags, to_number) = (choices.byte(), choices.below(14));
    let wide: bool = choices.byte() & 1 != 0;
    let ids: Vec<i32> = (0..choices.below(12)).map(|_| i32::from(choices.byte() as i8)).collect();
    let long_ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let named = if wide { PageIds::I64(&long_ids) } else { PageIds::I32(&ids) };
    let Ok(source) = layout(number, &shape) else { return };
    let Ok(table) = PageTable::new(named, shape.page_tokens, tokens) else { return };
    let Ok(from) = source.bind(table) else { return };
    let flags = Flags {
        arrival: false,
        packed: false,
        tensor_checksums: flags & 1 != 0,
        chunk_checksums: flags & 2 != 0,
    };
    let mut spec = from.spec(member.scheme, flags);
    for tensor in &mut spec.tensors {
        if tensor.dtype.is_float() && member.scheme.check(tensor.dtype).is_ok() {
            tensor.bases = member.bases;
        }
    }
    let Ok(frame_layout) = spec.layout() else { return };
    let elements = if choices.0.is_empty() { &[0x3f][..] } else { choices.0 };
    let pools: Vec<Vec<u8>> = source
        .pool_bytes()
        .unwrap()
        .iter()
        .map(|&bytes| elements.iter().copied().cycle().take(bytes as usize).collect())
        .collect();
    let slices: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
    let encode = |executor: &dyn Executor| {
        let mut out = vec![0; frame_layout.max_frame_bytes as usize];
        let length = executor.encode_paged(&spec, &[], &from, &slices, &mut out)?;
        out.truncate(length);
        Ok::<_, splitzip_host::Error>(out)
    };
    let bytes = match (encode(&Cpu::new()), encode(&Reference)) {
        (Ok(ours), Ok(expected)) => {
            assert!(ours == expected, "another frame than the reference");
            ours
        }
        (Err(ours), Err(expected)) => return assert_eq!(ours.to_string(), expected.to_string()),
        (ours, expected) => panic!("{ours:?} and {expected:?}"),
    };
    let frame = Frame::parse(&bytes).unwrap();
    // Pages of another size, in another order, in another layout with the same tensors.
    (shape.page_tokens, shape.pages) = (to_tokens, tokens.div_ceil(to_tokens) + 2);
    let Ok(target) = layout(to_number, &shape) else { return };
    let count = tokens.div_ceil(to_tokens);
    let ids: Vec<i32> = (0..count as i32).rev().map(|page| page + 1).collect();
    let to = target.bind(PageTable::new(PageIds::I32(&ids), to_tokens, tokens).unwrap()).unwrap();
    let [ours, expected] =
        [&Cpu::new() as &dyn Executor, &Reference].map(|executor| decode(executor, &frame, &target, &to));
    assert_eq!(ours, expected, "other bytes in the pools than the reference's");
    if let (Ok(pools), true) = (ours, to.layout_id() == from.layout_id()) {
        let slices: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
        let mut again = vec![0; frame_layout.max_frame_bytes as usize];
        let length = Cpu::new().encode_paged(&spec, &[], &to, &slices, &mut again).unwrap();
        assert!(again[..length] == bytes, "the elements do not come back");
    }
}

/// The pools that were full of one byte, or what the executor says.
fn decode(
    executor: &dyn Executor,
    frame: &Frame<'_>,
    layout: &KvLayout,
    to: &Paged<'_>,
) -> Result<Vec<Vec<u8>>, String> {
    let bytes = layout.pool_bytes().unwrap();
    let mut pools: Vec<Vec<u8>> = bytes.iter().map(|&bytes| vec![0xa5; bytes as usize]).collect();
    let mut slices: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
    executor.decode_paged(frame, None, to, &mut slices).map_err(|error| error.to_string())?;
    Ok(pools)
}

/// A request in each layout, and to the next one.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |number: u8| {
        let start = [number, number, 1, 9, 7, 2, 16, 33, 5, number % 4, number + 1, number];
        let ids = [5, 3, 8, 1, 0, 7];
        let elements: Vec<u8> =
            (0..200u8).map(|i| if i % 2 == 0 { i.wrapping_mul(37) } else { 0x3f }).collect();
        [&start[..], &ids, &elements].concat()
    };
    (0..14).map(seed).collect()
}
