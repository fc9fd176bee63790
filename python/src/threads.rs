//! Threads that survive a fork.
//!
//! Python's processes are often forked, and a fork has none of its parent's threads: a pool that
//! was made before would wait for them for ever. So each process makes its own.

use fulcrum::{OrError, Result};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// Computes on this process's threads, without the interpreter's lock.
pub fn detached<T: Send>(py: Python<'_>, compute: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    py.detach(|| pool()?.install(compute))
}

fn pool() -> Result<Arc<ThreadPool>> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*pool {
        Some((owner, threads)) if *owner == process::id() => Ok(threads.clone()),
        _ => {
            let threads = Arc::new(ThreadPoolBuilder::new().build().or_failed()?);
            // The parent's pool cannot be ended here: its threads are not in this process.
            if let Some((_, parents)) = pool.replace((process::id(), threads.clone())) {
                std::mem::forget(parents);
            }
            Ok(threads)
        }
    }
}
