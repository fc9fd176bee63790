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
const PRESETS: [(&str, &str); 236] = [
    ("afm-4.5b", include_str!("../../../models/afm-4.5b.json")),
    ("apertus-70b", include_str!("../../../models/apertus-70b.json")),
    ("apertus-8b", include_str!("../../../models/apertus-8b.json")),
    ("aya-expanse-8b", include_str!("../../../models/aya-expanse-8b.json")),
    ("codellama-13b", include_str!("../../../models/codellama-13b.json")),
    ("codellama-34b", include_str!("../../../models/codellama-34b.json")),
    ("codellama-70b", include_str!("../../../models/codellama-70b.json")),
    ("codellama-7b", include_str!("../../../models/codellama-7b.json")),
    ("codestral-22b", include_str!("../../../models/codestral-22b.json")),
    ("command-a-111b", include_str!("../../../models/command-a-111b.json")),
    ("command-r-32b", include_str!("../../../models/command-r-32b.json")),
    ("command-r-35b", include_str!("../../../models/command-r-35b.json")),
    ("command-r-plus-104b", include_str!("../../../models/command-r-plus-104b.json")),
    ("command-r7b", include_str!("../../../models/command-r7b.json")),
    ("deepseek-coder-1.3b", include_str!("../../../models/deepseek-coder-1.3b.json")),
    ("deepseek-coder-33b", include_str!("../../../models/deepseek-coder-33b.json")),
    ("deepseek-coder-6.7b", include_str!("../../../models/deepseek-coder-6.7b.json")),
    ("deepseek-llm-67b", include_str!("../../../models/deepseek-llm-67b.json")),
    ("deepseek-llm-7b", include_str!("../../../models/deepseek-llm-7b.json")),
    ("deepseek-r1-distill-qwen-1.5b", include_str!("../../../models/deepseek-r1-distill-qwen-1.5b.json")),
    ("deepseek-v2", include_str!("../../../models/deepseek-v2.json")),
    ("deepseek-v2-lite", include_str!("../../../models/deepseek-v2-lite.json")),
    ("deepseek-v3", include_str!("../../../models/deepseek-v3.json")),
    ("deepseek-v3.2", include_str!("../../../models/deepseek-v3.2.json")),
    ("deepseek-v4-flash", include_str!("../../../models/deepseek-v4-flash.json")),
    ("deepseek-v4-pro", include_str!("../../../models/deepseek-v4-pro.json")),
    ("dots.llm1", include_str!("../../../models/dots.llm1.json")),
    ("ernie-4.5-0.3b", include_str!("../../../models/ernie-4.5-0.3b.json")),
    ("ernie-4.5-21b-a3b", include_str!("../../../models/ernie-4.5-21b-a3b.json")),
    ("ernie-4.5-300b-a47b", include_str!("../../../models/ernie-4.5-300b-a47b.json")),
    ("exaone-3.5-2.4b", include_str!("../../../models/exaone-3.5-2.4b.json")),
    ("exaone-3.5-32b", include_str!("../../../models/exaone-3.5-32b.json")),
    ("exaone-3.5-7.8b", include_str!("../../../models/exaone-3.5-7.8b.json")),
    ("exaone-4.0-1.2b", include_str!("../../../models/exaone-4.0-1.2b.json")),
    ("exaone-4.0-32b", include_str!("../../../models/exaone-4.0-32b.json")),
    ("falcon-180b", include_str!("../../../models/falcon-180b.json")),
    ("falcon-40b", include_str!("../../../models/falcon-40b.json")),
    ("falcon-7b", include_str!("../../../models/falcon-7b.json")),
    ("falcon-h1-0.5b", include_str!("../../../models/falcon-h1-0.5b.json")),
    ("falcon-h1-34b", include_str!("../../../models/falcon-h1-34b.json")),
    ("falcon-h1-7b", include_str!("../../../models/falcon-h1-7b.json")),
    ("falcon-h1-tiny-90m", include_str!("../../../models/falcon-h1-tiny-90m.json")),
    ("falcon3-10b", include_str!("../../../models/falcon3-10b.json")),
    ("falcon3-1b", include_str!("../../../models/falcon3-1b.json")),
    ("falcon3-3b", include_str!("../../../models/falcon3-3b.json")),
    ("falcon3-7b", include_str!("../../../models/falcon3-7b.json")),
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
    ("granite-3.1-1b-a400m", include_str!("../../../models/granite-3.1-1b-a400m.json")),
    ("granite-3.1-3b-a800m", include_str!("../../../models/granite-3.1-3b-a800m.json")),
    ("granite-3.3-2b", include_str!("../../../models/granite-3.3-2b.json")),
    ("granite-3.3-8b", include_str!("../../../models/granite-3.3-8b.json")),
    ("granite-4-1b", include_str!("../../../models/granite-4-1b.json")),
    ("granite-4-h-micro", include_str!("../../../models/granite-4-h-micro.json")),
    ("granite-4-micro", include_str!("../../../models/granite-4-micro.json")),
    ("granite-4-small", include_str!("../../../models/granite-4-small.json")),
    ("granite-4-tiny", include_str!("../../../models/granite-4-tiny.json")),
    ("h2o-danube3-500m", include_str!("../../../models/h2o-danube3-500m.json")),
    ("hunyuan-a13b", include_str!("../../../models/hunyuan-a13b.json")),
    ("hy3", include_str!("../../../models/hy3.json")),
    ("internlm3-8b", include_str!("../../../models/internlm3-8b.json")),
    ("jamba-large", include_str!("../../../models/jamba-large.json")),
    ("jamba-mini", include_str!("../../../models/jamba-mini.json")),
    ("kimi-k2", include_str!("../../../models/kimi-k2.json")),
    ("kimi-k2.5", include_str!("../../../models/kimi-k2.5.json")),
    ("kimi-k3", include_str!("../../../models/kimi-k3.json")),
    ("kimi-linear-48b-a3b", include_str!("../../../models/kimi-linear-48b-a3b.json")),
    ("laguna-s-2.1", include_str!("../../../models/laguna-s-2.1.json")),
    ("laguna-xs-2.1", include_str!("../../../models/laguna-xs-2.1.json")),
    ("lfm2-1.2b", include_str!("../../../models/lfm2-1.2b.json")),
    ("lfm2-2.6b", include_str!("../../../models/lfm2-2.6b.json")),
    ("lfm2-350m", include_str!("../../../models/lfm2-350m.json")),
    ("lfm2-700m", include_str!("../../../models/lfm2-700m.json")),
    ("lfm2-8b-a1b", include_str!("../../../models/lfm2-8b-a1b.json")),
    ("lfm2.5-230m", include_str!("../../../models/lfm2.5-230m.json")),
    ("ling-1t", include_str!("../../../models/ling-1t.json")),
    ("ling-flash-2.0", include_str!("../../../models/ling-flash-2.0.json")),
    ("ling-mini-2.0", include_str!("../../../models/ling-mini-2.0.json")),
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
    ("llama-30b", include_str!("../../../models/llama-30b.json")),
    ("llama-4-maverick", include_str!("../../../models/llama-4-maverick.json")),
    ("llama-4-scout", include_str!("../../../models/llama-4-scout.json")),
    ("llama-65b", include_str!("../../../models/llama-65b.json")),
    ("longcat-flash", include_str!("../../../models/longcat-flash.json")),
    ("mimo-7b", include_str!("../../../models/mimo-7b.json")),
    ("mimo-v2-flash", include_str!("../../../models/mimo-v2-flash.json")),
    ("minimax-m2.5", include_str!("../../../models/minimax-m2.5.json")),
    ("minimax-m3", include_str!("../../../models/minimax-m3.json")),
    ("ministral-3-14b", include_str!("../../../models/ministral-3-14b.json")),
    ("ministral-3-3b", include_str!("../../../models/ministral-3-3b.json")),
    ("ministral-3-8b", include_str!("../../../models/ministral-3-8b.json")),
    ("ministral-8b", include_str!("../../../models/ministral-8b.json")),
    ("mistral-7b", include_str!("../../../models/mistral-7b.json")),
    ("mistral-large-123b", include_str!("../../../models/mistral-large-123b.json")),
    ("mistral-large-3-675b", include_str!("../../../models/mistral-large-3-675b.json")),
    ("mistral-nemo-12b", include_str!("../../../models/mistral-nemo-12b.json")),
    ("mistral-small-24b", include_str!("../../../models/mistral-small-24b.json")),
    ("mixtral-8x22b", include_str!("../../../models/mixtral-8x22b.json")),
    ("mixtral-8x7b", include_str!("../../../models/mixtral-8x7b.json")),
    ("moonlight-16b-a3b", include_str!("../../../models/moonlight-16b-a3b.json")),
    ("muse-glimmer-30b", include_str!("../../../models/muse-glimmer-30b.json")),
    ("muse-spark-816b-a42b", include_str!("../../../models/muse-spark-816b-a42b.json")),
    ("nemotron-3-nano-30b-a3b", include_str!("../../../models/nemotron-3-nano-30b-a3b.json")),
    ("nemotron-3-nano-4b", include_str!("../../../models/nemotron-3-nano-4b.json")),
    ("nemotron-3-super-120b-a12b", include_str!("../../../models/nemotron-3-super-120b-a12b.json")),
    ("nemotron-3-ultra-550b-a55b", include_str!("../../../models/nemotron-3-ultra-550b-a55b.json")),
    ("nemotron-3.5-lightning-30b-a3b", include_str!("../../../models/nemotron-3.5-lightning-30b-a3b.json")),
    ("nemotron-4-340b", include_str!("../../../models/nemotron-4-340b.json")),
    ("nemotron-mini-4b", include_str!("../../../models/nemotron-mini-4b.json")),
    ("nemotron-nano-12b-v2", include_str!("../../../models/nemotron-nano-12b-v2.json")),
    ("nemotron-nano-9b-v2", include_str!("../../../models/nemotron-nano-9b-v2.json")),
    ("north-mini-code-1.0", include_str!("../../../models/north-mini-code-1.0.json")),
    ("olmo-2-13b", include_str!("../../../models/olmo-2-13b.json")),
    ("olmo-2-1b", include_str!("../../../models/olmo-2-1b.json")),
    ("olmo-2-32b", include_str!("../../../models/olmo-2-32b.json")),
    ("olmo-2-7b", include_str!("../../../models/olmo-2-7b.json")),
    ("olmo-3-32b", include_str!("../../../models/olmo-3-32b.json")),
    ("olmo-3-7b", include_str!("../../../models/olmo-3-7b.json")),
    ("olmoe-1b-7b", include_str!("../../../models/olmoe-1b-7b.json")),
    ("open-llama-3b", include_str!("../../../models/open-llama-3b.json")),
    ("opt-1.3b", include_str!("../../../models/opt-1.3b.json")),
    ("opt-125m", include_str!("../../../models/opt-125m.json")),
    ("opt-13b", include_str!("../../../models/opt-13b.json")),
    ("opt-175b", include_str!("../../../models/opt-175b.json")),
    ("opt-2.7b", include_str!("../../../models/opt-2.7b.json")),
    ("opt-30b", include_str!("../../../models/opt-30b.json")),
    ("opt-6.7b", include_str!("../../../models/opt-6.7b.json")),
    ("opt-66b", include_str!("../../../models/opt-66b.json")),
    ("phi-1.5", include_str!("../../../models/phi-1.5.json")),
    ("phi-2", include_str!("../../../models/phi-2.json")),
    ("phi-3-medium-128k", include_str!("../../../models/phi-3-medium-128k.json")),
    ("phi-3-medium-4k", include_str!("../../../models/phi-3-medium-4k.json")),
    ("phi-3-mini-4k", include_str!("../../../models/phi-3-mini-4k.json")),
    ("phi-3.5-mini", include_str!("../../../models/phi-3.5-mini.json")),
    ("phi-3.5-moe", include_str!("../../../models/phi-3.5-moe.json")),
    ("phi-4", include_str!("../../../models/phi-4.json")),
    ("phi-4-mini", include_str!("../../../models/phi-4-mini.json")),
    ("pythia-1.4b", include_str!("../../../models/pythia-1.4b.json")),
    ("pythia-12b", include_str!("../../../models/pythia-12b.json")),
    ("pythia-1b", include_str!("../../../models/pythia-1b.json")),
    ("pythia-2.8b", include_str!("../../../models/pythia-2.8b.json")),
    ("pythia-410m", include_str!("../../../models/pythia-410m.json")),
    ("pythia-6.9b", include_str!("../../../models/pythia-6.9b.json")),
    ("qwen1.5-0.5b", include_str!("../../../models/qwen1.5-0.5b.json")),
    ("qwen1.5-1.8b", include_str!("../../../models/qwen1.5-1.8b.json")),
    ("qwen1.5-110b", include_str!("../../../models/qwen1.5-110b.json")),
    ("qwen1.5-14b", include_str!("../../../models/qwen1.5-14b.json")),
    ("qwen1.5-32b", include_str!("../../../models/qwen1.5-32b.json")),
    ("qwen1.5-4b", include_str!("../../../models/qwen1.5-4b.json")),
    ("qwen1.5-72b", include_str!("../../../models/qwen1.5-72b.json")),
    ("qwen1.5-7b", include_str!("../../../models/qwen1.5-7b.json")),
    ("qwen1.5-moe-a2.7b", include_str!("../../../models/qwen1.5-moe-a2.7b.json")),
    ("qwen2-57b-a14b", include_str!("../../../models/qwen2-57b-a14b.json")),
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
    ("solar-10.7b", include_str!("../../../models/solar-10.7b.json")),
    ("stablelm-2-1.6b", include_str!("../../../models/stablelm-2-1.6b.json")),
    ("stablelm-2-12b", include_str!("../../../models/stablelm-2-12b.json")),
    ("stablelm-zephyr-3b", include_str!("../../../models/stablelm-zephyr-3b.json")),
    ("starcoder2-15b", include_str!("../../../models/starcoder2-15b.json")),
    ("starcoder2-3b", include_str!("../../../models/starcoder2-3b.json")),
    ("starcoder2-7b", include_str!("../../../models/starcoder2-7b.json")),
    ("step-3.5-flash", include_str!("../../../models/step-3.5-flash.json")),
    ("tinyllama-1.1b", include_str!("../../../models/tinyllama-1.1b.json")),
    ("trinity-mini", include_str!("../../../models/trinity-mini.json")),
    ("yi-34b", include_str!("../../../models/yi-34b.json")),
    ("yi-6b", include_str!("../../../models/yi-6b.json")),
    ("yi-9b", include_str!("../../../models/yi-9b.json")),
    ("yi-coder-9b", include_str!("../../../models/yi-coder-9b.json")),
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
/// begin with, or else hold, up to a size, or else the only one that begins with its words. So
/// names of fine-tuned models, which keep the shape, are known, and `qwen3-30b` is `qwen3-30b-a3b`.
fn similar_name(name: &str) -> Option<&'static str> {
    let own = name.rsplit('/').next().unwrap_or(name);
    let (wanted, words) = (bare_name(name), telling_words(name));
    let holds = |words: &[String], part: &[String]| words.windows(part.len()).any(|some| some == part);
    all_names()
        .find(|known| known.eq_ignore_ascii_case(own))
        .or_else(|| all_names().find(|known| bare_name(known) == wanted))
        .or_else(|| longest_sized(|part| words.starts_with(part)))
        .or_else(|| longest_sized(|part| holds(&words, part)))
        .or_else(|| {
            let mut longer = longer_names(name);
            let first = longer.next()?;
            longer.all(|other| text_of(other) == text_of(first)).then_some(first)
        })
}

/// Of the names with a size, the one of the most words that `is_part` accepts.
fn longest_sized(is_part: impl Fn(&[String]) -> bool) -> Option<&'static str> {
    let sized = all_names().filter(|known| size_word(known).is_some());
    let parts = sized.map(|known| (telling_words(known), known)).filter(|(words, _)| is_part(words));
    parts.max_by_key(|(words, _)| words.len()).map(|(_, known)| known)
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

/// The word that tells a model's size: `70b` of `llama-3.3-70b`, `8x7b` of `mixtral-8x7b`.
fn size_word(name: &str) -> Option<&str> {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let is_size = |word: &&str| word.strip_suffix('b').is_some_and(|size| size.split('x').all(is_number));
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
    let family = same_family(name, &bare);
    // Another size is another model.
    let lower = name.to_lowercase();
    let is_size =
        |near: &&str| family.is_empty() || size_word(&lower).is_none_or(|size| size_word(near) == Some(size));
    let known = match (near.filter(is_size), &family[..]) {
        _ if !longer.is_empty() => format!("did you mean {}?", longer.join(", ")),
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => "`fulcrum model list` names the presets".to_owned(),
        (None, family) => {
            format!("did you mean {}? `fulcrum model list` names the presets", family.join(", "))
        }
    };
    ScenarioError::UnknownPreset { name: name.to_owned(), known }
}
