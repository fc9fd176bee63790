//! Reads MiniMax-M3.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, counts_of_layers, need_count, texts_of_layers};
use crate::model::config::mixture::read_mixture;
use crate::model::config::readers::latent::check_index;
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::mixer::SparseIndex;
use crate::model::transformer::Model;

/// Reads it; returns the shape of each layer. The weights of its MTP modules are not published and
/// not counted.
pub(crate) fn read_minimax_m3(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    model.qk_norm = Switch::Key("use_qk_norm", true).read(config)?;
    model.wiring.norms_whole_qk = model.qk_norm && config.text("qk_norm_type")? == Some("per_layer");
    model.wiring.output_gate = Switch::Key("attention_output_gate", false).read(config)?;
    let bias = Switch::Key("use_routing_bias", true);
    let sparse = read_mixture(config, &MixtureRules { router_bias: bias, ..MixtureRules::WIDE }, model)?;
    if let Some(width) = config.count("dense_intermediate_size", MAX_WIDTH)? {
        model.intermediate = width;
    }
    let (index, sparse_attention) = read_index(config, model)?;
    check_index(config, "sparse_attention_config", &index)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, sparse) in layers.iter_mut().zip(sparse_attention) {
        layer.index = Some(index).filter(|_| sparse);
    }
    Ok(layers)
}

/// Reads the indexer, and for each layer whether it has one.
fn read_index(
    config: &DocumentSection<'_>,
    model: &Model,
) -> Result<(SparseIndex, Vec<bool>), ScenarioError> {
    let index = |heads, dim, block: u64, blocks: u64| SparseIndex {
        heads,
        dim,
        selected: block.saturating_mul(blocks).min(MAX_CONTEXT),
        computes: true,
        fp8_keys: false,
        pooled: None,
    };
    if let Some(own) = config.section("sparse_attention_config")? {
        let need = |key: &str, limit| need_count(&own, &[key], limit);
        let found = index(
            need("sparse_num_index_heads", MAX_WIDTH)?,
            need("sparse_index_dim", MAX_WIDTH)?,
            need("sparse_block_size", 1 << 16)?,
            need("sparse_topk_blocks", 1 << 16)?,
        );
        let layers = counts_of_layers(&own, "sparse_attention_freq", model.layers)?;
        let layers = layers.ok_or_else(|| {
            own.missing("sparse_attention_freq", "a list of 0 or 1 for each layer is wanted")
        })?;
        return Ok((found, layers.into_iter().map(|sparse| sparse > 0).collect()));
    }
    let need = |key: &str, limit| need_count(config, &[key], limit);
    let found = index(
        need("index_n_heads", MAX_WIDTH)?,
        need("index_head_dim", MAX_WIDTH)?,
        need("index_block_size", 1 << 16)?,
        need("index_topk_blocks", 1 << 16)?,
    );
    let kinds = texts_of_layers(config, "layer_types", model.layers)?;
    let layers = kinds.map_or_else(
        || vec![false; model.layers as usize],
        |kinds| kinds.into_iter().map(|kind| kind != "full_attention").collect(),
    );
    Ok((found, layers))
}
