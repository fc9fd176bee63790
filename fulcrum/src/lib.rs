//! Plans, predicts and runs hybrid CPU-GPU inference of large language models.
//!
//! A [`Scenario`] names a machine, a model and a load. [`plan()`] finds where each layer should run
//! and where weights and KV cache should live; [`simulate()`] predicts the run of a plan;
//! [`sweep()`], [`capacity()`] and [`reproduce()`] ask that of many scenarios; [`report()`] makes a
//! page of results. With the feature `run`, a `Session` runs a plan on a real model, and `serve`
//! answers requests as they come.
//!
//! ```
//! let scenario = fulcrum::parse_scenario(
//!     "{machine: rtx4090-desktop, model: llama-3.1-8b,
//!       workload: {batch: 1, prompt_tokens: 256, output_tokens: 32}}",
//! )?;
//! let plan = fulcrum::plan(&scenario)?;
//! println!("{}: {}", plan.plan.predicted.chosen, plan.plan.predicted.simulated.ttft);
//! # Ok::<(), fulcrum::Error>(())
//! ```
//!
//! Nothing is printed, and no global state is kept: long tasks tell a function of the caller what
//! they do ([`ProgressEvent`]), and every failure is one [`Error`].
//!
//! Rooms, each using only those before it: error, wrong_place, progress, identity, file_digest,
//! journal, table, pipeline, input_files, serve, sweep, capacity, advise, reproduce, report, share,
//! page, run.
#![forbid(unsafe_code)]

mod advise;
mod capacity;
mod error;
mod file_digest;
mod identity;
mod input_files;
mod journal;
mod page;
mod pipeline;
mod progress;
mod report;
mod reproduce;
#[cfg(feature = "run")]
mod run;
mod serve;
mod share;
mod sweep;
mod table;
mod wrong_place;

pub use advise::{
    Advice, AdviceQuestion, AdviceRow, AdvisedEngine, AdvisedMachine, LeftOutModel, PlacementClass, Purpose,
    Upgrade, UpgradePrices, WithoutGpus, advise,
};
pub use capacity::capacity;
pub use error::{Error, ErrorDetail, OrError, Result};
pub use input_files::InputFiles;
pub use page::PageSession;
pub use pipeline::{
    ExportedPlan, FittedGpu, FormatTrial, GpuFitOptions, PredictionOptions, PreparedScenario, ResolvedPlan,
    described, fit_gpus, machine, machine_library, model, parse_scenario, plan, plan_grid, plan_numbers,
    predict_rows, read_scenario, simulate, this_host_file, train,
};
pub use progress::{ProgressEvent, ProgressFn, TaskStage, no_progress};
pub use report::{ResultPage, report};
pub use reproduce::{
    FittedRate, Published, ReachedFit, ReachedFitOptions, fit_constants, fit_reached, is_llama_bench,
    reproduce, reproduce_public, reproduce_public_left_out,
};
#[cfg(feature = "run")]
pub use run::{
    AnswerEvent, AnswerFile, AnswerSink, AnswerTimes, BatchAnswers, BatchDefaults, BatchJob, BatchRequest,
    CheckedKernel, Checkpoint, Client, DraftedSession, EndpointDay, FinishReason, GeneratedBatch,
    GenerationOptions, GenerationRequest, GenerationResult, KernelPath, LiveOptions, LiveSession,
    OnlineEvent, OnlineRequest, PassReport, QuickstartOptions, RequestDay, RequestDayClient, RooflineCheck,
    RunSetup, Sampling, ServedComparison, ServedFigure, Session, SpeculativeBatch, TextEnds, TextStream,
    TokenLogprobs, Tokenizer, ValidationOptions, answer_line, check_request, check_roofline,
    compare_gpu_kernels, init_model, measure_host, quickstart, random_prompts, read_batch, require_this_host,
    serve, this_machine, validate,
};
pub use serve::{
    DayTables, KvResidency, LatencyErrors, LatencySummary, LayerDifference, LockstepRange, RebalancedDay,
    Replay, ReplayOptions, ServedDay, StepDifference, TimeWindow, replay, serve_day,
};
pub use share::{SharedMeasurements, share};
pub use sweep::{
    ExtraKey, Halving, HalvingLadder, LimitSearch, PointBudget, RowRank, Sweep, SweepCounts, SweepHighlights,
    SweepRun, SweepShard, merge_shards, sweep,
};
pub use table::is_parquet;
pub use wrong_place::WrongPlace;

pub use hwprofiles::Machine;
#[cfg(feature = "run")]
pub use microbench::{OtherPrograms, beside_other_programs};
pub use scenarios::{Document, Scenario, Setting};
