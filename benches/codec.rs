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

criterion_group!(benches, codec);
criterion_main!(benches);
