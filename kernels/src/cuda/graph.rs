//! Work that was recorded once and is replayed as a whole.

use super::context::Stream;
use super::done;
use crate::Error;
use cudarc::driver::{result, sys};
use std::ptr;

/// A recorded graph, ready to run.
#[derive(Debug)]
pub(super) struct Graph(sys::CUgraphExec);

impl Graph {
    /// Records what `work` enqueues into `stream`, without running it.
    pub fn record(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Self, Error> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live, and not being recorded: every recording ends below.
        done("to record a graph", unsafe { result::stream::begin_capture(stream.raw(), mode) })?;
        let worked = work();
        // SAFETY: the recording was begun above.
        let graph = done("the end of a graph", unsafe { result::stream::end_capture(stream.raw()) });
        // What failed first is what matters.
        worked?;
        let graph = graph?;
        let mut ready = ptr::null_mut();
        // SAFETY: the pointer is to a live handle; the graph is live and not needed after.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0).result();
            let _ = result::graph::destroy(graph);
            made
        };
        done("a graph", made)?;
        Ok(Self(ready))
    }

    /// Enqueues one replay.
    pub fn replay(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the graph and the stream are live and of the same context.
        done("the replay of a graph", unsafe { result::graph::launch(self.0, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `record`; whoever replayed it has waited for it.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}
