//! Where the operands of all work lie in the GPU's memory.

use crate::cuda::driver::device_memory::DeviceMemory;
use crate::cuda::driver::product::{ALIGN, WORKSPACE};
use crate::runtime::KernelError;
use hwprofiles::DType;

/// The GPU's memory: weights, then x, then y, then what cuBLASLt needs, then a result. Reads and copies use all of
/// the first three.
#[derive(Debug)]
pub(super) struct OperandArena {
    pub memory: DeviceMemory,
    /// Of which format the values are, where they are of one.
    pub filled: Option<DType>,
    /// Where the next read or copy begins.
    next: usize,
}

impl OperandArena {
    /// With `len` bytes for operands.
    pub fn new(len: usize) -> Result<Self, KernelError> {
        Ok(Self { memory: DeviceMemory::new(len + WORKSPACE + ALIGN)?, filled: None, next: 0 })
    }

    /// Bytes for operands.
    pub fn operands(&self) -> usize {
        self.memory.len() - WORKSPACE - ALIGN
    }

    /// Bytes for x, and for y.
    pub fn activations(&self) -> usize {
        self.operands() / 10 / ALIGN * ALIGN
    }

    /// Bytes for weights.
    pub fn weights(&self) -> usize {
        self.x_at()
    }

    /// Where x begins.
    pub fn x_at(&self) -> usize {
        (self.operands() - 2 * self.activations()) / ALIGN * ALIGN
    }

    /// Where y begins.
    pub fn y_at(&self) -> usize {
        self.x_at() + self.activations()
    }

    /// Where cuBLASLt's own bytes begin.
    pub fn workspace_at(&self) -> usize {
        self.operands()
    }

    /// Where what a read found lies.
    pub fn result_at(&self) -> usize {
        self.operands() + WORKSPACE
    }

    /// Its values are no longer of one format.
    pub fn forget(&mut self) {
        self.filled = None;
    }

    /// Where its second half begins.
    pub fn half(&self) -> usize {
        self.operands() / 2 / ALIGN * ALIGN
    }

    /// Where `len` bytes of the first `within` are that were not used for longest.
    pub fn take(&mut self, len: usize, within: usize) -> usize {
        let at = if self.next + len <= within { self.next } else { 0 };
        self.next = at + len;
        at
    }
}
