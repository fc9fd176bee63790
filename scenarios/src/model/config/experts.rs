//! Experts and latent attention in a `config.json`.

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::model::config::read::WIDEST;
use crate::model::experts::Experts;
use crate::model::latent_attention::Latent;
use crate::model::transformer::{Architecture, Model};
use serde_json::Value;

const MOST_EXPERTS: u64 = 1 << 12;
/// Parameters of all experts beyond this are typing errors: in f32 and summed over the layers they stay below 2⁶².
const MOST_PARAMETERS: u128 = 1 << 59;

/// The spellings of one family.
struct Keys {
    count: &'static str,
    intermediate: &'static str,
    /// DeepSeek has shared experts and dense layers in front.
    deepseek: bool,
}

impl Keys {
    fn of(architecture: Architecture) -> Option<Self> {
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

/// The experts of a family that has them; in the others their keys are refused.
pub(crate) fn read_experts(config: &Section<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    let Some(keys) = Keys::of(model.architecture) else {
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
    refuse_gaps(config, model.architecture)?;
    // Transformers 5 has one spelling for most families.
    let spellings = [keys.count, "num_local_experts"];
    let key = spellings.into_iter().find(|key| config.has(key)).unwrap_or(keys.count);
    let count = need(key, MOST_EXPERTS)?;
    let per_token = need("num_experts_per_tok", count)?;
    let intermediate = need(keys.intermediate, WIDEST)?;
    let mut experts = Experts::new(count, per_token, intermediate);
    experts.normalised = match model.architecture {
        Architecture::Mixtral | Architecture::GptOss => true,
        _ => config.flag("norm_topk_prob")?.unwrap_or(model.architecture == Architecture::DeepSeekV3),
    };
    if keys.deepseek {
        experts.shared = from_zero(config, "n_shared_experts")? * intermediate;
        if experts.shared > WIDEST {
            let wanted = format!(
                "with {} it makes {}, at most {WIDEST} is allowed",
                keys.intermediate, experts.shared
            );
            return Err(config.wrong("n_shared_experts", &wanted));
        }
        experts.dense_layers = from_zero(config, "first_k_dense_replace")?;
    }
    let parameters = [count, intermediate, model.neuron(), model.layers].map(u128::from);
    if parameters.iter().product::<u128>() > MOST_PARAMETERS {
        return Err(config.wrong(key, "the experts have more parameters than can be counted (2^59)"));
    }
    model.experts = Some(experts);
    Ok(())
}

/// Layers without experts between those that have them.
fn refuse_gaps(config: &Section<'_>, architecture: Architecture) -> Result<(), ScenarioError> {
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

/// A whole number from 0; absent means 0.
fn from_zero(config: &Section<'_>, key: &str) -> Result<u64, ScenarioError> {
    match config.get(key).map(Value::as_u64) {
        None => Ok(0),
        Some(Some(count)) if count <= 1 << 16 => Ok(count),
        Some(_) => Err(config.wrong(key, "a whole number from 0 to 65536 is wanted")),
    }
}

/// DeepSeek's attention; the others have none.
pub(crate) fn read_latent(config: &Section<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    if !matches!(model.architecture, Architecture::DeepSeekV2 | Architecture::DeepSeekV3) {
        return Ok(());
    }
    let need = |key: &str| {
        let wanted = format!("a whole number from 1 to {WIDEST} is wanted");
        config.count(key, WIDEST)?.ok_or_else(|| config.missing(key, &wanted))
    };
    let latent = Latent {
        q_rank: config.count("q_lora_rank", WIDEST)?,
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
    model.latent = Some(latent);
    for (key, width) in [("qk_nope_head_dim", model.head_dim), ("v_head_dim", latent.v_dim)] {
        if model.heads * width > WIDEST {
            let wanted =
                format!("all heads together are {} wide, at most {WIDEST} is allowed", model.heads * width);
            return Err(config.wrong(key, &wanted));
        }
    }
    Ok(())
}
