//! Locks around the buffers that several lanes use.

use kernels::Buffer;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lane that panics ends the run before another lane meets its poisoned lock.
pub(crate) const POISONED: &str = "no lane has panicked";

/// Locks a buffer for reading.
pub(crate) fn read(lock: &RwLock<Buffer>) -> RwLockReadGuard<'_, Buffer> {
    lock.read().expect(POISONED)
}

/// Locks a buffer for writing.
pub(crate) fn write(lock: &RwLock<Buffer>) -> RwLockWriteGuard<'_, Buffer> {
    lock.write().expect(POISONED)
}
