//! A queue of a GPU's work: kernels, products and copies, one after another.

use super::accelerator::Accelerator;
use super::matrix::{GpuMatrix, MatrixOrder};
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

/// A stream of one GPU. Its work runs in order. Work of another queue comes first only where
/// [`Queue::follow`] says so.
///
/// Operands are [`GpuSlice`]s of buffers that the GPU reaches. The caller uses events to know when
/// the host may read or write an operand, as flags do between threads.
#[derive(Debug)]
pub struct Queue {
    // Dropped in this order: the GPU last.
    graphs: Graphs,
    /// Whether work is recorded and not run.
    records: bool,
    products: BTreeMap<ProductShape, BlasProduct>,
    functions: BTreeMap<(GpuProgram, &'static str), sys::CUfunction>,
    stream: GpuStream,
    gpu: Arc<Accelerator>,
}

// SAFETY: any thread to which the context is current may use streams and functions.
unsafe impl Send for Queue {}

/// The most rows that are multiplied by a packed matrix without a copy. On an H100, 64 rows by
/// 14,336 × 4096 take 94 to 118 µs without one, by format, and 112 to 124 with one, however few
/// rows.
const MOST_PACKED: usize = 64;

/// The pieces of a copy, which lie a fixed distance apart.
#[derive(Debug, Clone, Copy)]
pub struct StridedCopy {
    /// The number of pieces.
    pub count: usize,
    /// Bytes of each piece.
    pub bytes: usize,
    /// Bytes from the start of one piece to the start of the next, on both sides.
    pub stride: usize,
}

impl Queue {
    /// A new stream. Binds the GPU to this thread.
    ///
    /// # Errors
    /// [`KernelError::Gpu`], as for all calls.
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

    /// Enqueues a call. The first call of a program compiles it.
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
        // SAFETY: the kernel is live, and its one parameter is the structure that `KernelCall` made
        // for it. Its addresses are valid: a `GpuSlice` is of a buffer, which waits for all work
        // before it is freed.
        let launched = unsafe {
            result::launch_kernel(function, (x, y, z), threads, 0, self.stream.raw(), &mut parameters)
        };
        gpu_result(call.kernel(), launched)
    }

    /// Enqueues y = x·Wᵀ for `m` rows of x without gaps; y's rows lie `y_stride` apart. A matrix in
    /// the order of rows is multiplied by cuBLASLt as it lies. A packed one of few bits is
    /// multiplied by our kernel where x has few rows; otherwise it is first copied to plain bf16 in
    /// `scratch`, as many rows at a time as fit.
    ///
    /// # Errors
    /// [`KernelError::DType`] and [`KernelError::Size`] as in [`calls::gemv`];
    /// [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where `scratch` is shorter than [`Queue::scratch_bytes`], or the matrix than its shape.
    pub fn multiply(
        &mut self,
        m: usize,
        (y, y_stride): (ProductOutput, usize),
        x: GpuSlice<u16>,
        matrix: GpuMatrix,
        scratch: GpuSlice<u8>,
    ) -> Result<(), KernelError> {
        let (dtype, n, k) = matrix.shape;
        let reserved = workspace(m, n, k);
        if matrix.order == MatrixOrder::Rows {
            let plain = matrix.bytes.cast::<u16>().first(n * k);
            return self.multiply_rows(m, (y, y_stride), x, (n, k), [plain.cast(), scratch.first(reserved)]);
        }
        if Self::multiplies_packed(m, matrix.shape) {
            return self.run(&calls::gemv(m, (y, y_stride), (x, k), matrix.shape, matrix.bytes)?);
        }
        let (workspace, plain) = (scratch.first(reserved), scratch.from(reserved).cast::<u16>());
        let most = plain.len() / k / PANEL * PANEL;
        assert!(most > 0, "scratch of {} bytes for rows of {k} values", scratch.len());
        let packed = |rows: usize| dtype.matrix_bytes(rows as u64, k as u64).get() as usize;
        for first in (0..n).step_by(most) {
            let rows = most.min(n - first);
            let bytes = matrix.bytes.from(packed(first)).first(packed(rows));
            self.run(&calls::unpack(plain.first(rows * k), (dtype, rows, k), bytes)?)?;
            self.multiply_rows(m, (y.beyond(first), y_stride), x, (rows, k), [plain.cast(), workspace])?;
        }
        Ok(())
    }

    /// The same for n × k values of bf16 in the order of rows, with a workspace.
    fn multiply_rows(
        &mut self,
        m: usize,
        (y, y_stride): (ProductOutput, usize),
        x: GpuSlice<u16>,
        (n, k): (usize, usize),
        [w, workspace]: [GpuSlice<u8>; 2],
    ) -> Result<(), KernelError> {
        let at = y.holding((m - 1) * y_stride + n);
        x.first(m * k);
        let shape = ProductShape {
            dtype: DType::Bf16,
            m: m as u64,
            n: n as u64,
            k: k as u64,
            y_stride: y_stride as u64,
            wide: y.is_wide(),
            align: [w.address(), x.address(), at].map(|address| 1 << address.trailing_zeros().min(8)),
        };
        let product = match self.products.entry(shape) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(BlasProduct::prepare(&self.gpu.blas, shape)?),
        };
        let addresses = [w.address(), x.address(), at, workspace.address()];
        // SAFETY: the slices hold the operands, which was checked above and by the callers. They
        // are of buffers, which wait for all work of the GPU before they are freed.
        unsafe { product.enqueue(&self.gpu.blas, addresses, &self.stream) }
    }

    /// Puts a packed matrix in this GPU's memory into the order of rows, panels at a time by way of
    /// `scratch`.
    ///
    /// # Errors
    /// [`KernelError::Size`]; [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where [`Queue::orders_by_rows`] says that it does not.
    pub fn order_by_rows(
        &mut self,
        shape: (DType, usize, usize),
        bytes: GpuSlice<u8>,
        scratch: GpuSlice<u8>,
    ) -> Result<(), KernelError> {
        assert!(Self::orders_by_rows(shape, scratch.len()), "{shape:?} by way of {} bytes", scratch.len());
        let ((dtype, n, k), scratch) = (shape, scratch.cast::<u16>());
        let most = scratch.len() / k / PANEL * PANEL;
        for first in (0..n).step_by(most) {
            let rows = most.min(n - first);
            let (part, plain) = (bytes.from(2 * first * k).first(2 * rows * k), scratch.first(rows * k));
            self.run(&calls::unpack(plain, (dtype, rows, k), part)?)?;
            self.copy(part, plain.cast())?;
        }
        Ok(())
    }

    /// Whether a matrix can be put into the order of rows: it is of bf16, each of its rows begins
    /// at a multiple of 16 bytes, as cuBLASLt's fast kernels need, and the scratch holds a panel.
    pub fn orders_by_rows((dtype, _, k): (DType, usize, usize), scratch_bytes: usize) -> bool {
        dtype == DType::Bf16 && k > 0 && k.is_multiple_of(8) && scratch_bytes >= 2 * PANEL * k
    }

    /// Whether `m` rows are multiplied by the packed matrix without a copy. Our kernel reads W once
    /// for each 32 rows and is slower than cuBLASLt's, which needs a copy that is written and read.
    /// A matrix of bf16 is always copied where it can lie in the order of rows, so that results do
    /// not depend on where it is.
    pub fn multiplies_packed(m: usize, shape: (DType, usize, usize)) -> bool {
        m <= MOST_PACKED && !Self::orders_by_rows(shape, usize::MAX)
    }

    /// Bytes of scratch for `m` rows times n × k values of W. The copy holds all of W, or as many
    /// of its rows as fit 128 MiB.
    pub fn scratch_bytes(m: usize, (n, k): (usize, usize)) -> usize {
        const MOST: usize = 128 << 20;
        workspace(m, n, k) + (2 * n.next_multiple_of(PANEL) * k).min(MOST.max(2 * PANEL * k))
    }

    /// Enqueues a copy of bytes to, from or within the GPU's memory.
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
        // SAFETY: both ranges are of buffers, which wait for all work before they are freed.
        let enqueued =
            unsafe { sys::cuMemcpyAsync(to.address(), from.address(), to.len(), self.stream.raw()) };
        gpu_result("a copy", enqueued.result())
    }

    /// Enqueues a copy of pieces that lie equally far apart on both sides.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where a piece is not inside.
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
        // SAFETY: the description is read before the call returns; the ranges are as in `copy`.
        gpu_result(
            "a copy of pieces",
            unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.stream.raw()) }.result(),
        )
    }

    /// Enqueues repeated work. The first time for a `shape`, `work` enqueues its calls one by one.
    /// The second time they are recorded as one graph, which is replayed from then on. Returns
    /// whether a graph was replayed.
    ///
    /// For one shape `work` must make the same calls with the same arguments, in this queue only;
    /// what differs is read from memory. The caller has waited for the previous run.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn repeat(
        &mut self,
        shape: &[usize],
        work: impl FnOnce(&mut Self) -> Result<(), KernelError>,
    ) -> Result<bool, KernelError> {
        match self.graphs.find(shape) {
            // Every kernel first runs outside the recording, because the driver may load its code
            // at the first run, which a recording forbids.
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

    /// Records `event`: it happens when all earlier work is done. In a graph it happens at each
    /// replay.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn record(&self, event: &GpuEvent) -> Result<(), KernelError> {
        if self.records { self.stream.record_in_graph(event) } else { self.stream.record(event) }
    }

    /// Lets no later work start before `event` has happened, as it was recorded last.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn follow(&self, event: &GpuEvent) -> Result<(), KernelError> {
        self.stream.follow(event)
    }

    /// Waits until all its work is done.
    ///
    /// # Errors
    /// [`KernelError::Gpu`], also where earlier work failed.
    pub fn wait(&self) -> Result<(), KernelError> {
        self.stream.wait()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Enqueued work must finish before its operands are freed.
        let _ = self.gpu.bind().and(self.stream.wait());
    }
}
