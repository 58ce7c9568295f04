//! The thread that hands slices from the codec to the copy engine.
//!
//! How long a frame is shows only when it is encoded, and the host has to know before it can ask for a copy of just that. The thread keeps two slices encoded ahead of
//! the copy engine, which so never waits for it: a slice of 32 MiB is encoded in 25 microseconds and copied in 400. Whoever asked for the offload waits for nothing.

use super::counters::Meters;
use super::events::{self, Event, Events, seconds, wait_for};
use super::kept::OffloadedSlice;
use super::lane::{Lane, Ready};
use super::out::State;
use super::pinned::PinnedBlock;
use super::slices::Slice;
use super::work::{EncodeSlice, tell_words, tell_words_entry};
use super::{OffloadError, OffloadOptions, PinnedPool};
use crate::cuda::plan::{Functions, Stream};
use crate::cuda::{StreamHandle, driver_error};
use crate::{Error, Result};
use cudarc::driver::result;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

/// Slices that are encoded before the one that is copied next.
const AHEAD: usize = 2;

/// Slots of a lane: for those that are ahead, and as many that are copied.
pub(super) const SLOTS: usize = 2 * AHEAD;

/// Bytes between the places where the device writes how long frames are.
const LENGTH_STRIDE: u64 = 128;

/// An offload on its way to the thread.
pub(super) struct Job {
    pub state: Arc<State>,
    pub slices: Slices,
    /// What was queued on the stream of the caller.
    pub after: Event,
}

/// Slices, and how each is encoded.
pub(super) type Slices = Arc<[(Slice, EncodeSlice)]>;

/// A slice that is encoded, or copied.
struct InFlight {
    /// Slots and streams of copies are used in turns.
    turn: usize,
    slices: Slices,
    number: usize,
}

/// A copy in progress.
struct Copying {
    of: InFlight,
    block: Arc<PinnedBlock>,
    copied: Arc<Event>,
}

pub(super) struct Pump {
    lane: Lane,
    pool: PinnedPool,
    events: Events,
    options: OffloadOptions,
    meters: Arc<Meters>,
    /// Whether the offloader is gone.
    stopping: Arc<AtomicBool>,
    /// Where the device writes how many words a frame has, a place a slot.
    lengths: PinnedBlock,
    turn: usize,
    /// Copies, the oldest first: its slot is the next one to be used again.
    copying: VecDeque<Copying>,
}

impl Pump {
    pub fn new(
        lane: Lane,
        (pool, small): (PinnedPool, &PinnedPool),
        events: Events,
        options: OffloadOptions,
        meters: Arc<Meters>,
        stopping: Arc<AtomicBool>,
    ) -> Result<Pump> {
        let needed = LENGTH_STRIDE * lane.slots.len() as u64;
        let lengths = small.take("an offloader", needed, options.patience, &[&stopping])?;
        Ok(Pump { lane, pool, events, options, meters, stopping, lengths, turn: 0, copying: VecDeque::new() })
    }

    /// Works until there will be no more jobs.
    pub fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Empty) => {
                    // Nothing else to do: see the copies off.
                    while !self.copying.is_empty() {
                        self.retire();
                    }
                    match jobs.recv() {
                        Ok(job) => job,
                        Err(_) => return,
                    }
                }
                Err(TryRecvError::Disconnected) => return,
            };
            if let Err(error) = self.job(&job) {
                // What was queued may still write to the blocks of the job.
                let _ = self.lane.wait();
                job.state.failed(error);
            }
        }
    }

    fn job(&mut self, job: &Job) -> Result<()> {
        self.check(&job.state)?;
        let slices = &job.slices;
        let frame = slices.iter().map(|(_, work)| work.layout().max_frame_bytes).max().unwrap_or(0);
        let Ready { places, functions, uploaded: _uploaded } = ready(&mut self.lane, &self.pool, job, frame)?;

        let mut encoded: VecDeque<InFlight> = VecDeque::new();
        for (number, &at) in places.iter().enumerate() {
            self.check(&job.state)?;
            encoded.push_back(self.encode(slices, number, at, &functions)?);
            if encoded.len() > AHEAD - 1
                && let Some(next) = encoded.pop_front()
            {
                self.copy(next, &job.state)?;
            }
        }
        while let Some(next) = encoded.pop_front() {
            if encoded.is_empty() {
                self.wait_for_codec(&next)?;
                job.state.read();
            }
            self.copy(next, &job.state)?;
        }
        if slices.is_empty() {
            job.state.read();
        }
        // The last copy is over when the one before it is as well.
        let (last, before) = self.lane.copies(self.turn.wrapping_sub(1));
        last.join(before).map_err(driver_error("queueing the end of an offload"))?;
        job.state.queued(StreamHandle::from(last))
    }

    fn check(&self, state: &State) -> Result<()> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(OffloadError::Stopped.into());
        }
        if state.cancelled().load(Ordering::Acquire) {
            return Err(OffloadError::Cancelled.into());
        }
        Ok(())
    }

    /// Queues the encoding of a slice into the next slot.
    fn encode(
        &mut self,
        slices: &Slices,
        number: usize,
        memory_at: u64,
        functions: &Functions,
    ) -> Result<InFlight> {
        let turn = self.turn;
        let slot = turn % self.lane.slots.len();
        while self.copying.iter().any(|copy| copy.of.turn % self.lane.slots.len() == slot) {
            self.retire();
        }
        self.turn += 1;
        let lane = &self.lane;
        let [start, end] = &lane.slots[slot].codec;
        let (work, frame) = (&slices[number].1, lane.slots[slot].address());
        let stream = Stream::of(&lane.cuda, functions, StreamHandle::from(&*lane.codec))?;
        let failed = driver_error("recording an event");
        start.record(&lane.codec).map_err(&failed)?;
        // SAFETY: the lane has room for the frame, the plan and the workspace; streams keep the order of slices, and the slot is free.
        unsafe {
            work.run(&stream, lane.memory() + memory_at, frame, lane.workspace())?;
            tell_words(&stream, work.layout(), frame, self.lengths.address() + LENGTH_STRIDE * slot as u64)?;
        }
        end.record(&lane.codec).map_err(&failed)?;
        Ok(InFlight { turn, slices: slices.clone(), number })
    }

    fn slot(&self, of: &InFlight) -> usize {
        of.turn % self.lane.slots.len()
    }

    /// Waits until a slice is encoded.
    fn wait_for_codec(&self, of: &InFlight) -> Result<()> {
        wait_for(&self.lane.slots[self.slot(of)].codec[1], "waiting for a slice to be encoded")
    }

    /// Waits until a slice is encoded and queues the copy of just its bytes.
    fn copy(&mut self, of: InFlight, state: &State) -> Result<()> {
        self.wait_for_codec(&of)?;
        let (slice, work) = &of.slices[of.number];
        let slot = self.slot(&of);
        self.meters.out.add_codec(seconds(self.lane.slots[slot].codec.each_ref()));
        // SAFETY: the kernel that wrote it is over.
        let words = unsafe { &self.lengths.as_slice()[LENGTH_STRIDE as usize * slot..] };
        let words = words.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let bytes = work.layout().variable_parts(words).map_err(|_| Error::Device {
            what: "encoding a slice".to_owned(),
            reason: format!("the device counted {words} words, which cannot be"),
        })?;
        let ends = [state.cancelled(), &*self.stopping];
        let block = self.pool.take("a slice", bytes.end, self.options.patience, &ends);
        let mut block = block.map_err(|error| self.check(state).err().unwrap_or(error))?;
        block.clear_padding();
        let lane = &self.lane;
        let (from, (stream, _)) = (lane.slots[slot].address(), lane.copies(of.turn));
        if of.number == 0 {
            state.copies_from(StreamHandle::from(stream))?;
        }
        let block = Arc::new(block);
        // SAFETY: the block is new, and kept until the copy is over; the codec is done with the slot.
        unsafe { copy_to_host(block.address(), from, bytes.end, stream.cu_stream()) }?;
        let copied = Arc::new(self.events.take()?);
        events::record(&copied, StreamHandle::from(stream))?;
        let (spec, pieces) = (Some(slice.spec.clone()), slice.pieces.clone());
        state.push(OffloadedSlice { block: block.clone(), spec, pieces }, Some(copied.clone()));
        self.copying.push_back(Copying { of, block, copied });
        Ok(())
    }

    /// Waits for the oldest copy, and counts what it brought.
    fn retire(&mut self) {
        let Some(Copying { of, block, copied }) = self.copying.pop_front() else { return };
        if copied.synchronize().is_err() {
            return; // whoever waits for it is told
        }
        // SAFETY: the copy that wrote it is over.
        let frame = unsafe { block.as_slice() };
        self.meters.count_chunks(of.slices[of.number].1.layout(), frame);
    }
}

/// Makes a lane ready for the slices of a job, whose frames in slots have up to `frame` bytes.
fn ready(lane: &mut Lane, pool: &PinnedPool, job: &Job, frame: u64) -> Result<Ready> {
    let works: Vec<&EncodeSlice> = job.slices.iter().map(|(_, work)| work).collect();
    lane.ready(&works, &[tell_words_entry()], frame, pool, &job.after)
}

/// An offload by kernels that write to the memory of the host, on the thread of the caller.
pub(super) fn direct(lane: &mut Lane, pool: &PinnedPool, options: &OffloadOptions, job: &Job) -> Result<()> {
    let Ready { places, functions, uploaded } = ready(lane, pool, job, 0)?;
    let stream = StreamHandle::from(&*lane.codec);
    let queue = || {
        for ((slice, work), at) in job.slices.iter().zip(&places) {
            let block = pool.take(
                "a slice",
                work.layout().max_frame_bytes,
                options.patience,
                &[job.state.cancelled()],
            )?;
            let queue = Stream::of(&lane.cuda, &functions, stream)?;
            // SAFETY: the lane has room for plan and workspace; the block is new, and kept by the state, which waits.
            unsafe { work.run(&queue, lane.memory() + at, block.address(), lane.workspace())? };
            let (spec, pieces) = (Some(slice.spec.clone()), slice.pieces.clone());
            job.state.push(OffloadedSlice { block: Arc::new(block), spec, pieces }, None);
        }
        Ok::<(), Error>(())
    };
    if let Err(error) = queue() {
        // What was queued may still write to the blocks.
        let _ = lane.wait();
        return Err(error);
    }
    job.state.keep(uploaded);
    job.state.queued(stream)
}

/// Queues a copy to page-locked memory.
///
/// # Safety
/// Both have so many bytes until it is over.
pub(super) unsafe fn copy_to_host(
    to: u64,
    from: u64,
    bytes: u64,
    stream: cudarc::driver::sys::CUstream,
) -> Result<()> {
    // SAFETY: by contract.
    unsafe {
        let to = std::slice::from_raw_parts_mut(to as usize as *mut u8, bytes as usize);
        result::memcpy_dtoh_async(to, from, stream)
    }
    .map_err(driver_error("copying to the host"))
}
