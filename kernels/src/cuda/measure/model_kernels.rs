//! The kernels that run models, and calls of them that are recorded and replayed.

use super::arena::OperandArena;
use super::attention_places::AttentionPlaces;
use super::placed_calls::{OperandBuffers, PlacedCall, PlacedCalls};
use super::small_kernels;
use super::work::{GpuWork, SmallKernel};
use crate::cuda::model::{Accelerator, MatrixOrder, Queue};
use crate::runtime::KernelError;
use hwprofiles::{AttentionShape, DType, Phase};
use std::sync::Arc;

/// Products of a layer.
const PRODUCTS: usize = 4;

/// The GPU that runs models, and the calls that were timed last.
#[derive(Debug)]
pub(super) struct ModelKernels {
    // Dropped in this order: the GPU last.
    last: Option<QueuedCalls>,
    gpu: Arc<Accelerator>,
}

/// Calls of one kind of work, and the queue that runs them.
#[derive(Debug)]
pub(super) struct QueuedCalls {
    // Dropped in this order: the queue waits for its work before the operands are freed.
    pub queue: Queue,
    pub placed: PlacedCalls,
    work: GpuWork,
    /// The number of calls of the graph that was recorded last.
    recorded: usize,
}

impl ModelKernels {
    /// Opens the GPU once more, for models.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn open() -> Result<Self, String> {
        let gpu = Accelerator::open().map_err(|absent| absent.reason)?;
        Ok(Self { last: None, gpu: Arc::new(gpu) })
    }

    /// The calls of `work`. Those that were kept are taken.
    pub fn take(&mut self, work: GpuWork, arena: &OperandArena) -> Result<QueuedCalls, KernelError> {
        if let Some(last) = self.last.take().filter(|last| last.work == work) {
            return Ok(last);
        }
        let operands = OperandBuffers::new(&self.gpu);
        let placed = match work {
            GpuWork::Attention(shape) => attention(&AttentionPlaces::new(arena, shape)?, arena, &operands),
            GpuWork::SmallKernel(kernel) => small_kernels::place(kernel, arena, &operands),
            GpuWork::LayerCalls => layer(arena, &operands),
            GpuWork::PackedProduct { dtype, m, n, k } => {
                let shape = (dtype, n as usize, k as usize);
                PlacedCalls::of_products(arena, &operands, m as usize, shape, MatrixOrder::Panels)
            }
            GpuWork::GroupedProduct => small_kernels::grouped_product(arena, &operands),
            GpuWork::Mixture => small_kernels::mixture(&operands),
            _ => unreachable!("{work} has no kernel that runs models"),
        }?;
        let mut queue = Queue::new(&self.gpu)?;
        placed.before.iter().try_for_each(|call| queue.run(call))?;
        Ok(QueuedCalls { queue, placed, work, recorded: 0 })
    }

    /// Keeps calls for the next time.
    pub fn keep(&mut self, calls: QueuedCalls) {
        self.last = Some(calls);
    }
}

fn attention(
    places: &AttentionPlaces,
    arena: &OperandArena,
    operands: &OperandBuffers,
) -> Result<PlacedCalls, KernelError> {
    let buffers = vec![operands.integers(&places.table())?, operands.integers(&places.spans())?];
    let integers = [buffers[0].values(), buffers[1].values()];
    let turns = (0..places.caches).map(|cache| places.calls(arena, cache, integers)).collect();
    Ok(PlacedCalls::of_kernels(turns, buffers))
}

/// The kernels of a layer of a dense model for one token, whose products are so small that the host
/// is slower than the GPU.
fn layer(arena: &OperandArena, operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    const SIDE: usize = 1024;
    let shape = AttentionShape {
        phase: Phase::Decode,
        batch: 1,
        new_tokens: 1,
        past_tokens: 63,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
    };
    let product =
        || PlacedCalls::of_products(arena, operands, 1, (DType::Bf16, SIDE, SIDE), MatrixOrder::Rows);
    let mut parts = vec![attention(&AttentionPlaces::new(arena, shape)?, arena, operands)?];
    for kernel in SmallKernel::ALL {
        for _ in 0..kernel.in_a_layer() {
            parts.push(small_kernels::place(kernel, arena, operands)?);
        }
    }
    for _ in 0..PRODUCTS {
        parts.push(product()?);
    }
    let mut all = PlacedCalls { before: Vec::new(), turns: vec![Vec::new()], buffers: Vec::new() };
    for mut part in parts {
        all.turns[0].append(&mut part.turns.swap_remove(0));
        all.buffers.append(&mut part.buffers);
    }
    Ok(all)
}

impl QueuedCalls {
    /// Runs one call, and waits for it.
    pub fn run(&mut self) -> Result<(), KernelError> {
        self.enqueue(1)?;
        self.queue.wait()
    }

    /// Enqueues calls one by one.
    pub fn enqueue(&mut self, calls: usize) -> Result<(), KernelError> {
        enqueue(&mut self.queue, &self.placed.turns, calls)
    }

    /// Enqueues a replay of a graph of `calls` calls, which was recorded.
    pub fn replay(&mut self, calls: usize) -> Result<bool, KernelError> {
        let Self { queue, placed, .. } = self;
        queue.repeat(&[calls], |queue| enqueue(queue, &placed.turns, calls))
    }

    /// Records a graph of `calls` calls, unless it is the graph that was recorded last.
    pub fn record(&mut self, calls: usize) -> Result<(), KernelError> {
        while self.recorded != calls {
            // The first run enqueues the calls one by one, and the second records them.
            if self.replay(calls)? {
                self.recorded = calls;
            }
            self.queue.wait()?;
        }
        Ok(())
    }
}

fn enqueue(queue: &mut Queue, turns: &[Vec<PlacedCall>], calls: usize) -> Result<(), KernelError> {
    turns.iter().cycle().take(calls).flatten().try_for_each(|call| call.enqueue(queue))
}
