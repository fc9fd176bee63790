//! The GPU's memory, and the host's that a GPU can reach.

use super::context::Stream;
use super::done;
use crate::{Buffer, Error};
use cudarc::driver::{result, sys};

/// Bytes of the GPU's memory.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    start: sys::CUdeviceptr,
    len: usize,
}

impl DeviceMemory {
    /// `len` bytes of any value.
    pub fn new(len: usize) -> Result<Self, Error> {
        // SAFETY: only bytes are read from it, all of which are values.
        let start = done(format!("{len} bytes of its memory"), unsafe { result::malloc_sync(len) })?;
        Ok(Self { start, len })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes from `offset` on.
    ///
    /// # Panics
    /// Where they are not all inside.
    pub fn at(&self, offset: usize, len: usize) -> sys::CUdeviceptr {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{offset} + {len} of {}",
            self.len
        );
        self.start + offset as u64
    }

    /// Writes `bytes` from `offset` on, when all in `stream` is done.
    ///
    /// Not by the driver's call without a stream: that may return before the bytes have arrived, and our streams do
    /// not wait for it.
    pub fn upload(&self, offset: usize, bytes: &[u8], stream: &Stream) -> Result<(), Error> {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checks the range; the bytes are borrowed until the stream has been waited for.
        let enqueued = unsafe { result::memcpy_htod_async(to, bytes, stream.raw()) };
        done("an upload", enqueued).and(stream.wait())
    }

    /// Reads `len` bytes from `offset` on, when all in `stream` is done.
    pub fn download(&self, offset: usize, len: usize, stream: &Stream) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0u8; len];
        let from = self.at(offset, len);
        // SAFETY: `at` checks the range; the bytes are borrowed until the stream has been waited for.
        let enqueued = unsafe { result::memcpy_dtoh_async(&mut bytes, from, stream.raw()) };
        done("a download", enqueued).and(stream.wait())?;
        Ok(bytes)
    }

    /// Fills it with `pattern`, again and again.
    pub fn fill(&self, pattern: &[u8], stream: &Stream) -> Result<(), Error> {
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
    pub fn copy(&self, to: usize, from: usize, len: usize, stream: &Stream) -> Result<(), Error> {
        let (to, from) = (self.at(to, len), self.at(from, len));
        // SAFETY: `at` checks both ranges.
        done("a copy", unsafe { result::memcpy_dtod_async(to, from, len, stream.raw()) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; its GPU has waited for all work on it.
        let _ = unsafe { result::free_sync(self.start) };
    }
}

/// Host memory that transfers start from or go to.
#[derive(Debug)]
pub(super) struct HostPages {
    bytes: Buffer,
    pinned: bool,
}

impl HostPages {
    /// `len` pageable bytes that repeat `pattern`, touched by the calling thread.
    pub fn new(len: usize, pattern: &[u8]) -> Result<Self, Error> {
        let mut bytes = Buffer::new(len)?;
        bytes
            .bytes_mut()
            .chunks_mut(pattern.len())
            .for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
        Ok(Self { bytes, pinned: false })
    }

    /// Locks its pages, or lets them go. No transfer may be under way.
    pub fn set_pinned(&mut self, pinned: bool) -> Result<(), Error> {
        if pinned == self.pinned {
            return Ok(());
        }
        let bytes = self.bytes.bytes_mut();
        let start = bytes.as_mut_ptr().cast();
        // Registered, not allocated by the driver: that memory would be write-combined or on a node of its choice.
        // SAFETY: the range is mapped, starts at a page, and stays so until `drop` has undone this.
        let result = unsafe {
            if pinned {
                sys::cuMemHostRegister_v2(start, bytes.len(), 0)
            } else {
                sys::cuMemHostUnregister(start)
            }
        };
        done("host memory", result.result())?;
        self.pinned = pinned;
        Ok(())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.bytes.bytes().len()
    }

    /// All of them. No transfer to them may be under way.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// Enqueues a transfer of `len` bytes from `offset` on to `to`.
    pub fn send(
        &self,
        offset: usize,
        to: sys::CUdeviceptr,
        len: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        let from = &self.bytes.bytes()[offset..offset + len];
        // SAFETY: the caller got `to` for `len` bytes, and waits for the stream before these bytes are written or freed.
        done("a transfer to it", unsafe { result::memcpy_htod_async(to, from, stream.raw()) })
    }

    /// Enqueues a transfer of `len` bytes at `from` to these from `offset` on.
    pub fn receive(
        &mut self,
        offset: usize,
        from: sys::CUdeviceptr,
        len: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        let to = &mut self.bytes.bytes_mut()[offset..offset + len];
        // SAFETY: the caller got `from` for `len` bytes, and waits for the stream before these bytes are read or freed.
        done("a transfer from it", unsafe { result::memcpy_dtoh_async(to, from, stream.raw()) })
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // An error at the end helps nobody; the driver lets go of the pages with its context.
        let _ = self.set_pinned(false);
    }
}
