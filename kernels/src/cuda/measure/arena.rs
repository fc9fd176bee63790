//! The places of all operands in the GPU's memory.

use crate::cuda::calls::GpuSlice;
use crate::cuda::driver::device_memory::DeviceMemory;
use crate::cuda::driver::product::{ALIGN, WORKSPACE};
use crate::runtime::KernelError;
use hwprofiles::DType;

/// The GPU's memory: weights, then x, then y, then cuBLASLt's workspace, then a result. Reads and
/// copies use all of the first three.
#[derive(Debug)]
pub(super) struct OperandArena {
    pub memory: DeviceMemory,
    /// The format of the values, where they all have the same.
    pub filled: Option<DType>,
    /// The start of the next read or copy.
    next: usize,
}

impl OperandArena {
    /// An arena with `len` bytes for operands.
    pub fn new(len: usize) -> Result<Self, KernelError> {
        Ok(Self { memory: DeviceMemory::new(len + WORKSPACE + ALIGN)?, filled: None, next: 0 })
    }

    /// Bytes for operands.
    pub fn operands(&self) -> usize {
        self.memory.len() - WORKSPACE - ALIGN
    }

    /// Bytes for x, and as many for y.
    pub fn activations(&self) -> usize {
        self.operands() / 10 / ALIGN * ALIGN
    }

    /// Bytes for weights.
    pub fn weights(&self) -> usize {
        self.x_at()
    }

    /// The start of x.
    pub fn x_at(&self) -> usize {
        (self.operands() - 2 * self.activations()) / ALIGN * ALIGN
    }

    /// The start of y.
    pub fn y_at(&self) -> usize {
        self.x_at() + self.activations()
    }

    /// The start of cuBLASLt's workspace.
    pub fn workspace_at(&self) -> usize {
        self.operands()
    }

    /// The place of a read's result.
    pub fn result_at(&self) -> usize {
        self.operands() + WORKSPACE
    }

    /// `len` values from the byte `offset` on, a multiple of 16, as kernels take them.
    pub fn values<T>(&self, offset: usize, len: usize) -> GpuSlice<T> {
        let address = self.memory.at(offset, len * size_of::<T>());
        // SAFETY: the range is inside the arena. It lives as long as its `Gpu`, which drops the
        // queues that run calls, and thereby waits for them, before the arena.
        unsafe { GpuSlice::new(address, len) }
    }

    /// Notes that the values no longer have one format.
    pub fn forget(&mut self) {
        self.filled = None;
    }

    /// The start of the second half.
    pub fn half(&self) -> usize {
        self.operands() / 2 / ALIGN * ALIGN
    }

    /// The start of `len` bytes among the first `within` bytes: those that were not used for the
    /// longest time.
    pub fn take(&mut self, len: usize, within: usize) -> usize {
        let at = if self.next + len <= within { self.next } else { 0 };
        self.next = at + len;
        at
    }
}
