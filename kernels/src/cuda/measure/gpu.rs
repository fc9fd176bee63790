//! A GPU under measurement, and the time of its work.

use super::arena::OperandArena;
use super::host_pages::HostPages;
use super::kernels::{MeasureKernels, VECTOR};
use super::model_kernels::ModelKernels;
use super::random::pattern;
use super::work::{GpuFacts, GpuWork};
use crate::cuda::driver::context::{Context, GpuEvent, GpuStream, initialise};
use crate::cuda::driver::device_memory::DeviceRange;
use crate::cuda::driver::graph::Graph;
use crate::cuda::driver::product::{self, ALIGN, Blas, BlasProduct};
use crate::cuda::driver::unavailable::GpuUnavailable;
use crate::runtime::KernelError;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use hwprofiles::DType;
use hwprofiles::units::{Bytes, Seconds};
use std::time::Instant;

/// The most bytes of the GPU's memory that are used: the largest read takes 8 GiB of them. It is a
/// multiple of 4 MiB.
const ARENA: u64 = 10 << 30;
/// The fewest bytes: less would not hold the patterns of checks and enough operands.
const LEAST: u64 = 96 << 20;
/// Random bytes before the pattern repeats.
pub(super) const PATTERN: usize = 16 << 20;

/// The first GPU of this machine, with an arena for the operands of all work.
#[derive(Debug)]
pub struct Gpu {
    // Dropped in this order: the context last.
    recorded: Option<(GpuWork, usize, Graph)>,
    pub(super) model: Result<ModelKernels, String>,
    pub(super) blas: Result<Blas, String>,
    pub(super) kernels: MeasureKernels,
    pub(super) arena: OperandArena,
    /// The host's pages that are sent from, and those that are received into.
    pub(super) host: Option<(HostPages, HostPages)>,
    pub(super) stream: GpuStream,
    pub(super) second: GpuStream,
    pub(super) facts: GpuFacts,
    pub(super) context: Context,
}

impl Gpu {
    /// Opens the first GPU. A transfer has at most `host` bytes of host memory, and twice as many
    /// are allocated.
    pub fn open(host: Bytes) -> Result<Self, GpuUnavailable> {
        let count = initialise()?;
        Self::open_first(count, host)
            .map_err(|error| GpuUnavailable { reason: error.to_string(), has_driver: true })
    }

    fn open_first(count: usize, host: Bytes) -> Result<Self, KernelError> {
        let context = Context::open()?;
        let attribute = |which| context.attribute(which);
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let kernels = MeasureKernels::load(multiprocessors as u32)?;
        let (blas, model) = (Blas::open(), ModelKernels::open());
        let (free, capacity) = context.memory()?;
        // The last quarter is for other processes and for the driver.
        let arena = ARENA.min(free / 4 * 3) / (2 << 20) * (2 << 20);
        if arena < LEAST {
            let (free, wanted) = (Bytes::new(free), Bytes::new(LEAST / 3 * 4));
            let reason = format!("only {free} are free, and {wanted} are needed: end what uses them");
            return Err(KernelError::Gpu { what: "memory for a measurement".to_owned(), reason });
        }
        let arena = OperandArena::new(arena as usize)?;
        let bus = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
        let domain = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let slot = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
        let facts = GpuFacts {
            bus: format!("{domain:04x}:{bus:02x}:{slot:02x}.0"),
            name: context.name()?,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32,
            ),
            multiprocessors,
            capacity: Bytes::new(capacity),
            l2: Bytes::new(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            largest_read: Bytes::new(arena.operands() as u64),
            largest_transfer: Bytes::new(host.get().min(arena.operands() as u64 / 2)),
            no_products: blas.as_ref().err().cloned(),
            no_model_kernels: model.as_ref().err().cloned(),
            count,
        };
        let (stream, second) = (GpuStream::new()?, GpuStream::new()?);
        Ok(Self { recorded: None, model, blas, kernels, arena, host: None, stream, second, facts, context })
    }

    /// The GPU's properties.
    pub fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// The time of one call of `work`, averaged over `calls` calls one after another. The first
    /// call of some work prepares it, and may be slower.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where the GPU cannot do the work: it does not know the format, or the
    /// operands are too large.
    ///
    /// # Panics
    /// Where `calls` is 0.
    pub fn time(&mut self, work: GpuWork, calls: usize) -> Result<Seconds, KernelError> {
        assert!(calls > 0, "no calls have no time");
        let all = match work {
            GpuWork::Launch => {
                self.by_events(|gpu| (0..calls).try_for_each(|_| gpu.kernels.empty(&gpu.stream)))
            }
            GpuWork::Node | GpuWork::Product { .. } => {
                self.record(work, calls)?;
                self.flush_l2()?;
                self.by_events(Self::replay)
            }
            GpuWork::Replay => {
                self.record(work, 1)?;
                self.by_host(calls, Self::replay)
            }
            GpuWork::RoundTrip => self.by_host(calls, |gpu| gpu.kernels.empty(&gpu.stream)),
            GpuWork::Read(bytes) => self.by_events(|gpu| (0..calls).try_for_each(|_| gpu.read(bytes))),
            GpuWork::Copy(bytes) => self.by_events(|gpu| (0..calls).try_for_each(|_| gpu.copy(bytes))),
            GpuWork::LayerCalls => self.time_launches(work, calls),
            GpuWork::SmallKernel(_)
            | GpuWork::Attention(_)
            | GpuWork::PackedProduct { .. }
            | GpuWork::GroupedProduct
            | GpuWork::Mixture => self.time_model_calls(work, calls),
            GpuWork::Transfer { direction, memory, bytes } => self.transfers(direction, memory, bytes, calls),
        }?;
        Ok(all * (1.0 / calls as f64))
    }

    /// The GPU's time from the start to the end of the work that `enqueue` enqueues.
    fn by_events(
        &mut self,
        enqueue: impl FnOnce(&mut Self) -> Result<(), KernelError>,
    ) -> Result<Seconds, KernelError> {
        let (start, end) = (GpuEvent::new()?, GpuEvent::new()?);
        self.stream.record(&start)?;
        enqueue(self)?;
        self.stream.record(&end)?;
        self.stream.wait()?;
        end.since(&start)
    }

    /// The host's time for `calls` calls of `enqueue`, waiting for each.
    fn by_host(
        &mut self,
        calls: usize,
        enqueue: impl Fn(&mut Self) -> Result<(), KernelError>,
    ) -> Result<Seconds, KernelError> {
        self.stream.wait()?;
        let start = Instant::now();
        for _ in 0..calls {
            enqueue(self)?;
            self.stream.wait()?;
        }
        Ok(Seconds::new(start.elapsed().as_secs_f64()))
    }

    /// Evicts weights, or keys and values, from the cache by reading other memory. The read also
    /// keeps the GPU busy until the host has enqueued the timed work.
    pub(super) fn flush_l2(&mut self) -> Result<(), KernelError> {
        let len = (2 * self.facts.l2.get() as usize).min(self.arena.activations()) / VECTOR * VECTOR;
        self.read_range(self.arena.y_at(), len)
    }

    fn read(&mut self, bytes: Bytes) -> Result<(), KernelError> {
        let len = bytes.get() as usize / VECTOR * VECTOR;
        let at = self.arena.take(len, self.arena.operands());
        self.read_range(at, len)
    }

    /// Enqueues a read of `len` bytes of the arena.
    fn read_range(&self, at: usize, len: usize) -> Result<(), KernelError> {
        let memory = &self.arena.memory;
        let result = DeviceRange::new(memory, self.arena.result_at(), 4);
        // SAFETY: the arena lives as long as `self`, whose drop waits for the stream. All work that
        // writes these ranges is in the same stream.
        unsafe { self.kernels.read(DeviceRange::new(memory, at, len), result, &self.stream) }
    }

    fn copy(&mut self, bytes: Bytes) -> Result<(), KernelError> {
        let (len, half) = (bytes.get() as usize, self.arena.half());
        self.arena.forget();
        let at = self.arena.take(len, half);
        self.arena.memory.copy(half + at, at, len, &self.stream)
    }

    fn replay(&mut self) -> Result<(), KernelError> {
        self.recorded.iter().try_for_each(|(_, _, graph)| graph.replay(&self.stream))
    }

    /// Records a graph of `calls` calls of `work`, unless it is the graph that was recorded last.
    fn record(&mut self, work: GpuWork, calls: usize) -> Result<(), KernelError> {
        if self.recorded.as_ref().is_some_and(|(last, count, _)| (*last, *count) == (work, calls)) {
            return Ok(());
        }
        // Only one graph at a time, because a graph of hundreds of nodes takes memory.
        self.recorded = None;
        // Every kernel first runs outside the recording, because the driver may load its code at
        // the first run, which a recording forbids.
        let graph = if let GpuWork::Product { dtype, m, n, k } = work {
            let placed = self.place(dtype, m, n, k)?;
            placed.enqueue(self, 0).and(self.stream.wait())?;
            Graph::record(&self.stream, || (0..calls).try_for_each(|call| placed.enqueue(self, call)))
        } else {
            self.kernels.empty(&self.stream).and(self.stream.wait())?;
            Graph::record(&self.stream, || (0..calls).try_for_each(|_| self.kernels.empty(&self.stream)))
        }?;
        self.recorded = Some((work, calls, graph));
        Ok(())
    }

    /// Prepares a product of random values.
    pub(super) fn place(
        &mut self,
        dtype: DType,
        m: u64,
        n: u64,
        k: u64,
    ) -> Result<PlacedProduct, KernelError> {
        let refused = |reason: String| KernelError::Gpu {
            what: GpuWork::Product { dtype, m, n, k }.to_string(),
            reason,
        };
        let blas = self.blas.as_ref().map_err(|reason| refused(reason.clone()))?;
        let (operand, result) =
            product::sizes(dtype).ok_or_else(|| refused("use bf16, f16, fp8 or int8".into()))?;
        let bytes = |rows: u64, columns: u64, size: usize| rows * columns * size as u64;
        let (weights, activations) = (self.arena.weights() as u64, self.arena.activations() as u64);
        if bytes(n, k, operand) > weights || bytes(m, k, operand).max(bytes(m, n, result)) > activations {
            return Err(refused(format!(
                "its operands are too large: at most {} of weights and {} of activations",
                Bytes::new(weights),
                Bytes::new(activations)
            )));
        }
        let product = BlasProduct::new(blas, dtype, m, n, k)?;
        if self.arena.filled != Some(dtype) {
            self.arena.memory.fill(&pattern(dtype, PATTERN), &self.stream)?;
            self.arena.filled = Some(dtype);
        }
        let stride = (bytes(n, k, operand) as usize).next_multiple_of(ALIGN);
        Ok(PlacedProduct { product, stride, count: (self.arena.weights() / stride).max(1) })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Work that an error left enqueued must finish before its memory is freed.
        let _ = self.stream.wait().and(self.second.wait());
    }
}

/// A product whose operands have places in the arena.
#[derive(Debug)]
pub(super) struct PlacedProduct {
    product: BlasProduct,
    /// The distance of the matrices of weights.
    stride: usize,
    /// The number of matrices before they repeat: far more bytes than the cache holds.
    count: usize,
}

impl PlacedProduct {
    /// Enqueues the product with the weights of the `call`-th call.
    pub fn enqueue(&self, gpu: &Gpu, call: usize) -> Result<(), KernelError> {
        let Ok(blas) = &gpu.blas else { return Ok(()) };
        let arena = &gpu.arena;
        let at = |offset| arena.memory.at(offset, 1);
        let addresses = [
            at(call % self.count * self.stride),
            at(arena.x_at()),
            at(arena.y_at()),
            at(arena.workspace_at()),
        ];
        // SAFETY: `place` checked that the operands fit. The arena lives as long as the GPU, whose
        // drop waits for the stream. All work that writes these ranges is in the same stream.
        unsafe { self.product.enqueue(blas, addresses, &gpu.stream) }
    }
}
