//! The GPU of a run: its streams, the events of its tasks, and the integers that kernels read.
//!
//! A lane of the host runs a task and then raises its flag. A lane whose device is a GPU, or whose
//! link ends in the GPU's memory, has a stream of its own ([`kernels::cuda::Queue`]). It enqueues
//! the task and raises the flag at once. Where another lane waits for the task, or its time is
//! wanted, the task lies between two events, and the flag says that they are recorded. A lane that
//! waits for such a task waits for the flag and then for the event: the host blocks, another stream
//! follows the event. Tasks, dependencies and their order are those of the program, as everywhere.
//! A decode pass that runs on one lane alone has nothing to wait for. It goes into the stream as a
//! whole, from the second pass of its shape on as a graph.

pub(crate) mod inputs;
pub(crate) mod runtime;
