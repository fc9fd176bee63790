//! The models that Fulcrum knows by name: `models/*.json`, each a Hugging Face `config.json`.
//!
//! A model that is published in quantised form (gpt-oss in MXFP4, DeepSeek in FP8) has the
//! `quantization_config` of its checkpoint: that is what a scenario without `dtype` means.

use crate::input::error::ScenarioError;
use crate::model::config::aliases::ALIASES;
use crate::model::transformer::Model;
use hwprofiles::{edits_between, nearest_name};
use std::cmp::Reverse;

/// Names in ascending order, with their files. A test compares this table with the folder.
const PRESETS: [(&str, &str); 145] = [
    ("deepseek-v2", include_str!("../../../models/deepseek-v2.json")),
    ("deepseek-v2-lite", include_str!("../../../models/deepseek-v2-lite.json")),
    ("deepseek-v3", include_str!("../../../models/deepseek-v3.json")),
    ("deepseek-v3.2", include_str!("../../../models/deepseek-v3.2.json")),
    ("deepseek-v4-flash", include_str!("../../../models/deepseek-v4-flash.json")),
    ("deepseek-v4-pro", include_str!("../../../models/deepseek-v4-pro.json")),
    ("ernie-4.5-21b-a3b", include_str!("../../../models/ernie-4.5-21b-a3b.json")),
    ("falcon-40b", include_str!("../../../models/falcon-40b.json")),
    ("falcon-7b", include_str!("../../../models/falcon-7b.json")),
    ("falcon-h1-0.5b", include_str!("../../../models/falcon-h1-0.5b.json")),
    ("falcon-h1-tiny-90m", include_str!("../../../models/falcon-h1-tiny-90m.json")),
    ("fulcrum-1b", include_str!("../../../models/fulcrum-1b.json")),
    ("fulcrum-250m", include_str!("../../../models/fulcrum-250m.json")),
    ("fulcrum-tiny", include_str!("../../../models/fulcrum-tiny.json")),
    ("gemma-2-27b", include_str!("../../../models/gemma-2-27b.json")),
    ("gemma-2-2b", include_str!("../../../models/gemma-2-2b.json")),
    ("gemma-2-9b", include_str!("../../../models/gemma-2-9b.json")),
    ("gemma-2b", include_str!("../../../models/gemma-2b.json")),
    ("gemma-3-12b", include_str!("../../../models/gemma-3-12b.json")),
    ("gemma-3-1b", include_str!("../../../models/gemma-3-1b.json")),
    ("gemma-3-270m", include_str!("../../../models/gemma-3-270m.json")),
    ("gemma-3-27b", include_str!("../../../models/gemma-3-27b.json")),
    ("gemma-3-4b", include_str!("../../../models/gemma-3-4b.json")),
    ("gemma-3n-e2b", include_str!("../../../models/gemma-3n-e2b.json")),
    ("gemma-3n-e4b", include_str!("../../../models/gemma-3n-e4b.json")),
    ("gemma-4-12b", include_str!("../../../models/gemma-4-12b.json")),
    ("gemma-4-26b-a4b", include_str!("../../../models/gemma-4-26b-a4b.json")),
    ("gemma-4-31b", include_str!("../../../models/gemma-4-31b.json")),
    ("gemma-4-e2b", include_str!("../../../models/gemma-4-e2b.json")),
    ("gemma-4-e4b", include_str!("../../../models/gemma-4-e4b.json")),
    ("gemma-7b", include_str!("../../../models/gemma-7b.json")),
    ("glm-4-32b", include_str!("../../../models/glm-4-32b.json")),
    ("glm-4-9b", include_str!("../../../models/glm-4-9b.json")),
    ("glm-4.5", include_str!("../../../models/glm-4.5.json")),
    ("glm-4.5-air", include_str!("../../../models/glm-4.5-air.json")),
    ("glm-4.6", include_str!("../../../models/glm-4.6.json")),
    ("glm-4.7-flash", include_str!("../../../models/glm-4.7-flash.json")),
    ("glm-5", include_str!("../../../models/glm-5.json")),
    ("glm-5.2", include_str!("../../../models/glm-5.2.json")),
    ("gpt-j-6b", include_str!("../../../models/gpt-j-6b.json")),
    ("gpt-neox-20b", include_str!("../../../models/gpt-neox-20b.json")),
    ("gpt-oss-120b", include_str!("../../../models/gpt-oss-120b.json")),
    ("gpt-oss-20b", include_str!("../../../models/gpt-oss-20b.json")),
    ("granite-4-1b", include_str!("../../../models/granite-4-1b.json")),
    ("granite-4-small", include_str!("../../../models/granite-4-small.json")),
    ("granite-4-tiny", include_str!("../../../models/granite-4-tiny.json")),
    ("h2o-danube3-500m", include_str!("../../../models/h2o-danube3-500m.json")),
    ("hy3", include_str!("../../../models/hy3.json")),
    ("kimi-k2", include_str!("../../../models/kimi-k2.json")),
    ("kimi-k2.5", include_str!("../../../models/kimi-k2.5.json")),
    ("kimi-k3", include_str!("../../../models/kimi-k3.json")),
    ("kimi-linear-48b-a3b", include_str!("../../../models/kimi-linear-48b-a3b.json")),
    ("laguna-s-2.1", include_str!("../../../models/laguna-s-2.1.json")),
    ("laguna-xs-2.1", include_str!("../../../models/laguna-xs-2.1.json")),
    ("lfm2-1.2b", include_str!("../../../models/lfm2-1.2b.json")),
    ("lfm2-350m", include_str!("../../../models/lfm2-350m.json")),
    ("lfm2-700m", include_str!("../../../models/lfm2-700m.json")),
    ("lfm2-8b-a1b", include_str!("../../../models/lfm2-8b-a1b.json")),
    ("lfm2.5-230m", include_str!("../../../models/lfm2.5-230m.json")),
    ("llama-2-13b", include_str!("../../../models/llama-2-13b.json")),
    ("llama-2-70b", include_str!("../../../models/llama-2-70b.json")),
    ("llama-2-7b", include_str!("../../../models/llama-2-7b.json")),
    ("llama-3-70b", include_str!("../../../models/llama-3-70b.json")),
    ("llama-3-8b", include_str!("../../../models/llama-3-8b.json")),
    ("llama-3.1-405b", include_str!("../../../models/llama-3.1-405b.json")),
    ("llama-3.1-70b", include_str!("../../../models/llama-3.1-70b.json")),
    ("llama-3.1-8b", include_str!("../../../models/llama-3.1-8b.json")),
    ("llama-3.2-1b", include_str!("../../../models/llama-3.2-1b.json")),
    ("llama-3.2-3b", include_str!("../../../models/llama-3.2-3b.json")),
    ("llama-4-maverick", include_str!("../../../models/llama-4-maverick.json")),
    ("llama-4-scout", include_str!("../../../models/llama-4-scout.json")),
    ("mimo-v2-flash", include_str!("../../../models/mimo-v2-flash.json")),
    ("minimax-m2.5", include_str!("../../../models/minimax-m2.5.json")),
    ("minimax-m3", include_str!("../../../models/minimax-m3.json")),
    ("ministral-3-14b", include_str!("../../../models/ministral-3-14b.json")),
    ("ministral-3-3b", include_str!("../../../models/ministral-3-3b.json")),
    ("ministral-3-8b", include_str!("../../../models/ministral-3-8b.json")),
    ("ministral-8b", include_str!("../../../models/ministral-8b.json")),
    ("mistral-7b", include_str!("../../../models/mistral-7b.json")),
    ("mistral-large-123b", include_str!("../../../models/mistral-large-123b.json")),
    ("mistral-nemo-12b", include_str!("../../../models/mistral-nemo-12b.json")),
    ("mistral-small-24b", include_str!("../../../models/mistral-small-24b.json")),
    ("mixtral-8x22b", include_str!("../../../models/mixtral-8x22b.json")),
    ("mixtral-8x7b", include_str!("../../../models/mixtral-8x7b.json")),
    ("muse-glimmer-30b", include_str!("../../../models/muse-glimmer-30b.json")),
    ("muse-spark-816b-a42b", include_str!("../../../models/muse-spark-816b-a42b.json")),
    ("nemotron-3-nano-30b-a3b", include_str!("../../../models/nemotron-3-nano-30b-a3b.json")),
    ("nemotron-3-nano-4b", include_str!("../../../models/nemotron-3-nano-4b.json")),
    ("nemotron-3-super-120b-a12b", include_str!("../../../models/nemotron-3-super-120b-a12b.json")),
    ("nemotron-3-ultra-550b-a55b", include_str!("../../../models/nemotron-3-ultra-550b-a55b.json")),
    ("nemotron-3.5-lightning-30b-a3b", include_str!("../../../models/nemotron-3.5-lightning-30b-a3b.json")),
    ("north-mini-code-1.0", include_str!("../../../models/north-mini-code-1.0.json")),
    ("olmo-2-13b", include_str!("../../../models/olmo-2-13b.json")),
    ("olmo-2-1b", include_str!("../../../models/olmo-2-1b.json")),
    ("olmo-2-32b", include_str!("../../../models/olmo-2-32b.json")),
    ("olmo-2-7b", include_str!("../../../models/olmo-2-7b.json")),
    ("olmo-3-32b", include_str!("../../../models/olmo-3-32b.json")),
    ("olmo-3-7b", include_str!("../../../models/olmo-3-7b.json")),
    ("opt-1.3b", include_str!("../../../models/opt-1.3b.json")),
    ("opt-125m", include_str!("../../../models/opt-125m.json")),
    ("opt-13b", include_str!("../../../models/opt-13b.json")),
    ("opt-175b", include_str!("../../../models/opt-175b.json")),
    ("opt-30b", include_str!("../../../models/opt-30b.json")),
    ("opt-6.7b", include_str!("../../../models/opt-6.7b.json")),
    ("opt-66b", include_str!("../../../models/opt-66b.json")),
    ("phi-2", include_str!("../../../models/phi-2.json")),
    ("phi-3-mini-4k", include_str!("../../../models/phi-3-mini-4k.json")),
    ("phi-3.5-moe", include_str!("../../../models/phi-3.5-moe.json")),
    ("phi-4", include_str!("../../../models/phi-4.json")),
    ("phi-4-mini", include_str!("../../../models/phi-4-mini.json")),
    ("pythia-1.4b", include_str!("../../../models/pythia-1.4b.json")),
    ("pythia-6.9b", include_str!("../../../models/pythia-6.9b.json")),
    ("qwen2.5-0.5b", include_str!("../../../models/qwen2.5-0.5b.json")),
    ("qwen2.5-1.5b", include_str!("../../../models/qwen2.5-1.5b.json")),
    ("qwen2.5-14b", include_str!("../../../models/qwen2.5-14b.json")),
    ("qwen2.5-32b", include_str!("../../../models/qwen2.5-32b.json")),
    ("qwen2.5-3b", include_str!("../../../models/qwen2.5-3b.json")),
    ("qwen2.5-72b", include_str!("../../../models/qwen2.5-72b.json")),
    ("qwen2.5-7b", include_str!("../../../models/qwen2.5-7b.json")),
    ("qwen3-0.6b", include_str!("../../../models/qwen3-0.6b.json")),
    ("qwen3-1.7b", include_str!("../../../models/qwen3-1.7b.json")),
    ("qwen3-14b", include_str!("../../../models/qwen3-14b.json")),
    ("qwen3-235b-a22b", include_str!("../../../models/qwen3-235b-a22b.json")),
    ("qwen3-30b-a3b", include_str!("../../../models/qwen3-30b-a3b.json")),
    ("qwen3-32b", include_str!("../../../models/qwen3-32b.json")),
    ("qwen3-4b", include_str!("../../../models/qwen3-4b.json")),
    ("qwen3-8b", include_str!("../../../models/qwen3-8b.json")),
    ("qwen3-coder-480b-a35b", include_str!("../../../models/qwen3-coder-480b-a35b.json")),
    ("qwen3-next-80b-a3b", include_str!("../../../models/qwen3-next-80b-a3b.json")),
    ("qwen3.5-0.8b", include_str!("../../../models/qwen3.5-0.8b.json")),
    ("qwen3.5-122b-a10b", include_str!("../../../models/qwen3.5-122b-a10b.json")),
    ("qwen3.5-27b", include_str!("../../../models/qwen3.5-27b.json")),
    ("qwen3.5-2b", include_str!("../../../models/qwen3.5-2b.json")),
    ("qwen3.5-35b-a3b", include_str!("../../../models/qwen3.5-35b-a3b.json")),
    ("qwen3.5-397b-a17b", include_str!("../../../models/qwen3.5-397b-a17b.json")),
    ("qwen3.5-4b", include_str!("../../../models/qwen3.5-4b.json")),
    ("qwen3.5-9b", include_str!("../../../models/qwen3.5-9b.json")),
    ("seed-oss-36b", include_str!("../../../models/seed-oss-36b.json")),
    ("smollm2-1.7b", include_str!("../../../models/smollm2-1.7b.json")),
    ("smollm2-135m", include_str!("../../../models/smollm2-135m.json")),
    ("smollm2-360m", include_str!("../../../models/smollm2-360m.json")),
    ("smollm3-3b", include_str!("../../../models/smollm3-3b.json")),
    ("step-3.5-flash", include_str!("../../../models/step-3.5-flash.json")),
    ("tinyllama-1.1b", include_str!("../../../models/tinyllama-1.1b.json")),
    ("trinity-mini", include_str!("../../../models/trinity-mini.json")),
];

impl Model {
    /// The preset of that name, of another name of it ([`Model::preset_aliases`]), or of a name
    /// that a model has on Hugging Face or in Ollama: case, the owner, separators, and words such
    /// as `Instruct` or `FP8` do not count.
    ///
    /// # Errors
    /// There is no such preset; the error has the nearest name, or names all presets.
    pub fn preset(name: &str) -> Result<Self, ScenarioError> {
        let found = exact_name(name).or_else(|| similar_name(name));
        let preset = found.and_then(|found| text_of(found).map(|text| (found, text)));
        match preset {
            Some((name, text)) => Self::from_config_json(name, &format!("models/{name}.json"), text),
            None => Err(unknown(name)),
        }
    }

    /// The name under which [`Model::preset`] knows `name` if no file has that name: the same name,
    /// or that of the preset it means.
    pub(crate) fn preset_name(name: &str) -> Option<&'static str> {
        exact_name(name).or_else(|| similar_name(name))
    }

    /// Whether `name` is exactly a preset's name or another name of it.
    pub(crate) fn is_preset_name(name: &str) -> bool {
        exact_name(name).is_some()
    }

    /// The names of all presets, ascending.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// Other names of presets, of models that have the same shape: each with the preset's name.
    pub fn preset_aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
        ALIASES.into_iter()
    }
}

/// The text of a preset, by its name or another name of it.
fn text_of(name: &str) -> Option<&'static str> {
    let preset = ALIASES.into_iter().find(|(alias, _)| *alias == name).map_or(name, |(_, preset)| preset);
    PRESETS.iter().find(|(known, _)| *known == preset).map(|(_, text)| *text)
}

fn all_names() -> impl Iterator<Item = &'static str> {
    Model::preset_names().chain(ALIASES.into_iter().map(|(alias, _)| alias))
}

fn exact_name(name: &str) -> Option<&'static str> {
    all_names().find(|known| *known == name)
}

/// The preset that `name` means: one that has no other letters, or else the longest that its words
/// begin with, up to a size, or else the only one that begins with its words. So names of
/// fine-tuned models, which keep the shape, are known, and `qwen3-30b` is `qwen3-30b-a3b`.
fn similar_name(name: &str) -> Option<&'static str> {
    let own = name.rsplit('/').next().unwrap_or(name);
    let (wanted, words) = (bare_name(name), telling_words(name));
    let begins = |known: &&str| {
        let known_words = telling_words(known);
        size_word(known).is_some() && words.starts_with(&known_words)
    };
    all_names()
        .find(|known| known.eq_ignore_ascii_case(own))
        .or_else(|| all_names().find(|known| bare_name(known) == wanted))
        .or_else(|| all_names().filter(begins).max_by_key(|known| telling_words(known).len()))
        .or_else(|| {
            let mut longer = longer_names(name);
            let first = longer.next()?;
            longer.all(|other| text_of(other) == text_of(first)).then_some(first)
        })
}

/// The names that begin with the words of `name` and go on.
fn longer_names(name: &str) -> impl Iterator<Item = &'static str> {
    let words = telling_words(name);
    all_names().filter(move |known| !words.is_empty() && telling_words(known).starts_with(&words))
}

/// The words of a model's name without owner, case, and words that say nothing about its shape.
/// Four digits are a date.
fn telling_words(name: &str) -> Vec<String> {
    const WORDS: [&str; 32] = [
        "instruct",
        "it",
        "chat",
        "base",
        "pt",
        "hf",
        "bf16",
        "fp16",
        "fp8",
        "nvfp4",
        "mxfp4",
        "awq",
        "gptq",
        "int4",
        "int8",
        "gguf",
        "qat",
        "preview",
        "thinking",
        "reasoning",
        "meta",
        "nvidia",
        "v0.1",
        "v0.2",
        "v0.3",
        "v1.0",
        "4bit",
        "8bit",
        "mlx",
        "latest",
        "speciale",
        "mtp",
    ];
    let is_date = |word: &str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    let own = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let words = own.split(['-', '_', ' ', ':']).filter(|word| !WORDS.contains(word) && !is_date(word));
    words.map(str::to_owned).collect()
}

/// The same words without separators.
fn bare_name(name: &str) -> String {
    telling_words(name).concat()
}

/// The word that tells a model's size: `70b` of `llama-3.3-70b`.
fn size_word(name: &str) -> Option<&str> {
    let is_size = |word: &&str| word.strip_suffix('b').is_some_and(|size| size.parse::<f64>().is_ok());
    name.split('-').rfind(is_size)
}

/// Presets of the family that the first letters of `name` tell, at most three: those of its size
/// where it has one, the latest version first, and otherwise the nearest.
fn same_family(name: &str, bare: &str) -> Vec<&'static str> {
    let letters = bare.find(|c: char| !c.is_alphabetic()).unwrap_or(bare.len());
    let (family, lower) = (&bare[..letters], name.to_lowercase());
    let size = size_word(&lower);
    let mut found: Vec<_> = all_names()
        .filter(|known| family.len() > 2 && bare_name(known).starts_with(family))
        .filter(|known| size.is_none() || size_word(known) == size)
        .map(|known| {
            let edits = if size.is_some() { 0 } else { edits_between(bare, &bare_name(known)) };
            (edits, Reverse(known))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(3).map(|(_, Reverse(known))| known).collect()
}

fn unknown(name: &str) -> ScenarioError {
    let bare = bare_name(name);
    let near = nearest_name(&bare, all_names()).or_else(|| {
        // A part of a name is a better guess than none.
        let part = |known: &&str| bare.len() > 3 && bare_name(known).starts_with(&bare);
        all_names().find(part)
    });
    let longer: Vec<_> = longer_names(name).take(4).collect();
    let known = match (near, &same_family(name, &bare)[..]) {
        _ if !longer.is_empty() => format!("did you mean {}?", longer.join(", ")),
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => "`fulcrum model list` names the presets".to_owned(),
        (None, family) => {
            format!("did you mean {}? `fulcrum model list` names the presets", family.join(", "))
        }
    };
    ScenarioError::UnknownPreset { name: name.to_owned(), known }
}
