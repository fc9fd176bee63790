//! Reads gated delta nets beside attention: Qwen3-Next, Qwen 3.5, 3.6 and 4, OLMo hybrid, Lara.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Architecture, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_from_zero, need_count, texts_of_layers};
use crate::model::config::mixture::{has_experts, members, read_mixture};
use crate::model::config::readers::latent::check_index;
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::mixer::{Mixer, SparseIndex};
use crate::model::recurrence::Recurrence;
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;
use crate::model::wiring::NgramEmbedding;

/// Translated's Lara Mini, with windows in some layers and no positions in others.
const LARA: &str = "lara_mini";
/// Qwen 4.
const QWEN4: &str = "qwen4_exp_text";
/// The most tables of n-grams that are counted, in all layers.
const MAX_TABLES: u64 = 1 << 10;
/// The most rows of one of them.
const MAX_ROWS: u64 = 1 << 28;

/// What mixes the tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerMixer {
    /// A gated delta net.
    Delta,
    /// Attention to a window.
    Window,
    /// Attention to the whole context, or to what an indexer chooses of it.
    Everything,
}

/// Reads such a family; returns the shape of each layer.
pub(crate) fn read_gated_delta(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    let lara = family.model_type == LARA;
    let qwen = family.architecture != Architecture::OlmoHybrid && !lara;
    model.qkv_bias = Switch::Key("attention_bias", false).read(config)?;
    model.out_bias = model.qkv_bias;
    model.qk_norm = true;
    model.wiring.norms_whole_qk = family.architecture == Architecture::OlmoHybrid;
    if qwen {
        model.norm = Norm::RmsPlusOne;
        model.wiring.output_gate = Switch::Key("attn_output_gate", true).read(config)?;
    }
    let sparse = if has_experts(config)? {
        let rules = MixtureRules { shared_gate: !lara, normalised: true, ..MixtureRules::NARROW };
        read_mixture(config, &rules, model)?
    } else {
        vec![]
    };
    model.mtp = count_from_zero(config, &["mtp_num_hidden_layers", "num_nextn_predict_layers"])?;
    let need = |key: &str| need_count(config, &[key], MAX_WIDTH);
    let recurrence = Recurrence::GatedDelta {
        key_heads: need("linear_num_key_heads")?,
        value_heads: need("linear_num_value_heads")?,
        key_dim: need("linear_key_head_dim")?,
        value_dim: need("linear_value_head_dim")?,
        taps: need_count(config, &["linear_conv_kernel_dim"], 64)?,
    };
    check_recurrence(config, "linear_num_value_heads", recurrence)?;
    let mixers = layer_mixers(config, family, model.layers)?;
    let window = if lara { read_window(config, model)? } else { None };
    let mut layers = with_experts_in(model, &sparse);
    for (layer, mixer) in layers.iter_mut().zip(&mixers) {
        match mixer {
            LayerMixer::Delta => make_recurrent(layer, recurrence),
            LayerMixer::Window => layer.wiring.window = window,
            // Lara's have no positions.
            LayerMixer::Everything => layer.wiring.unrotated = lara,
        }
    }
    if family.model_type == QWEN4 {
        read_qwen4(config, &mixers, model, &mut layers)?;
    }
    Ok(layers)
}

/// The window of layers that have one; `None` if no context is longer.
fn read_window(config: &DocumentSection<'_>, model: &Model) -> Result<Option<SlidingWindow>, ScenarioError> {
    let tokens = need_count(config, &["sliding_window"], MAX_CONTEXT)?;
    Ok(Some(SlidingWindow::new(tokens)).filter(|window| window.tokens < model.max_positions))
}

/// Reads what Qwen 4 adds to Qwen 3.5: residual streams with mixers of low rank, indexers of
/// blocks, and tables of n-grams.
fn read_qwen4(
    config: &DocumentSection<'_>,
    mixers: &[LayerMixer],
    model: &mut Model,
    layers: &mut [Model],
) -> Result<(), ScenarioError> {
    let streams = need_count(config, &["hc_count"], 64)?;
    if streams == 1 {
        return Err(config.wrong("hc_count", "a whole number from 2 to 64 is wanted"));
    }
    let rank = need_count(config, &["hc_lowrank"], MAX_WIDTH / streams)?;
    let ngrams = read_ngrams(config, mixers)?;
    let index = match mixers.contains(&LayerMixer::Everything) {
        true => Some(read_index(config)?),
        false => None,
    };
    for shape in layers.iter_mut().chain([&mut *model]) {
        shape.wiring.residual_streams = Some(streams);
        shape.wiring.stream_rank = Some(rank);
    }
    for (layer, mixer) in layers.iter_mut().zip(mixers) {
        layer.index = index.filter(|_| *mixer == LayerMixer::Everything);
    }
    if let Some(last) = layers.last_mut() {
        last.wiring.joins_streams = true;
    }
    let Some((ngrams, with)) = ngrams else { return Ok(()) };
    model.wiring.ngrams = Some(ngrams);
    for layer in with {
        layers[layer as usize].wiring.ngrams = Some(ngrams);
    }
    Ok(())
}

/// Reads an indexer whose keys are averaged over blocks of tokens. Attention also reads the tokens
/// behind the last whole block.
fn read_index(config: &DocumentSection<'_>) -> Result<SparseIndex, ScenarioError> {
    const KEY_HEADS: &str = "indexer_kv_heads";
    const BUDGET: &str = "indexer_budget";
    let heads = need_count(config, &["indexer_n_heads"], MAX_WIDTH)?;
    let dim = need_count(config, &["indexer_head_dim"], MAX_WIDTH)?;
    if config.count(KEY_HEADS, MAX_WIDTH)?.is_some_and(|heads| heads != 1) {
        return Err(config.unsupported(KEY_HEADS, "more than one head of an indexer's keys", "only 1 is"));
    }
    let budget = need_count(config, &[BUDGET], MAX_CONTEXT)?;
    let block = need_count(config, &["indexer_compress_ratio"], 1 << 16)?;
    if !budget.is_multiple_of(block) {
        let wanted = format!("a multiple of indexer_compress_ratio, which is {block}, is wanted");
        return Err(config.wrong(BUDGET, &wanted));
    }
    let selected = (budget + block - 1).min(MAX_CONTEXT);
    let index = SparseIndex { heads, dim, selected, computes: true, fp8_keys: false, pooled: Some(block) };
    check_index(config, "indexer_n_heads", &index)?;
    Ok(index)
}

/// Reads the tables of n-grams, and the layers that have one, counted from 0; `None` without any.
///
/// For each n from 2 there are several hashes of the last n tokens, and for each hash a table. The
/// rows of the tables are the primes from a number on, through all layers; a layer's tables
/// together are filled up to a multiple.
fn read_ngrams(
    config: &DocumentSection<'_>,
    mixers: &[LayerMixer],
) -> Result<Option<(NgramEmbedding, Vec<u64>)>, ScenarioError> {
    let need = |key: &str, limit| need_count(config, &[key], limit);
    let layers = ngram_layers(config, mixers)?;
    if layers.is_empty() {
        return Ok(None);
    }
    let tokens = need("ngram_size", 16)?;
    if tokens == 1 {
        return Err(config.wrong("ngram_size", "a whole number from 2 to 16 is wanted"));
    }
    let count = layers.len() as u64;
    let hashes = (tokens - 1) * need("heads_per_ngram", MAX_TABLES)?;
    if count * hashes > MAX_TABLES {
        let wanted =
            format!("it makes {} tables in all layers, at most {MAX_TABLES} are counted", count * hashes);
        return Err(config.wrong("heads_per_ngram", &wanted));
    }
    let key = if config.get("ple_embed_dim").is_some() { "ple_embed_dim" } else { "hidden_size" };
    let width = need(key, MAX_WIDTH)?;
    if !width.is_multiple_of(hashes) || count * width > MAX_WIDTH {
        let wanted = format!(
            "a multiple of {hashes}, which are the hashes of (ngram_size - 1) * heads_per_ngram, is wanted, \
             and in all layers at most {MAX_WIDTH}"
        );
        return Err(config.wrong(key, &wanted));
    }
    let least = need("ngram_vocab_size_base", MAX_ROWS)?;
    let multiple = need("make_ngram_vocab_size_divisible_by", MAX_WIDTH)?;
    let mut primes = (least..).filter(|&number| is_prime(number));
    let of_layer = |_| primes.by_ref().take(hashes as usize).sum::<u64>().next_multiple_of(multiple);
    let rows = layers.iter().map(of_layer).sum();
    let taps = need("ple_conv_kernel_size", 16)?;
    Ok(Some((NgramEmbedding { rows, hashes, width: width / hashes, taps, tokens }, layers)))
}

/// The layers with a table of n-grams, counted from 0 and ascending.
fn ngram_layers(config: &DocumentSection<'_>, mixers: &[LayerMixer]) -> Result<Vec<u64>, ScenarioError> {
    const KEY: &str = "ple_layer_ids";
    let mut ids = members(config, KEY, mixers.len() as u64 + 1)?;
    ids.sort_unstable();
    ids.dedup();
    let is_delta =
        |id: &u64| id.checked_sub(1).is_some_and(|layer| mixers[layer as usize] == LayerMixer::Delta);
    if ids.iter().all(is_delta) {
        return Ok(ids.into_iter().map(|id| id - 1).collect());
    }
    let wanted = "layers of linear_attention are wanted, the first of which would be called 1";
    Err(config.wrong(KEY, wanted))
}

/// Whether nothing but 1 and itself divides `number`.
fn is_prime(number: u64) -> bool {
    let divides = |divisor: u64| number.is_multiple_of(divisor);
    let mut odd = (3..=number.isqrt()).step_by(2);
    number == 2 || number > 2 && !divides(2) && !odd.any(divides)
}

/// Turns a layer of attention into one of a recurrence.
pub(crate) fn make_recurrent(layer: &mut Model, recurrence: Recurrence) {
    layer.mixer = Mixer::Recurrent(recurrence);
    layer.qk_norm = false;
    layer.wiring.norms_whole_qk = false;
    layer.wiring.output_gate = false;
    layer.qkv_bias = false;
    layer.out_bias = false;
}

/// Refuses a recurrence that is too wide to count.
pub(crate) fn check_recurrence(
    config: &DocumentSection<'_>,
    key: &str,
    recurrence: Recurrence,
) -> Result<(), ScenarioError> {
    let widest = recurrence.projected().max(recurrence.context_width());
    if widest <= 4 * MAX_WIDTH && recurrence.state_bytes().get() <= 1 << 36 {
        return Ok(());
    }
    Err(config.wrong(key, &format!("it makes a layer {widest} wide, which is too large to count")))
}

/// What mixes the tokens in each layer.
fn layer_mixers(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    layers: u64,
) -> Result<Vec<LayerMixer>, ScenarioError> {
    const INTERVAL: &str = "full_attention_interval";
    const KINDS: &str = "layer_types";
    use LayerMixer::{Delta, Everything, Window};
    let every = config.count(INTERVAL, 1 << 16)?;
    let by_interval = |every: u64| {
        let attends = |layer: u64| (layer + 1).is_multiple_of(every);
        (0..layers).map(|layer| if attends(layer) { Everything } else { Delta }).collect::<Vec<_>>()
    };
    let Some(kinds) = texts_of_layers(config, KINDS, layers)? else {
        if family.model_type == LARA {
            let pattern = [Delta, Window, Delta, Everything, Window];
            return Ok(pattern.into_iter().cycle().take(layers as usize).collect());
        }
        return Ok(by_interval(every.unwrap_or(4)));
    };
    let (other, known) = match family.model_type {
        LARA => (
            Some(("sliding_attention", Window)),
            "full_attention, sliding_attention and linear_attention are",
        ),
        QWEN4 => {
            // Published files call it full_attention.
            (
                Some(("indexed_attention", Everything)),
                "full_attention, indexed_attention and linear_attention are",
            )
        }
        _ => (None, "full_attention and linear_attention are"),
    };
    let mixer = |kind: &str| match (kind, other) {
        ("full_attention", _) => Ok(Everything),
        ("linear_attention", _) => Ok(Delta),
        (kind, Some((name, mixer))) if kind == name => Ok(mixer),
        _ => Err(config.unsupported(KINDS, "another layer", known)),
    };
    let listed = kinds.into_iter().map(mixer).collect::<Result<Vec<_>, _>>()?;
    match every {
        Some(every) if family.model_type != LARA && by_interval(every) != listed => {
            Err(config.wrong(INTERVAL, "it contradicts layer_types: leave one of them out"))
        }
        _ => Ok(listed),
    }
}
