//! Events, which are used again: making one takes as long as queueing a kernel.

use super::StreamHandle;
use crate::Result;
use crate::cuda::{Cuda, driver_error};
use cudarc::driver::{CudaEvent, result, sys};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a wait asks again and again before it sleeps: whoever sleeps is woken 25 to 80 microseconds late. A copy of 64 KiB takes 9, one of 16 MiB 310.
const SPIN: Duration = Duration::from_micros(500);

/// Events that nobody uses at present.
#[derive(Clone)]
pub(super) struct Events {
    cuda: Cuda,
    idle: Idle,
}

type Idle = Arc<Mutex<Vec<Arc<CudaEvent>>>>;

/// An event that takes the time. It goes back when it is dropped; what was recorded last is over then, or nobody asks.
pub(super) struct Event {
    event: Arc<CudaEvent>,
    idle: Idle,
}

impl Events {
    pub fn new(cuda: &Cuda) -> Events {
        Events { cuda: cuda.clone(), idle: Arc::default() }
    }

    pub fn take(&self) -> Result<Event> {
        let idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        let event = idle.map_or_else(|| timed(&self.cuda).map(Arc::new), Ok)?;
        Ok(Event { event, idle: self.idle.clone() })
    }

    /// An event behind everything that is queued on a stream.
    pub fn mark(&self, stream: StreamHandle) -> Result<Event> {
        self.cuda.bind()?;
        let event = self.take()?;
        record(&event, stream)?;
        Ok(event)
    }
}

impl Deref for Event {
    type Target = CudaEvent;

    fn deref(&self) -> &CudaEvent {
        &self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        idle.push(self.event.clone());
    }
}

/// An event that takes no time, and so does not hold up what is behind it.
pub(super) fn untimed(cuda: &Cuda) -> Result<CudaEvent> {
    event(cuda, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
}

/// An event that takes the time; whoever waits for it sleeps.
pub(super) fn timed(cuda: &Cuda) -> Result<CudaEvent> {
    event(cuda, sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC)
}

fn event(cuda: &Cuda, flags: sys::CUevent_flags) -> Result<CudaEvent> {
    cuda.context().new_event(Some(flags)).map_err(driver_error("making an event"))
}

/// Records an event on a stream, whoever's it is.
pub(super) fn record(event: &CudaEvent, stream: StreamHandle) -> Result<()> {
    // SAFETY: by the contract of the calls, a stream of the context.
    unsafe { result::event::record(event.cu_event(), stream.raw()) }
        .map_err(driver_error("recording an event"))
}

/// Has a stream wait for an event, whoever's it is.
pub(super) fn wait_on(stream: StreamHandle, event: &CudaEvent) -> Result<()> {
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: by the contract of the calls, a stream of the context.
    unsafe { result::stream::wait_event(stream.raw(), event.cu_event(), flags) }
        .map_err(driver_error("having the stream of the caller wait"))
}

/// Has the host wait for an event.
pub(super) fn wait_for(event: &CudaEvent, what: &str) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < SPIN {
        if event.try_is_complete().map_err(driver_error(what))? {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    event.synchronize().map_err(driver_error(what))
}

/// Seconds between two events that are over; 0 where one was never recorded.
pub(super) fn seconds([start, end]: [&CudaEvent; 2]) -> f64 {
    start.elapsed_ms(end).map_or(0.0, |milliseconds| f64::from(milliseconds) / 1e3)
}
