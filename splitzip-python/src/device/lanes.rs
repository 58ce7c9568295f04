//! Memory of streams, and calls whose work may still run.
//!
//! What a call works on is held until the device has done it: an event behind the work says when. What a capture works on is held as long as the codec.

use super::driver::{self, Context, Event, OwnStream, Relaxed};
use crate::error::{Fault, Result};
use crate::view::{Place, View};
use pyo3::prelude::*;
use splitzip_host::Error;
use splitzip_host::cuda::{Cuda, DeviceBytes, StreamHandle};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory of a stream for one plan.
pub struct Lane {
    memory: DeviceBytes,
    decode_at: u64,
    results_at: u64,
}

/// Behind the word of [`Lane::results`]: such a word for the call that is being checked.
pub const CHECKED: u64 = 64;
/// And a checksum for every tensor.
pub const SUMS: u64 = 128;

impl Lane {
    /// The workspace for encoding.
    pub fn encode(&self) -> u64 {
        self.memory.address()
    }

    /// The workspace for decoding.
    pub fn decode(&self) -> u64 {
        self.memory.address() + self.decode_at
    }

    /// A word that is not 0 once a frame was damaged that nobody has checked, and what is behind it.
    pub fn results(&self) -> u64 {
        self.memory.address() + self.results_at
    }
}

/// Bytes that a plan needs in a lane.
#[derive(Clone, Copy)]
pub struct LaneBytes {
    pub encode: u64,
    pub decode: u64,
    /// Those of the results.
    pub results: u64,
}

impl LaneBytes {
    /// Where decoding and results have their memory, and the bytes of all.
    fn places(self) -> (u64, u64, u64) {
        let decode_at = self.encode.next_multiple_of(256);
        let results_at = decode_at + self.decode.next_multiple_of(256);
        (decode_at, results_at, results_at + self.results)
    }

    pub fn all(self) -> u64 {
        self.places().2
    }
}

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

impl State {
    /// Takes the calls out whose work has run.
    fn passed(&mut self) -> Vec<Pending> {
        let running = self.pending.iter().position(|pending| !pending.event.passed());
        self.pending.drain(..running.unwrap_or(self.pending.len())).collect()
    }
}

/// Queues what makes the workspace at an address ready for encoding.
type Prepare<'a> = dyn Fn(StreamHandle, u64) -> splitzip_host::Result<()> + Sync + 'a;

/// The lanes of a codec.
pub struct Lanes {
    cuda: Cuda,
    bytes: LaneBytes,
    state: Mutex<State>,
}

impl Lanes {
    /// Those of a new codec, one of them ready.
    pub fn new(cuda: Cuda, bytes: LaneBytes, prepare: &Prepare<'_>) -> Result<Lanes> {
        let lanes = Lanes { cuda, bytes, state: Mutex::default() };
        let spare = lanes.lane(prepare)?;
        lanes.state().spare = Some(spare);
        Ok(lanes)
    }

    pub fn bytes(&self) -> LaneBytes {
        self.bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new lane, ready: on a stream of its own, so that no capture sees it.
    fn lane(&self, prepare: &Prepare<'_>) -> Result<Lane> {
        let _relaxed = Relaxed::enter();
        let (decode_at, results_at, bytes) = self.bytes.places();
        let memory = self.cuda.allocate(bytes)?;
        let own = OwnStream::new()?;
        // SAFETY: inside of the new memory, which nobody else has.
        unsafe { driver::clear(own.handle(), memory.address(), bytes)? };
        prepare(StreamHandle(own.handle()), memory.address())?;
        driver::synchronize(own.handle())?;
        Ok(Lane { memory, decode_at, results_at })
    }

    /// Refuses memory that is elsewhere, has strides, or is too small.
    pub fn check_memory(&self, view: &View, what: &str, expected: u64, exactly: bool) -> Result<()> {
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

    /// Queues work on a stream, with its lane, behind what `producers` have queued, and holds what it works on. `work` is told whether it is captured.
    pub fn queue(
        &self,
        py: Python<'_>,
        stream: u64,
        views: Vec<Py<View>>,
        producers: &[u64],
        prepare: &Prepare<'_>,
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
                let of_views = views.iter().filter_map(|view| view.get().producer());
                let mut producers = of_views.chain(producers.iter().copied());
                producers.try_for_each(|producer| driver::wait_for(producer, stream))?;
                let thread = (stream == 2).then(|| std::thread::current().id());
                let key = (stream, thread, captures);
                if !state.lanes.contains_key(&key) {
                    let lane = match state.spare.take() {
                        Some(lane) => lane,
                        None => self.lane(prepare)?,
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

    /// Waits for all that was queued, and says whether a frame was damaged since the last time.
    pub fn check(&self, py: Python<'_>) -> Result<()> {
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
                let mut status = [0; 4];
                // SAFETY: a word of the lane.
                unsafe {
                    driver::download(own.handle(), lane.results(), &mut status)?;
                    driver::clear(own.handle(), lane.results(), 4)?;
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

    /// How many calls hold what they work on.
    pub fn pending(&self, py: Python<'_>) -> usize {
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

    /// Waits for all calls, then drops `plans` and the lanes: for the end of a codec.
    pub fn end(&mut self, plans: impl FnOnce()) {
        // Freeing memory changes the context of the thread, and is no matter of a capture.
        let Ok(_context) = Context::enter(&self.cuda) else { return };
        let _relaxed = Relaxed::enter();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.pending.iter().for_each(|pending| pending.event.wait());
        *state = State::default();
        plans();
    }
}
