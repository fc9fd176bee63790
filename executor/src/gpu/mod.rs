//! Devices that are GPUs: their lanes enqueue.
//!
//! A lane of the host runs a task and then raises its flag. A lane whose device is a GPU, or whose link ends in its
//! memory, has a stream of its own ([`kernels::cuda::Queue`]): it enqueues the task between two events and raises the
//! flag at once. So the flag of such a task says that its events are recorded, and whoever waits for the task waits for
//! the flag and then for the event: the host by blocking, another stream by following it. Tasks, dependencies and their
//! order are those of the program, as everywhere. A decode pass that is one lane's alone has nobody to wait for: it goes into
//! the stream as a whole, from the second of its shape on as a graph.

mod board;
mod check;
mod experts;
mod inputs;
mod lane;
mod transfer;
mod worker;

pub(crate) use board::Board;
pub(crate) use check::{check, named};
pub(crate) use lane::Stream;
pub(crate) use transfer::fetch_hop;
