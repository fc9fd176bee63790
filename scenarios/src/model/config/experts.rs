//! Reads experts and latent attention from a `config.json`.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Architecture;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::experts::{Experts, RouterScoring};
use crate::model::latent_attention::LatentAttention;
use crate::model::mixer::Mixer;
use crate::model::transformer::Model;
use serde_json::Value;

const MAX_EXPERTS: u64 = 1 << 12;
/// More parameters in all experts are a typing error. Within this limit their bytes in f32, summed
/// over all layers, stay below 2⁶².
const MAX_PARAMETERS: u128 = 1 << 59;

/// The names of one family's keys.
struct ExpertKeys {
    count: &'static str,
    intermediate: &'static str,
    /// DeepSeek has shared experts and leading dense layers.
    deepseek: bool,
}

impl ExpertKeys {
    fn for_architecture(architecture: Architecture) -> Option<Self> {
        let keys = |count, intermediate, deepseek| Some(Self { count, intermediate, deepseek });
        match architecture {
            Architecture::Mixtral | Architecture::GptOss => {
                keys("num_local_experts", "intermediate_size", false)
            }
            Architecture::Qwen3Moe => keys("num_experts", "moe_intermediate_size", false),
            Architecture::DeepSeekV2 | Architecture::DeepSeekV3 => {
                keys("n_routed_experts", "moe_intermediate_size", true)
            }
            _ => None,
        }
    }
}

/// Reads the experts of a family that has them; refuses their keys in other families.
pub(crate) fn read_experts(config: &DocumentSection<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    let Some(keys) = ExpertKeys::for_architecture(model.architecture) else {
        for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
            if config.get(key).is_some() {
                let instead =
                    "the model types with experts are mixtral, qwen3_moe, gpt_oss, deepseek_v2, deepseek_v3";
                return Err(config.unsupported(key, "a mixture of experts in this model type", instead));
            }
        }
        return Ok(());
    };
    let need = |key: &str, limit: u64| {
        let wanted = format!("a whole number from 1 to {limit} is wanted");
        config.count(key, limit)?.ok_or_else(|| config.missing(key, &wanted))
    };
    refuse_dense_between(config, model.architecture)?;
    // Transformers 5 uses one key for most families.
    let spellings = [keys.count, "num_local_experts"];
    let key = spellings.into_iter().find(|key| config.has(key)).unwrap_or(keys.count);
    let count = need(key, MAX_EXPERTS)?;
    let per_token = need("num_experts_per_tok", count)?;
    let intermediate = need(keys.intermediate, MAX_WIDTH)?;
    let mut experts = Experts::new(count, per_token, intermediate);
    experts.normalised = match model.architecture {
        Architecture::Mixtral | Architecture::GptOss => true,
        _ => config.flag("norm_topk_prob")?.unwrap_or(model.architecture == Architecture::DeepSeekV3),
    };
    if keys.deepseek {
        experts.shared = count_from_zero(config, "n_shared_experts")? * intermediate;
        if experts.shared > MAX_WIDTH {
            let wanted = format!(
                "with {} it makes {}, at most {MAX_WIDTH} is allowed",
                keys.intermediate, experts.shared
            );
            return Err(config.wrong("n_shared_experts", &wanted));
        }
        read_router(config, model.architecture, &mut experts)?;
    }
    let parameters = [count, intermediate, model.neuron_parameters(), model.layers].map(u128::from);
    if parameters.iter().product::<u128>() > MAX_PARAMETERS {
        return Err(config.wrong(key, "the experts have more parameters than can be counted (2^59)"));
    }
    model.experts = Some(experts);
    Ok(())
}

/// Reads how DeepSeek's router scores experts, and the groups that it chooses from first.
fn read_router(
    config: &DocumentSection<'_>,
    architecture: Architecture,
    experts: &mut Experts,
) -> Result<(), ScenarioError> {
    let sigmoid = architecture != Architecture::DeepSeekV2;
    if sigmoid {
        (experts.scoring, experts.router_bias) = (RouterScoring::Sigmoid, true);
    }
    experts.weight_scale = config.positive("routed_scaling_factor")?.unwrap_or(1.0);
    let grouped = sigmoid || config.text("topk_method")? == Some("group_limited_greedy");
    let groups = config.count("n_group", MAX_EXPERTS)?.filter(|_| grouped).unwrap_or(1);
    if !experts.count.is_multiple_of(groups) {
        let wanted = format!("a divisor of the number of experts, which is {}, is wanted", experts.count);
        return Err(config.wrong("n_group", &wanted));
    }
    let chosen = config.count("topk_group", groups)?.filter(|_| groups > 1).unwrap_or(1);
    if experts.per_token > chosen * (experts.count / groups) {
        let wanted = format!("groups that together have the {} experts of a token", experts.per_token);
        return Err(config.wrong("topk_group", &wanted));
    }
    (experts.groups, experts.groups_per_token) = (groups, chosen);
    Ok(())
}

/// The number of leading layers that have a feed-forward network instead of experts.
pub(crate) fn dense_layers(config: &DocumentSection<'_>, model: &Model) -> Result<u64, ScenarioError> {
    match model.architecture {
        Architecture::DeepSeekV2 | Architecture::DeepSeekV3 => {
            count_from_zero(config, "first_k_dense_replace")
        }
        _ => Ok(0),
    }
}

/// Refuses layers without experts between layers with experts.
fn refuse_dense_between(
    config: &DocumentSection<'_>,
    architecture: Architecture,
) -> Result<(), ScenarioError> {
    const FEATURE: &str = "a layer without experts behind one with them";
    for key in ["decoder_sparse_step", "moe_layer_freq"] {
        if config.get(key).is_some_and(|value| value.as_u64() != Some(1)) {
            return Err(config.unsupported(key, FEATURE, "only 1 is"));
        }
    }
    let dense = config.get("mlp_only_layers").and_then(Value::as_array);
    if architecture == Architecture::Qwen3Moe && dense.is_some_and(|layers| !layers.is_empty()) {
        return Err(config.unsupported("mlp_only_layers", FEATURE, "only [] is"));
    }
    Ok(())
}

/// A whole number from 0; an absent key means 0.
fn count_from_zero(config: &DocumentSection<'_>, key: &str) -> Result<u64, ScenarioError> {
    match config.get(key).map(Value::as_u64) {
        None => Ok(0),
        Some(Some(count)) if count <= 1 << 16 => Ok(count),
        Some(_) => Err(config.wrong(key, "a whole number from 0 to 65536 is wanted")),
    }
}

/// Reads DeepSeek's latent attention; other families have none.
pub(crate) fn read_latent(config: &DocumentSection<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    if !matches!(model.architecture, Architecture::DeepSeekV2 | Architecture::DeepSeekV3) {
        return Ok(());
    }
    let need = |key: &str| {
        let wanted = format!("a whole number from 1 to {MAX_WIDTH} is wanted");
        config.count(key, MAX_WIDTH)?.ok_or_else(|| config.missing(key, &wanted))
    };
    let latent = LatentAttention {
        q_rank: config.count("q_lora_rank", MAX_WIDTH)?,
        kv_rank: need("kv_lora_rank")?,
        rope_dim: need("qk_rope_head_dim")?,
        nope_dim: need("qk_nope_head_dim")?,
        v_dim: need("v_head_dim")?,
    };
    if !latent.rope_dim.is_multiple_of(2) {
        return Err(config.wrong("qk_rope_head_dim", "rotary positions need an even width"));
    }
    model.head_dim = latent.nope_dim + latent.rope_dim;
    model.kv_heads = model.heads;
    model.mixer = Mixer::Latent(latent);
    model.wiring.rotates_neighbours =
        model.architecture == Architecture::DeepSeekV2 || config.flag("rope_interleave")?.unwrap_or(true);
    for (key, width) in [("qk_nope_head_dim", model.head_dim), ("v_head_dim", latent.v_dim)] {
        if model.heads * width > MAX_WIDTH {
            let wanted = format!(
                "all heads together are {} wide, at most {MAX_WIDTH} is allowed",
                model.heads * width
            );
            return Err(config.wrong(key, &wanted));
        }
    }
    Ok(())
}
