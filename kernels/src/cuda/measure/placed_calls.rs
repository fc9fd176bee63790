//! Calls of kernels, and the operands that they keep.

use super::random::pattern;
use crate::cuda::calls::KernelCall;
use crate::cuda::model::Accelerator;
use crate::runtime::{Buffer, KernelError, MemoryArena};
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use std::sync::Arc;

/// The most bytes of operands outside the arena.
const MOST: Bytes = Bytes::new(1 << 28);

/// Calls whose operands have places.
#[derive(Debug)]
pub(super) struct PlacedCalls {
    /// For each turn the kernels of one call. Turns differ in what a model reads from memory.
    pub turns: Vec<Vec<KernelCall>>,
    /// The operands that are not in the arena.
    pub buffers: Vec<Buffer>,
}

/// Makes operands outside the arena.
#[derive(Debug)]
pub(super) struct OperandBuffers(MemoryArena);

impl OperandBuffers {
    pub fn new(gpu: &Arc<Accelerator>) -> Self {
        Self(MemoryArena::on_gpu("operands", MOST, Arc::clone(gpu)))
    }

    pub fn integers(&self, values: &[i32]) -> Result<Buffer, KernelError> {
        self.there(bytemuck::cast_slice(values))
    }

    pub fn floats(&self, values: &[f32]) -> Result<Buffer, KernelError> {
        self.there(bytemuck::cast_slice(values))
    }

    /// Random values from −1 to 1: `len` bytes of bf16, or of f32 whose higher halves are that.
    pub fn random(&self, len: usize) -> Result<Buffer, KernelError> {
        self.there(&pattern(DType::Bf16, len))
    }

    fn there(&self, bytes: &[u8]) -> Result<Buffer, KernelError> {
        let mut buffer = self.0.allocate(bytes.len())?;
        buffer.upload(0, bytes)?;
        Ok(buffer)
    }
}
