//! The threads that code on the CPU.
//!
//! They are those of this process: a child that was forked has none of its parent's, and would wait for them for ever, so it starts its own.

use crate::error::{Fault, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

struct Pools {
    process: u32,
    /// As many threads as cores, which all calls share.
    shared: Mutex<Option<Arc<ThreadPool>>>,
    /// Those of calls that said how many: idle ones, by that number. Each call has one to itself, so that two of one thread each run side by side.
    idle: Mutex<HashMap<usize, Vec<ThreadPool>>>,
}

static POOLS: AtomicPtr<Pools> = AtomicPtr::new(std::ptr::null_mut());

/// The pools of this process. Those of a parent are left alone: a lock of theirs may be held by a thread that is not here.
fn pools() -> &'static Pools {
    let process = std::process::id();
    loop {
        let found = POOLS.load(Ordering::Acquire);
        // SAFETY: null, or leaked below and so valid for ever.
        if let Some(pools) = unsafe { found.as_ref() }.filter(|pools| pools.process == process) {
            return pools;
        }
        let new = Pools { process, shared: Mutex::default(), idle: Mutex::default() };
        let new = Box::into_raw(Box::new(new));
        if POOLS.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made here, and nobody has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// As many threads as there are cores for this process, unless `RAYON_NUM_THREADS` says another number.
fn default_threads() -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.filter(|&threads| threads != 0).unwrap_or_else(cores)
}

fn pool_of(threads: usize) -> Result<ThreadPool> {
    let name = |number| format!("splitzip-{number}");
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
    pool.map_err(|error| Fault::Own("Error", format!("cannot start threads: {error}")))
}

/// Runs `work` on so many threads; without a number on one a core, shared with other such calls.
pub fn run<T: Send>(threads: Option<usize>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pools = pools();
    let Some(threads) = threads else {
        let pool = {
            let mut shared = pools.shared.lock().unwrap_or_else(PoisonError::into_inner);
            match &*shared {
                Some(pool) => pool.clone(),
                None => shared.insert(Arc::new(pool_of(default_threads())?)).clone(),
            }
        };
        return pool.install(work);
    };
    if threads == 0 {
        return Err(Fault::argument("0 threads do nothing; give at least 1, or None for one a core"));
    }
    let idle = || pools.idle.lock().unwrap_or_else(PoisonError::into_inner);
    let found = idle().get_mut(&threads).and_then(Vec::pop);
    let pool = found.map_or_else(|| pool_of(threads), Ok)?;
    let done = pool.install(work);
    idle().entry(threads).or_default().push(pool);
    done
}
