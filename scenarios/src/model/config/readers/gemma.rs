//! Reads what Gemma 1 to 3 add to Llama from a `config.json`.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Activation, Architecture, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::transformer::Model;

/// Reads norms, gate, caps and the scale of scores. `gelu` in Gemma's files means the tanh
/// approximation, as in transformers.
pub(crate) fn read_gemma(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    if config.flag("use_bidirectional_attention")?.unwrap_or(false) {
        let feature = "attention to later tokens";
        return Err(config.unsupported("use_bidirectional_attention", feature, "only false is"));
    }
    let key = if config.get("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
    match config.text(key)?.unwrap_or(family.activation) {
        "gelu" | "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => {}
        _ => return Err(config.unsupported(key, "another gate than GELU", "use gelu_pytorch_tanh")),
    }
    model.activation = Activation::GeluTanhGated;
    model.norm = Norm::RmsPlusOne;
    model.wiring.scaled_embeddings = true;
    if family.architecture == Architecture::Gemma {
        return Ok(());
    }
    model.wiring.norms_behind = true;
    let scalar = config.count("query_pre_attn_scalar", MAX_WIDTH)?.unwrap_or(256);
    model.wiring.query_scalar = Some(scalar).filter(|&scalar| scalar != model.head_dim);
    let cap = |key, default: Option<f64>| match config.positive(key)? {
        None if !config.has(key) => Ok(default),
        cap => Ok(cap),
    };
    let second = family.architecture == Architecture::Gemma2;
    model.wiring.score_cap = cap("attn_logit_softcapping", second.then_some(50.0))?;
    model.wiring.logit_cap = cap("final_logit_softcapping", second.then_some(30.0))?;
    if !second && model.wiring.score_cap.is_some() {
        // Transformers reads this key and does not apply it.
        let feature = "a cap of Gemma 3's scores";
        return Err(config.unsupported("attn_logit_softcapping", feature, "only null is"));
    }
    Ok(())
}
