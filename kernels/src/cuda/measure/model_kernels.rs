//! The kernels that run models, and calls of them that are recorded and replayed.

use super::arena::OperandArena;
use super::attention_places::AttentionPlaces;
use super::placed_calls::{OperandBuffers, PlacedCalls};
use super::small_kernels;
use super::work::GpuWork;
use crate::cuda::calls::KernelCall;
use crate::cuda::model::{Accelerator, Queue};
use crate::runtime::KernelError;
use std::sync::Arc;

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
            _ => unreachable!("{work} has no kernel that runs models"),
        }?;
        Ok(QueuedCalls { queue: Queue::new(&self.gpu)?, placed, work, recorded: 0 })
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
    Ok(PlacedCalls { turns, buffers })
}

impl QueuedCalls {
    /// Runs one call, and waits for it.
    pub fn run(&mut self) -> Result<(), KernelError> {
        self.enqueue(1)?;
        self.queue.wait()
    }

    fn enqueue(&mut self, calls: usize) -> Result<(), KernelError> {
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

fn enqueue(queue: &mut Queue, turns: &[Vec<KernelCall>], calls: usize) -> Result<(), KernelError> {
    turns.iter().cycle().take(calls).flatten().try_for_each(|call| queue.run(call))
}
