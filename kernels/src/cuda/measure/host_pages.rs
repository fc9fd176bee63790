//! Host memory that transfers start from or go to.

use crate::cuda::driver::context::GpuStream;
use crate::cuda::driver::device_memory::DeviceRange;
use crate::cuda::driver::result::gpu_result;
use crate::runtime::{Buffer, KernelError};
use cudarc::driver::{result, sys};

/// Bytes of the host whose pages can be locked.
#[derive(Debug)]
pub(in crate::cuda) struct HostPages {
    bytes: Buffer,
    pinned: bool,
}

impl HostPages {
    /// `len` pageable bytes that repeat `pattern`, touched by the calling thread.
    pub fn new(len: usize, pattern: &[u8]) -> Result<Self, KernelError> {
        let mut bytes = Buffer::new(len)?;
        bytes
            .bytes_mut()
            .chunks_mut(pattern.len())
            .for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
        Ok(Self { bytes, pinned: false })
    }

    /// Locks its pages, or unlocks them. No transfer may be under way.
    pub fn set_pinned(&mut self, pinned: bool) -> Result<(), KernelError> {
        if pinned == self.pinned {
            return Ok(());
        }
        let bytes = self.bytes.bytes_mut();
        let start = bytes.as_mut_ptr().cast();
        // Our own pages are registered, because memory that the driver allocates would be
        // write-combined or on a NUMA node of its choice.
        // SAFETY: the range is mapped, starts at a page, and stays so until `drop` has undone this.
        let result = unsafe {
            if pinned {
                sys::cuMemHostRegister_v2(start, bytes.len(), 0)
            } else {
                sys::cuMemHostUnregister(start)
            }
        };
        gpu_result("host memory", result.result())?;
        self.pinned = pinned;
        Ok(())
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.bytes().len()
    }

    /// The bytes. No transfer to them may be under way.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// Enqueues a transfer to all of `to`, of the bytes from `offset` on.
    ///
    /// # Safety
    /// Until the stream's work is done, these bytes are neither written nor freed, and the device
    /// memory is not freed.
    ///
    /// # Panics
    /// Where there are fewer bytes from `offset` on.
    pub unsafe fn send(
        &self,
        offset: usize,
        to: DeviceRange<'_>,
        stream: &GpuStream,
    ) -> Result<(), KernelError> {
        let from = &self.bytes.bytes()[offset..][..to.len()];
        // SAFETY: both ranges are inside their memories, which stay as the caller promises.
        let enqueued = unsafe { result::memcpy_htod_async(to.address(), from, stream.raw()) };
        gpu_result("a transfer to it", enqueued)
    }

    /// Enqueues a transfer from all of `from`, to the bytes from `offset` on.
    ///
    /// # Safety
    /// Until the stream's work is done, these bytes are neither read, written nor freed, and the
    /// device memory is neither written nor freed.
    ///
    /// # Panics
    /// Where there are fewer bytes from `offset` on.
    pub unsafe fn receive(
        &mut self,
        offset: usize,
        from: DeviceRange<'_>,
        stream: &GpuStream,
    ) -> Result<(), KernelError> {
        let to = &mut self.bytes.bytes_mut()[offset..][..from.len()];
        // SAFETY: both ranges are inside their memories, which stay as the caller promises.
        let enqueued = unsafe { result::memcpy_dtoh_async(to, from.address(), stream.raw()) };
        gpu_result("a transfer from it", enqueued)
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // An error here cannot be handled; the driver unlocks the pages with its context.
        let _ = self.set_pinned(false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{gpu::Gpu, stand_in};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn ranges_outside_either_memory_are_refused() {
        let Ok(gpu) = Gpu::open(hwprofiles::units::Bytes::new(1 << 20)) else { return };
        let (memory, stream) = (&gpu.arena.memory, &gpu.stream);
        let mut pages = HostPages::new(1 << 20, &[1, 2, 3]).expect("memory");
        let inside = DeviceRange::new(memory, 0, 64);
        let refused = |act: &mut dyn FnMut()| assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
        for (offset, len) in [(memory.len(), 1), (0, memory.len() + 1), (usize::MAX, 2)] {
            refused(&mut || {
                DeviceRange::new(memory, offset, len);
            });
        }
        for offset in [(1 << 20) - 63, 1 << 20, usize::MAX] {
            // SAFETY: `wait` below ends the work before the pages and the arena are dropped.
            refused(&mut || drop(unsafe { pages.send(offset, inside, stream) }));
            // SAFETY: as above.
            refused(&mut || drop(unsafe { pages.receive(offset, inside, stream) }));
        }
        // SAFETY: `wait` below ends the work before the arena is dropped.
        let read = |from, into| drop(unsafe { gpu.kernels.read(from, into, stream) });
        let range = |offset, len| DeviceRange::new(memory, offset, len);
        refused(&mut || read(range(0, 15), range(64, 4)));
        refused(&mut || read(range(8, 16), range(64, 4)));
        refused(&mut || read(range(0, 16), range(64, 3)));
        refused(&mut || read(range(0, 16), range(65, 4)));
        stream.wait().expect("all of it");
        println!("all are refused");
    }

    #[test]
    fn ranges_outside_either_memory_are_refused_behind_a_stand_in() {
        let name = "cuda::measure::host_pages::tests::ranges_outside_either_memory_are_refused";
        let output = stand_in::run(name);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("all are refused"), "{text}{errors}");
    }
}
