//! Bytes of a GPU's memory.

use super::context::GpuStream;
use super::result::gpu_result;
use crate::runtime::KernelError;
use cudarc::driver::{result, sys};

/// An allocation of a GPU's memory.
#[derive(Debug)]
pub(in crate::cuda) struct DeviceMemory {
    start: sys::CUdeviceptr,
    len: usize,
}

impl DeviceMemory {
    /// Allocates `len` bytes of any value.
    pub fn new(len: usize) -> Result<Self, KernelError> {
        // SAFETY: the memory is only read as bytes, for which every value is valid.
        let start = gpu_result(format!("{len} bytes of its memory"), unsafe { result::malloc_sync(len) })?;
        Ok(Self { start, len })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes from `offset` on.
    ///
    /// # Panics
    /// Where the range is not inside.
    pub fn at(&self, offset: usize, len: usize) -> sys::CUdeviceptr {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{offset} + {len} of {}",
            self.len
        );
        self.start + offset as u64
    }

    /// Writes `bytes` from `offset` on, after all work in `stream`, and waits for it.
    ///
    /// The driver's call without a stream may return before the bytes have arrived, and our streams
    /// do not wait for it.
    pub fn upload(&self, offset: usize, bytes: &[u8], stream: &GpuStream) -> Result<(), KernelError> {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checks the range; the bytes stay borrowed until the stream was waited for.
        let enqueued = unsafe { result::memcpy_htod_async(to, bytes, stream.raw()) };
        gpu_result("an upload", enqueued).and(stream.wait())
    }

    /// Reads `len` bytes from `offset` on, after all work in `stream`.
    pub fn download(&self, offset: usize, len: usize, stream: &GpuStream) -> Result<Vec<u8>, KernelError> {
        let mut bytes = vec![0u8; len];
        let from = self.at(offset, len);
        // SAFETY: `at` checks the range; the bytes stay borrowed until the stream was waited for.
        let enqueued = unsafe { result::memcpy_dtoh_async(&mut bytes, from, stream.raw()) };
        gpu_result("a download", enqueued).and(stream.wait())?;
        Ok(bytes)
    }

    /// Fills all of it with repetitions of `pattern`.
    pub fn fill(&self, pattern: &[u8], stream: &GpuStream) -> Result<(), KernelError> {
        let mut full = pattern.len().min(self.len);
        self.upload(0, &pattern[..full], stream)?;
        while full < self.len {
            let next = full.min(self.len - full);
            self.copy(full, 0, next, stream)?;
            full += next;
        }
        stream.wait()
    }

    /// Enqueues a copy of `len` bytes; the two ranges must not overlap.
    pub fn copy(&self, to: usize, from: usize, len: usize, stream: &GpuStream) -> Result<(), KernelError> {
        let (to, from) = (self.at(to, len), self.at(from, len));
        // SAFETY: `at` checks both ranges.
        gpu_result("a copy", unsafe { result::memcpy_dtod_async(to, from, len, stream.raw()) })
    }
}

/// A range of bytes that is inside a [`DeviceMemory`].
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda) struct DeviceRange<'a> {
    memory: &'a DeviceMemory,
    offset: usize,
    len: usize,
}

impl<'a> DeviceRange<'a> {
    /// `len` bytes of `memory` from `offset` on.
    ///
    /// # Panics
    /// Where the range is not inside.
    pub fn new(memory: &'a DeviceMemory, offset: usize, len: usize) -> Self {
        memory.at(offset, len);
        Self { memory, offset, len }
    }

    /// The address of the first byte.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.memory.at(self.offset, self.len)
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it, and its GPU has waited for all work on it.
        let _ = unsafe { result::free_sync(self.start) };
    }
}
