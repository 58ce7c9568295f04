//! A frame's description with everything that coding it on a device takes: plans, kernels, and a workspace for every stream.
//!
//! What a call works on is held until the device has done it: an event behind the work says when. What a capture works on is held as long as the codec.

use super::driver::{self, Context, Event, OwnStream, Relaxed};
use crate::codebook::PyCodebook;
use crate::error::{Fault, Result};
use crate::host::{check_dtype, choices};
use crate::spec::Spec;
use crate::view::{Place, View, check_apart};
use pyo3::prelude::*;
use splitzip_host::cuda::{Cuda, DecodePlan, DeviceBytes, EncodePlan, StreamHandle};
use splitzip_host::format::{DYNAMIC_BYTES, Frame, FrameSpec, Layout, write};
use splitzip_host::{Cpu, Error, Executor};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Memory of a stream for one plan.
struct Lane {
    memory: DeviceBytes,
    decode_at: u64,
    /// A word that is not 0 once a frame was damaged that nobody has checked; behind it, at [`CHECKED`], such a word for the call that is being checked,
    /// and at [`SUMS`] a checksum for every tensor.
    results_at: u64,
}

const CHECKED: u64 = 64;
const SUMS: u64 = 128;

/// Calls whose work may still run, and what they work on.
struct Pending {
    event: Event,
    _views: Vec<Py<View>>,
}

#[derive(Default)]
struct State {
    /// By stream (for a stream per thread also the thread), one for calls and one for captures.
    lanes: HashMap<(u64, Option<std::thread::ThreadId>, bool), Lane>,
    /// One that is ready, so that a first call does not make any.
    spare: Option<Lane>,
    pending: VecDeque<Pending>,
    captured: Vec<Py<View>>,
}

/// See the module.
#[pyclass(frozen, module = "splitzip._splitzip")]
pub struct DeviceCodec {
    cuda: Cuda,
    spec: FrameSpec,
    encode: Option<EncodePlan>,
    decode: DecodePlan,
    statics: Vec<u8>,
    state: Mutex<State>,
}

#[pymethods]
impl DeviceCodec {
    #[new]
    #[pyo3(signature = (device, spec, codebooks, encodes=true))]
    fn new(
        py: Python<'_>,
        device: usize,
        spec: PyRef<'_, Spec>,
        codebooks: Vec<Option<PyRef<'_, PyCodebook>>>,
        encodes: bool,
    ) -> Result<DeviceCodec> {
        let (spec, codebooks) = (spec.spec.clone(), choices(&codebooks));
        py.detach(|| {
            let cuda = driver::cuda(device)?;
            let _context = Context::enter(&cuda)?;
            let _relaxed = Relaxed::enter();
            let encode = encodes.then(|| cuda.plan_encode(&spec, &codebooks)).transpose()?;
            let decode = cuda.plan_decode(&spec)?;
            let statics = write::static_bytes(&spec, decode.layout());
            let codec = DeviceCodec { cuda, spec, encode, decode, statics, state: Mutex::default() };
            let spare = codec.lane()?;
            codec.state().spare = Some(spare);
            Ok(codec)
        })
    }

    /// Queues the encoding of tensors into the start of `out`.
    fn encode(&self, py: Python<'_>, inputs: Vec<Py<View>>, out: Py<View>, stream: u64) -> Result<()> {
        let plan = self.encode.as_ref();
        let plan = plan.ok_or_else(|| Fault::unsupported("this codec was made for decoding only"))?;
        let tensors = &plan.layout().tensors;
        if inputs.len() != tensors.len() {
            let (expected, got) = (tensors.len(), inputs.len());
            return Err(Error::Count { what: "inputs", expected, got }.into());
        }
        for (number, (view, tensor)) in inputs.iter().zip(tensors).enumerate() {
            let what = format!("the input of tensor {number}");
            check_dtype(view.get(), tensor.dtype, &what)?;
            self.check_memory(view.get(), &what, tensor.bytes, true)?;
        }
        self.check_memory(out.get(), "the memory for the frame", plan.max_frame_bytes(), false)?;
        let read: Vec<&View> = inputs.iter().map(Py::get).collect();
        check_apart(&read, &[out.get()])?;
        let addresses: Vec<u64> = read.iter().map(|view| view.address_of()).collect();
        let frame = out.get().address_of();
        let views = inputs.into_iter().chain([out]).collect();
        self.queue(py, stream, views, |lane, _| {
            // SAFETY: views were checked against the layout and are held until the work has run; the workspace is that of this stream.
            unsafe { plan.encode(StreamHandle(stream), &addresses, frame, lane.memory.address())? };
            Ok(())
        })
    }

    /// Queues the decoding of a frame. With `check` it waits, and says what is wrong with it; without, damage shows in [`DeviceCodec::check`].
    fn decode(
        &self,
        py: Python<'_>,
        frame: Py<View>,
        outputs: Vec<Py<View>>,
        stream: u64,
        check: bool,
    ) -> Result<()> {
        let layout = self.decode.layout();
        if outputs.len() != layout.tensors.len() {
            let (expected, got) = (layout.tensors.len(), outputs.len());
            return Err(Error::Count { what: "outputs", expected, got }.into());
        }
        for (number, (view, tensor)) in outputs.iter().zip(&layout.tensors).enumerate() {
            let what = format!("the output of tensor {number}");
            check_dtype(view.get(), tensor.dtype, &what)?;
            self.check_memory(view.get(), &what, tensor.bytes, true)?;
        }
        let (needed, got) = (layout.dense_bytes, frame.get().bytes());
        if got < needed {
            return Err(Error::Truncated { what: "its dense part", needed, got }.into());
        }
        self.check_memory(frame.get(), "the frame", needed, false)?;
        let written: Vec<&View> = outputs.iter().map(Py::get).collect();
        check_apart(&[frame.get()], &written)?;
        let addresses: Vec<u64> = written.iter().map(|view| view.address_of()).collect();
        let (at, bytes) = (frame.get().address_of(), frame.get().bytes());
        let sums_wanted = check && self.spec.flags.tensor_checksums;
        let views = outputs.into_iter().chain([frame]).collect();
        self.queue(py, stream, views, |lane, captures| {
            if check && captures {
                return Err(Fault::argument(
                    "a decoding that is captured into a graph cannot be waited for; leave check out, and call check() after the replay",
                ));
            }
            let memory = lane.memory.address();
            let results = memory + lane.results_at;
            let (status, sums) = (results + if check { CHECKED } else { 0 }, results + SUMS);
            // SAFETY: as for encoding; the results lie in the lane.
            unsafe {
                if check {
                    driver::clear(stream, status, self.results_bytes() - CHECKED)?;
                }
                let workspace = memory + lane.decode_at;
                let sums = if sums_wanted { sums } else { 0 };
                self.decode.decode(StreamHandle(stream), at, bytes, &addresses, workspace, status, sums)?;
            }
            if check { self.verify(stream, lane, at, bytes) } else { Ok(()) }
        })
    }

    /// Waits for all that was queued, and says whether a frame was damaged since the last time.
    fn check(&self, py: Python<'_>) -> Result<()> {
        let released = py.detach(|| {
            let _context = Context::enter(&self.cuda)?;
            let _relaxed = Relaxed::enter();
            let mut state = self.state();
            let released = std::mem::take(&mut state.pending);
            released.iter().for_each(|pending| pending.event.wait());
            self.cuda.context().synchronize().map_err(driver::failed("waiting for the device"))?;
            let own = OwnStream::new()?;
            let mut damaged = false;
            for lane in state.lanes.values() {
                let (at, mut status) = (lane.memory.address() + lane.results_at, [0; 4]);
                // SAFETY: a word of the lane.
                unsafe {
                    driver::download(own.handle(), at, &mut status)?;
                    driver::clear(own.handle(), at, 4)?;
                }
                damaged |= status != [0; 4];
            }
            driver::synchronize(own.handle())?;
            match damaged {
                true => Err(Fault::frame(
                    "a frame that was decoded with this codec is damaged; decode with check=True to see which and where",
                )),
                false => Ok(released),
            }
        })?;
        drop(released);
        Ok(())
    }

    #[getter]
    fn workspace_bytes(&self) -> u64 {
        self.lane_bytes().2
    }

    /// How many calls hold what they work on.
    #[getter]
    fn pending(&self, py: Python<'_>) -> usize {
        let (count, released) = py.detach(|| {
            let _context = Context::enter(&self.cuda);
            let _relaxed = Relaxed::enter();
            let mut state = self.state();
            let released = state.passed();
            (state.pending.len(), released)
        });
        drop(released);
        count
    }
}

impl Drop for DeviceCodec {
    fn drop(&mut self) {
        // Freeing memory changes the context of the thread, and is no matter of a capture.
        let Ok(_context) = Context::enter(&self.cuda) else { return };
        let _relaxed = Relaxed::enter();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.pending.iter().for_each(|pending| pending.event.wait());
        *state = State::default();
        self.encode = None;
    }
}

impl State {
    /// Takes the calls out whose work has run.
    fn passed(&mut self) -> Vec<Pending> {
        let running = self.pending.iter().position(|pending| !pending.event.passed());
        self.pending.drain(..running.unwrap_or(self.pending.len())).collect()
    }
}

impl DeviceCodec {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_memory(&self, view: &View, what: &str, expected: u64, exactly: bool) -> Result<()> {
        let ordinal = self.cuda.info().ordinal;
        let got = view.bytes();
        if got != 0 && view.place() != Place::Cuda(ordinal) {
            return Err(Fault::argument(match view.place() {
                Place::Host => {
                    format!("{what} is in memory of the host, and this codec works on cuda:{ordinal}")
                }
                Place::Cuda(other) => {
                    format!("{what} is on cuda:{other}, and this codec works on cuda:{ordinal}")
                }
            }));
        }
        if view.strides().is_some() {
            return Err(Fault::argument(format!(
                "{what} is not in one piece (it has strides); on a device give contiguous tensors"
            )));
        }
        if got < expected || exactly && got != expected {
            return Err(Error::BufferSize { what: what.to_owned(), expected, got }.into());
        }
        Ok(())
    }

    /// Where decoding and results have their memory in a lane, and the bytes of all.
    fn lane_bytes(&self) -> (u64, u64, u64) {
        let encode = self.encode.as_ref().map_or(0, EncodePlan::workspace_bytes);
        let decode_at = encode.next_multiple_of(256);
        let results_at = decode_at + self.decode.workspace_bytes().next_multiple_of(256);
        (decode_at, results_at, results_at + self.results_bytes())
    }

    fn results_bytes(&self) -> u64 {
        SUMS + 8 * self.spec.tensors.len() as u64
    }

    /// A new lane, ready: on a stream of its own, so that no capture sees it.
    fn lane(&self) -> Result<Lane> {
        let _relaxed = Relaxed::enter();
        let (decode_at, results_at, bytes) = self.lane_bytes();
        let memory = self.cuda.allocate(bytes)?;
        let own = OwnStream::new()?;
        // SAFETY: inside of the new memory, which nobody else has.
        unsafe {
            driver::clear(own.handle(), memory.address(), bytes)?;
            if let Some(plan) = &self.encode {
                plan.prepare(StreamHandle(own.handle()), memory.address())?;
            }
        }
        driver::synchronize(own.handle())?;
        Ok(Lane { memory, decode_at, results_at })
    }

    /// Queues work on a stream, with its lane, and holds what it works on.
    fn queue(
        &self,
        py: Python<'_>,
        stream: u64,
        views: Vec<Py<View>>,
        work: impl FnOnce(&Lane, bool) -> Result<()> + Send,
    ) -> Result<()> {
        // What has run is dropped with the interpreter attached, after the lock was given back.
        let (done, released) = py.detach(|| {
            let queued = || {
                let _context = Context::enter(&self.cuda)?;
                driver::check_stream(&self.cuda, stream)?;
                let mut state = self.state();
                let captures = driver::captures(stream)?;
                let released = match captures {
                    true => Vec::new(),
                    false => {
                        let _relaxed = Relaxed::enter();
                        state.passed()
                    }
                };
                let producers = views.iter().filter_map(|view| view.get().producer());
                producers.into_iter().try_for_each(|producer| driver::wait_for(producer, stream))?;
                let thread = (stream == 2).then(|| std::thread::current().id());
                let key = (stream, thread, captures);
                if !state.lanes.contains_key(&key) {
                    let lane = match state.spare.take() {
                        Some(lane) => lane,
                        None => self.lane()?,
                    };
                    state.lanes.insert(key, lane);
                }
                let done = work(&state.lanes[&key], captures);
                // Also what has failed half-way may have queued something.
                match captures {
                    true => state.captured.extend(views),
                    false => {
                        let _relaxed = Relaxed::enter();
                        let event = Event::new()?;
                        event.record(stream)?;
                        state.pending.push_back(Pending { event, _views: views });
                    }
                }
                Ok((done, released))
            };
            match queued() {
                Ok((done, released)) => (done, released),
                Err(fault) => (Err(fault), Vec::new()),
            }
        });
        drop(released);
        done
    }

    /// Waits for a decoding, and compares what the frame says of itself with the codec and with what was decoded.
    fn verify(&self, stream: u64, lane: &Lane, frame: u64, bytes: u64) -> Result<()> {
        let layout = self.decode.layout();
        let mut results = vec![0; self.results_bytes() as usize];
        let mut start = vec![0; (layout.static_bytes + layout.dynamic_bytes) as usize];
        // SAFETY: results lie in the lane, the start in the dense part of the frame, which was checked.
        unsafe {
            driver::download(stream, lane.memory.address() + lane.results_at, &mut results)?;
            driver::download(stream, frame, &mut start)?;
        }
        let (statics, dynamic) = start.split_at(layout.static_bytes as usize);
        if statics != self.statics {
            // Says what it is, if it is a frame at all.
            FrameSpec::read(statics)?;
            return Err(Fault::argument(
                "the frame holds other tensors than this codec is for; make a codec for its form, or use decompress",
            ));
        }
        check_dynamic(layout, &start, dynamic, bytes)?;
        if u64_at(&results, CHECKED as usize) as u32 != 0 {
            return self.explain(stream, frame, bytes);
        }
        if !self.spec.flags.tensor_checksums {
            return Ok(());
        }
        for number in 0..layout.tensors.len() {
            let found = u64_at(dynamic, DYNAMIC_BYTES as usize * (1 + number) + 8);
            let computed = u64_at(&results, SUMS as usize + 8 * number);
            if found != computed {
                return Err(Error::Checksum { tensor: number, chunk: None, found, computed }.into());
            }
        }
        Ok(())
    }

    /// What is wrong with a frame that the device has found damaged: the host knows.
    fn explain(&self, stream: u64, frame: u64, bytes: u64) -> Result<()> {
        let most = self.decode.layout().max_frame_bytes.min(bytes);
        let mut host = vec![0; most as usize];
        // SAFETY: inside of the view of the frame.
        unsafe { driver::download(stream, frame, &mut host)? };
        crate::pool::run(None, || {
            Cpu::new().decode_to_vecs(&Frame::parse(&host)?)?;
            Err(Fault::frame("the device has found a damaged chunk in the frame; get it again"))
        })
    }
}

/// The check, the status and the length of a frame whose static part is right.
fn check_dynamic(layout: &Layout, start: &[u8], dynamic: &[u8], bytes: u64) -> Result<()> {
    let mut sealed = start.to_vec();
    write::seal_dynamic(layout, &mut sealed)?;
    let word =
        |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let at = layout.static_bytes as usize + 12;
    let (found, computed) = (word(start, at), word(&sealed, at));
    if found != computed {
        return Err(Error::FrameCheck { what: "dynamic part", found, computed }.into());
    }
    match word(dynamic, 8) {
        0 => {}
        status => return Err(Error::EncoderFailed { status }.into()),
    }
    let end = layout.variable_parts(u64_at(dynamic, 0))?.end;
    if end > bytes {
        return Err(Error::Truncated { what: "the frame", needed: end, got: bytes }.into());
    }
    Ok(())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
