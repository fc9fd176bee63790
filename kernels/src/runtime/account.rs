//! The bytes of one memory: how many there are, and how many are in use.

use super::error::KernelError;
use hwprofiles::units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};

/// A memory's name, its capacity and the bytes in use.
#[derive(Debug)]
pub(super) struct MemoryAccount {
    name: String,
    capacity: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl MemoryAccount {
    pub(super) fn new(name: String, capacity: Bytes) -> Self {
        Self { name, capacity: capacity.get(), used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Counts `len` bytes as in use and returns the sum in use.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] where the sum would exceed the capacity.
    pub(super) fn take(&self, len: usize) -> Result<u64, KernelError> {
        let fits = |used: u64| used.checked_add(len as u64).filter(|&sum| sum <= self.capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(before) => Ok(before + len as u64),
            Err(used) => Err(KernelError::OutOfMemory {
                memory: self.name.clone(),
                wanted: Bytes::new(len as u64),
                used: Bytes::new(used),
                capacity: self.capacity(),
            }),
        }
    }

    /// Records that `sum` bytes were in use at once.
    pub(super) fn note_peak(&self, sum: u64) {
        self.peak.fetch_max(sum, Ordering::Relaxed);
    }

    /// Counts `len` bytes as free again.
    pub(super) fn give_back(&self, len: usize) {
        self.used.fetch_sub(len as u64, Ordering::Relaxed);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn capacity(&self) -> Bytes {
        Bytes::new(self.capacity)
    }

    pub(super) fn used(&self) -> Bytes {
        Bytes::new(self.used.load(Ordering::Relaxed))
    }

    pub(super) fn peak(&self) -> Bytes {
        Bytes::new(self.peak.load(Ordering::Relaxed))
    }
}
