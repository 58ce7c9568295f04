//! Measures the kernels of a GPU, with the device copy of the same run beside them. Prints one line of JSON a row.
//!
//! `splitzip bench --device cuda:0 --record` measures the same and more. This stays as long as `docs/gpu/bench-h200.jsonl`, which it wrote, is the record.
//!
//! Usage: `gpu_bench KV.safetensors [ordinal [MiB [scheme [bases [arrival]]]]]`; the first two run everything, more of them one row (for a profiler). Times are device events, medians; throughput is raw bytes per second; `share`
//! is what the codec moves (raw and frame) over what the copy moves (read and written).

#[path = "../tests/support/record.rs"]
mod record;

use splitzip_host::cuda::{Cuda, DeviceBytes, StreamHandle};
use splitzip_host::format::{Flags, FrameSpec, TensorSpec};
use splitzip_host::{Bases, CodebookChoice, Dtype, Executor, Frame, Result, Scheme};
use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: gpu_bench KV.safetensors [ordinal [MiB]]")?;
    let cuda = Cuda::open(arguments.next().map_or(Ok(0), |text| text.parse())?)?;
    let kv = payload(&std::fs::read(path)?)?;
    let (device, target, entries) = (&cuda.info().name, cuda.target(), record::ptx_hashes(cuda.target()));
    println!("{}", serde_json::json!({ "device": device, "target": target, "entries": entries }));
    let stream = cuda.context().new_stream()?;
    let row = |case: Case<'_>| row(&cuda, &stream, case);
    let case = Case {
        kv: &kv,
        mib: 512,
        data: "kv",
        auto: false,
        scheme: Scheme::W4,
        bases: Bases::Chunk,
        arrival: false,
    };
    if let Some(mib) = arguments.next() {
        let (scheme, bases, arrival) = (arguments.next(), arguments.next(), arguments.next());
        return Ok(row(Case {
            mib: mib.parse()?,
            scheme: scheme.map_or(Ok(case.scheme), |scheme| scheme.parse())?,
            bases: if bases.as_deref() == Some("channel") { Bases::Channel } else { Bases::Chunk },
            arrival: arrival.is_some(),
            ..case
        })?);
    }
    for scheme in Scheme::coded() {
        for bases in Bases::ALL.iter().copied().filter(|&bases| bases == Bases::Chunk || scheme.has_window())
        {
            for arrival in [false, true] {
                for mib in [1, 2, 8, 32, 128, 512] {
                    row(Case { mib, scheme, bases, arrival, ..case })?;
                }
            }
        }
    }
    for mib in [2, 512] {
        row(Case { mib, auto: true, ..case })?;
    }
    for (data, kv) in generated(&kv) {
        for scheme in Scheme::coded() {
            row(Case { kv: &kv, data, scheme, ..case })?;
        }
    }
    Ok(())
}

/// One row.
#[derive(Clone, Copy)]
struct Case<'a> {
    kv: &'a [u8],
    mib: usize,
    data: &'a str,
    auto: bool,
    scheme: Scheme,
    bases: Bases,
    arrival: bool,
}

/// The bytes behind the header of a safetensors file.
fn payload(file: &[u8]) -> std::result::Result<Vec<u8>, Box<dyn std::error::Error>> {
    let length = file.get(..8).ok_or("too short")?.try_into().map(u64::from_le_bytes)? as usize;
    Ok(file.get(8 + length..).ok_or("too short")?.to_vec())
}

fn generated(kv: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let part = &kv[..32 << 20];
    let mut random5 = part.to_vec();
    for word in random5.chunks_exact_mut(2) {
        if random() % 20 == 0 {
            word[0] = word[0] & 0x7f | (random() as u8) & 0x80;
            word[1] = word[1] & 0x80 | (random() as u8) & 0x7f;
        }
    }
    let incompressible = (0..part.len() / 8).flat_map(|_| random().to_le_bytes()).collect();
    let mut half = part.to_vec();
    half.chunks_exact_mut(1024).step_by(2).for_each(|half| half.fill(0));
    vec![
        ("5% random exponents", random5),
        ("incompressible", incompressible),
        ("zeros", vec![0; 32 << 20]),
        ("half zeros", half),
    ]
}

fn row(cuda: &Cuda, stream: &Arc<CudaStream>, case: Case<'_>) -> Result<()> {
    let Case { kv, mib, data, auto, scheme, bases, arrival } = case;
    let bytes = mib << 20;
    let raw: Vec<u8> = kv.iter().copied().cycle().take(bytes).collect();
    let tensor = TensorSpec::new("kv", Dtype::Bf16, scheme, &[bytes as u64 / 128, 64]).with_bases(bases);
    let spec = FrameSpec::new(vec![tensor], Flags { arrival, ..Flags::default() });
    let codebook = match auto {
        true => CodebookChoice::Auto,
        false => CodebookChoice::Given(splitzip_host::Codebook::from_histogram(
            &splitzip_host::Cpu::new().histogram(Dtype::Bf16, &raw)?,
        )?),
    };
    let plan = cuda.plan_encode(&spec, &[codebook])?;
    let decode = cuda.plan_decode(&spec)?;
    let handle = StreamHandle::from(&**stream);
    let input = cuda.upload(&raw)?;
    let output = cuda.allocate(bytes as u64)?;
    let frame = cuda.allocate(plan.max_frame_bytes())?;
    let workspace = cuda.allocate(plan.workspace_bytes())?;
    let decode_workspace = cuda.allocate(decode.workspace_bytes())?;
    let status = cuda.upload(&[0; 16])?;
    let encode = || {
        // SAFETY: all memory outlives the synchronisation in `time`.
        unsafe { plan.encode(handle, &[input.address()], frame.address(), workspace.address()) }
    };
    // SAFETY: as below.
    unsafe { plan.prepare(handle, workspace.address())? };
    encode()?;
    stream.synchronize().map_err(|e| splitzip_host::Error::Io(std::io::Error::other(e)))?;
    let words = words(cuda, &frame, plan.layout().static_bytes)?;
    let frame_bytes = plan.layout().dense_bytes + 4 * words;
    let decode = || {
        // SAFETY: as above.
        unsafe {
            decode.decode(
                handle,
                frame.address(),
                frame_bytes,
                &[output.address()],
                decode_workspace.address(),
                status.address(),
                0,
            )
        }
    };
    let copy = || {
        // SAFETY: both have so many bytes.
        unsafe {
            cudarc::driver::result::memcpy_dtod_async(
                output.address(),
                input.address(),
                bytes,
                stream.cu_stream(),
            )
        }
        .map_err(|e| splitzip_host::Error::Io(std::io::Error::other(e)))
    };
    let (copied, encoded, decoded) = (time(stream, &copy)?, time(stream, &encode)?, time(stream, &decode)?);
    let (graph_copy, graph_encode, graph_decode) =
        (graph(stream, &copy)?, graph(stream, &encode)?, graph(stream, &decode)?);
    // The round trip, after all those runs.
    let mut back = vec![0; bytes];
    cuda.download(&output, &mut back)?;
    // The copy has filled the output as well: decode once more, into other bytes.
    let fresh = cuda.upload(&vec![0xa5; bytes])?;
    let again = cuda.plan_decode(&spec)?;
    // SAFETY: as above.
    unsafe {
        again.decode(
            handle,
            frame.address(),
            frame_bytes,
            &[fresh.address()],
            decode_workspace.address(),
            status.address(),
            0,
        )?;
    }
    stream.synchronize().map_err(|e| splitzip_host::Error::Io(std::io::Error::other(e)))?;
    cuda.download(&fresh, &mut back)?;
    let mut bad = [0; 16];
    cuda.download(&status, &mut bad)?;
    assert!(back == raw && bad == [0; 16], "the round trip differs");
    if !arrival && mib <= 32 && data == "kv" {
        let mut host = vec![0; frame_bytes as usize];
        cuda.download(&frame, &mut host)?;
        Frame::parse(&host)?;
        assert!(
            host == splitzip_host::Cpu::new().encode_to_vec(&spec, &[codebook], &[&raw])?,
            "frames differ"
        );
    }
    let moved = (bytes as u64 + frame_bytes) as f64;
    let ceiling = 2.0 * bytes as f64;
    let speed = |ms: f64| bytes as f64 / ms / 1e6;
    let share = |ms: f64, copied: f64| moved / ms / (ceiling / copied);
    println!(
        "{{\"scheme\": \"{scheme}\", \"bases\": \"{}\", \"arrival\": {arrival}, \"data\": {data:?}, \"MiB\": {mib}, \"codebook\": {:?}, \"ratio\": {:.4}, \
         \"copy_moved_GBps\": {:.0}, \"encode_GBps\": {:.0}, \"encode_share\": {:.3}, \"decode_GBps\": {:.0}, \"decode_share\": {:.3}, \
         \"graph_us\": {{\"copy\": {:.2}, \"encode\": {:.2}, \"decode\": {:.2}}}, \"graph_share\": {{\"encode\": {:.3}, \"decode\": {:.3}}}}}",
        bases.name(),
        if auto { "auto" } else { "given" },
        bytes as f64 / frame_bytes as f64,
        ceiling / copied / 1e6,
        speed(encoded),
        share(encoded, copied),
        speed(decoded),
        share(decoded, copied),
        graph_copy * 1e3,
        graph_encode * 1e3,
        graph_decode * 1e3,
        share(graph_encode, graph_copy),
        share(graph_decode, graph_copy),
    );
    Ok(())
}

fn words(cuda: &Cuda, frame: &DeviceBytes, at: u64) -> Result<u64> {
    let mut start = vec![0; at as usize + 8];
    cuda.download(frame, &mut start)?;
    Ok(start[at as usize..].try_into().map_or(0, u64::from_le_bytes))
}

/// Median milliseconds of a call, over 30 runs between events.
fn time(stream: &Arc<CudaStream>, run: &dyn Fn() -> Result<()>) -> Result<f64> {
    let failed = |e| splitzip_host::Error::Io(std::io::Error::other(e));
    for _ in 0..5 {
        run()?;
    }
    let mut times = Vec::new();
    for _ in 0..30 {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(flags).map_err(failed)?;
        run()?;
        let end = stream.record_event(flags).map_err(failed)?;
        times.push(f64::from(start.elapsed_ms(&end).map_err(failed)?));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Median milliseconds of a replay in a graph that holds the call 10 times.
fn graph(stream: &Arc<CudaStream>, run: &dyn Fn() -> Result<()>) -> Result<f64> {
    let failed = |e| splitzip_host::Error::Io(std::io::Error::other(e));
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed)?;
    for _ in 0..10 {
        run()?;
    }
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).map_err(failed)?.expect("a captured graph");
    let replay = || graph.launch().map_err(failed);
    Ok(time(stream, &replay)? / 10.0)
}
