//! Reads rotary positions from a `config.json`.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Architecture;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::sizes::MAX_CONTEXT;
use crate::model::positions::{Llama3Scaling, LongRopeScaling, Positions, YarnScaling};
use crate::model::transformer::Model;
use serde_json::Value;

/// Reads `rope_parameters` (transformers 5), or `rope_theta`, `rope_scaling` and the rotated share
/// (transformers 4). Keys inside the mapping take precedence.
pub(crate) fn read_rotary(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    let [old, new] = [config.section("rope_scaling")?, config.section("rope_parameters")?];
    if let (Some(old), Some(new)) = (&old, &new)
        && let (Some(old_kind), Some(new_kind)) = (rope_kind(old)?, rope_kind(new)?)
        && !are_alike(old_kind, new_kind)
    {
        let wanted = format!("rope_parameters says {new_kind}: the same rotation in both is wanted");
        return Err(config.wrong("rope_scaling", &wanted));
    }
    let mut rope = old.or(new);
    if !family.has_own_defaults() {
        rope = by_kind(config, model)?.or(rope);
    }
    if matches!(family.architecture, Architecture::Gemma3 | Architecture::Gemma3n) {
        // Transformers 5 has one mapping for each kind of layer, transformers 4 has separate keys.
        model.wiring.window_theta = Some(window_theta(config)?);
        rope = config.section("rope_parameters.full_attention")?.or(config.section("rope_scaling")?);
    }
    model.wiring.rotary_dim = rotated_columns(config, rope.as_ref(), family, model)?;
    model.positions = positions(config, rope, family, model)?;
    if let Positions::Yarn { scaling, .. } = &model.positions {
        // Some files name the context length before scaling, others the one after it.
        let stretched = (scaling.factor * scaling.original_max_positions as f64) as u64;
        model.max_positions = model.max_positions.max(stretched.min(MAX_CONTEXT));
    }
    Ok(())
}

/// The rotation of layers that attend to everything, in files with a mapping for each kind of
/// layer.
fn by_kind<'a>(
    config: &DocumentSection<'a>,
    model: &mut Model,
) -> Result<Option<DocumentSection<'a>>, ScenarioError> {
    if let Some(window) = config.section("rope_parameters.sliding_attention")? {
        model.wiring.window_theta = window.positive("rope_theta")?;
    }
    Ok(config.section("rope_parameters.full_attention")?.or(config.section("rope_parameters.main")?))
}

/// The kind of a rotation, which transformers 4 calls `type`. Files may have both keys.
fn rope_kind<'a>(rope: &DocumentSection<'a>) -> Result<Option<&'a str>, ScenarioError> {
    match (rope.text("rope_type")?, rope.text("type")?) {
        (Some(new), Some(old)) if !are_alike(new, old) => {
            Err(rope.wrong("rope_type", &format!("type says {old}: the same rotation in both is wanted")))
        }
        (new, old) => Ok(new.or(old)),
    }
}

/// Whether two words stand for the same rotation of text.
fn are_alike(one: &str, other: &str) -> bool {
    let meaning = |word| match word {
        "mrope" => "default",
        "su" => "longrope",
        word => word,
    };
    meaning(one) == meaning(other)
}

/// The share of each head that is rotated where no key says so.
fn default_share(family: &FamilyDefaults) -> f64 {
    match family.model_type {
        "glm" | "glm4" | "glm4_moe" | "nemotron" => 0.5,
        "qwen3_next" | "qwen3_5_text" | "qwen3_5_moe_text" | "stablelm" => 0.25,
        _ => family.rotated.unwrap_or(1.0),
    }
}

/// The base of the frequencies in layers of Gemma 3 and 3n with a window; these are never scaled.
fn window_theta(config: &DocumentSection<'_>) -> Result<f64, ScenarioError> {
    let outer = config.positive("rope_local_base_freq")?.unwrap_or(10000.0);
    let Some(rope) = config.section("rope_parameters.sliding_attention")? else { return Ok(outer) };
    match rope.text("rope_type")?.unwrap_or("default") {
        "default" => Ok(rope.positive("rope_theta")?.unwrap_or(outer)),
        _ => Err(rope.unsupported("rope_type", "a scaled rotation in layers with windows", "default is")),
    }
}

/// The number of rotated columns of a head; `None` if all of them are.
fn rotated_columns(
    config: &DocumentSection<'_>,
    rope: Option<&DocumentSection<'_>>,
    family: &FamilyDefaults,
    model: &Model,
) -> Result<Option<u64>, ScenarioError> {
    if !family.has_own_defaults() && config.writes("rotary_dim") {
        let width = config.count("rotary_dim", model.head_dim)?;
        return Ok(width.filter(|&width| width < model.head_dim));
    }
    let keys = [
        (rope, "partial_rotary_factor"),
        (Some(config), "partial_rotary_factor"),
        (Some(config), "rotary_pct"),
    ];
    let mut written = keys.into_iter().filter_map(|(at, key)| Some((at?, key)));
    let Some((at, key)) = written.find(|(at, key)| at.get(key).is_some()) else {
        let width = share_columns(default_share(family), model).ok_or_else(|| {
            let key = if config.writes("head_dim") { "head_dim" } else { "hidden_size" };
            let wanted =
                format!("rotary positions turn pairs of a head's columns, and it has {}", model.head_dim);
            config.wrong(key, &wanted)
        })?;
        return Ok(Some(width).filter(|&width| width < model.head_dim));
    };
    let factor = at.positive(key)?.unwrap_or(1.0);
    if family.rotated.is_none() && factor != 1.0 {
        return Err(at.unsupported(key, "partial rotation", "only 1.0 is"));
    }
    match share_columns(factor, model) {
        Some(width) => Ok(Some(width).filter(|&width| width < model.head_dim)),
        None => {
            let wanted =
                format!("a part of the head's {} columns that is an even number is wanted", model.head_dim);
            Err(at.wrong(key, &wanted))
        }
    }
}

/// The columns in this share of a head, rounded down as transformers does; `None` if they do not
/// form pairs.
fn share_columns(factor: f64, model: &Model) -> Option<u64> {
    let width = (model.head_dim as f64 * factor) as u64;
    (width.is_multiple_of(2) && (1..=model.head_dim).contains(&width)).then_some(width)
}

/// Reads the base of the frequencies and their scaling.
fn positions(
    config: &DocumentSection<'_>,
    rope: Option<DocumentSection<'_>>,
    family: &FamilyDefaults,
    model: &Model,
) -> Result<Positions, ScenarioError> {
    const INSTEAD: &str = "rope_type default, linear, llama3, yarn and longrope are";
    let outer_theta = match config.get("rope_theta") {
        // One for each layer, in families that are not run.
        Some(Value::Array(each)) if !family.has_own_defaults() => {
            let first =
                each.first().and_then(Value::as_f64).filter(|theta| theta.is_finite() && *theta > 0.0);
            Some(first.ok_or_else(|| config.wrong("rope_theta", "numbers above 0 are wanted"))?)
        }
        _ => config.positive("rope_theta")?.or(config.positive("rotary_emb_base")?),
    };
    let Some(rope) = rope else {
        return Ok(Positions::Rotary { theta: outer_theta.unwrap_or(family.theta), scaling: None });
    };
    let theta = rope.positive("rope_theta")?.or(outer_theta).unwrap_or(family.theta);
    let type_key = if rope.get("rope_type").is_some() { "rope_type" } else { "type" };
    let scaling = match rope_kind(&rope)?.unwrap_or("default") {
        // Text has the same position in all three dimensions of an image's position.
        "mrope" => None,
        // Frequencies of the whole head's width, of which only the first pairs rotate.
        "proportional" if family.architecture == Architecture::Gemma4 => match rope.positive("factor")? {
            Some(factor) if factor != 1.0 => return Ok(Positions::Linear { theta, factor }),
            _ => None,
        },
        // Such a rotation costs as much; families that run do not have it.
        "proportional" | "dynamic" if !family.has_own_defaults() => None,
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
                    .count("original_max_position_embeddings", MAX_CONTEXT)?
                    .unwrap_or(model.max_positions),
            })
        }
        "yarn" | "deepseek_yarn" => return Ok(Positions::Yarn { theta, scaling: yarn(&rope, model)? }),
        "longrope" | "su" => {
            return Ok(Positions::LongRope { theta, scaling: long_rope(config, &rope, model)? });
        }
        _ => return Err(rope.unsupported(type_key, "this rotary scaling", INSTEAD)),
    };
    if let Some(Llama3Scaling { low_freq_factor, high_freq_factor, .. }) = scaling
        && (high_freq_factor < low_freq_factor
            || (high_freq_factor == low_freq_factor && family.has_own_defaults()))
    {
        let wanted = format!("a number above low_freq_factor, which is {low_freq_factor}, is wanted");
        return Err(rope.wrong("high_freq_factor", &wanted));
    }
    Ok(Positions::Rotary { theta, scaling })
}

/// Reads YaRN's parameters like transformers' `_compute_yarn_parameters`.
fn yarn(rope: &DocumentSection<'_>, model: &Model) -> Result<YarnScaling, ScenarioError> {
    let wanted = "yarn needs it, a number above 0";
    let factor = rope.positive("factor")?.ok_or_else(|| rope.missing("factor", wanted))?;
    let original = rope.count("original_max_position_embeddings", MAX_CONTEXT)?;
    let attention_scale = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
    let attention = match (rope.positive("mscale")?, rope.positive("mscale_all_dim")?) {
        (Some(scale), Some(all)) => attention_scale(scale) / attention_scale(all),
        _ => attention_scale(1.0),
    };
    // Only latent attention scales its scores as well.
    let mscale_all_dim = rope.positive("mscale_all_dim")?.filter(|_| model.latent().is_some());
    let (fast, slow) =
        (rope.positive("beta_fast")?.unwrap_or(32.0), rope.positive("beta_slow")?.unwrap_or(1.0));
    if fast < slow {
        return Err(
            rope.wrong("beta_fast", &format!("a number no less than beta_slow, which is {slow}, is wanted"))
        );
    }
    Ok(YarnScaling {
        factor,
        original_max_positions: original.unwrap_or(model.max_positions),
        beta_fast: fast,
        beta_slow: slow,
        truncate: rope.flag("truncate")?.unwrap_or(true),
        attention: rope.positive("attention_factor")?.unwrap_or(attention),
        mscale_all_dim: mscale_all_dim.unwrap_or(0.0),
    })
}

/// Reads LongRoPE's parameters like transformers' `_compute_longrope_parameters`. The original
/// context length may be outside of the mapping.
fn long_rope(
    config: &DocumentSection<'_>,
    rope: &DocumentSection<'_>,
    model: &Model,
) -> Result<LongRopeScaling, ScenarioError> {
    let original = |at: &DocumentSection<'_>| at.count("original_max_position_embeddings", MAX_CONTEXT);
    let original = original(rope)?.or(original(config)?).unwrap_or(model.max_positions);
    let factor = rope.positive("factor")?.unwrap_or(model.max_positions as f64 / original as f64);
    let attention = match factor <= 1.0 || original <= 1 {
        true => 1.0,
        false => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
    };
    Ok(LongRopeScaling {
        short: divisors(rope, "short_factor", model)?,
        long: divisors(rope, "long_factor", model)?,
        original_max_positions: original,
        attention: rope.positive("attention_factor")?.unwrap_or(attention),
    })
}

/// Reads a list with one number above 0 for each pair of a head's rotated columns.
fn divisors(rope: &DocumentSection<'_>, key: &str, model: &Model) -> Result<Vec<f64>, ScenarioError> {
    let pairs = model.rotated_width() as usize / 2;
    let wanted = format!("{pairs} numbers above 0 are wanted, one for each pair of a head's rotated columns");
    let value = rope.get(key).ok_or_else(|| rope.missing(key, &format!("longrope needs it: {wanted}")))?;
    let number = |value: &Value| value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
    let numbers: Option<Vec<f64>> = value.as_array().and_then(|all| all.iter().map(number).collect());
    numbers.filter(|numbers| numbers.len() == pairs).ok_or_else(|| rope.wrong(key, &wanted))
}
