//! Buffers that a GPU reaches: in its own memory, or in locked pages of the host.

use super::accelerator::Accelerator;
use crate::cpu::RopeTable;
use crate::cuda::calls::{GpuSlice, Rotation};
use crate::cuda::driver::device_memory::DeviceMemory;
use crate::cuda::driver::result::gpu_result;
use crate::runtime::{Buffer, DeviceAllocator, DeviceBytes, KernelError, MemoryArena, PageLock, Scratch};
use cudarc::driver::sys;
use hwprofiles::units::Bytes;
use std::sync::Arc;

/// Bytes of a GPU's memory.
#[derive(Debug)]
struct GpuBytes {
    // Dropped in this order: the GPU that owns the memory last.
    memory: DeviceMemory,
    gpu: Arc<Accelerator>,
}

impl DeviceBytes for GpuBytes {
    fn address(&self) -> u64 {
        self.memory.at(0, 0)
    }

    fn upload(&self, offset: usize, bytes: &[u8]) -> Result<(), KernelError> {
        self.gpu.with_own_stream(|stream| self.memory.upload(offset, bytes, stream))
    }

    fn download(&self, offset: usize, len: usize) -> Result<Vec<u8>, KernelError> {
        self.gpu.with_own_stream(|stream| self.memory.download(offset, len, stream))
    }
}

impl Drop for GpuBytes {
    fn drop(&mut self) {
        // Enqueued work must finish before its memory is freed. An error here cannot be handled.
        let _ = self.gpu.synchronize();
    }
}

impl DeviceAllocator for Accelerator {
    fn allocate(self: Arc<Self>, len: usize) -> Result<Box<dyn DeviceBytes>, KernelError> {
        self.bind()?;
        // The driver refuses an allocation of no bytes.
        Ok(Box::new(GpuBytes { memory: DeviceMemory::new(len.max(1))?, gpu: self }))
    }
}

/// Host pages that are locked for a GPU while this lives.
#[derive(Debug)]
struct LockedPages {
    start: usize,
    gpu: Arc<Accelerator>,
}

impl PageLock for LockedPages {}

impl Drop for LockedPages {
    fn drop(&mut self) {
        let _ = self.gpu.synchronize();
        // SAFETY: `Buffer::pin` registered this range, which stays mapped until after this.
        let _ = unsafe { sys::cuMemHostUnregister(self.start as *mut _) };
    }
}

impl MemoryArena {
    /// An empty memory of a GPU.
    pub fn on_gpu(name: impl Into<String>, capacity: Bytes, gpu: Arc<Accelerator>) -> Self {
        Self::on_device(name.into(), capacity, gpu)
    }
}

impl Buffer {
    /// Locks the host's pages, so that a GPU reaches them at their address and without the
    /// processor. A buffer in a GPU's memory is left as it is.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where the pages cannot be locked.
    pub fn pin(&mut self, gpu: &Arc<Accelerator>) -> Result<(), KernelError> {
        if self.is_on_gpu() || self.is_locked() || self.is_empty() {
            return Ok(());
        }
        gpu.bind()?;
        // Our own pages are registered, because memory that the driver allocates would be
        // write-combined or on a NUMA node of its choice.
        // SAFETY: the range is mapped, starts at a page, and stays so until the lock has been
        // dropped.
        let locked = unsafe { sys::cuMemHostRegister_v2(self.start().cast(), self.len(), 0) };
        gpu_result("host memory", locked.result())?;
        self.set_lock(Box::new(LockedPages { start: self.start() as usize, gpu: Arc::clone(gpu) }));
        Ok(())
    }

    /// All of it as values that a GPU's kernels take.
    ///
    /// # Panics
    /// Where no GPU reaches it.
    pub fn values<T>(&self) -> GpuSlice<T> {
        // SAFETY: the buffer is there, and waits for all work of its GPU before it is freed. If a
        // kernel gets a copy of this slice after that, the GPU's address translation stops it with
        // an error.
        unsafe { GpuSlice::new(self.device_address(), self.len() / size_of::<T>()) }
    }
}

impl Scratch {
    /// All of it as values that a GPU's kernels take.
    ///
    /// # Panics
    /// As [`Buffer::values`].
    pub fn values<T>(&self) -> GpuSlice<T> {
        self.buffer().values()
    }
}

impl RopeTable {
    /// The table as a GPU's kernels take it.
    ///
    /// # Panics
    /// As [`Buffer::values`].
    pub fn on_gpu(&self) -> Rotation {
        let all = self.values().values();
        let count = self.positions() * self.half();
        let (cosines, sines) = (all.first(count), all.from(count).first(count));
        Rotation { cosines, sines, half: self.half(), interleaved: self.is_interleaved() }
    }
}
