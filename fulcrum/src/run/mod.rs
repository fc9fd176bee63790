//! Real runs: sessions of the executor, files of requests, requests as they come, and what was
//! measured beside what was predicted.

mod answer_file;
mod batch;
mod batch_file;
mod drafted;
mod host;
mod installed_machine;
mod measurement;
mod online;
mod planned_clock;
mod quickstart;
mod replan;
mod request_day;
mod session;
mod text_stream;
mod validation;

pub use answer_file::{AnswerFile, BatchJob};
pub use batch::{BatchAnswers, answer_line};
pub use batch_file::{BatchDefaults, BatchRequest, read_batch};
pub use drafted::DraftedSession;
pub use executor::{
    Checkpoint, Client, FinishReason, GeneratedBatch, GenerationRequest, GenerationResult, PassReport,
    RunSetup, Sampling, Session, SpeculativeBatch, TokenLogprobs, Tokenizer,
};
pub use host::{check_roofline, compare_gpu_kernels, init_model, measure_host, require_this_host};
pub use installed_machine::this_machine;
/// Which of the CPU's kernels to run: see [`KernelPath::choose`].
pub use kernels::Path as KernelPath;
pub use measurement::random_prompts;
pub use microbench::{CheckedKernel, RooflineCheck};
pub use online::{AnswerEvent, AnswerSink, AnswerTimes, OnlineEvent, OnlineRequest};
pub use quickstart::{QuickstartOptions, quickstart};
pub use request_day::{EndpointDay, RequestDay, RequestDayClient, ServedComparison, ServedFigure, serve};
pub use session::{GenerationOptions, LiveOptions, LiveSession, TextEnds, check_request};
pub use text_stream::TextStream;
pub use validation::{ValidationOptions, validate};
