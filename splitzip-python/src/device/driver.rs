//! The few things of the driver that the library has no call for: contexts, captures, events.

use crate::error::{Fault, Result};
use cudarc::driver::{DriverError, result, sys};
use splitzip_host::Error;
use splitzip_host::cuda::Cuda;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

static DEVICES: Mutex<Option<(u32, HashMap<usize, Cuda>)>> = Mutex::new(None);

/// A device, opened once. Kernels that are loaded stay loaded.
pub fn cuda(ordinal: usize) -> Result<Cuda> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    let (owner, by_ordinal) = devices.get_or_insert_with(|| (process, HashMap::new()));
    if *owner != process {
        let reason = "this process was forked from one that has used CUDA, which no driver survives; start it with the method \"spawn\"";
        return Err(Error::CudaUnavailable { reason: reason.to_owned() }.into());
    }
    if let Some(cuda) = by_ordinal.get(&ordinal) {
        return Ok(cuda.clone());
    }
    let _context = Context::keep();
    let cuda = Cuda::open(ordinal)?;
    by_ordinal.insert(ordinal, cuda.clone());
    Ok(cuda)
}

pub fn failed(what: &str) -> impl Fn(DriverError) -> Fault + use<> {
    let what = what.to_owned();
    move |error| Error::Device { what: what.clone(), reason: format!("{:?}", error.0) }.into()
}

/// The device on which memory lies.
pub fn device_of(address: u64) -> Result<usize> {
    // Before anything of the driver is called: without one this is an error.
    let cuda = cuda(0)?;
    let _context = Context::enter(&cuda)?;
    let mut ordinal = -1i32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: writes an int; any address may be asked for.
    let asked = unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address) };
    match asked.result() {
        Ok(()) if ordinal >= 0 => Ok(ordinal as usize),
        _ => Err(Fault::argument(format!(
            "address {address:#x} of __cuda_array_interface__ is no memory of a CUDA device"
        ))),
    }
}

/// Restores the context of the thread, and so what other libraries take for the current device.
pub struct Context(Option<sys::CUcontext>);

impl Context {
    /// Restores what is current now, also where there may be no driver.
    pub fn keep() -> Context {
        // SAFETY: only looks for the library.
        let there = unsafe { sys::is_culib_present() };
        Context(if there { result::ctx::get_current().ok() } else { None }.flatten())
    }

    /// Makes that of a device current.
    pub fn enter(cuda: &Cuda) -> Result<Context> {
        let context = Context(result::ctx::get_current().map_err(failed("asking for the context"))?);
        cuda.context().bind_to_thread().map_err(failed("making the context current"))?;
        Ok(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            // SAFETY: it was current before.
            let _ = unsafe { result::ctx::set_current(context) };
        }
    }
}

/// While it lives, calls that a capture of another thread forbids do not end that capture: they touch nothing that is captured.
pub struct Relaxed(sys::CUstreamCaptureMode);

impl Relaxed {
    pub fn enter() -> Relaxed {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: exchanges a number of this thread.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        Relaxed(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.0) };
    }
}

pub fn raw(stream: u64) -> sys::CUstream {
    stream as usize as sys::CUstream
}

/// Whether a stream is being captured into a graph.
pub fn captures(stream: u64) -> Result<bool> {
    use sys::CUstreamCaptureStatus_enum as Status;
    // SAFETY: a stream of the caller's.
    let status = unsafe { result::stream::is_capturing(raw(stream)) };
    match status.map_err(failed("asking whether the stream is being captured"))? {
        Status::CU_STREAM_CAPTURE_STATUS_NONE => Ok(false),
        Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => Ok(true),
        Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
            let (what, reason) =
                ("capturing the stream".to_owned(), "the capture has failed already".to_owned());
            Err(Error::Device { what, reason }.into())
        }
    }
}

/// Refuses a stream of another device. The default streams (0, 1, 2) belong to whatever context is current.
pub fn check_stream(cuda: &Cuda, stream: u64) -> Result<()> {
    if stream <= 2 {
        return Ok(());
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: writes a handle.
    let asked = unsafe { sys::cuStreamGetCtx(raw(stream), &mut context) };
    asked.result().map_err(failed("asking for the context of the stream"))?;
    if context == cuda.context().cu_ctx() {
        return Ok(());
    }
    let ordinal = cuda.info().ordinal;
    Err(Fault::argument(format!(
        "the stream belongs to another device than the tensors, which are on cuda:{ordinal}"
    )))
}

/// An event without times.
pub struct Event(sys::CUevent);

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub fn new() -> Result<Event> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        result::event::create(flags).map(Event).map_err(failed("making an event"))
    }

    pub fn record(&self, stream: u64) -> Result<()> {
        // SAFETY: a living event, a stream of the caller's.
        unsafe { result::event::record(self.0, raw(stream)) }.map_err(failed("recording an event"))
    }

    /// Whether what was in the stream before it has run. An error counts: there is nothing to wait for.
    pub fn passed(&self) -> bool {
        // SAFETY: a living event.
        let asked = unsafe { result::event::query(self.0) };
        !matches!(asked, Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)))
    }

    pub fn wait(&self) {
        // SAFETY: a living event.
        let _ = unsafe { result::event::synchronize(self.0) };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// Has `stream` wait for what is in `producer` now.
pub fn wait_for(producer: u64, stream: u64) -> Result<()> {
    // 0 and 1 are the same stream.
    if producer.max(1) == stream.max(1) {
        return Ok(());
    }
    let event = Event::new()?;
    event.record(producer)?;
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: an event that was recorded; the driver keeps what it needs of it.
    unsafe { result::stream::wait_event(raw(stream), event.0, flags) }
        .map_err(failed("waiting for another stream"))
}

pub fn synchronize(stream: u64) -> Result<()> {
    // SAFETY: a stream of the caller's.
    unsafe { result::stream::synchronize(raw(stream)) }.map_err(failed("waiting for the stream"))
}

/// Copies device memory to the host after what is in the stream, and waits.
///
/// # Safety
/// So many bytes can be read at `from`.
pub unsafe fn download(stream: u64, from: u64, to: &mut [u8]) -> Result<()> {
    if to.is_empty() {
        return Ok(());
    }
    // SAFETY: by contract; the bytes stay where they are until the stream has run.
    unsafe { result::memcpy_dtoh_async(to, from, raw(stream)) }.map_err(failed("copying from the device"))?;
    synchronize(stream)
}

/// Queues zeros.
///
/// # Safety
/// So many bytes can be written at `at`.
pub unsafe fn clear(stream: u64, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: by contract.
    unsafe { result::memset_d8_async(at, 0, bytes as usize, raw(stream)) }
        .map_err(failed("clearing device memory"))
}

/// A stream of ours that waits for no other.
pub struct OwnStream(sys::CUstream);

impl OwnStream {
    pub fn new() -> Result<OwnStream> {
        let kind = result::stream::StreamKind::NonBlocking;
        result::stream::create(kind).map(OwnStream).map_err(failed("making a stream"))
    }

    pub fn handle(&self) -> u64 {
        self.0 as usize as u64
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: made once.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}
