//! Reads Phi, GPT-NeoX, GPT-J and Falcon from a `config.json`: layer norms, a feed-forward network
//! without a gate, parallel blocks.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Architecture, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_WIDTH, plain_activation};
use crate::model::positions::Positions;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;

/// Reads what these families add to the sizes.
pub(crate) fn read_gpt(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    model.norm = Norm::Layer;
    model.activation = plain_activation(config, family)?;
    match family.architecture {
        Architecture::GptJ => rotate_neighbours(config, model)?,
        _ => {
            check_even(config, family, model)?;
            read_rotary(config, family, model)?;
        }
    }
    match family.architecture {
        Architecture::Phi => {
            if config.flag("qk_layernorm")?.unwrap_or(false) {
                let feature = "a layer norm on each head of q and k";
                return Err(config.unsupported("qk_layernorm", feature, "only false is"));
            }
            (model.qkv_bias, model.out_bias, model.ffn_bias) = (true, true, true);
            model.wiring.head_bias = true;
            model.wiring.block = BlockOrder::ParallelOneNorm;
        }
        Architecture::GptNeoX => {
            let bias = config.flag("attention_bias")?.unwrap_or(true);
            (model.qkv_bias, model.out_bias, model.ffn_bias) = (bias, bias, true);
            let parallel = config.flag("use_parallel_residual")?.unwrap_or(true);
            model.wiring.block = if parallel { BlockOrder::Parallel } else { BlockOrder::Sequential };
        }
        Architecture::Falcon => wire_falcon(config, model)?,
        _ => {
            (model.ffn_bias, model.wiring.head_bias) = (true, true);
            model.wiring.block = BlockOrder::ParallelOneNorm;
        }
    }
    if model.wiring.head_bias && model.tied_embeddings {
        let feature = "a head that has a bias of its own and shares the token table";
        return Err(config.unsupported("tie_word_embeddings", feature, "only false is"));
    }
    Ok(())
}

/// Refuses heads of odd width.
fn check_even(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &Model,
) -> Result<(), ScenarioError> {
    if model.head_dim.is_multiple_of(2) {
        return Ok(());
    }
    let wanted = format!("the head's width is {}: rotary positions need an even one", model.head_dim);
    Err(config.wrong(family.keys.heads, &wanted))
}

/// GPT-J rotates pairs of neighbouring columns at the start of each head, with a fixed base.
fn rotate_neighbours(config: &DocumentSection<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    const KEY: &str = "rotary_dim";
    let wanted = format!("an even number from 2 to the {} columns of a head is wanted", model.head_dim);
    let width = match config.count(KEY, MAX_WIDTH)? {
        Some(width) => width,
        None if config.has(KEY) => return Err(config.wrong(KEY, &wanted)),
        None => 64,
    };
    if !width.is_multiple_of(2) || width > model.head_dim {
        return Err(config.wrong(KEY, &wanted));
    }
    model.positions = Positions::Rotary { theta: 10000.0, scaling: None };
    model.wiring.rotary_dim = Some(width).filter(|&width| width < model.head_dim);
    model.wiring.rotates_neighbours = true;
    Ok(())
}

/// Reads Falcon's switches: how many KV heads there are, and what the feed-forward network reads.
fn wire_falcon(config: &DocumentSection<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    let flag = |key: &str, default: bool| Ok(config.flag(key)?.unwrap_or(default));
    if flag("alibi", false)? {
        return Err(config.unsupported("alibi", "ALiBi", "only rotary positions are (false)"));
    }
    let new = flag("new_decoder_architecture", false)?;
    let parallel = flag("parallel_attn", true)?;
    if !new && flag("multi_query", true)? {
        model.kv_heads = 1;
    } else if !new && model.kv_heads != model.heads {
        let wanted = format!(
            "without multi_query and new_decoder_architecture it is num_attention_heads, which is {}",
            model.heads
        );
        return Err(config.wrong("num_kv_heads", &wanted));
    }
    if new && !parallel {
        let feature = "new_decoder_architecture without it";
        return Err(config.unsupported("parallel_attn", feature, "only true is"));
    }
    let norms = config.count("num_ln_in_parallel_attn", 2)?.unwrap_or(if new { 2 } else { 1 });
    if !new && norms == 2 {
        let feature = "two norms without new_decoder_architecture";
        return Err(config.unsupported("num_ln_in_parallel_attn", feature, "only 1 is"));
    }
    model.wiring.block = match (parallel, norms) {
        (false, _) => BlockOrder::Sequential,
        (true, 1) => BlockOrder::ParallelOneNorm,
        (true, _) => BlockOrder::Parallel,
    };
    let bias = flag("bias", false)?;
    (model.qkv_bias, model.out_bias, model.ffn_bias) = (bias, bias, bias);
    Ok(())
}
