//! Runs a real transformer by a plan, on real devices.
//!
//! [`Checkpoint`] opens a Hugging Face folder or a GGUF file; [`make_random`] writes one with
//! random weights. [`Session`] puts the weights, a KV cache and the activations into the memories
//! that a placement names, and runs the placement's programs: one thread per lane, tasks in order,
//! dependencies as flags. Lanes of a GPU enqueue their tasks, and their flags lead to events.
//! [`modelled`] runs the same programs on a clock instead of devices. Both write a
//! [`planner::Trace`].
//!
//! Rooms, each using only those before it: error, weights, setup, batch, gpu, store,
//! compute, run, serve.
#![forbid(unsafe_code)]

mod batch;
mod compute;
mod error;
mod gpu;
mod run;
mod serve;
mod setup;
mod store;
mod weights;

pub use batch::logprobs::TokenLogprobs;
pub use batch::sampling::Sampling;
pub use error::ExecutorError;
pub use run::modelled::modelled;
pub use serve::request::{
    Batching, Client, FinishReason, GeneratedBatch, GenerationEvent, GenerationRequest, GenerationResult,
    PassReport, PromptChunk,
};
pub use serve::service::{Service, check_request};
pub use serve::session::{GpuPassCounts, Session};
pub use serve::speculative::{SpeculativeBatch, SpeculativeSession};
pub use setup::run_setup::RunSetup;
pub use weights::checkpoint::Checkpoint;
pub use weights::random::make_random;
pub use weights::tokenizer::Tokenizer;
