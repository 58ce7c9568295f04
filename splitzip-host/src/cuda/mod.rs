//! The CUDA executor.
//!
//! The library is loaded when it is first wanted (`libcuda` need not be there when this crate is built or started); without it every call is
//! [`Error::CudaUnavailable`], never a panic. [`Cuda`] is an [`Executor`] over host bytes, for files and tests; on device
//! memory, [`EncodePlan`] and [`DecodePlan`] take foreign pointers and foreign streams and never wait for the device.

mod driver;
mod kernels;
pub mod offload;
mod paged;
mod plan;
mod pointers;

pub use driver::{DriverVersion, driver_version};
pub use kernels::{PTX, Ptx};
pub use paged::{DecodePagedPlan, DevicePool, EncodePagedPlan};
#[doc(hidden)]
pub use paged::{DecodePagedWork, EncodePagedWork};
pub use plan::{DecodePlan, EncodePlan};
#[doc(hidden)]
pub use plan::{DecodeWork, EncodeWork, Queue};

use crate::cpu::unpacks_within;
use crate::format::{unpack, write};
use crate::paged::Paged;
use crate::{
    CodebookChoice, Dtype, Error, Executor, Flags, Frame, FrameSpec, Histogram, Layout, Reference, Result,
    Scheme,
};
use cudarc::driver::{CudaContext, DriverError, result, sys};
use kernels::Kernels;
use std::ops::Range;
use std::sync::Arc;

/// A stream of the driver, anybody's: `CUstream` as a number (0 is the default stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHandle(pub u64);

impl StreamHandle {
    pub(crate) fn raw(self) -> sys::CUstream {
        self.0 as usize as sys::CUstream
    }
}

impl From<&cudarc::driver::CudaStream> for StreamHandle {
    fn from(stream: &cudarc::driver::CudaStream) -> StreamHandle {
        StreamHandle(stream.cu_stream() as usize as u64)
    }
}

/// What is known about a device without using it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number: `cuda:N`.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// Bytes of its memory.
    pub memory: u64,
    /// Its multiprocessors.
    pub multiprocessors: u32,
}

/// A device, and the kernels on it.
#[derive(Clone)]
pub struct Cuda {
    context: Arc<CudaContext>,
    kernels: Arc<Kernels>,
    info: Arc<DeviceInfo>,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("info", &self.info).field("target", &self.kernels.target()).finish()
    }
}

/// The devices of this machine.
///
/// # Errors
/// [`Error::CudaUnavailable`] without a driver or a device.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let count = probe()?;
    (0..count).map(info).collect()
}

/// Looks for the driver before anything of cudarc is called, which would panic without it; returns the number of devices.
fn probe() -> Result<usize> {
    let unavailable = |reason: String| Error::CudaUnavailable { reason };
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable("there is no NVIDIA driver (libcuda) on this machine".to_owned()));
    }
    result::init().map_err(|error| unavailable(format!("the driver does not start: {}", text(&error))))?;
    let count = CudaContext::device_count();
    let count =
        count.map_err(|error| unavailable(format!("the driver lists no devices: {}", text(&error))))?;
    if count <= 0 {
        return Err(unavailable("the driver has no device".to_owned()));
    }
    Ok(count as usize)
}

fn info(ordinal: usize) -> Result<DeviceInfo> {
    let failed = driver_error("asking a device what it is");
    let device = result::device::get(ordinal as i32).map_err(&failed)?;
    let attribute = |attribute| {
        // SAFETY: a device of the driver.
        unsafe { result::device::get_attribute(device, attribute) }.map_err(&failed)
    };
    use sys::CUdevice_attribute_enum as A;
    let compute_capability = (
        attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32;
    let name = result::device::get_name(device).map_err(&failed)?;
    // SAFETY: a device of the driver.
    let memory = unsafe { result::device::total_mem(device) }.map_err(&failed)? as u64;
    Ok(DeviceInfo { ordinal, name, compute_capability, memory, multiprocessors })
}

fn text(error: &DriverError) -> String {
    match (error.error_name(), error.error_string()) {
        (Ok(name), Ok(string)) => format!("{} ({})", name.to_string_lossy(), string.to_string_lossy()),
        _ => format!("error {:?}", error.0),
    }
}

pub(crate) fn driver_error(what: &str) -> impl Fn(DriverError) -> Error + use<> {
    let what = what.to_owned();
    move |error| Error::Device { what: what.clone(), reason: text(&error) }
}

impl Cuda {
    /// The device with this number, in its primary context (the one that other libraries of the process use as well).
    ///
    /// # Errors
    /// [`Error::CudaUnavailable`] without a driver, without this device, or when it is too old.
    pub fn open(ordinal: usize) -> Result<Cuda> {
        let count = probe()?;
        if ordinal >= count {
            let last = count - 1;
            let reason = format!("there is no cuda:{ordinal}; this machine has cuda:0 to cuda:{last}");
            return Err(Error::CudaUnavailable { reason });
        }
        let context = CudaContext::new(ordinal).map_err(driver_error("opening the primary context"))?;
        Cuda::from_context(context)
    }

    /// A device in a context of the caller's.
    ///
    /// # Errors
    /// [`Error::CudaUnavailable`] when the device is too old; an error of the driver.
    pub fn from_context(context: Arc<CudaContext>) -> Result<Cuda> {
        let info = Arc::new(info(context.ordinal())?);
        Ok(Cuda { kernels: Arc::new(Kernels::new(context.clone())?), context, info })
    }

    /// The same device with the PTX of another target (`sm_80` runs on everything since), for tests and comparisons.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a target that there is no PTX for, or that is newer than the device.
    pub fn with_target(&self, target: &str) -> Result<Cuda> {
        let kernels = Arc::new(Kernels::with_target(self.context.clone(), target)?);
        Ok(Cuda { kernels, ..self.clone() })
    }

    /// What is known about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Which PTX it runs: `sm_80` or `sm_90`.
    pub fn target(&self) -> &'static str {
        self.kernels.target()
    }

    /// A plan to encode frames on the device.
    ///
    /// # Errors
    /// A description that no frame can hold or that there is no kernel for, a codebook for another dtype, no memory.
    pub fn plan_encode(&self, spec: &FrameSpec, codebooks: &[CodebookChoice]) -> Result<EncodePlan> {
        EncodePlan::new(self, spec, codebooks)
    }

    /// A plan to decode frames on the device; they are not packed.
    ///
    /// # Errors
    /// As [`Cuda::plan_encode`].
    pub fn plan_decode(&self, spec: &FrameSpec) -> Result<DecodePlan> {
        DecodePlan::new(self, spec)
    }

    /// A plan to encode the pages of a request on the device, into the frame that [`Executor::encode_paged`] gives.
    ///
    /// `pools` are those of the layout, in device memory. Page numbers may be in host memory (the plan has a copy of them on the device) or on the device.
    ///
    /// # Errors
    /// As [`Executor::encode_paged`], and [`Unsupported`](crate::Error::Unsupported) for page numbers in device memory where the kernels over batches cannot do all
    /// of the request.
    pub fn plan_encode_paged(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<EncodePagedPlan> {
        EncodePagedPlan::new(self, spec, codebooks, from, pools)
    }

    /// A plan to decode frames of a description into the pages of a request: all tokens, or `tokens`. As [`Executor::decode_paged`], but that checksums are
    /// computed where they are wanted, and not looked at.
    ///
    /// # Errors
    /// As [`Executor::decode_paged`].
    pub fn plan_decode_paged(
        &self,
        spec: &FrameSpec,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<DecodePagedPlan> {
        DecodePagedPlan::new(self, spec, tokens, to, pools)
    }

    /// Copies a frame that was encoded on the default stream to host bytes; returns how many it has.
    fn read_frame(&self, layout: &Layout, frame: &DeviceBytes, out: &mut [u8]) -> Result<usize> {
        let dense = layout.dense_bytes as usize;
        self.download(frame, &mut out[..dense])?;
        let at = layout.static_bytes as usize;
        let words = out[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let end = layout.variable_parts(words).map_err(|_| Error::Device {
            what: "encoding".to_owned(),
            reason: format!("the device counted {words} words, which cannot be"),
        })?;
        let end = end.end;
        self.bind()?;
        if words != 0 {
            // SAFETY: inside of the frame.
            unsafe {
                result::memcpy_dtoh_sync(&mut out[dense..end as usize], frame.address() + dense as u64)
            }
            .map_err(driver_error("copying the variable parts"))?;
        }
        Ok(end as usize)
    }

    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(driver_error("making the context current"))
    }

    /// Device memory, for callers that have no allocator of their own.
    ///
    /// # Errors
    /// [`Error::Device`] when there is not enough.
    pub fn allocate(&self, bytes: u64) -> Result<DeviceBytes> {
        self.bind()?;
        let size = usize::try_from(bytes)
            .map_err(|_| Error::TooLarge { what: "device memory", bits: usize::BITS })?;
        // SAFETY: freed once, on drop.
        let address = unsafe { result::malloc_sync(size.max(1)) };
        let address = address.map_err(driver_error(&format!("allocating {bytes} bytes of device memory")))?;
        Ok(DeviceBytes { context: self.context.clone(), address, bytes })
    }

    /// Copies host bytes to new device memory, and waits.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn upload(&self, bytes: &[u8]) -> Result<DeviceBytes> {
        let memory = self.allocate(bytes.len() as u64)?;
        self.write(&memory, bytes)?;
        Ok(memory)
    }

    /// The same of bytes that depend on the address that they get.
    fn upload_at(&self, bytes: u64, of: impl FnOnce(u64) -> Vec<u8>) -> Result<DeviceBytes> {
        let memory = self.allocate(bytes)?;
        self.write(&memory, &of(memory.address))?;
        Ok(memory)
    }

    /// Copies host bytes to the start of device memory that nobody uses, and waits.
    fn write(&self, memory: &DeviceBytes, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() as u64 > memory.bytes {
            let what = "the upload".to_owned();
            return Err(Error::BufferSize { what, expected: memory.bytes, got: bytes.len() as u64 });
        }
        // SAFETY: checked. The driver returns when it has read the bytes, which is before they have arrived; streams that do not wait for the default one
        // would start too early.
        unsafe {
            result::memcpy_htod_sync(memory.address, bytes)
                .and_then(|()| result::stream::synchronize(std::ptr::null_mut()))
        }
        .map_err(driver_error("copying to the device"))
    }

    /// Copies device memory to host bytes, after everything queued on the default stream, and waits.
    ///
    /// # Errors
    /// [`Error::Device`]; errors of earlier work surface here.
    pub fn download(&self, memory: &DeviceBytes, bytes: &mut [u8]) -> Result<()> {
        self.bind()?;
        if bytes.len() as u64 > memory.bytes {
            let what = "the download".to_owned();
            return Err(Error::BufferSize { what, expected: memory.bytes, got: bytes.len() as u64 });
        }
        if !bytes.is_empty() {
            // SAFETY: checked.
            unsafe { result::memcpy_dtoh_sync(bytes, memory.address) }
                .map_err(driver_error("copying from the device"))?;
        }
        Ok(())
    }
}

/// Device memory that is freed when it is dropped.
#[derive(Debug)]
pub struct DeviceBytes {
    context: Arc<CudaContext>,
    address: u64,
    bytes: u64,
}

impl DeviceBytes {
    /// Its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated once. The driver waits for work that uses it.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// The default stream, on which the calls over host bytes run.
const STREAM: StreamHandle = StreamHandle(0);

impl Executor for Cuda {
    fn name(&self) -> String {
        format!("cuda:{} ({}, {})", self.info.ordinal, self.info.name, self.target())
    }

    fn histogram(&self, dtype: Dtype, bytes: &[u8]) -> Result<Histogram> {
        use crate::steps::{COUNTS_BYTES, Counting, has_histogram};
        if !has_histogram(dtype) || !bytes.len().is_multiple_of(dtype.bytes()) || bytes.is_empty() {
            return Reference.histogram(dtype, bytes);
        }
        let samples = bytes.len().div_ceil(crate::format::CHUNK * dtype.bytes()) as u64;
        let elements = self.upload(bytes)?;
        let counts = self.upload(&[0; COUNTS_BYTES as usize])?;
        let tail = self.allocate(splitzip_kernels::tile::TAIL_BYTES)?;
        let (bytes, programs) = (elements.bytes(), samples.min(4096));
        let (words, counts_at, tail_at) = (elements.address(), counts.address(), tail.address());
        let step =
            Counting { words, bytes, samples, programs, counts: counts_at, tail: tail_at }.step(dtype)?;
        // SAFETY: all memory lives until the download below has waited.
        unsafe {
            self.kernels.function(step.entry().name)?.launch(
                &step.launch()?,
                self.info.multiprocessors,
                STREAM,
            )?
        };
        let mut host = [0; COUNTS_BYTES as usize];
        self.download(&counts, &mut host)?;
        let counts: Vec<u64> =
            host.chunks_exact(8).map(|count| count.try_into().map_or(0, u64::from_le_bytes)).collect();
        Histogram::from_counts(dtype, &counts[..dtype.exponents()])
    }

    fn encode(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        write::check_encode(spec, codebooks, inputs, out)?;
        let plan = self.plan_encode(spec, codebooks)?;
        let frame = self.allocate(plan.max_frame_bytes())?;
        let workspace = self.allocate(plan.workspace_bytes())?;
        let inputs = inputs.iter().map(|input| self.upload(input)).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<u64> = inputs.iter().map(DeviceBytes::address).collect();
        // SAFETY: everything lives until the download below has waited.
        unsafe {
            plan.prepare(STREAM, workspace.address())?;
            plan.encode(STREAM, &addresses, frame.address(), workspace.address())?;
        };
        self.read_frame(plan.layout(), &frame, out)
    }

    fn decode(&self, frame: &Frame<'_>, outputs: &mut [&mut [u8]]) -> Result<()> {
        write::check_decode(frame.layout(), outputs)?;
        if frame.spec().flags.packed {
            let unpacked = unpack(frame)?;
            return self.decode(&Frame::parse(&unpacked)?, outputs);
        }
        let plan = self.plan_decode(frame.spec())?;
        let device = self.upload(frame.bytes())?;
        let workspace = self.allocate(plan.workspace_bytes())?;
        let tensors = outputs.len();
        let results = self.upload(&vec![0; 8 * (1 + tensors)])?;
        let memory =
            outputs.iter().map(|output| self.allocate(output.len() as u64)).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<u64> = memory.iter().map(DeviceBytes::address).collect();
        let sums = if frame.spec().flags.tensor_checksums { results.address() + 8 } else { 0 };
        let length = frame.bytes().len() as u64;
        // SAFETY: everything lives until the downloads below have waited.
        unsafe {
            plan.decode(
                STREAM,
                device.address(),
                length,
                &addresses,
                workspace.address(),
                results.address(),
                sums,
            )?;
        }
        let mut found = vec![0; 8 * (1 + tensors)];
        self.download(&results, &mut found)?;
        for (memory, output) in memory.iter().zip(outputs.iter_mut()) {
            self.download(memory, output)?;
        }
        if found[..4] != [0; 4] {
            Reference.decode(frame, outputs)?; // knows what is damaged
            return Err(Error::Chunk { tensor: 0, chunk: 0, reason: "a chunk is damaged".to_owned() });
        }
        for (number, output) in outputs.iter().enumerate() {
            let tensor = frame.tensor(number)?;
            tensor.verify_chunks(0, output)?;
            tensor.verify_checksum(sum_of(&found, number))?;
        }
        Ok(())
    }

    fn encode_paged(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        let memory = pools.iter().map(|pool| self.upload(pool)).collect::<Result<Vec<_>>>()?;
        let plan = self.plan_encode_paged(spec, codebooks, from, &DevicePool::of(&memory))?;
        write::check_size("the frame".to_owned(), plan.max_frame_bytes(), out.len())?;
        let frame = self.allocate(plan.max_frame_bytes())?;
        let workspace = self.allocate(plan.workspace_bytes())?;
        // SAFETY: everything lives until the downloads have waited.
        unsafe {
            plan.prepare(STREAM, workspace.address())?;
            plan.encode(STREAM, frame.address(), workspace.address())?;
        }
        self.read_frame(plan.layout(), &frame, out)
    }

    fn decode_paged(
        &self,
        frame: &Frame<'_>,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &mut [&mut [u8]],
    ) -> Result<()> {
        if frame.spec().flags.packed {
            // A frame of a few bytes may describe much more than is wanted of it.
            if !unpacks_within(frame, to.spec(Scheme::Stored, Flags::default()).layout()?.raw_bytes)? {
                return crate::Cpu::new().decode_paged(frame, tokens, to, pools);
            }
            let unpacked = unpack(frame)?;
            return self.decode_paged(&Frame::parse(&unpacked)?, tokens, to, pools);
        }
        let memory = pools.iter().map(|pool| self.upload(pool)).collect::<Result<Vec<_>>>()?;
        let plan = self.plan_decode_paged(frame.spec(), tokens.clone(), to, &DevicePool::of(&memory))?;
        let tensors = frame.layout().tensors.len();
        let (device, results) = (self.upload(frame.bytes())?, self.upload(&vec![0; 8 * (1 + tensors)])?);
        let workspace = self.allocate(plan.workspace_bytes())?;
        let length = frame.bytes().len() as u64;
        let sums = if frame.spec().flags.tensor_checksums { results.address() + 8 } else { 0 };
        // SAFETY: everything lives until the downloads have waited.
        unsafe {
            plan.decode(STREAM, device.address(), length, workspace.address(), results.address(), sums)?;
        }
        let mut found = vec![0; 8 * (1 + tensors)];
        self.download(&results, &mut found)?;
        if found[..4] != [0; 4] {
            crate::Cpu::new().decode_paged(frame, tokens, to, pools)?; // knows what is damaged
            return Err(Error::Chunk { tensor: 0, chunk: 0, reason: "a chunk is damaged".to_owned() });
        }
        for (memory, pool) in memory.iter().zip(pools.iter_mut()) {
            self.download(memory, pool)?;
        }
        if sums != 0 {
            for &number in plan.whole_tensors() {
                frame.tensor(number)?.verify_checksum(sum_of(&found, number))?;
            }
        }
        if plan.takes_whole_tensors() && !frame.spec().flags.chunk_checksums {
            return Ok(());
        }
        to.verify(frame, tokens, &pools.iter().map(|pool| &**pool).collect::<Vec<_>>())
    }

    fn decode_range(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        chunks: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        // A range is read by hosts: it is not worth a trip to the device.
        crate::Cpu::new().decode_range(frame, tensor, chunks, output)
    }
}

/// The checksum of a tensor, of a status (in 8 bytes) and checksums.
fn sum_of(results: &[u8], tensor: usize) -> u64 {
    results[8 * (1 + tensor)..].first_chunk().map_or(0, |sum| u64::from_le_bytes(*sum))
}
