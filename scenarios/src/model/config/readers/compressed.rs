//! Reads DeepSeek-V4.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_from_zero, need_count, texts_of_layers};
use crate::model::config::mixture::read_mixture;
use crate::model::config::readers::latent::check_index;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::mixer::{CompressedAttention, Mixer, SparseIndex};
use crate::model::transformer::Model;
use serde_json::Value;

/// Tokens of one entry of the sparse kind, whose groups overlap.
const SPARSE_RATIO: u64 = 4;
/// The most residual streams that are counted.
const MAX_STREAMS: u64 = 64;

/// Reads it; returns the shape of each layer.
pub(crate) fn read_compressed(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    let need = |key: &str, limit| need_count(config, &[key], limit);
    if model.kv_heads != 1 {
        return Err(config.unsupported("num_key_value_heads", "more than one head of keys", "only 1 is"));
    }
    let base = CompressedAttention {
        q_rank: need("q_lora_rank", MAX_WIDTH)?,
        out_rank: need("o_lora_rank", MAX_WIDTH)?,
        out_groups: need("o_groups", MAX_WIDTH)?,
        window: need("sliding_window", MAX_CONTEXT)?,
        ratio: None,
        sets: 1,
    };
    if !(model.heads * model.head_dim).is_multiple_of(base.out_groups)
        || base.out_groups * base.out_rank > MAX_WIDTH
    {
        let wanted = format!(
            "a divisor of heads · head_dim, which is {}, is wanted, and with o_lora_rank at most {MAX_WIDTH}",
            model.heads * model.head_dim
        );
        return Err(config.wrong("o_groups", &wanted));
    }
    let index = SparseIndex {
        heads: need("index_n_heads", MAX_WIDTH)?,
        dim: need("index_head_dim", MAX_WIDTH)?,
        selected: need("index_topk", MAX_CONTEXT)?,
        computes: true,
        fp8_keys: true,
        pooled: None,
    };
    check_index(config, "index_n_heads", &index)?;
    model.wiring.sinks = true;
    model.wiring.residual_streams = Some(need("hc_mult", MAX_STREAMS)?);
    let rules = MixtureRules { router_bias: Switch::Yes, normalised: true, ..MixtureRules::NARROW };
    read_mixture(config, &rules, model)?;
    model.mtp = count_from_zero(config, &["num_nextn_predict_layers"])?;
    let shape = |ratio: u64| {
        let mut shape = model.clone();
        shape.index = (ratio == SPARSE_RATIO).then_some(index);
        let sets = if ratio == SPARSE_RATIO { 2 } else { 1 };
        let ratio = Some(ratio).filter(|&ratio| ratio > 0);
        shape.mixer = Mixer::Compressed(CompressedAttention { ratio, sets, ..base });
        shape
    };
    let layers: Vec<Model> = ratios(config, model.layers)?.into_iter().map(shape).collect();
    // The model itself has the window alone, as its MTP modules have.
    model.mixer = Mixer::Compressed(base);
    Ok(layers)
}

/// Tokens of one compressed entry, for each layer; 0 in layers with the window alone.
fn ratios(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<u64>, ScenarioError> {
    const KEY: &str = "compress_ratios";
    if let Some(value) = config.get(KEY).filter(|value| value.is_array()) {
        let number = |value: &Value| value.as_u64().filter(|ratio| *ratio <= 1 << 20);
        let list = value.as_array().and_then(|list| list.iter().map(number).collect::<Option<Vec<_>>>());
        let modules = count_from_zero(config, &["num_nextn_predict_layers"])?;
        // Published files have an entry for each MTP module too.
        let fits = |list: &Vec<u64>| [layers, layers + modules].contains(&(list.len() as u64));
        let Some(mut list) = list.filter(fits) else {
            let wanted = format!("one whole number for each of {layers} layers (and MTP modules) is wanted");
            return Err(config.wrong(KEY, &wanted));
        };
        list.truncate(layers as usize);
        return Ok(list);
    }
    let rates = config.section("compress_rates")?;
    let rate = |key: &str, default: u64| match &rates {
        Some(rates) => Ok(rates.count(key, 1 << 20)?.unwrap_or(default)),
        None => Ok(default),
    };
    let sparse = rate("compressed_sparse_attention", SPARSE_RATIO)?;
    let heavy = rate("heavily_compressed_attention", 128)?;
    let Some(kinds) = texts_of_layers(config, "layer_types", layers)? else {
        return Err(config.missing(KEY, "a list of 0, 4 or 128 for each layer is wanted"));
    };
    let ratio = |kind: &str| match kind {
        "sliding_attention" => Ok(0),
        "compressed_sparse_attention" => Ok(sparse),
        "heavily_compressed_attention" => Ok(heavy),
        _ => Err(config.unsupported(
            "layer_types",
            "another layer",
            "sliding_attention, compressed_sparse_attention and heavily_compressed_attention are",
        )),
    };
    kinds.into_iter().map(ratio).collect()
}
