//! Rotary positions in a `config.json`.

use crate::config::LONGEST_CONTEXT;
use crate::error::ScenarioError;
use crate::family::Defaults;
use crate::model::{Architecture, Llama3Scaling, Model, Positions, YarnScaling};
use crate::section::Section;

/// `rope_parameters` (transformers 5), or `rope_theta`, `rope_scaling` and the part that is rotated. What is within the
/// mapping wins.
pub(crate) fn rotary(
    config: &Section<'_>,
    family: &Defaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    let key = if config.get("rope_scaling").is_some() { "rope_scaling" } else { "rope_parameters" };
    let mut rope = config.section(key)?;
    if family.architecture == Architecture::Gemma3 {
        // One mapping for each kind of layer, or keys beside each other as in transformers 4.
        model.wiring.window_theta = Some(window_theta(config)?);
        rope = config.section("rope_parameters.full_attention")?.or(config.section("rope_scaling")?);
    }
    model.wiring.rotary_dim = partial(config, rope.as_ref(), family, model)?;
    model.positions = positions(config, rope, family, model)?;
    Ok(())
}

/// The base of the frequencies in Gemma 3's layers with windows, which are never scaled.
fn window_theta(config: &Section<'_>) -> Result<f64, ScenarioError> {
    let outer = config.positive("rope_local_base_freq")?.unwrap_or(10000.0);
    let Some(rope) = config.section("rope_parameters.sliding_attention")? else { return Ok(outer) };
    match rope.text("rope_type")?.unwrap_or("default") {
        "default" => Ok(rope.positive("rope_theta")?.unwrap_or(outer)),
        _ => Err(rope.unsupported("rope_type", "a scaled rotation in layers with windows", "default is")),
    }
}

/// The columns of a head that are rotated, where those are not all.
fn partial(
    config: &Section<'_>,
    rope: Option<&Section<'_>>,
    family: &Defaults,
    model: &Model,
) -> Result<Option<u64>, ScenarioError> {
    let keys = [
        (rope, "partial_rotary_factor"),
        (Some(config), "partial_rotary_factor"),
        (Some(config), "rotary_pct"),
    ];
    let mut written = keys.into_iter().filter_map(|(at, key)| Some((at?, key)));
    let Some((at, key)) = written.find(|(at, key)| at.get(key).is_some()) else {
        return Ok(width(family.rotated.unwrap_or(1.0), model).filter(|&width| width < model.head_dim));
    };
    let factor = at.positive(key)?.unwrap_or(1.0);
    if family.rotated.is_none() && factor != 1.0 {
        return Err(at.unsupported(key, "partial rotation", "only 1.0 is"));
    }
    match width(factor, model) {
        Some(width) => Ok(Some(width).filter(|&width| width < model.head_dim)),
        None => {
            let wanted =
                format!("a part of the head's {} columns that is an even number is wanted", model.head_dim);
            Err(at.wrong(key, &wanted))
        }
    }
}

/// So much of a head, rounded down as transformers does; `None` where it is not made of pairs.
fn width(factor: f64, model: &Model) -> Option<u64> {
    let width = (model.head_dim as f64 * factor) as u64;
    (width.is_multiple_of(2) && (1..=model.head_dim).contains(&width)).then_some(width)
}

/// The base of the frequencies, and their scaling.
fn positions(
    config: &Section<'_>,
    rope: Option<Section<'_>>,
    family: &Defaults,
    model: &Model,
) -> Result<Positions, ScenarioError> {
    const INSTEAD: &str = "rope_type default, linear and llama3 are";
    let yarn = model.latent.is_some() || model.architecture == Architecture::GptOss;
    let outer_theta = config.positive("rope_theta")?.or(config.positive("rotary_emb_base")?);
    let Some(rope) = rope else {
        return Ok(Positions::Rotary { theta: outer_theta.unwrap_or(family.theta), scaling: None });
    };
    let theta = rope.positive("rope_theta")?.or(outer_theta).unwrap_or(family.theta);
    let type_key = if rope.get("rope_type").is_some() { "rope_type" } else { "type" };
    let scaling = match rope.text(type_key)?.unwrap_or("default") {
        "default" => match ["full_attention", "sliding_attention"].into_iter().find(|key| rope.has(key)) {
            Some(key) => return Err(rope.unsupported(key, "a rotation for each kind of layer", INSTEAD)),
            None => None,
        },
        "linear" => {
            let wanted = "linear needs it, a number above 0";
            let factor = rope.positive("factor")?.ok_or_else(|| rope.missing("factor", wanted))?;
            return Ok(Positions::Linear { theta, factor });
        }
        "llama3" => {
            let need = |key: &str| {
                rope.positive(key)?.ok_or_else(|| rope.missing(key, "llama3 needs it, a number above 0"))
            };
            Some(Llama3Scaling {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_max_positions: rope
                    .count("original_max_position_embeddings", LONGEST_CONTEXT)?
                    .unwrap_or(model.max_positions),
            })
        }
        "yarn" if yarn => {
            let need = |key: &str| {
                rope.positive(key)?.ok_or_else(|| rope.missing(key, "yarn needs it, a number above 0"))
            };
            let original = rope.count("original_max_position_embeddings", LONGEST_CONTEXT)?;
            let scaling = YarnScaling {
                factor: need("factor")?,
                original_max_positions: original.unwrap_or(model.max_positions),
                beta_fast: rope.positive("beta_fast")?.unwrap_or(32.0),
                beta_slow: rope.positive("beta_slow")?.unwrap_or(1.0),
            };
            return Ok(Positions::Yarn { theta, scaling });
        }
        _ => return Err(rope.unsupported(type_key, "this rotary scaling", INSTEAD)),
    };
    if let Some(Llama3Scaling { low_freq_factor, high_freq_factor, .. }) = scaling
        && high_freq_factor <= low_freq_factor
    {
        let wanted = format!("a number above low_freq_factor, which is {low_freq_factor}, is wanted");
        return Err(rope.wrong("high_freq_factor", &wanted));
    }
    Ok(Positions::Rotary { theta, scaling })
}
