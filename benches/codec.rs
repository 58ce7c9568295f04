//! The CPU codec on real KV tensors, with a copy of the same bytes beside it: one thread, and all.
//!
//!     cargo bench --bench codec
//!
//! Throughput is raw bytes per second. The fixture is tiled to 32 MiB: larger than most caches, small enough for a laptop.

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
    measurement::WallTime,
};
use rayon::prelude::*;
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageOrder, PageTable, VllmOrder};
use splitzip_host::{Cpu, Dtype, Executor, Flags, Frame, FrameSpec, Scheme, TensorSpec};
use std::hint::black_box;
use std::thread::available_parallelism;

mod support;
use support::tiled;

const BYTES: usize = 32 << 20;

/// What the executor has for the dtype, of all schemes.
fn specs(cpu: &Cpu) -> Vec<(Scheme, FrameSpec)> {
    let spec = |scheme, elements| {
        FrameSpec::new(vec![TensorSpec::new("kv", Dtype::Bf16, scheme, &[elements])], Flags::default())
    };
    let has = |scheme: &Scheme| cpu.encode_to_vec(&spec(*scheme, 1), &[], &[&[0x80, 0x3f]]).is_ok();
    Scheme::coded().filter(has).map(|scheme| (scheme, spec(scheme, BYTES as u64 / 2))).collect()
}

/// What the memory can do: the ceiling of every codec.
fn copy(group: &mut BenchmarkGroup<'_, WallTime>, raw: &[u8], threads: usize) {
    let (mut out, piece) = (vec![0; raw.len()], raw.len().div_ceil(threads));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    group.bench_function(BenchmarkId::new("copy", threads), |bencher| {
        bencher.iter(|| {
            let pieces = out.par_chunks_mut(piece).zip(raw.par_chunks(piece));
            pool.install(|| pieces.for_each(|(out, raw)| out.copy_from_slice(raw)));
        });
    });
    black_box(out);
}

fn codec(criterion: &mut Criterion) {
    let raw = tiled(BYTES);
    let all = available_parallelism().map_or(1, usize::from);
    let mut group = criterion.benchmark_group("bf16");
    group.throughput(Throughput::Bytes(raw.len() as u64)).sample_size(20);
    let mut counts = vec![1, all];
    counts.dedup();
    for threads in counts {
        copy(&mut group, &raw, threads);
        let cpu = Cpu::with_threads(threads).expect("threads");
        for (scheme, spec) in specs(&cpu) {
            let mut frame = vec![0; spec.layout().expect("a layout").max_frame_bytes as usize];
            let mut back = vec![0; raw.len()];
            let mut length = 0;
            group.bench_function(BenchmarkId::new(format!("encode {scheme}"), threads), |bencher| {
                bencher.iter(|| length = cpu.encode(&spec, &[], &[&raw], &mut frame).expect("a frame"));
            });
            if length == 0 {
                length = cpu.encode(&spec, &[], &[&raw], &mut frame).expect("a frame");
            }
            let frame = Frame::parse(&frame[..length]).expect("a frame");
            group.bench_function(BenchmarkId::new(format!("decode {scheme}"), threads), |bencher| {
                bencher.iter(|| cpu.decode(&frame, &mut [&mut back]).expect("the tensor"));
            });
            assert!(back == raw || back.iter().all(|&byte| byte == 0), "{scheme}: not what was encoded");
        }
    }
    group.finish();
}

/// The same bytes as keys and values of 8 heads of 128 in pages, beside one piece: what gathering and scattering cost.
fn paged(criterion: &mut Criterion) {
    let raw = tiled(BYTES);
    let all = available_parallelism().map_or(1, usize::from);
    let shape =
        KvShape { layers: 1, pages: 512, page_tokens: 16, heads: 8, head_dim: 128, dtype: Dtype::Bf16 };
    let slots = KvShape { pages: 8192, page_tokens: 1, ..shape };
    let piece = KvShape { pages: 1, page_tokens: 8192, ..shape };
    let layouts = [
        ("one piece", KvLayout::flash_infer_pair(&piece, PageOrder::Nhd), 1),
        ("blocks", KvLayout::vllm(&shape), 512),
        ("fused blocks", KvLayout::vllm_fused(&shape, VllmOrder::Lbhnc), 512),
        ("slots", KvLayout::sglang(&slots), 8192),
    ];
    let mut group = criterion.benchmark_group("paged w2x3");
    group.throughput(Throughput::Bytes(raw.len() as u64)).sample_size(20);
    let mut counts = vec![1, all];
    counts.dedup();
    for (name, layout, pages) in layouts {
        let layout = layout.expect("a layout");
        // Scattered: 301 is prime to all numbers of pages.
        let ids: Vec<i32> = (0..pages).map(|entry| entry * 301 % pages).collect();
        let page_tokens = 8192 / pages as u64;
        let table = PageTable::new(PageIds::I32(&ids), page_tokens, 8192).expect("a table");
        let paged = layout.bind(table).expect("a request");
        let sizes = layout.pool_bytes().expect("sizes");
        let mut rest = &raw[..];
        let pools: Vec<&[u8]> =
            sizes.iter().map(|&bytes| rest.split_off(..bytes as usize).expect("so many bytes")).collect();
        let spec = paged.spec(Scheme::W2x3, Flags::default());
        let mut frame = vec![0; spec.layout().expect("a layout").max_frame_bytes as usize];
        let mut back: Vec<Vec<u8>> = sizes.iter().map(|&bytes| vec![0; bytes as usize]).collect();
        for &threads in &counts {
            let cpu = Cpu::with_threads(threads).expect("threads");
            let length = cpu.encode_paged(&spec, &[], &paged, &pools, &mut frame).expect("a frame");
            group.bench_function(BenchmarkId::new(format!("encode from {name}"), threads), |bencher| {
                bencher.iter(|| cpu.encode_paged(&spec, &[], &paged, &pools, &mut frame).expect("a frame"));
            });
            let frame = Frame::parse(&frame[..length]).expect("a frame");
            let mut slices: Vec<&mut [u8]> = back.iter_mut().map(Vec::as_mut_slice).collect();
            cpu.decode_paged(&frame, None, &paged, &mut slices).expect("the tensors");
            group.bench_function(BenchmarkId::new(format!("decode into {name}"), threads), |bencher| {
                bencher.iter(|| cpu.decode_paged(&frame, None, &paged, &mut slices).expect("the tensors"));
            });
            assert!(back.concat() == raw, "{name}: not what was encoded");
        }
    }
    group.finish();
}

criterion_group!(benches, codec, paged);
criterion_main!(benches);
