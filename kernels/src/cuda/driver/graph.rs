//! Graphs: work that is recorded once and replayed as a whole.

use super::context::GpuStream;
use super::result::gpu_result;
use crate::runtime::KernelError;
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;
use std::ptr;

/// A recorded graph, ready to run.
#[derive(Debug)]
pub(in crate::cuda) struct Graph(sys::CUgraphExec);

// SAFETY: any thread to which its context is current may pass a graph to the driver's functions.
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

    /// Starts a recording: what this thread enqueues into `stream` is recorded and not run. Every
    /// call must be followed by [`Graph::end`].
    pub fn begin(stream: &GpuStream) -> Result<(), KernelError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live and no recording of it is under way.
        gpu_result("to record a graph", unsafe { result::stream::begin_capture(stream.raw(), mode) })
    }

    /// Ends the recording and returns its graph, or the error of the recorded work.
    pub fn end(stream: &GpuStream, worked: Result<(), KernelError>) -> Result<Self, KernelError> {
        // SAFETY: a recording is under way.
        let graph = gpu_result("the end of a graph", unsafe { result::stream::end_capture(stream.raw()) });
        // The first error is the one to report.
        if let (Err(_), Ok(graph)) = (&worked, &graph) {
            // SAFETY: the graph is live, and only this function has it.
            let _ = unsafe { result::graph::destroy(*graph) };
        }
        let graph = worked.and(graph)?;
        let mut ready = ptr::null_mut();
        // SAFETY: the pointer is to a live handle; the graph is live and not needed afterwards.
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
        // SAFETY: `end` made it, and the caller has waited for its replays.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

/// The most shapes of work that are remembered, because a graph of hundreds of nodes takes memory.
const MOST: usize = 64;

/// The graphs of repeated work, by its shape.
#[derive(Debug, Default)]
pub(in crate::cuda) struct Graphs {
    /// For each shape the time of its last request, and from the second request on its graph.
    known: BTreeMap<Vec<usize>, (u64, Option<Graph>)>,
    asked: u64,
}

impl Graphs {
    /// Returns whether `shape` was requested before, and its graph if there is one. Where there are
    /// too many shapes, the one with the oldest request is forgotten; its last replay must have
    /// been waited for.
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

    /// Keeps the graph of a shape that was requested.
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
