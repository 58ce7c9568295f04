//! Offload and reload: KV from a device to page-locked memory of the host, compressed, and back.
//!
//! A link between a GPU and its host moves some 55 GB/s, the codec 2300: the time of a transfer is that of its bytes on the link. So KV is cut into slices, a frame each. On
//! the way out the codec encodes one slice while the copy engine moves the one before, and on the way back it decodes one while the next arrives; a few slots of device
//! memory lie between the two ([`OffloadOptions::slice_bytes`]). Frames lie in a [`PinnedPool`], each in as many bytes as it has.
//!
//! - Out: the length of a frame is known when it is encoded. A thread waits for that, two slices ahead of the copy engine, and asks for a copy of just those bytes.
//! - Back: everything is queued at once; the host knows all lengths.
//!
//! [`Way::Direct`] leaves the copy engine out: kernels write frames to the memory of the host, and read them there. That takes no scratch memory and no thread, but more room in the pool while it
//! lasts, and multiprocessors for as long as the link takes. It is faster where a transfer is short. Measurements of both are in `docs/performance.md`.
//!
//! KV in pages of a serving engine is gathered and scattered by the same kernels ([`DeviceKv::Pages`]).
//!
//! ```no_run
//! # use splitzip_host::cuda::{Cuda, StreamHandle, offload::{DeviceKv, OffloadOptions, Offloader, PinnedPool}};
//! # use splitzip_host::{Dtype, Flags, FrameSpec, Scheme, TensorSpec};
//! # use std::sync::Arc;
//! # fn main() -> splitzip_host::Result<()> {
//! let cuda = Cuda::open(0)?;
//! let offloader = Offloader::new(&cuda, &PinnedPool::new(&cuda, 4 << 30)?, OffloadOptions::default())?;
//! let spec = FrameSpec::new(vec![TensorSpec::new("k", Dtype::Bf16, Scheme::W2x3, &[32768, 8, 128])], Flags::default());
//! let kv = cuda.allocate(64 << 20)?;
//! let stream = StreamHandle(0);
//! // SAFETY: the KV is on the device, and stays as it is until it was read.
//! let offloading = unsafe { offloader.offload(&spec, &[], DeviceKv::Tensors(&[kv.address()]), stream)? };
//! let offloaded = Arc::new(offloading.wait()?);
//! println!("{} of {} bytes", offloaded.coded_bytes(), offloaded.raw_bytes());
//! // SAFETY: nobody else uses that memory.
//! let reloading = unsafe { offloader.reload(&offloaded, None, DeviceKv::Tensors(&[kv.address()]), stream)? };
//! reloading.wait()?;
//! # Ok(())
//! # }
//! ```

mod back;
mod choice;
mod counters;
mod error;
mod events;
mod extents;
mod file;
mod kept;
mod lane;
mod out;
mod pinned;
mod pump;
mod raw;
mod saved;
mod slices;
mod work;

pub use back::Reloading;
pub use choice::OffloadPolicy;
pub use counters::{Counters, DirectionCounters};
pub use error::OffloadError;
pub use file::KvFile;
pub use kept::Offloaded;
use kept::OffloadedSlice;
pub use out::Offloading;
pub(crate) use pinned::PinnedBlock;
pub use pinned::{PinnedBuffer, PinnedPool};
pub(crate) use saved::Direct;
pub use saved::FileIo;

use super::{Cuda, DevicePool, StreamHandle};
use crate::paged::Paged;
use crate::{CodebookChoice, Error, FrameSpec, Result};
use counters::Meters;
use events::Events;
use lane::Lane;
use out::State;
use pump::{Job, Pump, SLOTS};
use rayon::prelude::*;
use slices::{Rows, Slice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use work::{DecodeSlice, EncodeSlice};

/// Page-locked memory of an offloader's own: a page for its lengths, and one for every reload in progress.
const SMALL_BYTES: u64 = 1 << 20;

/// Slices that are described on the thread of the caller alone.
const FEW: usize = 4;

/// KV in device memory, to be read or written.
#[derive(Clone, Copy)]
pub enum DeviceKv<'a> {
    /// Tensors in one piece each, and their addresses: multiples of 16.
    Tensors(&'a [u64]),
    /// Tensors in pages.
    Pages {
        /// Where they are in the pools.
        of: &'a Paged<'a>,
        /// The pools.
        pools: &'a [DevicePool],
    },
}

impl DeviceKv<'_> {
    fn rows(&self) -> Rows {
        match self {
            DeviceKv::Tensors(_) => Rows::Any,
            DeviceKv::Pages { .. } => Rows::Tokens,
        }
    }
}

/// How frames get to the host, and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Way {
    /// The copy engine moves them, between the memory of the host and slots in device memory.
    #[default]
    Staged,
    /// Kernels write them to the memory of the host, and read them there.
    Direct,
}

/// How an offloader works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OffloadOptions {
    /// Raw bytes of a slice. Each direction has 4 slots of device memory for frames of such slices.
    pub slice_bytes: u64,
    /// How frames move.
    pub way: Way,
    /// How long an offload waits for room in a full pool until it fails.
    pub patience: Duration,
}

impl Default for OffloadOptions {
    fn default() -> OffloadOptions {
        OffloadOptions { slice_bytes: 64 << 20, way: Way::Staged, patience: Duration::from_secs(60) }
    }
}

impl OffloadOptions {
    /// The same with slices of so many raw bytes.
    pub fn with_slice_bytes(mut self, slice_bytes: u64) -> OffloadOptions {
        self.slice_bytes = slice_bytes;
        self
    }

    /// The same another way.
    pub fn with_way(mut self, way: Way) -> OffloadOptions {
        self.way = way;
        self
    }

    /// The same with another patience.
    pub fn with_patience(mut self, patience: Duration) -> OffloadOptions {
        self.patience = patience;
        self
    }
}

/// Moves KV between a device and the memory of the host. Any thread may use it, and any number at once: transfers of a direction are done in their order.
///
/// Dropping it ends offloads that have not begun with [`OffloadError::Stopped`], and waits for those that have.
pub struct Offloader {
    cuda: Cuda,
    pool: PinnedPool,
    /// Lengths and words of status: page-locked memory that no frames can fill.
    small: PinnedPool,
    options: OffloadOptions,
    meters: Arc<Meters>,
    events: Events,
    policy: RwLock<Option<OffloadPolicy>>,
    /// Of the way back; the thread has that of the way out.
    back: Mutex<Lane>,
    /// Of direct offloads.
    direct: Mutex<Lane>,
    jobs: Option<Sender<Job>>,
    stopping: Arc<AtomicBool>,
    pump: Option<JoinHandle<()>>,
}

impl Offloader {
    /// An offloader for a device, with memory from a pool. Starts a thread; device memory is allocated when it is first needed.
    ///
    /// # Errors
    /// [`Error::Device`], a thread that the system does not start.
    pub fn new(cuda: &Cuda, pool: &PinnedPool, options: OffloadOptions) -> Result<Offloader> {
        cuda.bind()?;
        let meters = Arc::new(Meters::default());
        let stopping = Arc::new(AtomicBool::new(false));
        let lane = Lane::new(cuda, SLOTS)?;
        let small = PinnedPool::new(cuda, SMALL_BYTES)?;
        let events = Events::new(cuda);
        let pump = Pump::new(
            lane,
            (pool.clone(), &small),
            events.clone(),
            options,
            meters.clone(),
            stopping.clone(),
        )?;
        let (jobs, received) = channel();
        let thread = std::thread::Builder::new().name("splitzip-offload".to_owned());
        let pump = thread.spawn(move || pump.run(&received))?;
        Ok(Offloader {
            back: Mutex::new(Lane::new(cuda, SLOTS)?),
            direct: Mutex::new(Lane::new(cuda, 0)?),
            cuda: cuda.clone(),
            pool: pool.clone(),
            small,
            options,
            meters,
            events,
            policy: RwLock::new(None),
            jobs: Some(jobs),
            stopping,
            pump: Some(pump),
        })
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.meters.read()
    }

    /// The pool that frames lie in.
    pub fn pool(&self) -> &PinnedPool {
        &self.pool
    }

    /// Starts an offload of the tensors of `spec`, after everything that is queued on `stream` so far, and returns. Where [a policy](Offloader::set_policy) says so, they are
    /// stored as they are; and tensors that are all [`Stored`](crate::Scheme::Stored) and lie in one piece each are copied without frames.
    ///
    /// `codebooks` has one choice a tensor, or none at all; [`Flags`](crate::Flags) hold for every frame.
    ///
    /// # Errors
    /// As [`Cuda::plan_encode`] and [`Cuda::plan_encode_paged`]; what comes later is told by [`Offloading::wait`].
    ///
    /// # Safety
    /// The KV, and page numbers in device memory, are valid on the device and not written until [`Offloading::wait_read`] returns, or the [`Offloading`] is
    /// dropped and the device idle; `stream` belongs to the context of the device.
    pub unsafe fn offload(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: DeviceKv<'_>,
        stream: StreamHandle,
    ) -> Result<Offloading> {
        let queued = self.meters.queued_bytes.load(Ordering::Relaxed);
        let as_it_is = self.policy().is_some_and(|policy| !policy.pays(choice::raw_bytes(spec), queued));
        // SAFETY: by contract.
        unsafe { self.offload_as(spec, codebooks, from, stream, as_it_is) }
    }

    /// The same after it was decided whether the KV is left as it is.
    ///
    /// # Safety
    /// As [`Offloader::offload`].
    unsafe fn offload_as(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: DeviceKv<'_>,
        stream: StreamHandle,
        as_it_is: bool,
    ) -> Result<Offloading> {
        if !codebooks.is_empty() && codebooks.len() != spec.tensors.len() {
            return Err(Error::Count {
                what: "codebooks",
                expected: spec.tensors.len(),
                got: codebooks.len(),
            });
        }
        match from {
            DeviceKv::Tensors(addresses) => {
                work::check_addresses("inputs", spec, addresses)?;
                if as_it_is || raw::is_raw(spec) {
                    // SAFETY: by contract.
                    return unsafe { self.offload_raw(spec, addresses, stream) };
                }
            }
            DeviceKv::Pages { of, pools } => {
                of.check_spec(spec)?;
                check_pages(of, pools, false)?;
            }
        }
        let stored = as_it_is.then(|| spec.stored());
        let spec = stored.as_ref().unwrap_or(spec);
        self.cuda.bind()?;
        let multiprocessors = self.cuda.info().multiprocessors;
        let slices = slices::cut(spec, from.rows(), self.options.slice_bytes)?;
        let work = |slice: Slice| {
            let work = EncodeSlice::new(&slice, codebooks, from, multiprocessors)?;
            Ok::<_, Error>((slice, work))
        };
        // Pages of long requests take milliseconds to describe; waking other threads takes longer than one slice.
        let slices = match slices.len() {
            ..=FEW => slices.into_iter().map(work).collect::<Result<Vec<_>>>()?,
            _ => slices.into_par_iter().map(work).collect::<Result<Vec<_>>>()?,
        };
        let slices: Arc<[_]> = slices.into();
        let after = self.events.mark(stream)?;
        let state = self.state(spec.clone(), choice::raw_bytes(spec))?;
        let job = Job { state: state.clone(), slices, after };
        match self.options.way {
            Way::Staged => {
                let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
                if !matches!(sent, Some(Ok(()))) {
                    return Err(OffloadError::Stopped.into());
                }
            }
            Way::Direct => pump::direct(&mut lock(&self.direct), &self.pool, &self.options, &job)?,
        }
        Ok(Offloading { state })
    }

    fn state(&self, spec: FrameSpec, raw_bytes: u64) -> Result<Arc<State>> {
        let events = [self.events.take()?, self.events.take()?];
        Ok(Arc::new(State::new(spec, raw_bytes, events, self.meters.clone())))
    }

    /// Queues a reload: of all tensors, or of those tensors and tokens that `to` has in pages. Work that is queued on `stream` before comes first, and later work there finds the
    /// KV.
    ///
    /// # Errors
    /// As [`Cuda::plan_decode`] and [`Cuda::plan_decode_paged`]; [`OffloadError::TokensOfTensors`]; damaged frames are told by [`Reloading::wait`].
    ///
    /// # Safety
    /// The destination is valid on the device, and nobody else uses it until the reload is over; `stream` belongs to the context of the device.
    pub unsafe fn reload(
        &self,
        from: &Arc<Offloaded>,
        tokens: Option<Range<u64>>,
        to: DeviceKv<'_>,
        stream: StreamHandle,
    ) -> Result<Reloading> {
        let wanted = work::wanted(from.spec(), tokens, to)?;
        self.cuda.bind()?;
        if from.is_raw() {
            // SAFETY: by contract.
            return unsafe { self.reload_raw(from, to, stream) };
        }
        if let DeviceKv::Pages { of, pools } = to {
            check_pages(of, pools, true)?;
        }
        let slice = |(number, slice): (usize, &OffloadedSlice)| {
            let spec = slice.spec.as_ref()?;
            let work = match to {
                DeviceKv::Tensors(addresses) => {
                    DecodeSlice::to_tensors(spec, &slice.pieces, addresses).map(Some)
                }
                DeviceKv::Pages { of, pools } => {
                    DecodeSlice::to_pages(spec, &slice.pieces, &wanted, (of, pools))
                }
            };
            work.map(|work| work.map(|work| (number, work))).transpose()
        };
        let slices = match from.slices.len() {
            ..=FEW => from.slices.iter().enumerate().filter_map(slice).collect::<Result<Vec<_>>>()?,
            _ => from.slices.par_iter().enumerate().filter_map(slice).collect::<Result<Vec<_>>>()?,
        };
        let after = self.events.mark(stream)?;
        let reload = back::Reload {
            pool: &self.pool,
            small: &self.small,
            patience: self.options.patience,
            events: &self.events,
            meters: &self.meters,
            from,
            slices,
            is_direct: self.options.way == Way::Direct,
        };
        // SAFETY: by contract.
        unsafe { reload.queue(&mut lock(&self.back), &after, stream) }
    }
}

impl Drop for Offloader {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.jobs = None;
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

impl std::fmt::Debug for Offloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Offloader");
        debug.field("cuda", &self.cuda).field("pool", &self.pool).field("options", &self.options).finish()
    }
}

/// Says whether the pools have all pages, once for all slices.
fn check_pages(of: &Paged<'_>, pools: &[DevicePool], unique: bool) -> Result<()> {
    let bytes: Vec<u64> = pools.iter().map(|pool| pool.bytes).collect();
    Ok(of.check_pools_on(&bytes, unique, true)?)
}

fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
