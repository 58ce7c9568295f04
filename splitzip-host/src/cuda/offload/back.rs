//! From the host to the device: all of it queued at once, since the host knows how long every frame is.

use super::counters::{Meters, Sizes};
use super::events::{self, Event, Events, seconds};
use super::kept::Offloaded;
use super::lane::{Lane, Ready};
use super::pinned::PinnedBlock;
use super::work::DecodeSlice;
use super::{PinnedPool, StreamHandle};
use crate::cuda::driver_error;
use crate::cuda::plan::{Functions, Stream};
use crate::{Cpu, Error, Executor, Frame, Result};
use cudarc::driver::{CudaEvent, result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A reload in progress. The stream that it was asked for on goes on when it is over, so that later work there finds the KV.
///
/// Dropping it waits.
pub struct Reloading {
    done: Event,
    /// Around all copies.
    copies: [Event; 2],
    /// Around the decoding of each slice.
    codec: Vec<[Event; 2]>,
    /// A word a slice, not 0 when it could not be decoded.
    status: Option<PinnedBlock>,
    uploaded: Option<PinnedBlock>,
    /// Read until it is over.
    from: Arc<Offloaded>,
    /// The numbers of the slices that are reloaded.
    slices: Vec<usize>,
    meters: Arc<Meters>,
}

impl Reloading {
    /// A reload that is nothing but copies on a stream, after which the second event is recorded.
    pub(super) fn of_copies(
        [copies @ .., done]: [Event; 3],
        from: &Arc<Offloaded>,
        meters: &Arc<Meters>,
        stream: StreamHandle,
    ) -> Result<Reloading> {
        events::record(&copies[1], stream)?;
        events::record(&done, stream)?;
        Ok(Reloading {
            done,
            copies,
            codec: Vec::new(),
            status: None,
            uploaded: None,
            from: from.clone(),
            slices: (0..from.slices.len()).collect(),
            meters: meters.clone(),
        })
    }

    /// Whether [`Reloading::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        self.done.is_complete()
    }

    /// Waits until all is on the device.
    ///
    /// # Errors
    /// [`Error::Chunk`] and what else a damaged frame is; page numbers in device memory that are none of their pool; what the driver
    /// says. The destination is undefined then.
    pub fn wait(self) -> Result<()> {
        let result = self.finish();
        let back = &self.meters.back;
        if result.is_err() {
            back.errors.fetch_add(1, Ordering::Relaxed);
            return result;
        }
        let slices = self.slices.iter().filter_map(|&number| self.from.slices.get(number));
        back.add_transfer(slices.map(Sizes::of));
        back.add_codec(self.codec.iter().map(|of| seconds(of.each_ref().map(|event| &**event))).sum());
        back.add_copy(seconds(self.copies.each_ref().map(|event| &**event)));
        result
    }

    fn finish(&self) -> Result<()> {
        events::wait_for(&self.done, "waiting for a reload")?;
        let Some(status) = &self.status else { return Ok(()) };
        // SAFETY: the kernels that may write to it are over.
        let words = unsafe { status.as_slice() };
        let Some(bad) = words.chunks_exact(4).position(|word| word != [0; 4]) else { return Ok(()) };
        let number = self.slices.get(bad).copied().unwrap_or_default();
        let bytes = self.from.slices().nth(number).unwrap_or_default();
        // The CPU says what is damaged.
        Cpu::new().decode_to_vecs(&Frame::parse(bytes)?)?;
        Err(Error::Device {
            what: format!("decoding slice {number}"),
            reason: "a page number in device memory is none of its pool".to_owned(),
        })
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        // The device reads what is kept here.
        let _ = self.done.synchronize();
    }
}

impl std::fmt::Debug for Reloading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Reloading");
        debug.field("slices", &self.slices.len()).field("is_done", &self.is_done()).finish()
    }
}

/// A reload that is to be queued.
pub(super) struct Reload<'r> {
    pub pool: &'r PinnedPool,
    /// For the words of the status: the pool may be full of just what is reloaded.
    pub small: &'r PinnedPool,
    pub patience: Duration,
    pub events: &'r Events,
    pub meters: &'r Arc<Meters>,
    pub from: &'r Arc<Offloaded>,
    /// The numbers of the slices that are wanted, and how each is decoded.
    pub slices: Vec<(usize, DecodeSlice)>,
    /// Do kernels read the memory of the host?
    pub is_direct: bool,
}

impl Reload<'_> {
    /// Queues it.
    ///
    /// # Safety
    /// The destinations are valid on the device until it is over, and nobody else uses them; the stream belongs to the context of the lane.
    pub unsafe fn queue(self, lane: &mut Lane, after: &CudaEvent, stream: StreamHandle) -> Result<Reloading> {
        let blocks = self.slices.iter().map(|&(number, _)| self.from.slices[number].block.bytes());
        let frame = if self.is_direct { 0 } else { blocks.max().unwrap_or(0) };
        let mut status = self.small.take("a reload", 4 * self.slices.len() as u64, self.patience, &[])?;
        // SAFETY: the block is new.
        unsafe { status.as_mut_slice() }.fill(0);
        let pair = || Ok::<_, Error>([self.events.take()?, self.events.take()?]);
        let mut reloading = Reloading {
            done: self.events.take()?,
            copies: pair()?,
            codec: self.slices.iter().map(|_| pair()).collect::<Result<_>>()?,
            status: None,
            uploaded: None,
            from: self.from.clone(),
            slices: self.slices.iter().map(|&(number, _)| number).collect(),
            meters: self.meters.clone(),
        };
        let works: Vec<&DecodeSlice> = self.slices.iter().map(|(_, work)| work).collect();
        let Ready { places, functions, uploaded } = lane.ready(&works, &[], frame, self.pool, after)?;
        reloading.uploaded = uploaded;
        // SAFETY: by contract.
        if let Err(error) = unsafe { self.queue_slices(lane, (&places, &functions), &status, &reloading) } {
            // What was queued before the error reads the blocks.
            let _ = lane.wait();
            return Err(error);
        }
        reloading.status = Some(status);
        events::wait_on(stream, &reloading.done)?;
        Ok(reloading)
    }

    /// # Safety
    /// As [`Reload::queue`].
    unsafe fn queue_slices(
        &self,
        lane: &Lane,
        (places, functions): (&[u64], &Functions),
        status: &PinnedBlock,
        events: &Reloading,
    ) -> Result<()> {
        let stream = Stream::of(&lane.cuda, functions, StreamHandle::from(&*lane.codec))?;
        let failed = driver_error("queueing a reload");
        events.copies[0].record(lane.copies(0).0).map_err(&failed)?;
        for (turn, ((number, work), place)) in self.slices.iter().zip(places).enumerate() {
            let block = &self.from.slices[*number].block;
            let slot = lane.slots.get(turn % lane.slots.len().max(1)).filter(|_| !self.is_direct);
            let (copies, _) = lane.copies(turn);
            let mut frame = block.address();
            if let Some(slot) = slot {
                frame = slot.address();
                // Slices before may still read the slot.
                copies.wait(&slot.codec[1]).map_err(&failed)?;
                // SAFETY: the block is full, and kept; the slot has room and is free then.
                unsafe { result::memcpy_htod_async(frame, block.as_slice(), copies.cu_stream()) }
                    .map_err(driver_error("copying to the device"))?;
                slot.copied.record(copies).map_err(&failed)?;
                lane.codec.wait(&slot.copied).map_err(&failed)?;
            }
            let [start, end] = &events.codec[turn];
            start.record(&lane.codec).map_err(&failed)?;
            let word = status.address() + 4 * turn as u64;
            // SAFETY: by contract; the lane has room, and streams keep the order.
            unsafe {
                work.run(&stream, lane.memory() + place, (frame, block.bytes()), lane.workspace(), word)?;
            }
            end.record(&lane.codec).map_err(&failed)?;
            if let Some(slot) = slot {
                slot.codec[1].record(&lane.codec).map_err(&failed)?;
            }
        }
        events.copies[1].record(lane.copies(self.slices.len().wrapping_sub(1)).0).map_err(&failed)?;
        events.done.record(&lane.codec).map_err(&failed)
    }
}
