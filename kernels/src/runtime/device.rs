//! What a device with a memory of its own, such as a GPU, provides for buffers.
//!
//! Buffers and arenas know a device only by these traits, so this room does not depend on CUDA.

use super::error::KernelError;
use std::fmt::Debug;
use std::sync::Arc;

/// A device that allocates its own memory.
pub(crate) trait DeviceAllocator: Debug + Send + Sync {
    /// Allocates `len` bytes of any value.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where the device has no such memory left.
    fn allocate(self: Arc<Self>, len: usize) -> Result<Box<dyn DeviceBytes>, KernelError>;
}

/// Bytes of a device's memory. Dropping them waits for the device's work and then frees them.
pub(crate) trait DeviceBytes: Debug + Send + Sync {
    /// The address of the first byte, as the device sees it.
    fn address(&self) -> u64;

    /// Writes `bytes` from `offset` on and returns when they have arrived.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    fn upload(&self, offset: usize, bytes: &[u8]) -> Result<(), KernelError>;

    /// Reads `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    fn download(&self, offset: usize, len: usize) -> Result<Vec<u8>, KernelError>;
}

/// Keeps host pages locked, so that a device reaches them, until it is dropped.
pub(crate) trait PageLock: Debug + Send + Sync {}
