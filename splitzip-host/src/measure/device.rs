//! A CUDA device, by events of its stream.
//!
//! Three clocks, because none says everything. Events around one call are what a stream that is busy anyway sees, but below some ten microseconds they
//! measure how fast the host queues. A replay of a graph that holds the call ten times has no host in it: that is what a call costs in a captured
//! graph. And the host's own clock around a call on an idle stream is what the call costs the thread that makes it.

use super::{
    ALIGNMENT, COMPARED_BYTES, DeviceTimes, Effort, Measured, Parts, Subject, Times, check_frame,
    check_tiled, check_tiles, tiled,
};
use crate::cuda::{Cuda, DecodePlan, DeviceBytes, EncodePlan, StreamHandle, driver_error};
use crate::format::tensor_checksum;
use crate::{CodebookChoice, Cpu, Error, Executor, Flags, Frame, FrameSpec, Result};
use cudarc::driver::{CudaEvent, CudaStream, PinnedHostSlice, result, sys};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls in a graph that is measured: enough that starting the replay does not show.
pub const GRAPH_CALLS: u32 = 10;

/// Page-locked bytes through which results are read: several times as fast as pageable memory.
const STAGING_BYTES: usize = 32 << 20;

/// Memory that the driver may want for itself.
const SPARE_BYTES: u64 = 256 << 20;

/// Measures what is queued on a stream of its own.
pub struct Timer {
    stream: Arc<CudaStream>,
    /// Around a number of calls.
    whole: (CudaEvent, CudaEvent),
    /// Around each call. Made before anything is measured: making one takes the host as long as queueing a kernel.
    events: Vec<(CudaEvent, CudaEvent)>,
}

impl Timer {
    /// A timer with a new stream of the device.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn new(cuda: &Cuda) -> Result<Timer> {
        let stream = cuda.context().new_stream().map_err(driver_error("making a stream"))?;
        let whole = (event(&stream)?, event(&stream)?);
        Ok(Timer { stream, whole, events: Vec::new() })
    }

    /// The stream on which calls have to queue their work.
    pub fn stream(&self) -> StreamHandle {
        StreamHandle::from(&*self.stream)
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// [`Error::Device`]: what its work met.
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize().map_err(driver_error("waiting for the stream"))
    }

    /// Times between events around every call, after some to warm up.
    ///
    /// # Errors
    /// What the call returns; [`Error::Device`].
    pub fn events(&mut self, effort: &Effort, call: &dyn Fn() -> Result<()>) -> Result<Times> {
        call()?;
        let seconds = self.total(1, call)?.as_secs_f64();
        for _ in 0..effort.warm_ups_of(seconds) {
            call()?;
        }
        let runs = effort.runs_of(seconds);
        while self.events.len() < runs as usize {
            self.events.push((event(&self.stream)?, event(&self.stream)?));
        }
        let failed = driver_error("recording an event");
        for (start, end) in &self.events[..runs as usize] {
            start.record(&self.stream).map_err(&failed)?;
            call()?;
            end.record(&self.stream).map_err(&failed)?;
        }
        let mut pairs = self.events.iter();
        Times::of_runs(runs, &mut || match pairs.next() {
            Some((start, end)) => elapsed(start, end),
            None => Ok(f64::NAN),
        })
    }

    /// Times of one call in the replay of a graph that holds [`GRAPH_CALLS`] of them.
    ///
    /// # Errors
    /// As [`Timer::events`]; a call that cannot be captured.
    pub fn graph(&mut self, effort: &Effort, call: &dyn Fn() -> Result<()>) -> Result<Times> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(driver_error("starting to capture a graph"))?;
        let queued = (0..GRAPH_CALLS).try_for_each(|_| call());
        // The capture ends whatever the calls said: the stream would be of no use otherwise.
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = self.stream.end_capture(flags);
        queued?;
        let what = "capturing a graph";
        let graph = graph.map_err(driver_error(what))?.ok_or_else(|| Error::Device {
            what: what.to_owned(),
            reason: "the calls have queued nothing".to_owned(),
        })?;
        let replay = || graph.launch().map_err(driver_error("replaying a graph"));
        let times = self.events(effort, &replay);
        self.wait()?;
        Ok(times?.divided_by(GRAPH_CALLS))
    }

    /// Times of the host to queue a call on an idle stream.
    ///
    /// # Errors
    /// As [`Timer::events`].
    pub fn host_call(&self, effort: &Effort, call: &dyn Fn() -> Result<()>) -> Result<Times> {
        let mut once = || {
            self.wait()?;
            let start = Instant::now();
            call()?;
            Ok(start.elapsed().as_secs_f64())
        };
        let whole = Instant::now();
        once()?;
        self.wait()?;
        // The device has to finish between two calls: that is what takes the time.
        let seconds = whole.elapsed().as_secs_f64();
        for _ in 1..effort.warm_ups_of(seconds) {
            once()?;
        }
        let times = Times::of_runs(effort.runs_of(seconds), &mut once)?;
        self.wait()?;
        Ok(times)
    }

    /// The time between two events around so many calls in a row.
    ///
    /// # Errors
    /// As [`Timer::events`].
    pub fn total(&self, calls: u64, call: &dyn Fn() -> Result<()>) -> Result<Duration> {
        let failed = driver_error("recording an event");
        let (start, end) = &self.whole;
        start.record(&self.stream).map_err(&failed)?;
        for _ in 0..calls {
            call()?;
        }
        end.record(&self.stream).map_err(&failed)?;
        Ok(Duration::from_secs_f64(elapsed(start, end)?.max(0.0)))
    }
}

/// An event that takes the time.
fn event(stream: &CudaStream) -> Result<CudaEvent> {
    let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    stream.context().new_event(flags).map_err(driver_error("making an event"))
}

/// Seconds between two events.
fn elapsed(start: &CudaEvent, end: &CudaEvent) -> Result<f64> {
    let milliseconds = start.elapsed_ms(end).map_err(driver_error("waiting for what is measured"))?;
    Ok(f64::from(milliseconds) / 1e3)
}

/// A CUDA device, with buffers that serve all measurements.
pub struct DeviceSubject {
    cuda: Cuda,
    timer: Timer,
    tiles: Vec<Vec<u8>>,
    loaded: u64,
    /// One input behind the other, each with room for `stride` bytes.
    input: DeviceBytes,
    stride: u64,
    output: DeviceBytes,
    frame: DeviceBytes,
    workspace: DeviceBytes,
    decode_workspace: DeviceBytes,
    status: DeviceBytes,
    sums: DeviceBytes,
    staging: PinnedHostSlice<u8>,
}

impl DeviceSubject {
    /// A device without input.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn new(cuda: &Cuda) -> Result<DeviceSubject> {
        let empty = || cuda.allocate(0);
        // SAFETY: only read where something was written. No flags: write-combined memory would be slow to read.
        let staging = unsafe { cuda.context().alloc_pinned_with_flags(STAGING_BYTES, 0) };
        Ok(DeviceSubject {
            timer: Timer::new(cuda)?,
            tiles: Vec::new(),
            loaded: 0,
            input: empty()?,
            stride: 0,
            output: empty()?,
            frame: empty()?,
            workspace: empty()?,
            decode_workspace: empty()?,
            status: cuda.upload(&[0; 16])?,
            sums: empty()?,
            staging: staging.map_err(driver_error("allocating page-locked memory"))?,
            cuda: cuda.clone(),
        })
    }

    /// Bytes that are free or held by buffers that may be given back.
    fn room(&self) -> Result<u64> {
        let free = self.cuda.context().mem_get_info().map_err(driver_error("asking for free memory"))?.0;
        let held = [&self.output, &self.frame, &self.workspace].map(DeviceBytes::bytes);
        Ok(free as u64 + held.iter().sum::<u64>())
    }

    /// Makes the buffers large enough for a frame, and overwrites what is in them.
    fn prepare(&mut self, encode: &EncodePlan, decode: &DecodePlan, output_bytes: u64) -> Result<()> {
        for (buffer, bytes) in [
            (&mut self.output, output_bytes),
            (&mut self.frame, encode.max_frame_bytes()),
            (&mut self.workspace, encode.workspace_bytes()),
            (&mut self.decode_workspace, decode.workspace_bytes()),
            (&mut self.sums, 8 * decode.layout().tensors.len() as u64),
        ] {
            if buffer.bytes() < bytes {
                *buffer = self.cuda.allocate(0)?; // first the old one goes
                *buffer = self.cuda.allocate(bytes)?;
            }
        }
        self.spoil(&self.output)?;
        self.spoil(&self.frame)?;
        // SAFETY: as long as the plan says; it lives as long as the subject, which waits.
        unsafe { encode.prepare(self.timer.stream(), self.workspace.address())? };
        self.timer.wait()
    }

    /// Overwrites a buffer, so that nothing that was there before can be taken for a result.
    fn spoil(&self, buffer: &DeviceBytes) -> Result<()> {
        let stream = self.timer.stream().raw();
        // SAFETY: as long as the buffer.
        unsafe { result::memset_d8_async(buffer.address(), 0xa5, buffer.bytes() as usize, stream) }
            .map_err(driver_error("overwriting device memory"))
    }

    /// Reads a buffer of the device from `start` on, piece by piece.
    fn read(&mut self, from: Part, start: u64, bytes: u64, use_piece: UsePiece<'_>) -> Result<()> {
        self.timer.wait()?;
        self.cuda.bind()?;
        let address = match from {
            Part::Output => self.output.address(),
            Part::Frame => self.frame.address(),
            Part::Status => self.status.address(),
            Part::Sums => self.sums.address(),
        };
        let staging = self.staging.as_mut_slice().map_err(driver_error("reading results"))?;
        for at in (0..bytes).step_by(STAGING_BYTES) {
            let piece = &mut staging[..(bytes - at).min(STAGING_BYTES as u64) as usize];
            // SAFETY: inside of the buffer: callers ask for no more than it has.
            unsafe { result::memcpy_dtoh_sync(piece, address + start + at) }
                .map_err(driver_error("copying from the device"))?;
            use_piece(piece, &self.tiles, at)?;
        }
        Ok(())
    }

    /// Words of the variable parts of the frame that lies in the buffer.
    fn words(&mut self, encode: &EncodePlan) -> Result<u64> {
        let at = encode.layout().static_bytes as usize;
        let mut words = 0;
        self.read(Part::Frame, 0, at as u64 + 8, &mut |piece, _, _| {
            words = piece.get(at..at + 8).and_then(|of| of.try_into().ok()).map_or(0, u64::from_le_bytes);
            Ok(())
        })?;
        Ok(words)
    }

    /// Encodes and decodes once more, after all those runs: other bytes must become the same.
    fn verify(
        &mut self,
        plans: (&EncodePlan, &DecodePlan),
        spec: &FrameSpec,
        codebook: CodebookChoice,
        (parts, frame_bytes): (&Parts, u64),
    ) -> Result<Option<&'static str>> {
        let (encode, decode) = plans;
        self.spoil(&self.output)?;
        self.spoil(&self.frame)?;
        let calls = self.calls(encode, decode, parts, frame_bytes);
        calls.encode()?;
        calls.checked_decode()?;
        let name = self.cuda.name();
        let what = format!("the bytes that {name} decodes");
        for (number, (&start, &bytes)) in parts.starts.iter().zip(&parts.bytes).enumerate() {
            self.read(Part::Output, start, bytes, &mut |piece, tiles, at| {
                check_tiled(&what, piece, &tiles[number], at)
            })?;
        }
        let what = format!("the status of decoding on {name}");
        self.read(Part::Status, 0, 16, &mut |piece, _, _| check_frame(&what, piece, &[0; 16]))?;
        if parts.raw_bytes > COMPARED_BYTES {
            return Ok(None);
        }
        let inputs = self.tiles.iter().zip(&parts.bytes).map(|(tile, &bytes)| tiled(tile, bytes));
        let inputs = inputs.collect::<Result<Vec<Vec<u8>>>>()?;
        let sums = inputs.iter().zip(&spec.tensors);
        let sums = sums.flat_map(|(input, tensor)| tensor_checksum(tensor.dtype, input).to_le_bytes());
        let sums: Vec<u8> = sums.collect();
        let what = format!("the checksums of {name}");
        self.read(Part::Sums, 0, sums.len() as u64, &mut |piece, _, at| {
            check_frame(&what, piece, &sums[at as usize..at as usize + piece.len()])
        })?;
        if spec.flags.arrival {
            return Ok(None);
        }
        let mut frame = Vec::with_capacity(frame_bytes as usize);
        self.read(Part::Frame, 0, frame_bytes, &mut |piece, _, _| {
            frame.extend_from_slice(piece);
            Ok(())
        })?;
        Frame::parse(&frame)?;
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let expected = Cpu::new().encode_to_vec(spec, &vec![codebook; inputs.len()], &inputs)?;
        check_frame(&format!("the frame of {name}"), &frame, &expected)?;
        Ok(Some("cpu"))
    }

    fn calls<'c>(
        &self,
        encode: &'c EncodePlan,
        decode: &'c DecodePlan,
        parts: &Parts,
        frame_bytes: u64,
    ) -> Calls<'c> {
        let inputs = (0..parts.starts.len() as u64).map(|number| self.input.address() + number * self.stride);
        Calls {
            encode,
            decode,
            stream: self.timer.stream(),
            inputs: inputs.collect(),
            outputs: parts.starts.iter().map(|start| self.output.address() + start).collect(),
            raw: [self.input.address(), self.output.address()],
            frame: self.frame.address(),
            frame_bytes,
            workspaces: [self.workspace.address(), self.decode_workspace.address()],
            status: self.status.address(),
            sums: self.sums.address(),
        }
    }
}

/// Takes bytes of the device, the tiles, and where the bytes start behind the first that was asked for.
type UsePiece<'u> = &'u mut dyn FnMut(&[u8], &[Vec<u8>], u64) -> Result<()>;

#[derive(Clone, Copy)]
enum Part {
    Output,
    Frame,
    Status,
    Sums,
}

/// What is measured, with all addresses filled in. The subject that it is of keeps the memory, and waits before it gives any back.
struct Calls<'c> {
    encode: &'c EncodePlan,
    decode: &'c DecodePlan,
    stream: StreamHandle,
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    /// Where a copy reads and writes.
    raw: [u64; 2],
    frame: u64,
    frame_bytes: u64,
    workspaces: [u64; 2],
    status: u64,
    sums: u64,
}

impl Calls<'_> {
    fn copy(&self, bytes: u64) -> Result<()> {
        let [from, to] = self.raw;
        // SAFETY: both buffers have so many bytes: those of all inputs, and of all outputs.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, self.stream.raw()) }
            .map_err(driver_error("copying on the device"))
    }

    fn encode(&self) -> Result<()> {
        // SAFETY: the buffers are as long as the plan says.
        unsafe { self.encode.encode(self.stream, &self.inputs, self.frame, self.workspaces[0]) }
    }

    fn decode(&self) -> Result<()> {
        self.decode_with(0)
    }

    fn checked_decode(&self) -> Result<()> {
        let bytes = 8 * self.outputs.len();
        // SAFETY: there is a sum for every tensor.
        unsafe { result::memset_d8_async(self.sums, 0, bytes, self.stream.raw()) }
            .map_err(driver_error("clearing checksums"))?;
        self.decode_with(self.sums)
    }

    fn decode_with(&self, sums: u64) -> Result<()> {
        let (workspace, status) = (self.workspaces[1], self.status);
        // SAFETY: as above.
        unsafe {
            self.decode.decode(
                self.stream,
                self.frame,
                self.frame_bytes,
                &self.outputs,
                workspace,
                status,
                sums,
            )
        }
    }
}

impl Subject for DeviceSubject {
    fn load(&mut self, tiles: &[&[u8]], bytes: u64) -> Result<()> {
        check_tiles(tiles, bytes)?;
        self.loaded = 0;
        let too_large = || Error::TooLarge { what: "the number of bytes", bits: 64 };
        let stride = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let all = stride.checked_mul(tiles.len() as u64).ok_or_else(too_large)?;
        if self.input.bytes() < all {
            self.input = self.cuda.allocate(0)?; // first the old one goes
            self.input = self.cuda.allocate(all)?;
        }
        self.tiles = tiles.iter().map(|tile| tile.to_vec()).collect();
        self.cuda.bind()?;
        for (number, tile) in (0..).zip(tiles) {
            let input = self.input.address() + number * stride;
            let start = (tile.len() as u64).min(bytes);
            // SAFETY: the input has room for it.
            unsafe { result::memcpy_htod_sync(input, &tile[..start as usize]) }
                .map_err(driver_error("copying to the device"))?;
            self.cuda.context().synchronize().map_err(driver_error("waiting for the device"))?;
            // Then the device doubles what it has.
            let mut done = start;
            while done < bytes {
                let more = done.min(bytes - done);
                // SAFETY: both lie in the input, one behind the other.
                unsafe {
                    result::memcpy_dtod_async(input + done, input, more as usize, self.timer.stream().raw())
                }
                .map_err(driver_error("copying on the device"))?;
                done += more;
            }
        }
        self.timer.wait()?;
        (self.stride, self.loaded) = (stride, bytes);
        Ok(())
    }

    fn check_room(&self, spec: &FrameSpec) -> Result<()> {
        let (raw, frame, free) = (Parts::of(spec)?.room, spec.layout()?.max_frame_bytes, self.room()?);
        let check = |workspace: u64| {
            let parts = [raw, frame, workspace, raw.saturating_sub(self.input.bytes()), SPARE_BYTES];
            let needed = parts.iter().fold(0u64, |sum, &part| sum.saturating_add(part));
            if needed <= free {
                return Ok(());
            }
            let device = format!("cuda:{}", self.cuda.info().ordinal);
            Err(Error::DeviceMemory { device, what: format!("measuring {raw} bytes"), needed, free })
        };
        check(0)?;
        check(self.cuda.plan_encode(spec, &[])?.workspace_bytes())
    }

    fn measure(&mut self, spec: &FrameSpec, codebook: CodebookChoice, effort: &Effort) -> Result<Measured> {
        let parts = Parts::of(spec)?;
        parts.check(self.tiles.len(), self.loaded)?;
        let raw_bytes = parts.raw_bytes;
        let codebooks = vec![codebook; parts.bytes.len()];
        let plans = (self.cuda.plan_encode(spec, &codebooks)?, self.cuda.plan_decode(spec)?);
        let (encode, decode) = (&plans.0, &plans.1);
        self.prepare(encode, decode, parts.room)?;
        // The host has to know how long the frame is before it can be decoded.
        self.calls(encode, decode, &parts, 0).encode()?;
        let words = self.words(encode)?;
        let frame_bytes = encode.layout().dense_bytes.saturating_add(words.saturating_mul(4));
        if frame_bytes > encode.max_frame_bytes() {
            let reason = format!("the device counted {words} words, which cannot be");
            return Err(Error::Device { what: "encoding".to_owned(), reason });
        }
        let calls = self.calls(encode, decode, &parts, frame_bytes);
        let (copy, encodes, decodes) = (|| calls.copy(raw_bytes), || calls.encode(), || calls.decode());
        // Without checksums of chunks it lies in the same places, of the frame and of the workspace.
        let flags = Flags { tensor_checksums: true, ..spec.flags };
        let with_checksums = self.cuda.plan_encode(&FrameSpec { flags, ..spec.clone() }, &codebooks)?;
        let checked_calls = self.calls(&with_checksums, decode, &parts, frame_bytes);
        let (checked_encode, checked_decode) = (|| checked_calls.encode(), || calls.checked_decode());
        let timer = &mut self.timer;
        let times =
            (timer.events(effort, &copy)?, timer.events(effort, &encodes)?, timer.events(effort, &decodes)?);
        let device = DeviceTimes {
            graph_copy: timer.graph(effort, &copy)?,
            graph_encode: timer.graph(effort, &encodes)?,
            graph_decode: timer.graph(effort, &decodes)?,
            checked_encode: timer.events(effort, &checked_encode)?,
            checked_decode: timer.events(effort, &checked_decode)?,
            call_encode: timer.host_call(effort, &encodes)?,
            call_decode: timer.host_call(effort, &decodes)?,
        };
        timer.wait()?;
        let compared_with = self.verify((encode, decode), spec, codebook, (&parts, frame_bytes))?;
        let (copy, encode, decode) = times;
        Ok(Measured { raw_bytes, frame_bytes, copy, encode, decode, device: Some(device), compared_with })
    }
}
