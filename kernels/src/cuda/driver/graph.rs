//! Work that was recorded once and is replayed as a whole.

use super::context::GpuStream;
use super::result::gpu_result;
use crate::runtime::KernelError;
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;
use std::ptr;

/// A recorded graph, ready to run.
#[derive(Debug)]
pub(in crate::cuda) struct Graph(sys::CUgraphExec);

// SAFETY: the driver's functions take a graph from any thread to which its context is current.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` enqueues into `stream`, without running it.
    pub fn record(
        stream: &GpuStream,
        work: impl FnOnce() -> Result<(), KernelError>,
    ) -> Result<Self, KernelError> {
        Self::begin(stream)?;
        Self::end(stream, work())
    }

    /// From now on what this thread enqueues into `stream` is recorded, not run; every beginning has its end.
    pub fn begin(stream: &GpuStream) -> Result<(), KernelError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live, and not being recorded.
        gpu_result("to record a graph", unsafe { result::stream::begin_capture(stream.raw(), mode) })
    }

    /// What was recorded since [`Graph::begin`], where that `worked`.
    pub fn end(stream: &GpuStream, worked: Result<(), KernelError>) -> Result<Self, KernelError> {
        // SAFETY: the recording was begun before.
        let graph = gpu_result("the end of a graph", unsafe { result::stream::end_capture(stream.raw()) });
        // What failed first is what matters.
        if let (Err(_), Ok(graph)) = (&worked, &graph) {
            // SAFETY: the graph is live, and nobody else has it.
            let _ = unsafe { result::graph::destroy(*graph) };
        }
        let graph = worked.and(graph)?;
        let mut ready = ptr::null_mut();
        // SAFETY: the pointer is to a live handle; the graph is live and not needed after.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0).result();
            let _ = result::graph::destroy(graph);
            made
        };
        gpu_result("a graph", made)?;
        Ok(Self(ready))
    }

    /// Enqueues one replay.
    pub fn replay(&self, stream: &GpuStream) -> Result<(), KernelError> {
        // SAFETY: the graph and the stream are live and of the same context.
        gpu_result("the replay of a graph", unsafe { result::graph::launch(self.0, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `record`; whoever replayed it has waited for it.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

/// So many shapes of work are remembered: a graph of hundreds of nodes takes memory.
const MOST: usize = 64;

/// Graphs of work that comes again, by its shape.
#[derive(Debug, Default)]
pub(in crate::cuda) struct Graphs {
    /// When each was asked for last; its graph from the second time on.
    known: BTreeMap<Vec<usize>, (u64, Option<Graph>)>,
    asked: u64,
}

impl Graphs {
    /// Whether this is not the first time that somebody asks for `shape`, and its graph if there is one. Of too many shapes
    /// that which nobody has asked for the longest is forgotten; its last replay must have been waited for.
    pub fn find(&mut self, shape: &[usize]) -> (bool, Option<&Graph>) {
        self.asked += 1;
        let is_known = self.known.contains_key(shape);
        if !is_known && self.known.len() == MOST {
            let oldest =
                self.known.iter().min_by_key(|(_, (asked, _))| *asked).map(|(shape, _)| shape.clone());
            oldest.map(|shape| self.known.remove(&shape));
        }
        let (asked, graph) = self.known.entry(shape.to_vec()).or_default();
        *asked = self.asked;
        (is_known, graph.as_ref())
    }

    /// Keeps the graph of a shape that was asked for.
    pub fn keep(&mut self, shape: &[usize], graph: Graph) {
        self.known.insert(shape.to_vec(), (self.asked, Some(graph)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_that_nobody_asks_for_is_forgotten_first() {
        let mut graphs = Graphs::default();
        let mut is_known = |shape: usize| graphs.find(&[shape]).0;
        assert!((0..MOST).all(|shape| !is_known(shape)));
        assert!(is_known(0) && is_known(2));
        assert!(!is_known(MOST), "one more, for which the second goes");
        assert!(is_known(0) && is_known(2) && is_known(3) && is_known(MOST));
        assert!(!is_known(1));
    }
}
