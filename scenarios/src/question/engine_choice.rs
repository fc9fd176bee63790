//! The serving engine that a scenario names: its defaults, and what differs from them.
//!
//! ```yaml
//! engine: vllm
//! engine: {name: vllm, version: "0.19", max_num_seqs: 256, scheduler: slo}
//! engine: {file: my-engine.yaml, stream_interval: 10}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::question::engine_library::{EngineFile, known_engines, sourced};
use crate::question::engine_profile::EngineProfile;
use crate::question::objective::{Slo, read_slo};
use hwprofiles::{Bytes, Seconds};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The order in which waiting requests are served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The shortest prompt first.
    ShortestFirst,
    /// The request with the least time left to keep the limits first; steps are no longer than the
    /// limits allow.
    Slo {
        /// The scenario's limit on the time to the first token.
        ttft: Seconds,
        /// The scenario's limit on the time per output token.
        tpot: Seconds,
    },
}

/// A second memory for KV blocks: for those of a preempted request, or for cached prefixes that the
/// KV cache evicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SwapChoice {
    /// The memory's name.
    pub to: String,
    /// The part of it that may be used.
    pub space: Bytes,
    /// Whether blocks are moved there, or fetched from there, only if computing them again takes
    /// longer.
    pub only_if_faster: bool,
}

/// An engine, and the settings in which it differs from its defaults. `None` means the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EngineChoice {
    /// The engine, with the scenario's changes to what no other field holds.
    pub profile: EngineProfile,
    /// Most sequences that run at once.
    pub max_num_seqs: Option<u64>,
    /// Most tokens of one step.
    pub max_num_batched_tokens: Option<u64>,
    /// Tokens of one KV block.
    pub block_size: Option<u64>,
    /// Number of KV blocks; by default as many as fit into the memory that is left.
    pub num_blocks: Option<u64>,
    /// Share of a device's memory that the engine uses.
    pub gpu_memory_utilization: Option<f64>,
    /// Whether the KV blocks of shared prefixes are reused.
    pub prefix_caching: Option<bool>,
    /// The second memory for cached prefixes that the KV cache evicts; by default none.
    pub prefix_cache: Option<SwapChoice>,
    /// Whether prompts are prefilled in chunks.
    pub chunked_prefill: Option<bool>,
    /// Whether prefills run in separate steps, before decoding continues.
    pub prefill_first: Option<bool>,
    /// The order in which waiting requests are served.
    pub scheduler: Scheduler,
    /// The second memory for KV blocks of preempted requests; by default they are computed again.
    pub swap: Option<SwapChoice>,
    /// Host time for each step.
    pub host_per_step: Option<Seconds>,
    /// Host time for each sequence of a step.
    pub host_per_sequence: Option<Seconds>,
}

const KEYS: [&str; 15] = [
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

/// Keys that say which engine it is.
const WHICH: [&str; 4] = ["name", "version", "file", "execution"];

/// Keys that are written over those of the engine's own section `serving`: numbers, which get a
/// source, and words.
const CHANGES: [&str; 4] = ["host_per_request", "stream_interval", "tokeniser", "detokeniser"];
const WORDS: [&str; 1] = ["reserve"];

/// Reads `engine: vllm`, or `engine: {name: vllm, max_num_seqs: 256, …}`. Relative paths start at
/// `folder`.
pub(crate) fn read_engine(root: &DocumentSection<'_>, folder: &Path) -> Result<EngineChoice, ScenarioError> {
    match root.get("engine") {
        None => Ok(EngineChoice::default()),
        Some(Value::Object(_)) => {
            let section = root.section("engine")?.expect("it is a mapping");
            let known = [&WHICH[..], &KEYS, &CHANGES, &WORDS].concat();
            section.only(&known)?;
            let profile = read_profile(&section, folder)?;
            let choice = read_choice(root, &section, profile)?;
            check_choice(&section, &choice)?;
            Ok(choice)
        }
        Some(Value::Array(_)) => {
            let wanted = "`fulcrum capacity` asks each of a list; one is wanted here: name it, or sweep over them \
                          (`--set engine=vllm,sglang`)";
            Err(root.wrong("engine", wanted))
        }
        Some(value) => {
            let name = value.as_str().unwrap_or_default();
            let profile = EngineProfile::shipped(name);
            let profile = profile.ok_or_else(|| root.wrong("engine", &known_engines(name)))?;
            Ok(EngineChoice { profile, ..EngineChoice::default() })
        }
    }
}

/// Reads which engine of which version it is, and what differs in it.
fn read_profile(section: &DocumentSection<'_>, folder: &Path) -> Result<EngineProfile, ScenarioError> {
    let file = match (section.text("name")?, section.text("file")?) {
        (Some(_), Some(_)) => {
            return Err(section.wrong("file", "the file says its name: leave one of them out"));
        }
        (None, Some(file)) => EngineFile::read(&folder.join(file))?,
        (name, None) => {
            let name = name.unwrap_or("fulcrum");
            EngineFile::shipped(name).ok_or_else(|| section.wrong("name", &known_engines(name)))?
        }
    };
    let version = match section.get("version") {
        None => None,
        Some(Value::String(version)) => Some(version.clone()),
        Some(Value::Number(version)) => Some(version.to_string()),
        Some(_) => return Err(section.wrong("version", "a version is wanted, like \"0.19\"")),
    };
    let numbers = CHANGES.into_iter().filter_map(|key| Some((key.to_owned(), sourced(section.get(key)?))));
    let words = WORDS.into_iter().filter_map(|key| Some((key.to_owned(), section.get(key)?.clone())));
    let mut changes = Map::new();
    changes.insert("serving".to_owned(), Value::Object(numbers.chain(words).collect()));
    changes.insert("execution".to_owned(), section.get("execution").map_or(json!({}), sourced));
    let version = version.as_deref();
    file.engine(version, &Map::new()).map_err(|error| file.located(&error))?;
    file.engine(version, &changes).map_err(|error| {
        let key = error.key.trim_start_matches("serving.").trim_end_matches(".value");
        section.wrong(key, &error.message)
    })
}

/// Reads the settings that are the choice's own.
fn read_choice(
    root: &DocumentSection<'_>,
    section: &DocumentSection<'_>,
    profile: EngineProfile,
) -> Result<EngineChoice, ScenarioError> {
    let share = section.positive("gpu_memory_utilization")?;
    if share.is_some_and(|share| share > 1.0) {
        return Err(section.wrong("gpu_memory_utilization", "a share from 0 to 1 is wanted"));
    }
    let time = |key: &str| section.quantity(key, ["a time", "1 ms"], |time: &Seconds| time.get());
    Ok(EngineChoice {
        profile,
        max_num_seqs: section.count("max_num_seqs", 1 << 20)?,
        max_num_batched_tokens: section.count("max_num_batched_tokens", 1 << 24)?,
        block_size: section.count("block_size", 1 << 12)?,
        num_blocks: section.count("num_blocks", 1 << 40)?,
        gpu_memory_utilization: share,
        prefix_caching: section.flag("prefix_caching")?,
        prefix_cache: read_prefix_cache(root)?,
        chunked_prefill: section.flag("chunked_prefill")?,
        prefill_first: section.flag("prefill_first")?,
        scheduler: read_scheduler(root, section)?,
        swap: read_swap(section)?,
        host_per_step: time("host_per_step")?,
        host_per_sequence: time("host_per_sequence")?,
    })
}

/// Refuses keys that contradict each other.
fn check_choice(section: &DocumentSection<'_>, choice: &EngineChoice) -> Result<(), ScenarioError> {
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
    Ok(())
}

/// Reads `scheduler`: `fcfs`, `shortest_first`, or `slo`, which uses the limits under `slo`.
fn read_scheduler(
    root: &DocumentSection<'_>,
    section: &DocumentSection<'_>,
) -> Result<Scheduler, ScenarioError> {
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

/// Reads `preemption`: `recompute`, or `swap` or `cheaper` with `swap_space` and `swap_to`.
fn read_swap(section: &DocumentSection<'_>) -> Result<Option<SwapChoice>, ScenarioError> {
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

/// Reads `prefix_cache: {to: cxl, space: 256 GB}`.
fn read_prefix_cache(root: &DocumentSection<'_>) -> Result<Option<SwapChoice>, ScenarioError> {
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
