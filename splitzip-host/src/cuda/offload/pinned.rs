//! Page-locked memory of the host, with a bound.
//!
//! A copy engine reaches its speed from such memory only, and kernels can read and write it themselves. Locking pages takes the system half a second a
//! gigabyte, so a pool is locked once and handed out in parts. Who finds it full waits: that is what holds back a model that offloads faster than
//! others reload.

use super::OffloadError;
use super::extents::Extents;
use crate::cuda::{Cuda, driver_error};
use crate::{Error, Result};
use cudarc::driver::{CudaContext, result, sys};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a wait lasts until cancellation is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Page-locked memory that many offloads share. Clones are the same pool.
#[derive(Clone)]
pub struct PinnedPool {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Memory,
    extents: Mutex<Extents>,
    given: Condvar,
}

/// The memory itself.
struct Memory {
    context: Arc<CudaContext>,
    start: *mut u8,
}

// SAFETY: a plain allocation; who may touch which part is decided by the extents.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated once; all parts are gone, since each holds the pool.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}

impl PinnedPool {
    /// A pool of `bytes` bytes, rounded down to whole pages, that all devices of the process can use.
    ///
    /// # Errors
    /// [`Error::Device`] when the system does not lock so much.
    pub fn new(cuda: &Cuda, bytes: u64) -> Result<PinnedPool> {
        cuda.bind()?;
        let extents = Extents::new(bytes);
        let size = usize::try_from(extents.bytes()).map_err(|_| Error::HostMemory { bytes })?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: freed once, on drop.
        let start = unsafe { result::malloc_host(size.max(1), flags) };
        let start = start.map_err(driver_error(&format!("locking {bytes} bytes of memory")))?.cast();
        let memory = Memory { context: cuda.context().clone(), start };
        Ok(PinnedPool {
            shared: Arc::new(Shared { memory, extents: Mutex::new(extents), given: Condvar::new() }),
        })
    }

    /// All of its bytes.
    pub fn bytes(&self) -> u64 {
        self.extents().bytes()
    }

    /// Bytes that are free, in however many pieces.
    pub fn free_bytes(&self) -> u64 {
        self.extents().free_bytes()
    }

    fn extents(&self) -> MutexGuard<'_, Extents> {
        self.shared.extents.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A part of `bytes` bytes in one piece, if there is one.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<PinnedBlock> {
        let part = self.extents().take(bytes)?;
        Some(PinnedBlock { pool: self.clone(), part, bytes })
    }

    /// The same; waits for others to give theirs back, at most `patience`, and no longer once one of `ends` is set.
    ///
    /// # Errors
    /// [`OffloadError::PoolTooSmall`], [`OffloadError::PoolFull`], [`OffloadError::Cancelled`].
    pub(super) fn take(
        &self,
        what: &'static str,
        bytes: u64,
        patience: Duration,
        ends: &[&AtomicBool],
    ) -> Result<PinnedBlock> {
        let mut extents = self.extents();
        if Extents::rounded(bytes).is_none_or(|rounded| rounded > extents.bytes()) {
            return Err(OffloadError::PoolTooSmall { what, needed: bytes, bytes: extents.bytes() }.into());
        }
        let start = Instant::now();
        loop {
            if ends.iter().any(|end| end.load(Ordering::Acquire)) {
                return Err(OffloadError::Cancelled.into());
            }
            if let Some(part) = extents.take(bytes) {
                return Ok(PinnedBlock { pool: self.clone(), part, bytes });
            }
            if start.elapsed() >= patience {
                let (all, free) = (extents.bytes(), extents.free_bytes());
                return Err(OffloadError::PoolFull { what, needed: bytes, bytes: all, free }.into());
            }
            let waited = self.shared.given.wait_timeout(extents, LOOK_AGAIN);
            extents = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

impl PinnedPool {
    /// Memory for a frame that comes from elsewhere, full of zeros.
    ///
    /// # Errors
    /// [`OffloadError::PoolTooSmall`], and [`OffloadError::PoolFull`] after `patience`.
    pub fn buffer(&self, bytes: u64, patience: Duration) -> Result<PinnedBuffer> {
        let mut block = self.take("a frame", bytes, patience, &[])?;
        // SAFETY: the block is new.
        unsafe { block.pages_mut() }.fill(0);
        Ok(PinnedBuffer(block))
    }
}

/// Page-locked memory that is being filled. Dropping it gives it back to its pool.
#[derive(Debug)]
pub struct PinnedBuffer(pub(super) PinnedBlock);

impl std::ops::Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it was filled with zeros, and no device knows of it.
        unsafe { self.0.as_slice() }
    }
}

impl std::ops::DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { self.0.as_mut_slice() }
    }
}

impl std::fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let extents = self.extents();
        f.debug_struct("PinnedPool")
            .field("bytes", &extents.bytes())
            .field("free_bytes", &extents.free_bytes())
            .finish()
    }
}

/// A part of a pool, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    pool: PinnedPool,
    part: Range<u64>,
    bytes: u64,
}

impl PinnedBlock {
    /// Its address, for the host and for all devices.
    pub fn address(&self) -> u64 {
        self.pool.shared.memory.start as u64 + self.part.start
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the end back.
    pub fn shrink(&mut self, bytes: u64) {
        let kept =
            Extents::rounded(bytes).map_or(self.part.end, |kept| self.part.start + kept).min(self.part.end);
        self.bytes = self.bytes.min(bytes);
        let end = std::mem::replace(&mut self.part.end, kept);
        self.pool.extents().give(kept..end);
        self.pool.shared.given.notify_all();
    }

    /// Clears what is behind the bytes that were asked for, up to the end of their page.
    pub fn clear_padding(&mut self) {
        let bytes = self.bytes as usize;
        // SAFETY: who has it to change has nothing in flight to it.
        let pages = unsafe { self.pages_mut() };
        pages[bytes..].fill(0);
    }

    /// All of its pages, to be written.
    ///
    /// # Safety
    /// As [`PinnedBlock::as_mut_slice`].
    pub unsafe fn pages_mut(&mut self) -> &mut [u8] {
        let all = (self.part.end - self.part.start) as usize;
        // SAFETY: the part belongs to the block alone, the rest by contract.
        unsafe { std::slice::from_raw_parts_mut(self.address() as usize as *mut u8, all) }
    }

    /// All of its pages.
    ///
    /// # Safety
    /// As [`PinnedBlock::as_slice`], and the padding was cleared.
    pub unsafe fn pages(&self) -> &[u8] {
        let all = (self.part.end - self.part.start) as usize;
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.address() as usize as *const u8, all) }
    }

    /// What is in it.
    ///
    /// # Safety
    /// It was written, and no device writes to it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the part belongs to the block alone, the rest by contract.
        unsafe { std::slice::from_raw_parts(self.address() as usize as *const u8, self.bytes as usize) }
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// No device reads or writes it.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address() as usize as *mut u8, self.bytes as usize) }
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        self.pool.extents().give(self.part.clone());
        self.pool.shared.given.notify_all();
    }
}
