//! What does happen: a real transformer, run by a plan.
//!
//! [`Checkpoint`] opens a Hugging Face folder or a GGUF file, [`make_random`] writes one. [`Session`] puts its weights, a KV
//! cache and the activations into the memories that a placement names, and runs the placement's programs: one
//! thread per lane, tasks in order, dependencies as flags; lanes of a GPU enqueue, and their flags lead to events.
//! [`modelled`] runs the same programs on a clock instead of devices. Both write a [`planner::Trace`].
#![forbid(unsafe_code)]

mod checkpoint;
mod coding;
mod compute;
mod engine;
mod error;
mod gguf_shard;
mod gguf_tokenizer;
mod gpu;
mod lane;
mod log;
mod modelled;
mod names;
mod part;
mod pass;
mod random;
mod request;
mod rotation;
mod routing;
mod run;
mod sampling;
mod sequence;
mod service;
mod session;
mod setup;
mod shard;
mod store;
mod tensors;
mod tokenizer;
mod transfer;

pub use checkpoint::Checkpoint;
pub use error::Error;
pub use modelled::modelled;
pub use random::make_random;
pub use request::{Answer, Batching, Client, Event, Finish, Generation, Made, Request};
pub use sampling::Sampling;
pub use service::{Service, check_request};
pub use session::{OnGpu, Session};
pub use setup::Setup;
pub use tokenizer::Tokenizer;
