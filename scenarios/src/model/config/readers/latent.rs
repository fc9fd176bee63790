//! Reads latent attention, with the indexers of DeepSeek-V3.2 and GLM-5, and LongCat's two
//! attentions in each layer.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Architecture;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_from_zero, counts_of_layers, need_count, texts_of_layers};
use crate::model::config::mixture::{has_experts, read_mixture};
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::latent_attention::LatentAttention;
use crate::model::mixer::{Mixer, SparseIndex};
use crate::model::transformer::Model;
use serde_json::Value;

/// Reads such a family; returns the shape of each layer.
pub(crate) fn read_latent_family(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    model.mixer = Mixer::Latent(read_latent(config, model)?);
    read_rotary(config, family, model)?;
    model.qkv_bias = false;
    let third = !matches!(family.architecture, Architecture::DeepSeekV2);
    model.wiring.rotates_neighbours = !third || config.flag("rope_interleave")?.unwrap_or(true);
    // The bias that balances the experts' load came with DeepSeek-V3.
    let biased = third && family.model_type != "mistral4";
    let rules = MixtureRules {
        router_bias: if biased { Switch::Yes } else { Switch::No },
        normalised: third,
        ..MixtureRules::NARROW
    };
    if family.model_type == "longcat_flash" {
        return read_shortcut_experts(config, &rules, model);
    }
    model.wiring.output_gate = family.model_type == "hy_v4";
    // The two first classes always have experts.
    let sparse = match has_experts(config)? || family.has_own_defaults() {
        true => read_mixture(config, &rules, model)?,
        false => vec![],
    };
    model.mtp = count_from_zero(config, &["num_nextn_predict_layers", "num_mtp_layers"])?;
    let mut layers = with_experts_in(model, &sparse);
    let indexed = matches!(family.model_type, "hy_v4" | "mistral_large4_text");
    if indexed || matches!(family.architecture, Architecture::DeepSeekV32 | Architecture::GlmMoeDsa) {
        add_indexers(config, model, &mut layers)?;
    }
    if let Some(rotated) = counts_of_layers(config, "no_rope_layers", model.layers)? {
        for (layer, _) in layers.iter_mut().zip(rotated).filter(|(_, rotated)| *rotated == 0) {
            if let Mixer::Latent(latent) = &mut layer.mixer {
                latent.nope_dim += std::mem::take(&mut latent.rope_dim);
            }
        }
    }
    Ok(layers)
}

/// Reads LongCat-Flash. Each of its layers has attention and a network twice, and experts beside
/// the first network. It becomes two layers here; in the first one the network is the shared
/// expert. Experts that return their input have no weights: a token goes to fewer of the others.
fn read_shortcut_experts(
    config: &DocumentSection<'_>,
    rules: &MixtureRules,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    model.layers *= 2;
    read_mixture(config, rules, model)?;
    let width = model.intermediate;
    if let Some(experts) = &mut model.experts {
        experts.shared = width;
        let all = experts.count + count_from_zero(config, &["zero_expert_num"])?;
        experts.per_token = (experts.per_token * experts.count).div_ceil(all).max(1);
    }
    let sparse: Vec<bool> = (0..model.layers).map(|layer| layer % 2 == 0).collect();
    Ok(with_experts_in(model, &sparse))
}

/// Reads the widths of latent attention, and sets the model's heads by them.
pub(crate) fn read_latent(
    config: &DocumentSection<'_>,
    model: &mut Model,
) -> Result<LatentAttention, ScenarioError> {
    let need = |key: &str| need_count(config, &[key], MAX_WIDTH);
    let latent = LatentAttention {
        q_rank: config.count("q_lora_rank", MAX_WIDTH)?,
        kv_rank: need("kv_lora_rank")?,
        // 0 where positions are not rotated.
        rope_dim: match config.get("qk_rope_head_dim").and_then(Value::as_u64) {
            Some(0) => 0,
            _ => need("qk_rope_head_dim")?,
        },
        nope_dim: need("qk_nope_head_dim")?,
        v_dim: need("v_head_dim")?,
    };
    if !latent.rope_dim.is_multiple_of(2) {
        return Err(config.wrong("qk_rope_head_dim", "rotary positions need an even width"));
    }
    model.head_dim = latent.nope_dim + latent.rope_dim;
    model.kv_heads = model.heads;
    for (key, width) in [("qk_nope_head_dim", model.head_dim), ("v_head_dim", latent.v_dim)] {
        if model.heads * width > MAX_WIDTH {
            let wanted = format!(
                "all heads together are {} wide, at most {MAX_WIDTH} is allowed",
                model.heads * width
            );
            return Err(config.wrong(key, &wanted));
        }
    }
    Ok(latent)
}

/// Reads the indexers; some layers use an earlier layer's choice.
fn add_indexers(
    config: &DocumentSection<'_>,
    model: &mut Model,
    layers: &mut [Model],
) -> Result<(), ScenarioError> {
    let index = read_index(config)?;
    model.index = Some(index);
    let computes = indexing_layers(config, model.layers)?;
    for (layer, computes) in layers.iter_mut().zip(computes) {
        layer.index = Some(SparseIndex { computes, ..index });
    }
    Ok(())
}

/// Reads the widths of an indexer.
pub(crate) fn read_index(config: &DocumentSection<'_>) -> Result<SparseIndex, ScenarioError> {
    let index = SparseIndex {
        heads: need_count(config, &["index_n_heads"], MAX_WIDTH)?,
        dim: need_count(config, &["index_head_dim"], MAX_WIDTH)?,
        selected: need_count(config, &["index_topk"], MAX_CONTEXT)?,
        computes: true,
        fp8_keys: true,
        pooled: None,
    };
    check_index(config, "index_n_heads", &index)?;
    Ok(index)
}

/// Refuses an indexer whose heads together are too wide to count.
pub(crate) fn check_index(
    config: &DocumentSection<'_>,
    key: &str,
    index: &SparseIndex,
) -> Result<(), ScenarioError> {
    if index.heads * index.dim <= MAX_WIDTH {
        return Ok(());
    }
    let wanted =
        format!("all heads together are {} wide, at most {MAX_WIDTH} is allowed", index.heads * index.dim);
    Err(config.wrong(key, &wanted))
}

/// For each layer whether it has an indexer.
fn indexing_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<bool>, ScenarioError> {
    if let Some(kinds) = texts_of_layers(config, "indexer_types", layers)? {
        let full = |kind: &str| match kind {
            "full" => Ok(true),
            "shared" => Ok(false),
            _ => Err(config.unsupported("indexer_types", "another indexer", "full and shared are")),
        };
        return kinds.into_iter().map(full).collect();
    }
    if let Some(pattern) = config.text("index_topk_pattern")? {
        let full = |letter: char| match letter {
            'F' => Ok(true),
            'S' => Ok(false),
            _ => Err(config.wrong("index_topk_pattern", "a text of the letters F and S is wanted")),
        };
        let list = pattern.chars().map(full).collect::<Result<Vec<_>, _>>()?;
        if list.len() as u64 != layers {
            let wanted = format!("one letter for each of {layers} layers is wanted");
            return Err(config.wrong("index_topk_pattern", &wanted));
        }
        return Ok(list);
    }
    let every = config.count("index_topk_freq", 1 << 16)?.unwrap_or(1);
    let offset = match config.get("index_skip_topk_offset") {
        Some(_) => count_from_zero(config, &["index_skip_topk_offset"])?,
        None => 2,
    };
    Ok((0..layers).map(|layer| (layer + 1).saturating_sub(offset).is_multiple_of(every)).collect())
}
