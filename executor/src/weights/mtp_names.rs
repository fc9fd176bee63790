//! The names of the tensors of MTP modules, which predict the token after the next.

use crate::error::ExecutorError;
use scenarios::{Architecture, Model};

/// How a family names the tensors of its module.
pub(super) struct ModuleNames {
    /// The prefix of its layer's tensors.
    pub layer: String,
    /// The prefix of the names below.
    prefix: String,
    embedding_norm: &'static str,
    hidden_norm: &'static str,
    projection: &'static str,
    norm: &'static str,
}

impl ModuleNames {
    /// The names of `model`'s tensors; `None` where it is no module.
    pub fn new(model: &Model) -> Option<Self> {
        let layers = model.wiring.module_behind?;
        Some(match model.architecture {
            Architecture::Qwen3Next | Architecture::Qwen35 => Self {
                layer: "mtp.layers.0.".to_owned(),
                prefix: "mtp.".to_owned(),
                embedding_norm: "pre_fc_norm_embedding",
                hidden_norm: "pre_fc_norm_hidden",
                projection: "fc",
                norm: "norm",
            },
            // DeepSeek-V3's names, which GLM-4.5 has too: the module is one more layer.
            _ => Self {
                layer: format!("model.layers.{layers}."),
                prefix: format!("model.layers.{layers}."),
                embedding_norm: "enorm",
                hidden_norm: "hnorm",
                projection: "eh_proj",
                norm: "shared_head.norm",
            },
        })
    }

    /// The projection of embedding and hidden state.
    pub fn projection(&self) -> String {
        format!("{}{}.weight", self.prefix, self.projection)
    }

    /// The norms of the embedding and of the hidden state.
    pub fn input_norms(&self) -> [String; 2] {
        [self.embedding_norm, self.hidden_norm].map(|name| format!("{}{name}", self.prefix))
    }

    /// The norm in front of the head.
    pub fn head_norm(&self) -> String {
        format!("{}{}", self.prefix, self.norm)
    }

    /// Where a tensor that the module may share with its model is. DeepSeek-V3's shape has copies
    /// of token table and head, which some checkpoints leave out; a model whose head is its token
    /// table has no other head.
    pub fn places(&self, name: &str) -> Vec<String> {
        let copy = |part: &str| format!("{}{part}.weight", self.layer);
        match name {
            TABLE => vec![copy("embed_tokens"), name.to_owned()],
            HEAD => vec![copy("shared_head.head"), name.to_owned(), TABLE.to_owned()],
            _ => vec![name.to_owned()],
        }
    }
}

/// The model's token table and head.
const TABLE: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// Whether a module may share the tensor of this name with its model.
pub(super) fn is_shared(name: &str) -> bool {
    [TABLE, HEAD].contains(&name)
}

/// Refuses modules whose tensors have names that are not known here.
///
/// # Errors
/// [`ExecutorError::Refused`] names the families that run.
pub(super) fn check_family(module: &Model) -> Result<(), ExecutorError> {
    use Architecture::{DeepSeekV3, Glm4Moe, Qwen3Next, Qwen35};
    if matches!(module.architecture, DeepSeekV3 | Glm4Moe | Qwen3Next | Qwen35) {
        return Ok(());
    }
    let wanted = "modules of DeepSeek-V3, GLM-4.5, Qwen3-Next and Qwen3.5 run: name a draft model instead";
    Err(ExecutorError::refused("speculative.draft", format!("'{}'", module.name), wanted))
}
