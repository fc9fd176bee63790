//! A queue of a GPU's work: kernels, products and copies, one after another.

use super::accelerator::Accelerator;
use crate::cpu::PANEL;
use crate::cuda::calls::{self, GpuSlice, KernelCall, ProductOutput};
use crate::cuda::driver::context::{GpuEvent, GpuStream};
use crate::cuda::driver::graph::{Graph, Graphs};
use crate::cuda::driver::product::{BlasProduct, ProductShape, workspace};
use crate::cuda::driver::result::gpu_result;
use crate::cuda::program::GpuProgram;
use crate::runtime::KernelError;
use cudarc::driver::{result, sys};
use hwprofiles::DType;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::Arc;

/// A stream of one GPU. What is enqueued runs in order; of other queues' work only what is followed comes before.
///
/// Operands are [`GpuSlice`] of buffers that the GPU reaches. When the host may read or write what a queue works on is told
/// by events, as between threads by flags: that is for who enqueues.
#[derive(Debug)]
pub struct Queue {
    // Dropped in this order: the GPU last.
    graphs: Graphs,
    /// Whether what is enqueued is recorded, not run.
    records: bool,
    products: BTreeMap<ProductShape, BlasProduct>,
    functions: BTreeMap<(GpuProgram, &'static str), sys::CUfunction>,
    stream: GpuStream,
    gpu: Arc<Accelerator>,
}

// SAFETY: streams and functions may be used by any thread to which the context is current.
unsafe impl Send for Queue {}

/// How far apart the pieces of a copy are.
#[derive(Debug, Clone, Copy)]
pub struct StridedCopy {
    /// Pieces.
    pub count: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// Bytes from the start of one piece to the start of the next, on both sides.
    pub stride: usize,
}

impl Queue {
    /// A new stream, on whose thread the GPU is then bound.
    ///
    /// # Errors
    /// [`KernelError::Gpu`], as of all calls.
    pub fn new(gpu: &Arc<Accelerator>) -> Result<Self, KernelError> {
        gpu.bind()?;
        let (graphs, products, functions) = Default::default();
        Ok(Self {
            graphs,
            records: false,
            products,
            functions,
            stream: GpuStream::new()?,
            gpu: Arc::clone(gpu),
        })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Accelerator> {
        &self.gpu
    }

    /// Enqueues a call; the first of a program compiles it.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where the GPU refuses.
    pub fn run(&mut self, call: &KernelCall) -> Result<(), KernelError> {
        let [x, y, z] = call.grid();
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        let name = (call.program(), call.kernel());
        let function = match self.functions.get(&name) {
            Some(function) => *function,
            None => {
                let function = self.gpu.function(name.0, name.1)?;
                self.functions.insert(name, function);
                function
            }
        };
        // A kernel takes one structure; the driver copies it before the call returns.
        let mut parameters = [call.arguments().as_ptr().cast_mut().cast::<c_void>()];
        let threads = (call.threads(), 1, 1);
        // SAFETY: the kernel is live and its one parameter is as long as the structure that `KernelCall` made for it. What it
        // points to is there: `GpuSlice` are of buffers, which wait for all work before they go.
        let launched = unsafe {
            result::launch_kernel(function, (x, y, z), threads, 0, self.stream.raw(), &mut parameters)
        };
        gpu_result(call.kernel(), launched)
    }

    /// Enqueues y = x·Wᵀ: `m` rows of x without gaps, W `shape` (format, rows, columns) as [`crate::Weights`] packs it, y's
    /// rows `y_stride` apart. Few rows are multiplied by W as it is; many by a plain copy in bf16, made in `scratch` for as
    /// many of W's rows as there is room for at a time.
    ///
    /// # Errors
    /// [`KernelError::DType`] and [`KernelError::Size`] as [`calls::gemv`]; [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where `scratch` is not as [`Queue::scratch_bytes`] tells.
    pub fn multiply(
        &mut self,
        m: usize,
        (y, y_stride): (ProductOutput, usize),
        x: GpuSlice<u16>,
        (dtype, n, k): (DType, usize, usize),
        w: GpuSlice<u8>,
        scratch: GpuSlice<u8>,
    ) -> Result<(), KernelError> {
        let packed = |rows: usize| dtype.matrix_bytes(rows as u64, k as u64).get() as usize;
        if Self::multiplies_packed(m, (dtype, n, k)) {
            return self.run(&calls::gemv(m, (y, y_stride), (x, k), (dtype, n, k), w)?);
        }
        let reserved = workspace(m, n, k);
        let (workspace, plain) = (scratch.first(reserved), scratch.from(reserved).cast::<u16>());
        let most = plain.len() / k / PANEL * PANEL;
        assert!(most > 0, "scratch of {} bytes for rows of {k} values", scratch.len());
        for first in (0..n).step_by(most) {
            let rows = most.min(n - first);
            let bytes = w.from(packed(first)).first(packed(rows));
            self.run(&calls::unpack(plain.first(rows * k), (dtype, rows, k), bytes)?)?;
            let y = y.beyond(first);
            let at = y.holding((m - 1) * y_stride + rows);
            x.first(m * k);
            let shape = ProductShape {
                dtype: DType::Bf16,
                m: m as u64,
                n: rows as u64,
                k: k as u64,
                y_stride: y_stride as u64,
                wide: y.is_wide(),
                y_align: 1 << at.trailing_zeros().min(8),
            };
            let product = match self.products.entry(shape) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(BlasProduct::prepare(&self.gpu.blas, shape)?),
            };
            let addresses = [plain.address(), x.address(), at, workspace.address()];
            // SAFETY: the slices hold the operands, which was checked above. They are of buffers, which wait
            // for all work of the GPU before they are freed.
            unsafe { product.enqueue(&self.gpu.blas, addresses, &self.stream) }?;
        }
        Ok(())
    }

    /// Whether `m` rows are multiplied by a matrix as it is packed, without a copy: a product by a kernel of ours reads W once
    /// for each row; else W is read, and its copy written and read.
    pub fn multiplies_packed(m: usize, (dtype, n, k): (DType, usize, usize)) -> bool {
        let packed = dtype.matrix_bytes(n as u64, k as u64).get() as usize;
        m * packed <= packed + 2 * (2 * n * k)
    }

    /// Bytes of scratch with which `m` rows are multiplied by n × k values of W copied whole, or as many of its rows as 128 MiB
    /// hold.
    pub fn scratch_bytes(m: usize, (n, k): (usize, usize)) -> usize {
        const MOST: usize = 128 << 20;
        workspace(m, n, k) + (2 * n.next_multiple_of(PANEL) * k).min(MOST.max(2 * PANEL * k))
    }

    /// Enqueues a copy of bytes, from or to the GPU's memory or within it.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn copy(&mut self, to: GpuSlice<u8>, from: GpuSlice<u8>) -> Result<(), KernelError> {
        assert_eq!(to.len(), from.len(), "bytes to copy");
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: both ranges are of buffers, which wait for all work before they go.
        let enqueued =
            unsafe { sys::cuMemcpyAsync(to.address(), from.address(), to.len(), self.stream.raw()) };
        gpu_result("a copy", enqueued.result())
    }

    /// Enqueues a copy of pieces that are as far apart on both sides.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where they are not all there.
    pub fn copy_pieces(
        &mut self,
        to: GpuSlice<u8>,
        from: GpuSlice<u8>,
        pieces: StridedCopy,
    ) -> Result<(), KernelError> {
        let StridedCopy { count, bytes, stride } = pieces;
        if count == 0 || bytes == 0 {
            return Ok(());
        }
        let end = (count - 1).checked_mul(stride).and_then(|start| start.checked_add(bytes));
        let fits = end.is_some_and(|end| end <= to.len().min(from.len()));
        assert!(bytes <= stride && fits, "{pieces:?}");
        let unified = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: unified,
            srcHost: std::ptr::null(),
            srcDevice: from.address(),
            srcArray: std::ptr::null_mut(),
            srcPitch: stride,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: unified,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.address(),
            dstArray: std::ptr::null_mut(),
            dstPitch: stride,
            WidthInBytes: bytes,
            Height: count,
        };
        // SAFETY: the description is read before the call returns; for the ranges see `copy`.
        gpu_result(
            "a copy of pieces",
            unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.stream.raw()) }.result(),
        )
    }

    /// Enqueues what `work` enqueues here and nowhere else: the first time that `shape` comes call by call, from the second
    /// on as one graph, recorded then and replayed since; whether it was. Of one shape `work` must make the same calls with
    /// the same arguments: what differs between them is read from memory. The work of the time before has been waited for.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn repeat(
        &mut self,
        shape: &[usize],
        work: impl FnOnce(&mut Self) -> Result<(), KernelError>,
    ) -> Result<bool, KernelError> {
        match self.graphs.find(shape) {
            // Every kernel runs once outside: the driver may load its code only then, which a recording forbids.
            (false, _) => return work(self).map(|()| false),
            (true, Some(graph)) => return graph.replay(&self.stream).map(|()| true),
            (true, None) => {}
        }
        Graph::begin(&self.stream)?;
        self.records = true;
        let worked = work(self);
        self.records = false;
        let graph = Graph::end(&self.stream, worked)?;
        graph.replay(&self.stream)?;
        self.graphs.keep(shape, graph);
        Ok(true)
    }

    /// Lets `event` happen when all that was enqueued before is done; in a graph, each time that it is replayed.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn record(&self, event: &GpuEvent) -> Result<(), KernelError> {
        if self.records { self.stream.record_in_graph(event) } else { self.stream.record(event) }
    }

    /// Lets nothing that is enqueued after start before `event` has happened, as it was recorded last.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn follow(&self, event: &GpuEvent) -> Result<(), KernelError> {
        self.stream.follow(event)
    }

    /// Waits until all of it is done.
    ///
    /// # Errors
    /// [`KernelError::Gpu`], also where something went wrong on the way.
    pub fn wait(&self) -> Result<(), KernelError> {
        self.stream.wait()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What is enqueued must be done before what it uses goes.
        let _ = self.gpu.bind().and(self.stream.wait());
    }
}
