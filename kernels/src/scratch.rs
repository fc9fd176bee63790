//! Working memory that kernels borrow.

use crate::{Buffer, Error, Memory};

/// Working memory of kernels, allocated once and counted like everything else.
///
/// How much a call needs is told by [`crate::gemm::scratch_bytes`] and
/// [`crate::attention::scratch_bytes`]; one scratch of the largest serves them all in turn. Its contents
/// mean nothing between calls.
#[derive(Debug)]
pub struct Scratch(Buffer);

impl Scratch {
    /// Allocates `bytes` from `memory`.
    ///
    /// # Errors
    /// As [`Memory::allocate`].
    pub fn new(memory: &Memory, bytes: usize) -> Result<Self, Error> {
        memory.allocate(bytes).map(Self)
    }

    /// `bytes` that no memory accounts for: for tests and measurements.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn unaccounted(bytes: usize) -> Result<Self, Error> {
        Buffer::new(bytes).map(Self)
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// All of it as values that a GPU's kernels take, where it is a GPU's.
    ///
    /// # Panics
    /// As [`Buffer::values`].
    pub fn values<T>(&self) -> crate::cuda::calls::Values<T> {
        self.0.values()
    }

    pub(crate) fn floats(&mut self) -> &mut [f32] {
        self.0.view_mut()
    }
}
