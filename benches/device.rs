//! The codec of the first GPU, with a copy of the same bytes beside it; device events are the measurement.
//!
//!     cargo bench --bench device
//!
//! Throughput is raw bytes per second. The fixture is tiled to 64 MiB, more than the caches of today's GPUs hold. Without a device nothing is
//! measured, and that is said.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cudarc::driver::result;
use splitzip_host::cuda::{Cuda, DecodePlan, DeviceBytes, EncodePlan};
use splitzip_host::measure::Timer;
use splitzip_host::{Bases, CodebookChoice, Dtype, Error, Flags, FrameSpec, Result, Scheme, TensorSpec};

mod support;
use support::tiled;

const BYTES: usize = 64 << 20;

/// A plan in both directions, and all memory that it needs.
struct Codec {
    encode: EncodePlan,
    decode: DecodePlan,
    input: DeviceBytes,
    output: DeviceBytes,
    frame: DeviceBytes,
    workspaces: [DeviceBytes; 2],
    status: DeviceBytes,
}

impl Codec {
    fn new(cuda: &Cuda, raw: &[u8], scheme: Scheme, bases: Bases, arrival: bool) -> Result<Codec> {
        let tensor = TensorSpec::new("kv", Dtype::Bf16, scheme, &[raw.len() as u64 / 128, 64]);
        let flags = Flags { arrival, ..Flags::default() };
        let spec = FrameSpec::new(vec![tensor.with_bases(bases)], flags);
        let codebook = CodebookChoice::Given(splitzip_host::Codebook::from_histogram(
            &splitzip_host::Executor::histogram(&splitzip_host::Cpu::new(), Dtype::Bf16, raw)?,
        )?);
        let (encode, decode) = (cuda.plan_encode(&spec, &[codebook])?, cuda.plan_decode(&spec)?);
        Ok(Codec {
            input: cuda.upload(raw)?,
            output: cuda.upload(&vec![0xa5; raw.len()])?,
            frame: cuda.allocate(encode.max_frame_bytes())?,
            workspaces: [cuda.allocate(encode.workspace_bytes())?, cuda.allocate(decode.workspace_bytes())?],
            status: cuda.upload(&[0; 16])?,
            encode,
            decode,
        })
    }

    fn prepare(&self, timer: &Timer) -> Result<()> {
        // SAFETY: as long as the plan says; it lives until the stream has been waited for.
        unsafe { self.encode.prepare(timer.stream(), self.workspaces[0].address()) }
    }

    fn encode(&self, timer: &Timer) -> Result<()> {
        let (frame, workspace) = (self.frame.address(), self.workspaces[0].address());
        // SAFETY: as above.
        unsafe { self.encode.encode(timer.stream(), &[self.input.address()], frame, workspace) }
    }

    /// The whole buffer of the frame: how much of it is used, the frame says.
    fn decode(&self, timer: &Timer) -> Result<()> {
        let (frame, output) = (&self.frame, self.output.address());
        let (workspace, status) = (self.workspaces[1].address(), self.status.address());
        let stream = timer.stream();
        // SAFETY: as above.
        unsafe { self.decode.decode(stream, frame.address(), frame.bytes(), &[output], workspace, status, 0) }
    }

    fn copy(&self, timer: &Timer) -> Result<()> {
        let stream = timer.stream().0 as usize as cudarc::driver::sys::CUstream;
        let (to, from) = (self.output.address(), self.input.address());
        // SAFETY: both have so many bytes.
        unsafe { result::memcpy_dtod_async(to, from, BYTES, stream) }
            .map_err(|error| Error::Io(std::io::Error::other(error)))
    }

    /// Whether what was decoded last is what there was.
    fn has_decoded(&self, cuda: &Cuda, raw: &[u8]) -> Result<bool> {
        let (mut back, mut status) = (vec![0; raw.len()], [1; 16]);
        cuda.download(&self.output, &mut back)?;
        cuda.download(&self.status, &mut status)?;
        Ok(back == raw && status == [0; 16])
    }
}

fn device(criterion: &mut Criterion) {
    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(Error::CudaUnavailable { reason }) => {
            eprintln!("\n!!! SKIPPED, nothing was measured: {reason}.");
            eprintln!("!!! The last numbers of a GPU are in docs/performance.md.\n");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let raw = tiled(BYTES);
    let timer = Timer::new(&cuda).expect("a stream");
    let mut group = criterion.benchmark_group(format!("bf16, {}", cuda.info().name));
    group.throughput(Throughput::Bytes(BYTES as u64)).sample_size(20);
    let mut bench = |name: String, call: &dyn Fn(&Timer) -> Result<()>| {
        group.bench_function(BenchmarkId::new(name, "64 MiB"), |bencher| {
            bencher.iter_custom(|calls| timer.total(calls, &|| call(&timer)).expect("the calls"));
        });
    };
    let mut copied = false;
    for scheme in Scheme::coded() {
        for bases in Bases::ALL {
            if bases == Bases::Channel && !scheme.has_window() {
                continue;
            }
            let channel = if bases == Bases::Channel { ", channel bases" } else { "" };
            for arrival in [false, true] {
                let order = if arrival { ", arrival" } else { "" };
                let codec = Codec::new(&cuda, &raw, scheme, bases, arrival).expect("the plans");
                if !copied {
                    copied = true;
                    bench("copy".to_owned(), &|timer| codec.copy(timer));
                }
                codec.prepare(&timer).expect("the workspace");
                bench(format!("encode {scheme}{channel}{order}"), &|timer| codec.encode(timer));
                codec.encode(&timer).expect("a frame");
                bench(format!("decode {scheme}{channel}{order}"), &|timer| codec.decode(timer));
                codec.decode(&timer).expect("the tensor");
                timer.wait().expect("the device");
                assert!(codec.has_decoded(&cuda, &raw).expect("the bytes"), "{scheme}: not what was encoded");
            }
        }
    }
    group.finish();
}

criterion_group!(benches, device);
criterion_main!(benches);
