//! A placement that a scenario forces, in place of planning one.
//!
//! ```yaml
//! placement: {gpu_layers: 20}
//! placement: {gpu_layers: 99, cpu_moe_layers: 30, micro_batch: 2048}
//! placement: {override_tensor: ["blk\\.(0|1)\\.ffn.*=CUDA0", "exps=CPU"]}
//! placement: {rule: flexgen}
//! placement: {plan: plan.yaml}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::transformer::Model;
use crate::question::engine_profile::EngineProfile;
use crate::question::lookup::Reference;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// A placement that is forced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum PlacementChoice {
    /// What an engine of llama.cpp's kind makes of its options.
    Offload(OffloadOptions),
    /// The placement of one of the planner's rules, by its name.
    Rule(String),
    /// The placement of a plan's file.
    Plan(Reference),
}

/// Options with which llama.cpp and engines like it place tensors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OffloadOptions {
    /// The last layers that the GPUs hold with their KV cache; with more than there are also the
    /// output projection. `None` means all where there is a GPU (`-ngl`).
    pub gpu_layers: Option<u64>,
    /// The first layers whose routed experts stay with the host (`--n-cpu-moe`, `-cmoe`).
    pub cpu_moe: CpuMoe,
    /// Patterns of tensor names with their buffers, the first that matches wins (`-ot`).
    pub override_tensor: Vec<TensorOverride>,
    /// The least rows of a product for which the GPU fetches the host's weights. `None` means what
    /// the engine does.
    pub op_offload: Option<u64>,
    /// The same for products with routed experts; as `op_offload` where absent.
    pub experts_op_offload: Option<u64>,
    /// By GPU, its part of the layers that GPUs hold (`-ts`); empty where their memories decide.
    pub tensor_split: Vec<u64>,
    /// Whether the KV caches, and attention with them, stay with the host (`-nkvo`).
    pub kv_on_host: bool,
    /// Tokens of all sequences that enter in one step of prefill (`-ub`).
    pub micro_batch: u64,
}

/// Layers whose routed experts stay with the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum CpuMoe {
    /// None because of this option.
    #[default]
    None,
    /// The first so many layers, counted from the first of the model.
    First(u64),
    /// All.
    All,
}

/// One pattern with its buffer: `exps=CPU`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorOverride {
    /// A regular expression that is searched for in a tensor's name.
    pub pattern: String,
    /// The buffer: `CPU`, or a GPU with its number, like `CUDA0` and `ROCm1`.
    pub buffer: String,
}

impl OffloadOptions {
    /// With this many rows llama.cpp's GPU fetches the host's weights.
    pub const ROWS: u64 = 32;

    /// What llama.cpp does unless it is told otherwise: all with the GPUs where there are some.
    pub const DEFAULT: Self = Self {
        gpu_layers: None,
        cpu_moe: CpuMoe::None,
        override_tensor: vec![],
        op_offload: None,
        experts_op_offload: None,
        tensor_split: vec![],
        kv_on_host: false,
        micro_batch: 512,
    };

    /// Whether nothing but the token table of `model` is with the host, where there is a GPU.
    pub fn is_whole_on_gpus(&self, model: &Model) -> bool {
        self.gpu_layers.is_none_or(|layers| layers > model.layers)
            && self.cpu_moe == CpuMoe::None
            && !self.kv_on_host
            && self.override_tensor.iter().all(|one| !one.buffer.starts_with("CPU"))
    }

    /// The same options, with what `engine` does where they do not say when weights are fetched.
    #[must_use]
    pub fn completed_by(&self, engine: &EngineProfile, model: &Model) -> Self {
        if self.op_offload.is_some() {
            return self.clone();
        }
        let offload = engine.execution.op_offload.as_ref();
        let rows = offload.map(|offload| offload.min_batch.value);
        let of_experts = |rows: u64| match &model.experts {
            Some(experts) => rows.saturating_mul(experts.count) / experts.per_token.max(1),
            None => rows,
        };
        let by_expert = offload.is_some_and(|offload| offload.by_expert);
        let experts_op_offload = rows.filter(|_| by_expert).map(of_experts);
        // An engine that fetches nothing never has enough rows.
        Self { op_offload: Some(rows.unwrap_or(u64::MAX)), experts_op_offload, ..self.clone() }
    }
}

const KEYS: [&str; 10] = [
    "gpu_layers",
    "cpu_moe_layers",
    "cpu_moe",
    "override_tensor",
    "op_offload",
    "tensor_split",
    "kv_offload",
    "micro_batch",
    "rule",
    "plan",
];
/// The largest number of `tensor_split`.
const MOST_PARTS: u64 = 1 << 24;
/// Keys that say the whole placement alone.
const ALONE: [&str; 2] = ["rule", "plan"];

/// Reads `placement`. Relative paths start at `folder`.
pub(crate) fn read_placement(
    root: &DocumentSection<'_>,
    folder: &Path,
) -> Result<Option<PlacementChoice>, ScenarioError> {
    let Some(section) = root.section("placement")? else { return Ok(None) };
    section.only(&KEYS)?;
    for alone in ALONE.into_iter().filter(|key| section.has(key)) {
        if let Some(other) = section.keys().find(|key| *key != alone) {
            let wanted = format!("placement.{alone} says all of the placement: leave {other} out");
            return Err(section.wrong(other, &wanted));
        }
    }
    if let Some(rule) = section.text("rule")? {
        return Ok(Some(PlacementChoice::Rule(rule.to_owned())));
    }
    if let Some(text) = section.text("plan")? {
        let reference = Reference { text: text.to_owned(), folder: folder.to_owned() };
        return Ok(Some(PlacementChoice::Plan(reference)));
    }
    if section.keys().all(|key| matches!(key, "op_offload" | "micro_batch")) {
        let wanted = "what goes where is missing: gpu_layers, cpu_moe_layers, override_tensor, tensor_split, rule or plan";
        return Err(root.wrong("placement", wanted));
    }
    Ok(Some(PlacementChoice::Offload(OffloadOptions {
        gpu_layers: whole_number(&section, "gpu_layers")?,
        cpu_moe: read_cpu_moe(&section)?,
        override_tensor: read_overrides(&section)?,
        op_offload: read_op_offload(&section)?,
        tensor_split: read_tensor_split(&section)?,
        kv_on_host: section.flag("kv_offload")? == Some(false),
        micro_batch: section.count("micro_batch", 1 << 24)?.unwrap_or(OffloadOptions::DEFAULT.micro_batch),
        ..OffloadOptions::DEFAULT
    })))
}

fn whole_number(section: &DocumentSection<'_>, key: &str) -> Result<Option<u64>, ScenarioError> {
    let Some(value) = section.get(key) else { return Ok(None) };
    value.as_u64().map(Some).ok_or_else(|| section.wrong(key, "a whole number from 0 on is wanted"))
}

fn read_cpu_moe(section: &DocumentSection<'_>) -> Result<CpuMoe, ScenarioError> {
    let first = whole_number(section, "cpu_moe_layers")?;
    match (first, section.text("cpu_moe")?) {
        (None, None) => Ok(CpuMoe::None),
        (Some(layers), None) => Ok(CpuMoe::First(layers)),
        (None, Some("all")) => Ok(CpuMoe::All),
        (None, Some(_)) => Err(section.wrong("cpu_moe", "`all` is wanted, or cpu_moe_layers: 30 instead")),
        (Some(_), Some(_)) => {
            Err(section.wrong("cpu_moe", "cpu_moe_layers is there too: leave one of them out"))
        }
    }
}

/// Reads `override_tensor`: a list of overrides, each also several with commas between them.
fn read_overrides(section: &DocumentSection<'_>) -> Result<Vec<TensorOverride>, ScenarioError> {
    let key = "override_tensor";
    let wanted = || section.wrong(key, r#"a list like ["blk\\.0\\.ffn.*=CUDA0", "exps=CPU"] is wanted"#);
    let texts: Vec<&str> = match section.get(key) {
        None => return Ok(vec![]),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(values)) => {
            values.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wanted)?
        }
        Some(_) => return Err(wanted()),
    };
    let parts = texts.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    let split = |part: &str| {
        let (pattern, buffer) = part.split_once('=').filter(|(pattern, _)| !pattern.is_empty())?;
        Some(TensorOverride { pattern: pattern.to_owned(), buffer: buffer.to_owned() })
    };
    let part = |part: &str| {
        split(part)
            .ok_or_else(|| section.wrong(key, &format!("'{part}' is no pattern=buffer, like exps=CPU")))
    };
    parts.filter(|part| !part.is_empty()).map(part).collect()
}

/// Reads `tensor_split`: a number for each GPU, not all of them 0.
fn read_tensor_split(section: &DocumentSection<'_>) -> Result<Vec<u64>, ScenarioError> {
    let key = "tensor_split";
    let Some(value) = section.get(key) else { return Ok(vec![]) };
    let parts = value.as_array().map(|parts| parts.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let is_right =
        |parts: &Vec<u64>| parts.iter().all(|&part| part <= MOST_PARTS) && parts.iter().any(|&part| part > 0);
    parts.flatten().filter(is_right).ok_or_else(|| {
        section.wrong(key, "whole numbers are wanted, one for each GPU, such as [3, 1]; not all of them 0")
    })
}

/// Reads `op_offload`: whether, or from how many rows on.
fn read_op_offload(section: &DocumentSection<'_>) -> Result<Option<u64>, ScenarioError> {
    match section.get("op_offload") {
        None => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(OffloadOptions::ROWS)),
        Some(Value::Bool(false)) => Ok(Some(u64::MAX)),
        Some(_) => match section.count("op_offload", 1 << 24) {
            Ok(rows) => Ok(rows),
            Err(_) => Err(section.wrong("op_offload", "true, false or the least number of tokens is wanted")),
        },
    }
}
