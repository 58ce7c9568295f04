//! What one direction works with on the device: two streams, and memory between them.

use super::PinnedPool;
use super::events::{timed, untimed};
use super::pinned::PinnedBlock;
use crate::cuda::plan::Functions;
use crate::cuda::{Cuda, DeviceBytes, driver_error};
use crate::{Error, Result};
use cudarc::driver::{CudaEvent, CudaStream, result};
use splitzip_kernels::launch::Entry;
use std::sync::Arc;

/// What lies behind each other starts at multiples of this.
const ALIGNMENT: u64 = 256;

/// The streams of a direction, and what lies between the codec and the copy engine.
pub(super) struct Lane {
    pub cuda: Cuda,
    /// Kernels.
    pub codec: Arc<CudaStream>,
    /// Copies over the link, in turns: while one of them ends, the other has begun, and the link is never idle. (With one stream it was, for 30 microseconds a slice.)
    pub copies: [Arc<CudaStream>; 2],
    pub slots: Vec<Slot>,
    /// What the plans of one transfer read. Streams keep the order, so the next transfer may overwrite it.
    memory: DeviceBytes,
    workspace: DeviceBytes,
}

/// Device memory for one frame, and when it is whose.
pub(super) struct Slot {
    frame: DeviceBytes,
    /// Around the kernels.
    pub codec: [CudaEvent; 2],
    /// Behind the copy, of a lane back.
    pub copied: CudaEvent,
}

impl Slot {
    pub fn address(&self) -> u64 {
        self.frame.address()
    }
}

/// What a slice needs, whichever way it goes.
pub(super) trait Work {
    /// The kernels that may be launched.
    fn entries(&self) -> &[&'static Entry];

    /// Bytes of the memory of the plan.
    fn memory_bytes(&self) -> u64;

    /// What must be in it at an address.
    fn memory(&self, address: u64) -> Vec<u8>;

    fn workspace_bytes(&self) -> u64;
}

/// A lane that is ready for slices.
pub(super) struct Ready {
    /// Where the memory of each plan starts in that of the lane.
    pub places: Vec<u64>,
    pub functions: Functions,
    /// Kept until the device has read it.
    pub uploaded: Option<PinnedBlock>,
}

impl Lane {
    pub fn new(cuda: &Cuda, slots: usize) -> Result<Lane> {
        let stream = || cuda.context().new_stream().map_err(driver_error("making a stream"));
        let slot = |_| {
            let (codec, copied) = ([timed(cuda)?, timed(cuda)?], untimed(cuda)?);
            Ok(Slot { frame: cuda.allocate(0)?, codec, copied })
        };
        Ok(Lane {
            codec: stream()?,
            copies: [stream()?, stream()?],
            slots: (0..slots).map(slot).collect::<Result<_>>()?,
            memory: cuda.allocate(0)?,
            workspace: cuda.allocate(0)?,
            cuda: cuda.clone(),
        })
    }

    pub fn memory(&self) -> u64 {
        self.memory.address()
    }

    pub fn workspace(&self) -> u64 {
        self.workspace.address()
    }

    /// Waits for everything that is queued.
    pub fn wait(&self) -> Result<()> {
        let failed = driver_error("waiting for a transfer");
        let mut streams = std::iter::once(&self.codec).chain(&self.copies);
        streams.try_for_each(|stream| stream.synchronize().map_err(&failed))
    }

    /// The stream of copy number `turn`, and the other one.
    pub fn copies(&self, turn: usize) -> (&CudaStream, &CudaStream) {
        let [first, second] = &self.copies;
        if turn.is_multiple_of(2) { (first, second) } else { (second, first) }
    }

    /// Makes sure that frames, plans and workspaces of so many bytes have room. Waits only where something has to grow.
    fn make_room(&mut self, frame: u64, memory: u64, workspace: u64) -> Result<()> {
        let frames = self.slots.iter().map(|slot| slot.frame.bytes()).min().unwrap_or(u64::MAX);
        if frame <= frames && memory <= self.memory.bytes() && workspace <= self.workspace.bytes() {
            return Ok(());
        }
        self.wait()?;
        let cuda = &self.cuda;
        let grow = |of: &mut DeviceBytes, bytes: u64, spare: u64| {
            if bytes > of.bytes() {
                *of = cuda.allocate(0)?; // first the old one goes
                *of = cuda.allocate(bytes + spare)?;
            }
            Ok::<(), Error>(())
        };
        // What differs from request to request gets room for the next one.
        grow(&mut self.memory, memory, memory / 2)?;
        grow(&mut self.workspace, workspace, workspace / 2)?;
        self.slots.iter_mut().try_for_each(|slot| grow(&mut slot.frame, frame, 0))
    }

    /// Makes everything ready for slices, whose frames in slots have up to `frame` bytes: memory, kernels (these, and `others`), and, behind `after`, what their plans read.
    pub fn ready(
        &mut self,
        works: &[&impl Work],
        others: &[&'static Entry],
        frame: u64,
        pool: &PinnedPool,
        after: &CudaEvent,
    ) -> Result<Ready> {
        let workspace = works.iter().map(|work| work.workspace_bytes()).max().unwrap_or(0);
        let (places, bytes) = places(works.iter().map(|work| work.memory_bytes()));
        self.make_room(frame, bytes, workspace)?;
        let functions = self.load(works.iter().flat_map(|work| work.entries()).chain(others))?;
        let mut memory = vec![0; bytes as usize];
        for (work, &place) in works.iter().zip(&places) {
            let plan = work.memory(self.memory.address() + place);
            memory[place as usize..][..plan.len()].copy_from_slice(&plan);
        }
        self.codec.wait(after).map_err(driver_error("waiting for the stream of the caller"))?;
        let uploaded = self.upload(&memory, pool)?;
        Ok(Ready { places, functions, uploaded })
    }

    /// Queues what brings the memory of plans to the device. What comes back must be kept until that is done.
    fn upload(&self, bytes: &[u8], pool: &PinnedPool) -> Result<Option<PinnedBlock>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (to, stream) = (self.memory.address(), self.codec.cu_stream());
        let failed = driver_error("copying page numbers to the device");
        let Some(mut block) = pool.try_take(bytes.len() as u64) else {
            // The driver has read pageable memory when it returns.
            // SAFETY: the memory has room.
            unsafe { result::memcpy_htod_async(to, bytes, stream) }.map_err(failed)?;
            return Ok(None);
        };
        // SAFETY: the block is new; it is kept until the copy is done.
        unsafe {
            block.as_mut_slice().copy_from_slice(bytes);
            result::memcpy_htod_async(to, block.as_slice(), stream).map_err(failed)?;
        }
        Ok(Some(block))
    }

    /// The kernels of many slices.
    fn load<'e>(&self, entries: impl Iterator<Item = &'e &'static Entry>) -> Result<Functions> {
        let mut entries: Vec<&'static Entry> = entries.copied().collect();
        entries.sort_unstable_by_key(|entry| entry.name);
        entries.dedup_by_key(|entry| entry.name);
        self.cuda.bind()?;
        Functions::load(&self.cuda, &entries)
    }
}

/// Where pieces of such sizes lie, one behind the other, and where the last one ends.
pub(super) fn places(sizes: impl Iterator<Item = u64>) -> (Vec<u64>, u64) {
    let mut end = 0u64;
    let place = |bytes: u64| {
        let at = end.next_multiple_of(ALIGNMENT);
        end = at + bytes;
        at
    };
    (sizes.map(place).collect(), end)
}

impl Drop for Lane {
    fn drop(&mut self) {
        // What is in flight still uses the slots.
        let _ = self.wait();
    }
}
