//! A queue of a GPU's work: kernels, products and copies, one after another.

use super::calls::{self, Call, Output, Values};
use super::context::{Event, Stream};
use super::graph::{Graph, Graphs};
use super::product::{Product, Shape, workspace};
use super::{Accelerator, Program, done};
use crate::{Error, PANEL};
use cudarc::driver::{result, sys};
use hwprofiles::DType;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::Arc;

/// A stream of one GPU. What is enqueued runs in order; of other queues' work only what is followed comes before.
///
/// Operands are [`Values`] of buffers that the GPU reaches. When the host may read or write what a queue works on is told
/// by events, as between threads by flags: that is for who enqueues.
#[derive(Debug)]
pub struct Queue {
    // Dropped in this order: the GPU last.
    graphs: Graphs,
    /// Whether what is enqueued is recorded, not run.
    records: bool,
    products: BTreeMap<Shape, Product>,
    functions: BTreeMap<(Program, &'static str), sys::CUfunction>,
    stream: Stream,
    gpu: Arc<Accelerator>,
}

// SAFETY: streams and functions may be used by any thread to which the context is current.
unsafe impl Send for Queue {}

/// How far apart the pieces of a copy are.
#[derive(Debug, Clone, Copy)]
pub struct Apart {
    /// Pieces.
    pub count: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// From one piece's beginning to the next, on both sides.
    pub apart: usize,
}

impl Queue {
    /// A new stream, on whose thread the GPU is then bound.
    ///
    /// # Errors
    /// [`Error::Gpu`], as of all calls.
    pub fn new(gpu: &Arc<Accelerator>) -> Result<Self, Error> {
        gpu.bind()?;
        let (graphs, products, functions) = Default::default();
        Ok(Self { graphs, records: false, products, functions, stream: Stream::new()?, gpu: Arc::clone(gpu) })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Accelerator> {
        &self.gpu
    }

    /// Enqueues a call; the first of a program compiles it.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the GPU refuses.
    pub fn run(&mut self, call: &Call) -> Result<(), Error> {
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
        // SAFETY: the kernel is live and its one parameter is as long as the structure that `Call` made for it. What it
        // points to is there: `Values` are of buffers, which wait for all work before they go.
        let launched = unsafe {
            result::launch_kernel(function, (x, y, z), threads, 0, self.stream.raw(), &mut parameters)
        };
        done(call.kernel(), launched)
    }

    /// Enqueues y = x·Wᵀ: `m` rows of x without gaps, W `shape` (format, rows, columns) as [`crate::Weights`] packs it, y's
    /// rows `y_stride` apart. Few rows are multiplied by W as it is; many by a plain copy in bf16, made in `scratch` for as
    /// many of W's rows as there is room for at a time.
    ///
    /// # Errors
    /// [`Error::DType`] and [`Error::Size`] as [`calls::gemv`]; [`Error::Gpu`].
    ///
    /// # Panics
    /// Where `scratch` is not as [`Queue::scratch_bytes`] tells.
    pub fn multiply(
        &mut self,
        m: usize,
        (y, y_stride): (Output, usize),
        x: Values<u16>,
        (dtype, n, k): (DType, usize, usize),
        w: Values<u8>,
        scratch: Values<u8>,
    ) -> Result<(), Error> {
        let packed = |rows: usize| dtype.matrix_bytes(rows as u64, k as u64).get() as usize;
        if Self::takes_as_it_is(m, (dtype, n, k)) {
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
            let shape = Shape {
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
                Entry::Vacant(new) => new.insert(Product::of(&self.gpu.blas, shape)?),
            };
            let addresses = [plain.address(), x.address(), at, workspace.address()];
            product.enqueue(&self.gpu.blas, addresses, &self.stream)?;
        }
        Ok(())
    }

    /// Whether `m` rows are multiplied by a matrix as it is packed, without a copy: a product by a kernel of ours reads W once
    /// for each row; else W is read, and its copy written and read.
    pub fn takes_as_it_is(m: usize, (dtype, n, k): (DType, usize, usize)) -> bool {
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
    /// [`Error::Gpu`].
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn copy(&mut self, to: Values<u8>, from: Values<u8>) -> Result<(), Error> {
        assert_eq!(to.len(), from.len(), "bytes to copy");
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: both ranges are of buffers, which wait for all work before they go.
        let enqueued =
            unsafe { sys::cuMemcpyAsync(to.address(), from.address(), to.len(), self.stream.raw()) };
        done("a copy", enqueued.result())
    }

    /// Enqueues a copy of pieces that are as far apart on both sides.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    ///
    /// # Panics
    /// Where they are not all there.
    pub fn copy_pieces(&mut self, to: Values<u8>, from: Values<u8>, pieces: Apart) -> Result<(), Error> {
        let Apart { count, bytes, apart } = pieces;
        if count == 0 || bytes == 0 {
            return Ok(());
        }
        assert!(bytes <= apart && (count - 1) * apart + bytes <= to.len().min(from.len()), "{pieces:?}");
        let unified = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: unified,
            srcHost: std::ptr::null(),
            srcDevice: from.address(),
            srcArray: std::ptr::null_mut(),
            srcPitch: apart,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: unified,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.address(),
            dstArray: std::ptr::null_mut(),
            dstPitch: apart,
            WidthInBytes: bytes,
            Height: count,
        };
        // SAFETY: the description is read before the call returns; for the ranges see `copy`.
        done(
            "a copy of pieces",
            unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.stream.raw()) }.result(),
        )
    }

    /// Enqueues what `work` enqueues here and nowhere else: the first time that `shape` comes call by call, from the second
    /// on as one graph, recorded then and replayed since; whether it was. Of one shape `work` must make the same calls with
    /// the same arguments: what differs between them is read from memory. The work of the time before has been waited for.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn repeat(
        &mut self,
        shape: &[usize],
        work: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<bool, Error> {
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
    /// [`Error::Gpu`].
    pub fn record(&self, event: &Event) -> Result<(), Error> {
        if self.records { self.stream.record_in_graph(event) } else { self.stream.record(event) }
    }

    /// Lets nothing that is enqueued after start before `event` has happened, as it was recorded last.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn follow(&self, event: &Event) -> Result<(), Error> {
        self.stream.follow(event)
    }

    /// Waits until all of it is done.
    ///
    /// # Errors
    /// [`Error::Gpu`], also where something went wrong on the way.
    pub fn wait(&self) -> Result<(), Error> {
        self.stream.wait()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What is enqueued must be done before what it uses goes.
        let _ = self.gpu.bind().and(self.stream.wait());
    }
}
