//! Reads mixtures of experts from a `config.json`, in the spellings of all families.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{
    count_from_zero, count_of, counts_of_layers, need_count, spelling, texts_of_layers,
};
use crate::model::config::router::read_router;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::experts::Experts;
use crate::model::transformer::Model;
use serde_json::Value;

const MAX_EXPERTS: u64 = 1 << 12;
/// More parameters in all experts are a typing error. Within this limit their bytes in f32, summed
/// over all layers, stay below 2⁶².
const MAX_PARAMETERS: u128 = 1 << 59;

const COUNT: [&str; 4] = ["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"];
const PER_TOKEN: [&str; 7] = [
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
];
const WIDTH: [&str; 2] = ["moe_intermediate_size", "expert_ffn_hidden_size"];
const SHARED_COUNT: [&str; 4] =
    ["n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"];
const SHARED_WIDTH: [&str; 4] = [
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
];

/// Reads the experts into `model`; returns for each layer whether it has them.
///
/// # Errors
/// A key is absent, out of range, or contradicts another.
pub(crate) fn read_mixture(
    config: &DocumentSection<'_>,
    rules: &MixtureRules,
    model: &mut Model,
) -> Result<Vec<bool>, ScenarioError> {
    let count = need_count(config, &COUNT, MAX_EXPERTS)?;
    let per_token = need_count(config, &PER_TOKEN, count)?;
    let own = count_of(config, &WIDTH, MAX_WIDTH)?;
    let intermediate = match own {
        Some(width) => width,
        None if rules.wide => model.intermediate,
        None => need_count(config, &WIDTH, MAX_WIDTH)?,
    };
    let mut experts = Experts::new(count, per_token, intermediate);
    experts.normalised = config.flag("norm_topk_prob")?.unwrap_or(rules.normalised);
    experts.router_bias = rules.router_bias.read(config)?;
    read_router(config, model.architecture, &mut experts)?;
    experts.shared = shared_width(config, intermediate)?;
    experts.latent =
        count_of(config, &["moe_hidden_size"], MAX_WIDTH)?.filter(|width| *width != model.hidden);
    experts.shared_gate = rules.shared_gate && experts.shared > 0;
    let parameters = [count, intermediate, model.neuron_parameters(), model.layers].map(u128::from);
    if parameters.iter().product::<u128>() > MAX_PARAMETERS {
        let key = spelling(config, &COUNT)?.unwrap_or(COUNT[0]);
        return Err(config.wrong(key, "the experts have more parameters than can be counted (2^59)"));
    }
    model.experts = Some(experts);
    sparse_layers(config, model.layers)
}

/// Whether `config` says that there are experts at all.
pub(crate) fn has_experts(config: &DocumentSection<'_>) -> Result<bool, ScenarioError> {
    Ok(count_from_zero(config, &COUNT)? > 0)
}

/// The key under which `config` counts experts, for errors.
pub(crate) fn experts_key(config: &DocumentSection<'_>) -> Option<&'static str> {
    COUNT.into_iter().find(|key| config.get(key).is_some())
}

/// The width of all shared experts together.
fn shared_width(config: &DocumentSection<'_>, intermediate: u64) -> Result<u64, ScenarioError> {
    let limited = |key: &str, width: u64| match width <= MAX_WIDTH {
        true => Ok(width),
        false => {
            let wanted = format!("it makes a width of {width}, at most {MAX_WIDTH} is allowed");
            Err(config.wrong(key, &wanted))
        }
    };
    if let Some(key) = spelling(config, &SHARED_WIDTH)? {
        let count = match count_of_shared(config)? {
            // One width for all of them, but Granite and Qwen have no count.
            Some(0) => 0,
            _ => 1,
        };
        return limited(key, count * count_from_zero(config, &[key])?);
    }
    let count = count_of_shared(config)?.unwrap_or(0);
    limited(spelling(config, &SHARED_COUNT)?.unwrap_or(SHARED_COUNT[0]), count * intermediate)
}

fn count_of_shared(config: &DocumentSection<'_>) -> Result<Option<u64>, ScenarioError> {
    match spelling(config, &SHARED_COUNT)? {
        Some(_) => count_from_zero(config, &SHARED_COUNT).map(Some),
        None => Ok(None),
    }
}

/// For each layer whether it has experts: a list says so, or the first layers and every n-th have
/// none.
fn sparse_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<bool>, ScenarioError> {
    let first = count_from_zero(config, &["first_k_dense_replace", "num_dense_layers"])?;
    let listed = listed_layers(config, layers)?;
    if let Some((key, listed)) = listed {
        // A number of leading dense layers that the file itself writes must agree with the list.
        if let Some(other) =
            ["first_k_dense_replace", "num_dense_layers"].into_iter().find(|key| config.writes(key))
        {
            let dense = listed.iter().take_while(|sparse| !**sparse).count() as u64;
            if dense != first {
                let wanted =
                    format!("it contradicts {key}, which begins with {dense} layers without experts");
                return Err(config.wrong(other, &wanted));
            }
        }
        return Ok(listed);
    }
    let step = |key: &str| -> Result<u64, ScenarioError> {
        match config.get(key) {
            Some(Value::Number(_)) => Ok(config.count(key, 1 << 16)?.unwrap_or(1)),
            _ => Ok(1),
        }
    };
    let behind =
        [step("decoder_sparse_step")?, step("interleave_moe_layer_step")?, step("moe_layer_interval")?];
    let (every, period) = (step("moe_layer_freq")?, step("expert_layer_period")?);
    let offset = count_from_zero(config, &["expert_layer_offset"])?;
    let (start, end) = ernie_range(config, layers)?;
    let without = members(config, "mlp_only_layers", layers)?;
    let sparse = |layer: u64| {
        layer >= first
            && behind.iter().all(|step| (layer + 1).is_multiple_of(*step))
            && layer.is_multiple_of(every)
            && layer % period == offset % period
            && (start..=end).contains(&layer)
            && !without.contains(&layer)
    };
    Ok((0..layers).map(sparse).collect())
}

/// The first and the last layer that may have experts, in Ernie's keys.
fn ernie_range(config: &DocumentSection<'_>, layers: u64) -> Result<(u64, u64), ScenarioError> {
    let start = match config.get("moe_layer_start_index") {
        Some(Value::Number(_)) => count_from_zero(config, &["moe_layer_start_index"])?,
        _ => 0,
    };
    let end = config.get("moe_layer_end_index").and_then(Value::as_u64).unwrap_or(layers);
    Ok((start, end))
}

/// The layers with experts as a list says, and its key.
fn listed_layers(
    config: &DocumentSection<'_>,
    layers: u64,
) -> Result<Option<(&'static str, Vec<bool>)>, ScenarioError> {
    if let Some(kinds) = texts_of_layers(config, "mlp_layer_types", layers)? {
        let sparse = |kind: &&str| match *kind {
            "dense" => Ok(false),
            "sparse" | "moe" | "hash_moe" => Ok(true),
            _ => Err(config.unsupported(
                "mlp_layer_types",
                "another network",
                "dense, sparse, moe and hash_moe are",
            )),
        };
        let kinds = kinds.iter().map(sparse).collect::<Result<_, _>>()?;
        return Ok(Some(("mlp_layer_types", kinds)));
    }
    if let Some(list) = counts_of_layers(config, "moe_layer_freq", layers)? {
        return Ok(Some(("moe_layer_freq", list.into_iter().map(|sparse| sparse > 0).collect())));
    }
    let is_filled = |key: &&str| match config.get(key) {
        Some(Value::Array(list)) => !list.is_empty(),
        other => other.is_some_and(Value::is_string),
    };
    let Some(key) = ["moe_layers", "moe_layers_enum"].into_iter().find(is_filled) else { return Ok(None) };
    let with = members(config, key, layers)?;
    Ok(Some((key, (0..layers).map(|layer| with.contains(&layer)).collect())))
}

/// The layers that a list names, or a text of numbers between commas.
pub(crate) fn members(
    config: &DocumentSection<'_>,
    key: &str,
    layers: u64,
) -> Result<Vec<u64>, ScenarioError> {
    let Some(value) = config.get(key) else { return Ok(vec![]) };
    let layer = |value: &Value| value.as_u64().filter(|layer| *layer < layers);
    let list = match value {
        Value::String(text) => {
            let numbers = text.split(',').map(|number| number.trim().parse().ok());
            numbers.map(|number| number.filter(|layer| *layer < layers)).collect()
        }
        value => value.as_array().and_then(|list| list.iter().map(layer).collect()),
    };
    list.ok_or_else(|| {
        config.wrong(key, &format!("layers below {layers} are wanted, as a list or between commas"))
    })
}
