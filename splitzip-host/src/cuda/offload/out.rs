//! An offload in progress, and whoever waits for it.

use super::counters::{Meters, Sizes};
use super::events::{self, Event};
use super::kept::OffloadedSlice;
use super::pinned::PinnedBlock;
use super::{OffloadError, Offloaded, StreamHandle};
use crate::{Error, FrameSpec, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What waits say that they were at.
const WAITING: &str = "waiting for an offload";

/// An offload in progress.
///
/// Dropping it cancels what has not begun, and gives the memory back when what has is over.
pub struct Offloading {
    pub(super) state: Arc<State>,
}

impl Offloading {
    /// Waits until the device has read everything: from then on the KV may be overwritten.
    ///
    /// # Errors
    /// What the offload met: what [`Offloading::wait`] will say as well.
    pub fn wait_read(&self) -> Result<()> {
        let mut progress = self.state.lock();
        while progress.stage == Stage::Coding && !progress.is_read {
            progress = self.state.wait_for_change(progress);
        }
        if let Some(error) = &progress.error {
            // The error itself is for `wait`.
            return Err(Error::Device { what: "offloading".to_owned(), reason: error.to_string() });
        }
        if progress.is_read {
            return Ok(());
        }
        drop(progress);
        events::wait_for(&self.state.done, WAITING)
    }

    /// Whether [`Offloading::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        match self.state.lock().stage {
            Stage::Coding => false,
            Stage::Queued => self.state.done.is_complete(),
            Stage::Failed => true,
        }
    }

    /// Asks for an end. What is on its way to the host arrives there, and is dropped.
    pub fn cancel(&self) {
        self.state.cancelled.store(true, Ordering::Release);
    }

    /// Waits until all is in the memory of the host.
    ///
    /// # Errors
    /// [`OffloadError`] for a pool that stayed full, a cancelled offload; page numbers in device memory that are none of their pool
    /// ([`Error::FrameCheck`]); what the driver says.
    pub fn wait(self) -> Result<Offloaded> {
        let mut slices = Vec::new();
        while let Some(slice) = self.next()? {
            slices.push(slice);
        }
        let offloaded = Offloaded::new(self.spec(), slices);
        self.state.count(offloaded.as_ref());
        offloaded
    }

    /// What the tensors are, once there is no slice left.
    pub(super) fn spec(&self) -> FrameSpec {
        std::mem::take(&mut self.state.lock().spec)
    }

    /// Counts slices that were not kept.
    pub(super) fn count_sizes(&self, slices: Vec<Sizes>) {
        self.state.count_slices(slices.into_iter());
    }

    /// Waits for the next slice; there is none behind the last.
    pub(super) fn next(&self) -> Result<Option<OffloadedSlice>> {
        let mut progress = self.state.lock();
        loop {
            if let Some(error) = progress.error.take() {
                return Err(error);
            }
            if let Some((slice, copied)) = progress.slices.pop_front() {
                drop(progress);
                events::wait_for(copied.as_deref().unwrap_or(&self.state.done), WAITING)?;
                return Ok(Some(slice));
            }
            if progress.stage != Stage::Coding {
                return Ok(None);
            }
            progress = self.state.wait_for_change(progress);
        }
    }
}

impl Drop for Offloading {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl std::fmt::Debug for Offloading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let progress = self.state.lock();
        f.debug_struct("Offloading")
            .field("stage", &progress.stage)
            .field("slices", &progress.slices.len())
            .finish()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Slices are still to be encoded, or their copies to be queued.
    Coding,
    /// The last copy is queued.
    Queued,
    Failed,
}

/// What the thread and whoever waits share.
pub(super) struct State {
    progress: Mutex<Progress>,
    changed: Condvar,
    cancelled: AtomicBool,
    /// Before the first copy, and behind the last.
    first: Event,
    done: Event,
    meters: Arc<Meters>,
    raw_bytes: u64,
}

struct Progress {
    spec: FrameSpec,
    stage: Stage,
    /// Whether the device has read the KV before the last copy was over.
    is_read: bool,
    /// What is wanted until the last copy is over.
    uploaded: Option<PinnedBlock>,
    /// Slices that are on their way, and the events behind their copies: that of the whole where there is none.
    slices: VecDeque<(OffloadedSlice, Option<Arc<Event>>)>,
    error: Option<Error>,
}

impl State {
    /// An offload of so many raw bytes that has not begun.
    pub fn new(spec: FrameSpec, raw_bytes: u64, [first, done]: [Event; 2], meters: Arc<Meters>) -> State {
        meters.queued_bytes.fetch_add(raw_bytes, Ordering::Relaxed);
        let progress = Progress {
            spec,
            stage: Stage::Coding,
            is_read: false,
            uploaded: None,
            slices: VecDeque::new(),
            error: None,
        };
        let progress = Mutex::new(progress);
        State {
            progress,
            changed: Condvar::new(),
            cancelled: AtomicBool::new(false),
            first,
            done,
            meters,
            raw_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait_for_change<'g>(&self, progress: MutexGuard<'g, Progress>) -> MutexGuard<'g, Progress> {
        self.changed.wait(progress).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Whether its owner does not want it any more.
    pub fn cancelled(&self) -> &AtomicBool {
        &self.cancelled
    }

    /// The device has read everything.
    pub fn read(&self) {
        self.change(|progress| progress.is_read = true);
    }

    /// Keeps what the device reads.
    pub fn keep(&self, uploaded: Option<PinnedBlock>) {
        self.change(|progress| progress.uploaded = uploaded);
    }

    /// Says later what the tensors are.
    pub fn is_of(&self, spec: &FrameSpec) {
        self.change(|progress| progress.spec = spec.clone());
    }

    /// The first copy will be the next thing on a stream.
    pub fn copies_from(&self, stream: StreamHandle) -> Result<()> {
        events::record(&self.first, stream)
    }

    /// A copy is queued.
    pub fn push(&self, slice: OffloadedSlice, copied: Option<Arc<Event>>) {
        self.change(|progress| progress.slices.push_back((slice, copied)));
    }

    /// All copies are queued, the last one on a stream.
    pub fn queued(&self, stream: StreamHandle) -> Result<()> {
        events::record(&self.done, stream)?;
        self.change(|progress| progress.stage = Stage::Queued);
        Ok(())
    }

    /// It has failed; nothing of it is in flight any more.
    pub fn failed(&self, error: Error) {
        let counter = match error {
            Error::Offload(OffloadError::Cancelled) => &self.meters.cancelled,
            _ => &self.meters.out.errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.change(|progress| {
            // Its memory is wanted by others.
            progress.slices.clear();
            (progress.error, progress.stage) = (Some(error), Stage::Failed);
        });
    }

    fn count(&self, offloaded: Result<&Offloaded, &Error>) {
        match offloaded {
            Ok(of) => self.count_slices(of.slices.iter().map(Sizes::of)),
            Err(_) => _ = self.meters.out.errors.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn count_slices(&self, slices: impl Iterator<Item = Sizes>) {
        let out = &self.meters.out;
        out.add_transfer(slices);
        out.add_copy(events::seconds([&self.first, &self.done]));
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Nobody waited for it. The copies into its blocks have to be over before others get them; an event that was never recorded is over.
        let _ = self.done.synchronize();
        self.meters.queued_bytes.fetch_sub(self.raw_bytes, Ordering::Relaxed);
    }
}
