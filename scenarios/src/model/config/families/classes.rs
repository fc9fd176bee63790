//! The later families. Their defaults are in `class_defaults.json`; those that are not there have
//! none, and their sizes must be written.

use crate::model::architecture::Architecture;
use crate::model::config::families::decoders as wired;
use crate::model::config::families::defaults::{LLAMA, LLAMA_KEYS};
use crate::model::config::families::family::{FamilyDefaults, FamilyKeys, FamilyReader};

/// A family without defaults in its fields.
const fn class(model_type: &'static str, architecture: Architecture, reader: FamilyReader) -> FamilyDefaults {
    FamilyDefaults {
        model_type,
        architecture,
        keys: LLAMA_KEYS,
        vocab: 0,
        hidden: 0,
        intermediate: None,
        layers: 0,
        heads: 0,
        kv_heads: None,
        max_positions: 4096,
        rotated: Some(1.0),
        reader,
        ..LLAMA
    }
}

/// A family of decoders that is counted and not run.
const fn decoder(model_type: &'static str, wiring: &'static wired::Decoder) -> FamilyDefaults {
    class(model_type, Architecture::Decoder, FamilyReader::Decoder(wiring))
}

/// These families.
pub(super) const CLASSES: [&FamilyDefaults; 91] = [
    &class("ministral", Architecture::Mistral3, FamilyReader::Decoder(&wired::PLAIN)),
    &class("qwen2_moe", Architecture::Qwen2Moe, FamilyReader::Decoder(&wired::QWEN2_MOE)),
    &class("glm", Architecture::Glm4, FamilyReader::Decoder(&wired::GLM)),
    &class("glm4", Architecture::Glm4, FamilyReader::Decoder(&wired::GLM4)),
    &decoder("sarvam_moe", &wired::SARVAM),
    &class("glm4_moe", Architecture::Glm4Moe, FamilyReader::Decoder(&wired::GLM4_MOE)),
    &class("minimax_m2", Architecture::MiniMaxM2, FamilyReader::Decoder(&wired::MINIMAX_M2)),
    &class("deepseek", Architecture::DeepSeek, FamilyReader::Decoder(&wired::SHARED_EXPERTS)),
    &class("olmo2", Architecture::Olmo2, FamilyReader::Decoder(&wired::OLMO2)),
    &class("olmo3", Architecture::Olmo2, FamilyReader::Decoder(&wired::OLMO2)),
    &class("exaone4", Architecture::Exaone4, FamilyReader::Decoder(&wired::NORMED_HEADS)),
    &decoder("exaone_moe", &wired::NORMED_SHARED_EXPERTS),
    &decoder("dots1", &wired::NORMED_SHARED_EXPERTS),
    &decoder("hy_v3", &wired::NORMED_SHARED_EXPERTS),
    &decoder("solar_open", &wired::BIASED_ROUTER),
    &decoder("mellum", &wired::NORMED_EXPERTS),
    &decoder("olmoe", &wired::OLMOE),
    &decoder("flex_olmo", &wired::OLMOE),
    &decoder("afmoe", &wired::AFMOE),
    &decoder("laguna", &wired::LAGUNA),
    &decoder("bailing_moe", &wired::BAILING),
    &decoder("hunyuan_v1_dense", &wired::HUNYUAN),
    &decoder("hunyuan", &wired::HUNYUAN_MOE),
    &decoder("hunyuan_v1_moe", &wired::HUNYUAN_MOE),
    &decoder("ernie4_5", &wired::ERNIE),
    &decoder("ernie4_5_moe", &wired::ERNIE_MOE),
    &decoder("phimoe", &wired::PHI_MOE),
    &decoder("granite", &wired::PLAIN),
    &decoder("granitemoe", &wired::WIDE_EXPERTS),
    &decoder("granitemoeshared", &wired::WIDE_EXPERTS),
    &decoder("granite_swa", &wired::SINKS),
    &decoder("hyperclovax", &wired::PERI_NORM),
    &decoder("seed_oss", &wired::SEED),
    &decoder("smollm3", &wired::PLAIN),
    &decoder("helium", &wired::PLAIN),
    &decoder("cwm", &wired::PLAIN),
    &decoder("arcee", &wired::SQUARED),
    &decoder("apertus", &wired::APERTUS),
    &decoder("nemotron", &wired::NEMOTRON),
    &decoder("jais2", &wired::NEMOTRON),
    &decoder("cohere", &wired::COHERE),
    &decoder("cohere2", &wired::COHERE),
    &decoder("cohere2_moe", &wired::COHERE_MOE),
    &decoder("stablelm", &wired::STABLE_LM),
    &decoder("starcoder2", &wired::STARCODER2),
    &decoder("vaultgemma", &wired::VAULT_GEMMA),
    &decoder("aria_text", &wired::WIDE_EXPERTS),
    &decoder("flint", &wired::NORMED_SINKS),
    &decoder("kolibri1", &wired::SANDWICH),
    &decoder("granitemoe_swa", &wired::SINKS_EXPERTS),
    &decoder("nanochat", &wired::SQUARED),
    &decoder("olmo", &wired::PLAIN),
    &decoder("step3p5", &wired::STEP),
    &decoder("muse_glimmer_text", &wired::MUSE),
    &decoder("muse_spark_text", &wired::MUSE_EXPERTS),
    &decoder("molmo2_text", &wired::NORMED_HEADS),
    &decoder("cosmos3_edge_text", &wired::SQUARED),
    &decoder("exaone", &wired::PLAIN),
    &class("sarvam_mla", Architecture::DeepSeekV3, FamilyReader::Latent),
    &class("deepseek_v32", Architecture::DeepSeekV32, FamilyReader::Latent),
    &class("glm_moe_dsa", Architecture::GlmMoeDsa, FamilyReader::Latent),
    &class("glm4_moe_lite", Architecture::DeepSeekV3, FamilyReader::Latent),
    &class("youtu", Architecture::DeepSeekV3, FamilyReader::Latent),
    &class("axk1", Architecture::Decoder, FamilyReader::Latent),
    &class("mistral4", Architecture::Decoder, FamilyReader::Latent),
    &class("mistral_large4_text", Architecture::Decoder, FamilyReader::Latent),
    &class("hy_v4", Architecture::Decoder, FamilyReader::Latent),
    &FamilyDefaults {
        keys: FamilyKeys { layers: "num_layers", intermediate: "ffn_hidden_size", ..LLAMA_KEYS },
        ..class("longcat_flash", Architecture::Decoder, FamilyReader::Latent)
    },
    &class("minicpm3", Architecture::DeepSeekV2, FamilyReader::Latent),
    &class("deepseek_v4", Architecture::DeepSeekV4, FamilyReader::Compressed),
    &class("kimi_linear", Architecture::KimiLinear, FamilyReader::KimiDelta),
    &class("bailing_hybrid", Architecture::Decoder, FamilyReader::KimiDelta),
    &class("glm5_next_text", Architecture::Decoder, FamilyReader::KimiDelta),
    &class("qwen3_next", Architecture::Qwen3Next, FamilyReader::GatedDelta),
    &class("qwen3_5_text", Architecture::Qwen35, FamilyReader::GatedDelta),
    &class("qwen3_5_moe_text", Architecture::Qwen35, FamilyReader::GatedDelta),
    &class("olmo_hybrid", Architecture::OlmoHybrid, FamilyReader::GatedDelta),
    &class("nemotron_h", Architecture::NemotronH, FamilyReader::OneSublayer),
    &class("granitemoehybrid", Architecture::GraniteHybrid, FamilyReader::Mamba),
    &class("bamba", Architecture::GraniteHybrid, FamilyReader::Mamba),
    &class("falcon_h1", Architecture::Decoder, FamilyReader::Mamba),
    &class("jamba", Architecture::Jamba, FamilyReader::Mamba),
    &class("lfm2", Architecture::Lfm2, FamilyReader::ShortConvolution),
    &class("lfm2_moe", Architecture::Lfm2, FamilyReader::ShortConvolution),
    &class("lfm3", Architecture::Decoder, FamilyReader::ShortConvolution),
    &class("llama4_text", Architecture::Llama4, FamilyReader::Llama4),
    &class("gemma3n_text", Architecture::Gemma3n, FamilyReader::LayeredGemma),
    &class("gemma4_unified_text", Architecture::Gemma4, FamilyReader::LayeredGemma),
    &class("gemma4_text", Architecture::Gemma4, FamilyReader::LayeredGemma),
    &class("mimo_v2_flash", Architecture::MiMoV2, FamilyReader::MiMo),
    &class("minimax_m3", Architecture::MiniMaxM3, FamilyReader::MiniMaxM3),
];
