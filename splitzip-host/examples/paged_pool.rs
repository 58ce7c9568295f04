//! A request moves from the pool of a prefill worker to that of a decode worker: gathered from the blocks of vLLM's fused cache and encoded into one frame, sent (here a copy),
//! and decoded into slots of SGLang's pools.
//!
//! `cargo run --release -p splitzip-host --example paged_pool`

use splitzip_host::conformance::Content;
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageTable, VllmOrder, naive};
use splitzip_host::{Cpu, Dtype, Executor, Flags, Frame, Result, Scheme};
use std::time::Instant;

const PAGES: u64 = 8192;
const TOKENS: u64 = 80_000;

fn main() -> Result<()> {
    let shape =
        KvShape { layers: 1, pages: PAGES, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };

    // The pool of the sender: 8,192 blocks, of which the request has 5,000, in some order.
    let layout = KvLayout::vllm_fused(&shape, VllmOrder::Lbhnc)?;
    let bytes = layout.pool_bytes()?[0] as usize;
    let pool = Content::Plain.bytes(Dtype::Bf16, bytes / 2, 128);
    let blocks: Vec<i32> = (0..TOKENS.div_ceil(16)).map(|entry| (entry * 5 % PAGES) as i32).collect();
    let from = layout.bind(PageTable::new(PageIds::I32(&blocks), 16, TOKENS)?)?;

    // One frame with a tensor of keys and one of values. Its worst size is known before anything is encoded, and so is the place of its dense part.
    let spec = from.spec(Scheme::W2x3, Flags::CHECKSUMS);
    let mut frame = vec![0; spec.layout()?.max_frame_bytes as usize];
    let started = Instant::now();
    let length = Cpu::new().encode_paged(&spec, &[], &from, &[&pool], &mut frame)?;
    let encoded = started.elapsed();

    // Sent.
    let received = frame[..length].to_vec();

    // The pools of the receiver have slots of one token and a list of those that are free.
    let shape = KvShape { pages: 16 * PAGES, page_tokens: 1, ..shape };
    let layout = KvLayout::sglang(&shape)?;
    let mut pools: Vec<Vec<u8>> =
        layout.pool_bytes()?.into_iter().map(|bytes| vec![0; bytes as usize]).collect();
    let slots: Vec<i64> = (0..TOKENS as i64).map(|token| token * 7 % (16 * PAGES as i64)).collect();
    let to = layout.bind(PageTable::new(PageIds::I64(&slots), 1, TOKENS)?)?;
    let mut slices: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
    let started = Instant::now();
    Cpu::new().decode_paged(&Frame::parse(&received)?, None, &to, &mut slices)?;
    let decoded = started.elapsed();

    // Every element has arrived.
    let slices: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
    for tensor in 0..2 {
        assert!(naive::gather(&to, tensor, &slices)? == naive::gather(&from, tensor, &[&pool])?);
    }
    let raw = spec.layout()?.raw_bytes;
    let speed = |time: std::time::Duration| raw as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{TOKENS} tokens of {} pages, {raw} bytes, as a frame of {length} bytes ({:.3} times smaller)\n\
         encoded from blocks with {:.2} GB/s, decoded into slots with {:.2} GB/s",
        blocks.len(),
        raw as f64 / length as f64,
        speed(encoded),
        speed(decoded)
    );
    Ok(())
}
