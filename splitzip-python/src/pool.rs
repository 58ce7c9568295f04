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
    by_threads: Mutex<HashMap<usize, Arc<ThreadPool>>>,
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
        let new = Box::into_raw(Box::new(Pools { process, by_threads: Mutex::default() }));
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

/// Runs `work` on so many threads.
pub fn run<T: Send>(threads: Option<usize>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let threads = threads.unwrap_or_else(default_threads);
    if threads == 0 {
        return Err(Fault::argument("0 threads do nothing; give at least 1, or None for one a core"));
    }
    let pool = {
        let mut pools = pools().by_threads.lock().unwrap_or_else(PoisonError::into_inner);
        match pools.get(&threads) {
            Some(pool) => pool.clone(),
            None => {
                let name = |number| format!("splitzip-{number}");
                let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
                let pool =
                    pool.map_err(|error| Fault::Own("Error", format!("cannot start threads: {error}")))?;
                let pool = Arc::new(pool);
                pools.insert(threads, pool.clone());
                pool
            }
        }
    };
    pool.install(work)
}
