//! Calls of kernels, and the operands that they keep.

use super::arena::OperandArena;
use super::random::pattern;
use super::work::GpuWork;
use crate::cuda::calls::{GpuSlice, KernelCall};
use crate::cuda::driver::product::ALIGN;
use crate::cuda::model::{Accelerator, GpuMatrix, MatrixOrder, Queue};
use crate::runtime::{Buffer, KernelError, MemoryArena};
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use std::sync::Arc;

/// The most bytes of operands outside the arena.
const MOST: Bytes = Bytes::new(1 << 28);

/// The most turns of a product, each with other weights.
const MOST_TURNS: usize = 512;

/// Calls whose operands have places.
#[derive(Debug)]
pub(super) struct PlacedCalls {
    /// What is done once, before any turn.
    pub before: Vec<KernelCall>,
    /// For each turn the kernels of one call. Turns differ in what a model reads from memory.
    pub turns: Vec<Vec<PlacedCall>>,
    /// The operands that are not in the arena.
    pub buffers: Vec<Buffer>,
}

/// One of our kernels, or a product as the executor multiplies.
#[derive(Debug)]
pub(super) enum PlacedCall {
    Kernel(KernelCall),
    Product(Multiplication),
}

#[derive(Debug)]
pub(super) struct Multiplication {
    m: usize,
    y: GpuSlice<u16>,
    x: GpuSlice<u16>,
    matrix: GpuMatrix,
    scratch: GpuSlice<u8>,
}

impl PlacedCall {
    pub fn enqueue(&self, queue: &mut Queue) -> Result<(), KernelError> {
        match self {
            Self::Kernel(call) => queue.run(call),
            Self::Product(Multiplication { m, y, x, matrix, scratch }) => {
                queue.multiply(*m, ((*y).into(), matrix.shape.1), *x, *matrix, *scratch)
            }
        }
    }
}

impl PlacedCalls {
    /// Kernels alone.
    pub fn of_kernels(turns: Vec<Vec<KernelCall>>, buffers: Vec<Buffer>) -> Self {
        let turns = turns.into_iter().map(|turn| turn.into_iter().map(PlacedCall::Kernel).collect());
        Self { before: Vec::new(), turns: turns.collect(), buffers }
    }

    /// Products of `m` rows by matrices in the arena that lie in this order.
    pub fn of_products(
        arena: &OperandArena,
        operands: &OperandBuffers,
        m: usize,
        shape: (DType, usize, usize),
        order: MatrixOrder,
    ) -> Result<Self, KernelError> {
        let (dtype, n, k) = shape;
        let bytes = dtype.matrix_bytes(n as u64, k as u64).get() as usize;
        let stride = bytes.next_multiple_of(ALIGN);
        let (weights, activations) = (arena.weights(), arena.activations());
        if stride > weights || 2 * m * n.max(k) > activations {
            let [m, n, k] = [m, n, k].map(|size| size as u64);
            let [weights, activations] = [weights, activations].map(|bytes| Bytes::new(bytes as u64));
            let reason = format!(
                "its operands are too large: at most {weights} of weights and {activations} of activations"
            );
            return Err(KernelError::Gpu {
                what: GpuWork::PackedProduct { dtype, m, n, k }.to_string(),
                reason,
            });
        }
        let room = operands.room(Queue::scratch_bytes(m, (n, k)))?;
        let turn = |turn: usize| {
            vec![PlacedCall::Product(Multiplication {
                m,
                y: arena.values(arena.y_at(), m * n),
                x: arena.values(arena.x_at(), m * k),
                matrix: GpuMatrix { shape, bytes: arena.values(turn * stride, bytes), order },
                scratch: room.values(),
            })]
        };
        let turns = (0..(weights / stride).min(MOST_TURNS)).map(turn).collect();
        Ok(Self { before: Vec::new(), turns, buffers: vec![room] })
    }
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

    /// Memory whose content does not matter.
    pub fn room(&self, len: usize) -> Result<Buffer, KernelError> {
        self.0.allocate(len)
    }

    fn there(&self, bytes: &[u8]) -> Result<Buffer, KernelError> {
        let mut buffer = self.0.allocate(bytes.len())?;
        buffer.upload(0, bytes)?;
        Ok(buffer)
    }
}
