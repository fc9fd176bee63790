//! All families, found by their model types.

use crate::model::config::families::classes::CLASSES;
use crate::model::config::families::defaults::FIRST_FAMILIES;
use crate::model::config::families::family::FamilyDefaults;

impl FamilyDefaults {
    /// Every family.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FIRST_FAMILIES.into_iter().chain(CLASSES)
    }

    /// The family of `model_type`, which may be another name of it.
    pub fn find(model_type: &str) -> Option<&'static Self> {
        let name =
            ALIASES.into_iter().find(|(alias, _)| *alias == model_type).map_or(model_type, |(_, of)| of);
        Self::all().find(|family| family.model_type == name)
    }
}

/// Model types with the keys and the wiring of another one.
const ALIASES: [(&str, &str); 32] = [
    ("kimi_k2", "deepseek_v3"),
    ("ministral3", "mistral"),
    ("iquestcoder", "llama"),
    ("internlm3", "llama"),
    ("mimo", "qwen2"),
    ("qwen2_vl", "qwen2"),
    ("qwen2_vl_text", "qwen2"),
    ("qwen2_5_vl", "qwen2"),
    ("qwen2_5_vl_text", "qwen2"),
    ("qwen2_5_omni_text", "qwen2"),
    ("qwen3_vl_text", "qwen3"),
    ("qwen3_vl_moe_text", "qwen3_moe"),
    ("qwen3_omni_moe_text", "qwen3_moe"),
    ("glm4v_text", "glm4"),
    ("glm4v_moe_text", "glm4_moe"),
    ("glm46v_text", "glm4_moe"),
    ("glm_ocr_text", "glm4"),
    ("ernie4_5_moe_vl", "ernie4_5_moe"),
    ("bailing_moe_v2", "bailing_moe"),
    ("minimax_m3_vl_text", "minimax_m3"),
    ("minimax_m2_5", "minimax_m2"),
    ("dots_moe", "dots1"),
    ("lfm2_moe_text", "lfm2_moe"),
    ("hunyuan_vl_text", "hunyuan_v1_dense"),
    ("ernie4_5_vl_moe_text", "ernie4_5_moe"),
    ("paddleocr_vl_text", "ernie4_5"),
    ("granite4_vision_text", "granite"),
    ("granite_docling_text", "granite"),
    ("emu3_text_model", "llama"),
    ("hy_v4_vl_text", "hy_v4"),
    ("cohere_compass_text", "cohere2"),
    ("deepseek_ocr2_text", "deepseek"),
];
