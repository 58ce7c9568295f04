//! Offload and reload, on a machine that has a device: frames are those of the CPU slice by slice, what comes back is what was sent, and whatever goes wrong, the memory is
//! there again.
//!
//! Without a device every test says on stderr that it was skipped.

use cudarc::driver::result;
use splitzip_host::conformance::Content;
use splitzip_host::cuda::offload::{
    DeviceKv, FileIo, KvFile, OffloadError, OffloadOptions, OffloadPolicy, Offloader, PinnedBuffer,
    PinnedPool, Way,
};
use splitzip_host::cuda::{Cuda, DeviceBytes, DevicePool, StreamHandle};
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageTable};
use splitzip_host::policy::{Codec, Link, Policy, Rate};
use splitzip_host::{Bases, Cpu, Dtype, Error, Executor, Flags, Frame, FrameSpec, Scheme, TensorSpec};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[path = "support/device.rs"]
mod device;

/// Small slices, so that every transfer has many.
const SLICE: u64 = 256 << 10;

fn options(way: Way) -> OffloadOptions {
    OffloadOptions::default().with_slice_bytes(SLICE).with_way(way)
}

/// Tensors on the device, what is in them, and where they come back to.
struct Kv {
    spec: FrameSpec,
    inputs: Vec<Vec<u8>>,
    source: Vec<DeviceBytes>,
    target: Vec<DeviceBytes>,
}

impl Kv {
    fn new(cuda: &Cuda, tensors: Vec<TensorSpec>) -> Kv {
        let inputs: Vec<Vec<u8>> = tensors
            .iter()
            .map(|tensor| match tensor.dtype {
                Dtype::Bytes => (0..tensor.elements().unwrap()).map(|i| (i * 7) as u8).collect(),
                dtype => Content::Mixed.bytes(dtype, tensor.elements().unwrap() as usize, 64),
            })
            .collect();
        let source = inputs.iter().map(|input| cuda.upload(input).unwrap()).collect();
        let target = inputs.iter().map(|input| cuda.upload(&vec![0xa5; input.len()]).unwrap()).collect();
        Kv { spec: FrameSpec::new(tensors, Flags::default()), inputs, source, target }
    }

    /// All dtypes and schemes, sizes that end anywhere, nothing, bytes.
    fn of_all_kinds(cuda: &Cuda) -> Kv {
        let mut tensors = Vec::new();
        for (dtype, scheme, bases) in [
            (Dtype::Bf16, Scheme::W2x3, Bases::Chunk),
            (Dtype::Bf16, Scheme::W2x2x3, Bases::Channel),
            (Dtype::Fp16, Scheme::W3, Bases::Chunk),
            (Dtype::E4m3, Scheme::W2x3, Bases::Chunk),
            (Dtype::Bf16, Scheme::W4, Bases::Chunk),
            (Dtype::Bytes, Scheme::Stored, Bases::Chunk),
        ] {
            for shape in [&[1000, 2, 64][..], &[3, 64], &[0, 64], &[9999, 64]] {
                let name = format!("{dtype} {scheme} {bases} {shape:?}");
                tensors.push(TensorSpec::new(&name, dtype, scheme, shape).with_bases(bases));
            }
        }
        Kv::new(cuda, tensors)
    }

    fn addresses(of: &[DeviceBytes]) -> Vec<u64> {
        of.iter().map(DeviceBytes::address).collect()
    }

    fn check_target(&self, cuda: &Cuda, what: &str) {
        for ((target, input), tensor) in self.target.iter().zip(&self.inputs).zip(&self.spec.tensors) {
            let mut bytes = vec![0; input.len()];
            cuda.download(target, &mut bytes).unwrap();
            assert!(bytes == *input, "{what}: {} does not come back", tensor.name);
        }
    }

    fn spoil(&self, cuda: &Cuda) {
        for target in &self.target {
            // SAFETY: as long as the memory.
            unsafe { result::memset_d8_sync(target.address(), 0xa5, target.bytes() as usize) }.unwrap();
        }
        cuda.context().synchronize().unwrap();
    }
}

const DEFAULT: StreamHandle = StreamHandle(0);

#[test]
fn every_slice_is_the_frame_of_the_cpu_and_all_comes_back() {
    let cuda = device!("every_slice_is_the_frame_of_the_cpu_and_all_comes_back");
    let pool = PinnedPool::new(&cuda, 64 << 20).unwrap();
    let kv = Kv::of_all_kinds(&cuda);
    for way in [Way::Staged, Way::Direct] {
        let offloader = Offloader::new(&cuda, &pool, options(way)).unwrap();
        let (from, to) = (Kv::addresses(&kv.source), Kv::addresses(&kv.target));
        // SAFETY: the tensors live until the end.
        let offloading =
            unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }.unwrap();
        let offloaded = Arc::new(offloading.wait().unwrap());
        assert!(!offloaded.is_raw() && offloaded.slices().len() > 5, "{way:?}");
        assert_eq!(offloaded.raw_bytes(), kv.inputs.iter().map(|input| input.len() as u64).sum::<u64>());
        let mut decoded = vec![Vec::new(); kv.inputs.len()];
        for slice in offloaded.slices() {
            let frame = Frame::parse(slice).unwrap();
            assert_eq!(frame.bytes().len(), slice.len(), "{way:?}: no more than its bytes are kept");
            let tensors = Cpu::new().decode_to_vecs(&frame).unwrap();
            let slices: Vec<&[u8]> = tensors.iter().map(Vec::as_slice).collect();
            let expected = Cpu::new().encode_to_vec(frame.spec(), &[], &slices).unwrap();
            assert!(slice == expected, "{way:?}: another frame than the CPU's");
            for (tensor, bytes) in frame.spec().tensors.iter().zip(tensors) {
                let number = kv.spec.tensors.iter().position(|of| of.name == tensor.name).unwrap();
                decoded[number].extend(bytes);
            }
        }
        assert!(decoded == kv.inputs, "{way:?}");
        kv.spoil(&cuda);
        // SAFETY: as above.
        let reloading =
            unsafe { offloader.reload(&offloaded, None, DeviceKv::Tensors(&to), DEFAULT) }.unwrap();
        reloading.wait().unwrap();
        kv.check_target(&cuda, &format!("{way:?}"));
        let counters = offloader.counters();
        assert_eq!((counters.out.transfers, counters.back.transfers), (1, 1));
        assert_eq!(counters.out.coded_bytes, offloaded.coded_bytes());
        assert_eq!((counters.out.errors, counters.back.errors, counters.cancelled), (0, 0, 0));
        drop(offloaded);
        drop(offloader);
        assert_eq!(pool.free_bytes(), pool.bytes(), "{way:?}");
    }
}

#[test]
fn pages_go_to_other_pages_in_whole_and_in_part() {
    let cuda = device!("pages_go_to_other_pages_in_whole_and_in_part");
    let pool = PinnedPool::new(&cuda, 64 << 20).unwrap();
    let shape = KvShape { layers: 5, pages: 90, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };
    let (vllm, sglang) = (
        KvLayout::vllm(&shape).unwrap(),
        KvLayout::sglang(&KvShape { pages: 2000, page_tokens: 1, ..shape }).unwrap(),
    );
    let fill = |(number, &bytes): (usize, &u64)| {
        Content::Mixed.bytes(Dtype::Bf16, bytes as usize / 2 + number, 64)[2 * number..].to_vec()
    };
    let host: Vec<Vec<u8>> = vllm.pool_bytes().unwrap().iter().enumerate().map(fill).collect();
    let source: Vec<DeviceBytes> = host.iter().map(|pool| cuda.upload(pool).unwrap()).collect();
    let on_device = |of: &[DeviceBytes]| -> Vec<DevicePool> {
        of.iter().map(|of| DevicePool { address: of.address(), bytes: of.bytes() }).collect()
    };
    let tokens = 1234;
    let blocks: Vec<i32> = (0..78).map(|i| (i * 37 + 5) % 89).collect();
    let slots: Vec<i64> = (0..tokens as i64).map(|i| (i * 1009 + 3) % 1999).collect();
    let from = vllm.bind(PageTable::new(PageIds::I32(&blocks), 16, tokens).unwrap()).unwrap();
    let spec = from.spec(Scheme::W2x3, Flags::default());
    let slices: Vec<&[u8]> = host.iter().map(Vec::as_slice).collect();
    let mut frame = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    let bytes = Cpu::new().encode_paged(&spec, &[], &from, &slices, &mut frame).unwrap();
    frame.truncate(bytes);

    for (way, slice_bytes) in [(Way::Staged, 64 << 10), (Way::Staged, 1 << 30), (Way::Direct, 100 << 10)] {
        let options = OffloadOptions::default().with_way(way).with_slice_bytes(slice_bytes);
        let offloader = Offloader::new(&cuda, &pool, options).unwrap();
        let kv = DeviceKv::Pages { of: &from, pools: &on_device(&source) };
        // SAFETY: the pools live until the end.
        let offloaded = unsafe { offloader.offload(&spec, &[], kv, DEFAULT) }.unwrap().wait().unwrap();
        let offloaded = Arc::new(offloaded);
        for wanted in [None, Some(0..1), Some(17..1000), Some(1233..1234), Some(5..5)] {
            let range = wanted.clone().unwrap_or(0..tokens);
            let count = range.end - range.start;
            let table = PageTable::new(PageIds::I64(&slots[..count as usize]), 1, count).unwrap();
            let to = sglang.bind(table).unwrap();
            // Some of the tensors only.
            let to = to.select(|form| !form.name.contains(".1."));
            let mut expected: Vec<Vec<u8>> =
                sglang.pool_bytes().unwrap().iter().map(|&bytes| vec![0xa5; bytes as usize]).collect();
            let target: Vec<DeviceBytes> = expected.iter().map(|pool| cuda.upload(pool).unwrap()).collect();
            let mut sinks: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
            let parsed = Frame::parse(&frame).unwrap();
            Cpu::new().decode_paged(&parsed, wanted.clone(), &to, &mut sinks).unwrap();
            let kv = DeviceKv::Pages { of: &to, pools: &on_device(&target) };
            // SAFETY: the pools outlive the wait.
            unsafe { offloader.reload(&offloaded, wanted.clone(), kv, DEFAULT) }.unwrap().wait().unwrap();
            for (target, expected) in target.iter().zip(&expected) {
                let mut found = vec![0; expected.len()];
                cuda.download(target, &mut found).unwrap();
                assert!(found == *expected, "{way:?}, slices of {slice_bytes}, tokens {wanted:?}");
            }
        }
    }
}

#[test]
fn streams_keep_their_order() {
    let cuda = device!("streams_keep_their_order");
    let pool = PinnedPool::new(&cuda, 64 << 20).unwrap();
    let offloader = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    let tensors = vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[20_000, 128])];
    let kv = Kv::new(&cuda, tensors);
    let stream = cuda.context().new_stream().unwrap();
    let (handle, bytes) = (StreamHandle::from(&*stream), kv.inputs[0].len());
    let late = cuda.upload(&kv.inputs[0]).unwrap();
    let from = [kv.target[0].address()];
    for round in 0..5 {
        // The KV is written on the stream just before, behind much else.
        // SAFETY: all of this memory has so many bytes, and lives until the end.
        let offloading = unsafe {
            for _ in 0..50 {
                result::memset_d8_async(from[0], 7, bytes, stream.cu_stream()).unwrap();
            }
            result::memcpy_dtod_async(from[0], late.address(), bytes, stream.cu_stream()).unwrap();
            offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), handle).unwrap()
        };
        // It may be overwritten when it was read.
        offloading.wait_read().unwrap();
        // SAFETY: as above.
        unsafe { result::memset_d8_async(from[0], 9, bytes, stream.cu_stream()).unwrap() };
        let offloaded = Arc::new(offloading.wait().unwrap());
        // Later work on the stream finds what was reloaded.
        let copy = cuda.allocate(bytes as u64).unwrap();
        // SAFETY: as above.
        let reloading = unsafe {
            let reloading = offloader.reload(&offloaded, None, DeviceKv::Tensors(&from), handle).unwrap();
            result::memcpy_dtod_async(copy.address(), from[0], bytes, stream.cu_stream()).unwrap();
            reloading
        };
        stream.synchronize().unwrap();
        let mut found = vec![0; bytes];
        cuda.download(&copy, &mut found).unwrap();
        assert!(found == kv.inputs[0], "round {round}");
        reloading.wait().unwrap();
    }
}

#[test]
fn a_full_pool_holds_back_and_loses_nothing() {
    let cuda = device!("a_full_pool_holds_back_and_loses_nothing");
    let kv = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[8192, 128])]);
    let from = Kv::addresses(&kv.source);
    // Room for one and a half of them.
    let pool = PinnedPool::new(&cuda, 2 << 20).unwrap();
    let offload = |offloader: &Offloader| {
        // SAFETY: the tensors live until the end.
        unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }.unwrap()
    };
    let patient = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    let idle = pool.free_bytes();
    let first = offload(&patient).wait().unwrap();
    let second = offload(&patient);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!second.is_done(), "there is no room for it");
    drop(first);
    let second = second.wait().unwrap();
    assert_eq!(second.raw_bytes(), kv.inputs[0].len() as u64);

    let hasty = options(Way::Staged).with_patience(Duration::from_millis(20));
    let hasty = Offloader::new(&cuda, &pool, hasty).unwrap();
    match offload(&hasty).wait() {
        Err(Error::Offload(OffloadError::PoolFull { bytes, .. })) => assert_eq!(bytes, pool.bytes()),
        other => panic!("{other:?}"),
    }
    let huge = options(Way::Staged).with_slice_bytes(1 << 30);
    let large = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[32768, 128])]);
    let large_from = Kv::addresses(&large.source);
    let huge = Offloader::new(&cuda, &pool, huge).unwrap();
    // SAFETY: the tensors live until the end.
    let refused = unsafe { huge.offload(&large.spec, &[], DeviceKv::Tensors(&large_from), DEFAULT) }.unwrap();
    match refused.wait() {
        Err(Error::Offload(OffloadError::PoolTooSmall { bytes, .. })) => assert_eq!(bytes, pool.bytes()),
        other => panic!("{other:?}"),
    }
    assert_eq!((hasty.counters().out.errors, huge.counters().out.errors), (1, 1));
    drop((second, hasty, huge));
    wait_until(|| pool.free_bytes() == idle, "what failed gives its memory back");
    // And all of it works again.
    assert_eq!(offload(&patient).wait().unwrap().slices().len(), 8);
}

/// Takes all that is free, in however many pieces.
fn fill(pool: &PinnedPool) -> Vec<PinnedBuffer> {
    let mut taken = Vec::new();
    for bytes in [1 << 20, 1 << 16, 4096] {
        while let Ok(buffer) = pool.buffer(bytes, Duration::ZERO) {
            taken.push(buffer);
        }
    }
    assert_eq!(pool.free_bytes(), 0);
    taken
}

/// The pool is full of what is to be reloaded, to the last page.
#[test]
fn a_reload_needs_nothing_of_the_pool() {
    let cuda = device!("a_reload_needs_nothing_of_the_pool");
    let kv = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[8192, 128])]);
    let (from, to) = (Kv::addresses(&kv.source), Kv::addresses(&kv.target));
    let pool = PinnedPool::new(&cuda, 2 << 20).unwrap();
    let options = options(Way::Staged).with_patience(Duration::from_millis(50));
    let offloader = Offloader::new(&cuda, &pool, options).unwrap();
    // SAFETY: the tensors live until the end.
    let offloaded = unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }
        .unwrap()
        .wait()
        .unwrap();
    let rest = fill(&pool);
    // SAFETY: as above.
    let reloading =
        unsafe { offloader.reload(&Arc::new(offloaded), None, DeviceKv::Tensors(&to), DEFAULT) }.unwrap();
    reloading.wait().unwrap();
    kv.check_target(&cuda, "from a full pool");
    drop(rest);
    // An offload that waits for room does not keep its offloader.
    let full = fill(&pool);
    let patient = OffloadOptions::default().with_slice_bytes(SLICE);
    let patient = Offloader::new(&cuda, &pool, patient).unwrap();
    // SAFETY: as above.
    let waiting = unsafe { patient.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }.unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let start = Instant::now();
    drop(patient);
    assert!(start.elapsed() < Duration::from_secs(5), "its patience is a minute");
    assert!(matches!(waiting.wait(), Err(Error::Offload(OffloadError::Stopped))));
    drop(full);
}

fn wait_until(condition: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn cancelled_dropped_and_stopped_offloads_give_their_memory_back() {
    let cuda = device!("cancelled_dropped_and_stopped_offloads_give_their_memory_back");
    let pool = PinnedPool::new(&cuda, 512 << 20).unwrap();
    let kv = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[1 << 19, 128])]);
    let from = Kv::addresses(&kv.source);
    let offload = |offloader: &Offloader| {
        // SAFETY: the tensors live until the end.
        unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }.unwrap()
    };
    let offloader = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    let idle = pool.free_bytes();
    let cancelled = offload(&offloader);
    cancelled.cancel();
    match cancelled.wait() {
        Err(Error::Offload(OffloadError::Cancelled)) => {}
        other => panic!("{other:?}"),
    }
    for wait in [0, 1, 3] {
        let dropped = offload(&offloader);
        std::thread::sleep(Duration::from_millis(wait));
        drop(dropped);
    }
    wait_until(|| pool.free_bytes() == idle, "what nobody wants gives its memory back");
    assert!(offloader.counters().cancelled >= 2);
    // One that is wanted behind one that is not.
    drop(offload(&offloader));
    assert_eq!(offload(&offloader).wait().unwrap().raw_bytes(), kv.inputs[0].len() as u64);
    // A reload whose handle is dropped is over then.
    let offloaded = Arc::new(offload(&offloader).wait().unwrap());
    let to = Kv::addresses(&kv.target);
    // SAFETY: the tensors live until the end.
    drop(unsafe { offloader.reload(&offloaded, None, DeviceKv::Tensors(&to), DEFAULT) }.unwrap());
    kv.check_target(&cuda, "dropped");
    drop(offloaded);

    let waiting: Vec<_> = (0..6).map(|_| offload(&offloader)).collect();
    drop(offloader);
    let results: Vec<_> = waiting.into_iter().map(|waiting| waiting.wait()).collect();
    let stopped = |result: &Result<_, Error>| matches!(result, Err(Error::Offload(OffloadError::Stopped)));
    assert!(results.iter().all(|result| result.is_ok() || stopped(result)), "{results:?}");
    assert!(stopped(results.last().unwrap()), "{results:?}");
    drop(results);
    assert_eq!(pool.free_bytes(), pool.bytes());
}

#[test]
fn many_threads_share_an_offloader() {
    let cuda = device!("many_threads_share_an_offloader");
    let pool = PinnedPool::new(&cuda, 64 << 20).unwrap();
    let offloader = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cuda, offloader) = (&cuda, &offloader);
            scope.spawn(move || {
                let tensors = vec![
                    TensorSpec::new("k", Dtype::Bf16, Scheme::W2x3, &[3000 + 100 * thread, 64]),
                    TensorSpec::new("v", Dtype::Bf16, Scheme::W3, &[5000 - 100 * thread, 128]),
                ];
                let kv = Kv::new(cuda, tensors);
                let stream = cuda.context().new_stream().unwrap();
                let handle = StreamHandle::from(&*stream);
                let (from, to) = (Kv::addresses(&kv.source), Kv::addresses(&kv.target));
                for round in 0..20 {
                    // SAFETY: the tensors live until the end.
                    unsafe {
                        let offloading = offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), handle);
                        let offloaded = Arc::new(offloading.unwrap().wait().unwrap());
                        let to = DeviceKv::Tensors(&to);
                        offloader.reload(&offloaded, None, to, handle).unwrap().wait().unwrap();
                    }
                    kv.check_target(cuda, &format!("thread {thread}, round {round}"));
                }
            });
        }
    });
    assert_eq!(offloader.counters().back.transfers, 80);
}

#[test]
fn files_bring_back_what_was_saved_or_say_why_not() {
    let cuda = device!("files_bring_back_what_was_saved_or_say_why_not");
    let pool = PinnedPool::new(&cuda, 64 << 20).unwrap();
    let offloader = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    let idle = pool.free_bytes();
    let kv = Kv::of_all_kinds(&cuda);
    let (from, to) = (Kv::addresses(&kv.source), Kv::addresses(&kv.target));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kv.spzkv");
    let save = |replace| {
        // SAFETY: the tensors live until the end.
        let offloading =
            unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }.unwrap();
        offloading.save(&path, replace)
    };
    let bytes = save(false).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    assert!(save(false).is_err(), "it exists");
    save(true).unwrap();
    let file = KvFile::open(&path).unwrap();
    assert_eq!(file.spec(), &kv.spec);
    let reload = |file: &KvFile| {
        kv.spoil(&cuda);
        // SAFETY: as above.
        unsafe { offloader.reload_file(file, None, DeviceKv::Tensors(&to), DEFAULT) }
    };
    reload(&file).unwrap();
    kv.check_target(&cuda, "from a file");

    // Through the cache of the system: the same bytes, and each way reads what the other wrote.
    let written = std::fs::read(&path).unwrap();
    // SAFETY: as above.
    let offloading = unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }.unwrap();
    assert_eq!(offloading.save_with(&path, true, FileIo::Cached).unwrap(), bytes);
    assert!(std::fs::read(&path).unwrap() == written, "another file");
    for io in [FileIo::Cached, FileIo::Direct] {
        reload(&KvFile::open(&path).unwrap().with_io(io)).unwrap();
        kv.check_target(&cuda, &format!("{io:?}"));
    }

    // Bits that are damaged are an error, or other values of their chunk where nothing can tell; never a crash, and the memory is there again.
    let whole = std::fs::read(&path).unwrap();
    let mut errors = 0;
    for at in (4096..whole.len()).step_by(9973) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        errors += usize::from(KvFile::open(&path).and_then(|file| reload(&file)).is_err());
    }
    assert!(errors > 0, "headers, directories and the index are checked");
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(KvFile::open(&path).is_err());
    // Cut off after it was opened.
    assert!(reload(&file).is_err() || whole.len() < 2 * SLICE as usize);
    std::fs::write(&path, &whole).unwrap();
    reload(&KvFile::open(&path).unwrap()).unwrap();
    kv.check_target(&cuda, "at the end");
    wait_until(|| pool.free_bytes() == idle, "files hold no memory");
}

#[test]
fn a_part_of_a_file_goes_to_pages() {
    let cuda = device!("a_part_of_a_file_goes_to_pages");
    let pool = PinnedPool::new(&cuda, 64 << 20).unwrap();
    let offloader = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    let shape =
        KvShape { layers: 2, pages: 1, page_tokens: 4000, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };
    let whole = KvLayout::vllm(&shape).unwrap();
    let of = whole.bind_consecutive(0, 4000).unwrap();
    let tensors = of.spec(Scheme::W2x3, Flags::default()).tensors;
    let kv = Kv::new(&cuda, tensors);
    let mut spec = kv.spec.clone();
    spec.layout_id = of.layout_id();
    let from = Kv::addresses(&kv.source);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kv.spzkv");
    let pages = DeviceKv::Tensors(&from);
    // SAFETY: the tensors live until the end.
    unsafe { offloader.offload(&spec, &[], pages, DEFAULT) }.unwrap().save(&path, false).unwrap();
    let file = KvFile::open(&path).unwrap();
    let before = offloader.counters().back.frames;
    let small = KvLayout::sglang(&KvShape { pages: 64, page_tokens: 1, ..shape }).unwrap();
    let to = small.bind_consecutive(3, 50).unwrap();
    let target: Vec<DeviceBytes> = small
        .pool_bytes()
        .unwrap()
        .iter()
        .map(|&bytes| cuda.upload(&vec![0xa5; bytes as usize]).unwrap())
        .collect();
    let pools: Vec<DevicePool> =
        target.iter().map(|of| DevicePool { address: of.address(), bytes: of.bytes() }).collect();
    let kv_to = DeviceKv::Pages { of: &to, pools: &pools };
    // SAFETY: as above.
    unsafe { offloader.reload_file(&file, Some(2100..2150), kv_to, DEFAULT) }.unwrap();
    let read = offloader.counters().back.frames - before;
    assert!(read < file.len() as u64 / 2, "{read} of {} slices", file.len());
    for (number, pool) in target.iter().enumerate() {
        let mut found = vec![0; pool.bytes() as usize];
        cuda.download(pool, &mut found).unwrap();
        let tensor = to.tensors().iter().position(|of| of.place().pool == number).unwrap();
        assert_eq!(found[3 * 256..53 * 256], kv.inputs[tensor][2100 * 256..2150 * 256], "pool {number}");
        assert!(found[..768].iter().chain(&found[53 * 256..]).all(|&byte| byte == 0xa5), "pool {number}");
    }
}

#[test]
fn a_policy_leaves_short_transfers_as_they_are() {
    let cuda = device!("a_policy_leaves_short_transfers_as_they_are");
    let pool = PinnedPool::new(&cuda, 256 << 20).unwrap();
    let offloader = Offloader::new(&cuda, &pool, OffloadOptions::default()).unwrap();
    let rate = |speed: f64, call: f64| Rate::new(speed, call).unwrap();
    let codec =
        Codec::new(Scheme::W2x3, Bases::Chunk, 1.45, rate(2.3e12, 60e-6), rate(f64::MAX, 0.0)).unwrap();
    let policy = OffloadPolicy::new(Policy::default(), Link::new(55e9, 8e-6).unwrap(), codec);
    offloader.set_policy(Some(policy));
    for (tokens, is_raw) in [(256, true), (policy.least_bytes() / 256 + 1, false)] {
        let kv = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[tokens, 128])]);
        let (from, to) = (Kv::addresses(&kv.source), Kv::addresses(&kv.target));
        // SAFETY: the tensors live until the end.
        let offloaded = unsafe { offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT) }
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(offloaded.is_raw(), is_raw);
        assert_eq!(offloaded.coded_bytes() < offloaded.raw_bytes(), !is_raw);
        let offloaded = Arc::new(offloaded);
        // SAFETY: as above.
        unsafe { offloader.reload(&offloaded, None, DeviceKv::Tensors(&to), DEFAULT) }
            .unwrap()
            .wait()
            .unwrap();
        kv.check_target(&cuda, &format!("{tokens} tokens"));
    }
    let counters = offloader.counters();
    assert_eq!((counters.out.raw_transfers, counters.back.raw_transfers), (1, 1));

    let kv = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[1 << 18, 128])]);
    let from = Kv::addresses(&kv.source);
    // Other tests run beside this one: what they do to the times may make no sense at all.
    // SAFETY: as above.
    let measure = |_| unsafe { offloader.measure_policy(Policy::default(), &kv.spec, &[], &from, DEFAULT) };
    let measured = (0..10).map(measure).find_map(Result::ok).unwrap();
    assert!(measured.link().bytes_per_second() > 1e9, "{measured:?}");
    assert!(measured.codec().ratio() > 1.2, "{measured:?}");
    assert!(measured.least_bytes() > 64 << 10, "{measured:?}");
}

#[test]
fn wrong_calls_are_errors() {
    let cuda = device!("wrong_calls_are_errors");
    let pool = PinnedPool::new(&cuda, 16 << 20).unwrap();
    let offloader = Offloader::new(&cuda, &pool, options(Way::Staged)).unwrap();
    let kv = Kv::new(&cuda, vec![TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[100, 128])]);
    let from = Kv::addresses(&kv.source);
    // SAFETY: nothing is queued for what is refused; the tensors live until the end.
    unsafe {
        let none = offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&[]), DEFAULT);
        assert!(matches!(none, Err(Error::Count { .. })));
        let offloaded = offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&from), DEFAULT).unwrap();
        let offloaded = Arc::new(offloaded.wait().unwrap());
        let tokens = offloader.reload(&offloaded, Some(0..1), DeviceKv::Tensors(&from), DEFAULT);
        assert!(matches!(tokens, Err(Error::Offload(OffloadError::TokensOfTensors))));
        let few = offloader.reload(&offloaded, None, DeviceKv::Tensors(&[]), DEFAULT);
        assert!(matches!(few, Err(Error::Count { .. })));
        // An address that kernels do not take.
        let odd = [from[0] + 2];
        let odd = offloader.offload(&kv.spec, &[], DeviceKv::Tensors(&odd), DEFAULT).unwrap().wait();
        assert!(odd.is_err());
        // No tensors are no slices.
        let nothing = offloader.offload(&FrameSpec::default(), &[], DeviceKv::Tensors(&[]), DEFAULT).unwrap();
        let nothing = Arc::new(nothing.wait().unwrap());
        assert_eq!((nothing.slices().len(), nothing.coded_bytes()), (0, 0));
        offloader.reload(&nothing, None, DeviceKv::Tensors(&[]), DEFAULT).unwrap().wait().unwrap();
    }
}
