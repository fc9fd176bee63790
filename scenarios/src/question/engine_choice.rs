//! The engine of a scenario: whose habits it has, and what differs from them.
//!
//! ```yaml
//! engine: vllm
//! engine: {name: vllm, max_num_seqs: 256, scheduler: slo}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::question::objective::{Slo, read_slo};
use hwprofiles::{Bytes, Seconds};
use serde_json::Value;

/// Whose habits and overheads the simulated engine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineName {
    /// Fulcrum's own: no overhead that was not measured.
    #[default]
    Fulcrum,
    /// vLLM.
    Vllm,
    /// TensorRT-LLM.
    TrtLlm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
}

impl EngineName {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Fulcrum, Self::Vllm, Self::TrtLlm, Self::Sglang, Self::LlamaCpp];

    /// As scenarios write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fulcrum => "fulcrum",
            Self::Vllm => "vllm",
            Self::TrtLlm => "trtllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama.cpp",
        }
    }
}

/// Who comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The shortest prompt.
    ShortestFirst,
    /// Who has the least time left to keep the limits, and steps no longer than those allow.
    Slo {
        /// The scenario's limit on the time to the first token.
        ttft: Seconds,
        /// The scenario's limit on the time per output token.
        tpot: Seconds,
    },
}

/// A second place for KV blocks: of who is sent back when there are none left, or of prefixes that are overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapChoice {
    /// The memory's name.
    pub to: String,
    /// How much of it may be used.
    pub space: Bytes,
    /// Whether only what is slower to compute again goes there, or is fetched from there.
    pub only_if_faster: bool,
}

/// An engine with what a scenario says differs from its habits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineChoice {
    /// Which.
    pub name: EngineName,
    /// Sequences that run at once.
    pub max_num_seqs: Option<u64>,
    /// Tokens of a step.
    pub max_num_batched_tokens: Option<u64>,
    /// Tokens of a KV block.
    pub block_size: Option<u64>,
    /// KV blocks, where they are not to be counted from the memory that is left.
    pub num_blocks: Option<u64>,
    /// The share of a device's memory that the engine uses.
    pub gpu_memory_utilization: Option<f64>,
    /// Whether what is computed is found again.
    pub prefix_caching: Option<bool>,
    /// Where prefixes are kept for when the KV cache has overwritten them; nowhere where nothing is said.
    pub prefix_cache: Option<SwapChoice>,
    /// Whether prompts enter in chunks.
    pub chunked_prefill: Option<bool>,
    /// Whether prompts enter in steps of their own, before anybody decodes on.
    pub prefill_first: Option<bool>,
    /// Who comes first.
    pub scheduler: Scheduler,
    /// Where the KV cache of who is sent back goes; it is computed again where nothing is said.
    pub swap: Option<SwapChoice>,
    /// What the host takes for each step.
    pub host_per_step: Option<Seconds>,
    /// What it takes for each sequence of a step.
    pub host_per_sequence: Option<Seconds>,
}

const KEYS: [&str; 16] = [
    "name",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_blocks",
    "gpu_memory_utilization",
    "prefix_caching",
    "prefix_cache",
    "chunked_prefill",
    "prefill_first",
    "scheduler",
    "preemption",
    "swap_space",
    "swap_to",
    "host_per_step",
    "host_per_sequence",
];

/// `engine: vllm`, or `engine: {name: vllm, max_num_seqs: 256, …}`.
pub(crate) fn read_engine(root: &Section<'_>) -> Result<EngineChoice, ScenarioError> {
    let known = EngineName::ALL.map(EngineName::name).join(", ");
    let named = |text: &str| EngineName::ALL.into_iter().find(|engine| engine.name() == text);
    match root.get("engine") {
        None => Ok(EngineChoice::default()),
        Some(Value::Object(_)) => {
            let section = root.section("engine")?.expect("it is a mapping");
            section.only(&KEYS)?;
            let text = section.text("name")?.unwrap_or(EngineName::Fulcrum.name());
            let name =
                named(text).ok_or_else(|| section.wrong("name", &format!("one of {known} is wanted")))?;
            let share = section.positive("gpu_memory_utilization")?;
            if share.is_some_and(|share| share > 1.0) {
                return Err(section.wrong("gpu_memory_utilization", "a share from 0 to 1 is wanted"));
            }
            let time = |key: &str| section.quantity(key, ["a time", "1 ms"], |time: &Seconds| time.get());
            let choice = EngineChoice {
                name,
                max_num_seqs: section.count("max_num_seqs", 1 << 20)?,
                max_num_batched_tokens: section.count("max_num_batched_tokens", 1 << 24)?,
                block_size: section.count("block_size", 1 << 12)?,
                num_blocks: section.count("num_blocks", 1 << 40)?,
                gpu_memory_utilization: share,
                prefix_caching: section.flag("prefix_caching")?,
                prefix_cache: read_prefix_cache(root)?,
                chunked_prefill: section.flag("chunked_prefill")?,
                prefill_first: section.flag("prefill_first")?,
                scheduler: read_scheduler(root, &section)?,
                swap: read_swap(&section)?,
                host_per_step: time("host_per_step")?,
                host_per_sequence: time("host_per_sequence")?,
            };
            if matches!(choice.scheduler, Scheduler::Slo { .. }) && choice.prefill_first == Some(true) {
                let wanted = "with scheduler: slo prompts share steps with decodes: leave it out";
                return Err(section.wrong("prefill_first", wanted));
            }
            if let (Some(seqs), Some(tokens)) = (choice.max_num_seqs, choice.max_num_batched_tokens)
                && tokens < seqs
            {
                let wanted = format!("each of the {seqs} sequences of max_num_seqs needs a token of a step");
                return Err(section.wrong("max_num_batched_tokens", &wanted));
            }
            Ok(choice)
        }
        Some(value) => {
            let name = value.as_str().and_then(named);
            let name = name.ok_or_else(|| root.wrong("engine", &format!("one of {known} is wanted")))?;
            Ok(EngineChoice { name, ..EngineChoice::default() })
        }
    }
}

/// `scheduler: fcfs`, `shortest_first`, or `slo`, which goes by the limits of the scenario.
fn read_scheduler(root: &Section<'_>, section: &Section<'_>) -> Result<Scheduler, ScenarioError> {
    match section.text("scheduler")? {
        None | Some("fcfs") => Ok(Scheduler::Fcfs),
        Some("shortest_first") => Ok(Scheduler::ShortestFirst),
        Some("slo") => match root.section("slo")?.map(|limits| read_slo(&limits)).transpose()? {
            Some(Slo { ttft: Some(ttft), tpot: Some(tpot) }) => Ok(Scheduler::Slo { ttft, tpot }),
            _ => Err(section.wrong(
                "scheduler",
                "it goes by the limits slo.ttft and slo.tpot, both of which are wanted: slo: {ttft: 1 s, tpot: 50 ms}",
            )),
        },
        Some(_) => Err(section.wrong("scheduler", "one of fcfs, shortest_first, slo is wanted")),
    }
}

/// `preemption: recompute`, or `swap` or `cheaper` with `swap_space` and `swap_to`.
fn read_swap(section: &Section<'_>) -> Result<Option<SwapChoice>, ScenarioError> {
    let space = section.quantity("swap_space", ["a size", "16 GB"], |space: &Bytes| space.as_f64())?;
    let to = section.text("swap_to")?;
    let only_if_faster = match section.text("preemption")? {
        None | Some("recompute") => {
            return match ["swap_space", "swap_to"].into_iter().find(|key| section.has(key)) {
                Some(key) => Err(section.wrong(key, "it goes with preemption: swap or cheaper")),
                None => Ok(None),
            };
        }
        Some("swap") => false,
        Some("cheaper") => true,
        Some(_) => return Err(section.wrong("preemption", "one of recompute, swap, cheaper is wanted")),
    };
    let space = space.ok_or_else(|| section.missing("swap_space", "how much is wanted, like \"16 GB\""))?;
    Ok(Some(SwapChoice { to: to.unwrap_or("dram").to_owned(), space, only_if_faster }))
}

/// `prefix_cache: {to: cxl, space: 256 GB}`.
fn read_prefix_cache(root: &Section<'_>) -> Result<Option<SwapChoice>, ScenarioError> {
    let Some(level) = root.section("engine.prefix_cache")? else { return Ok(None) };
    level.only(&["to", "space"])?;
    let engine = root.section("engine")?.expect("it is a mapping");
    if engine.flag("prefix_caching")? == Some(false) {
        let wanted = "with prefix_caching: false nothing is found again: leave one of them out";
        return Err(engine.wrong("prefix_cache", wanted));
    }
    let space = level.quantity("space", ["a size", "256 GB"], |space: &Bytes| space.as_f64())?;
    let space = space.ok_or_else(|| level.missing("space", "how much is wanted, like \"256 GB\""))?;
    let to = level.text("to")?.unwrap_or("dram").to_owned();
    Ok(Some(SwapChoice { to, space, only_if_faster: true }))
}
