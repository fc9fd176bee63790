//! Working memory of kernels.

use super::arena::MemoryArena;
use super::buffer::Buffer;
use super::error::KernelError;

/// Working memory of kernels, allocated once.
///
/// [`crate::gemm::scratch_bytes`] and [`crate::attention::scratch_bytes`] tell how much a call
/// needs. One scratch of the largest size serves all calls in turn. Its contents mean nothing
/// between calls.
#[derive(Debug)]
pub struct Scratch(Buffer);

impl Scratch {
    /// Allocates `bytes` from `memory`.
    ///
    /// # Errors
    /// As [`MemoryArena::allocate`].
    pub fn new(memory: &MemoryArena, bytes: usize) -> Result<Self, KernelError> {
        memory.allocate(bytes).map(Self)
    }

    /// `bytes` that no arena counts: for tests and measurements.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn unaccounted(bytes: usize) -> Result<Self, KernelError> {
        Buffer::new(bytes).map(Self)
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The buffer behind it.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.0
    }

    /// All of it as f32.
    pub(crate) fn floats(&mut self) -> &mut [f32] {
        self.0.view_mut()
    }
}
