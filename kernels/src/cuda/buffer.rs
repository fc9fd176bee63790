//! Buffers that a GPU reaches: its own memory, and the host's with its pages locked.

use super::calls::Values;
use super::memory::DeviceMemory;
use super::{Accelerator, done};
use crate::{Buffer, Error, Memory};
use bytemuck::Pod;
use cudarc::driver::sys;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a GPU's memory.
#[derive(Debug)]
pub(crate) struct OnGpu {
    // Dropped in this order: who has the memory last.
    memory: DeviceMemory,
    gpu: Arc<Accelerator>,
}

impl Drop for OnGpu {
    fn drop(&mut self) {
        // What is enqueued must be done before its memory goes. An error at the end helps nobody.
        let _ = self.gpu.settle();
    }
}

/// Pages of the host that a GPU reaches while this lives.
#[derive(Debug)]
pub(crate) struct Pin {
    start: usize,
    gpu: Arc<Accelerator>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = self.gpu.settle();
        // SAFETY: `Buffer::pin` registered this range, which is mapped until after.
        let _ = unsafe { sys::cuMemHostUnregister(self.start as *mut _) };
    }
}

impl Buffer {
    /// `len` bytes of a GPU's memory, which `memory` has counted.
    pub(crate) fn on_gpu(len: usize, memory: Memory, gpu: &Arc<Accelerator>) -> Result<Self, Error> {
        gpu.bind()?;
        // An allocation of nothing is refused.
        let bytes = OnGpu { memory: DeviceMemory::new(len.max(1))?, gpu: Arc::clone(gpu) };
        Ok(Self::elsewhere(len, memory, bytes))
    }

    /// Whether it is a GPU's.
    pub fn is_on_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// Lets a GPU reach the host's bytes at their address and without the processor. A GPU's own are left as they are.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the pages cannot be locked.
    pub fn pin(&mut self, gpu: &Arc<Accelerator>) -> Result<(), Error> {
        if self.gpu.is_some() || self.pin.is_some() || self.is_empty() {
            return Ok(());
        }
        gpu.bind()?;
        // Registered, not allocated by the driver: that memory would be write-combined or on a node of its choice.
        // SAFETY: the range is mapped, starts at a page, and stays so until the pin has been dropped.
        let locked = unsafe { sys::cuMemHostRegister_v2(self.start().cast(), self.len(), 0) };
        done("host memory", locked.result())?;
        self.pin = Some(Pin { start: self.start() as usize, gpu: Arc::clone(gpu) });
        Ok(())
    }

    /// All of it as values that a GPU's kernels take.
    ///
    /// # Panics
    /// Where no GPU reaches it.
    pub fn values<T>(&self) -> Values<T> {
        let address = match &self.gpu {
            Some(bytes) => bytes.memory.at(0, 0),
            None => {
                assert!(self.pin.is_some() || self.is_empty(), "host memory that no GPU reaches");
                self.start() as u64
            }
        };
        // SAFETY: the buffer is there, and waits for all work of its GPU before it goes. A kernel that is called with a
        // copy of these values after that is stopped by the GPU's address translation: an error, not a wild write.
        unsafe { Values::new(address, self.len() / size_of::<T>()) }
    }

    /// Writes `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    ///
    /// # Panics
    /// Where they are not all inside.
    pub fn upload(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        match &self.gpu {
            Some(to) => to.gpu.by_itself(|stream| to.memory.upload(offset, bytes, stream)),
            None => {
                self.bytes_mut()[offset..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Some of its values, wherever it is. What writes them must have been waited for.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    ///
    /// # Panics
    /// Where they are not all inside.
    pub fn read_back<T: Pod>(&self, range: Range<usize>) -> Result<Vec<T>, Error> {
        let Some(from) = &self.gpu else {
            let bytes = &self.bytes()[range.start * size_of::<T>()..range.end * size_of::<T>()];
            return Ok(values_of(bytes));
        };
        let (at, len) = (range.start * size_of::<T>(), range.len() * size_of::<T>());
        from.gpu.by_itself(|stream| from.memory.download(at, len, stream)).map(|bytes| values_of(&bytes))
    }
}

fn values_of<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
