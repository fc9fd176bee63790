//! The names that llama.cpp gives a model's tensors.

use crate::model::architecture::Architecture;
use crate::model::mixer::Mixer;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;

/// A tensor of a sublayer by its name in GGUF files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTensor {
    /// Its whole name: `blk.3.ffn_down_exps.weight`.
    pub name: String,
    /// Its share of the numbers of the sublayer's matrix; 0 for norms and other vectors.
    pub numbers: u64,
}

impl Model {
    /// The tensors of `sublayer` in layer `layer` (of embed and head, in no layer), as llama.cpp
    /// names them.
    pub fn tensor_names(&self, layer: u64, sublayer: Sublayer) -> Vec<NamedTensor> {
        let (shape, prefix) = match sublayer {
            Sublayer::Embed | Sublayer::Head => (self, String::new()),
            _ => (self.layer(layer), format!("blk.{layer}.")),
        };
        let named = |(name, numbers)| NamedTensor { name: format!("{prefix}{name}.weight"), numbers };
        shape.short_names(sublayer).into_iter().map(named).collect()
    }

    fn short_names(&self, sublayer: Sublayer) -> Vec<(&'static str, u64)> {
        let (hidden, front) = (self.hidden, self.neuron_activations() - 1);
        let whole = sublayer.matrix(self).map_or(0, |(rows, columns)| rows * columns);
        match sublayer {
            Sublayer::Embed => vec![("token_embd", whole)],
            Sublayer::Qkv => self.front_names(whole),
            Sublayer::Attention => vec![("attn_sinks", 0)],
            Sublayer::Out => match self.mixer {
                Mixer::Recurrent(_) => vec![("ssm_out", whole)],
                _ => vec![("attn_output", whole), ("post_attention_norm", 0)],
            },
            Sublayer::FfnUp if front == 2 && self.architecture != Architecture::Phi3 => {
                vec![("ffn_gate", whole / 2), ("ffn_up", whole / 2), ("ffn_norm", 0)]
            }
            Sublayer::FfnUp => vec![("ffn_up", whole), ("ffn_norm", 0)],
            Sublayer::FfnDown => vec![("ffn_down", whole), ("post_ffw_norm", 0)],
            Sublayer::Router => vec![("ffn_gate_inp", whole), ("exp_probs_b", 0), ("ffn_norm", 0)],
            Sublayer::SharedExpert => {
                let width = self.experts.as_ref().map_or(0, |experts| experts.shared);
                let mut names = vec![("ffn_up_shexp", hidden * width), ("ffn_down_shexp", hidden * width)];
                names.extend((front == 2).then_some(("ffn_gate_shexp", hidden * width)));
                names.push(("ffn_gate_inp_shexp", 0));
                names
            }
            Sublayer::Experts => {
                let numbers = whole / (front + 1);
                let mut names = vec![("ffn_up_exps", numbers), ("ffn_down_exps", numbers)];
                names.extend((front == 2).then_some(("ffn_gate_exps", numbers)));
                names
            }
            Sublayer::Head if self.tied_embeddings => vec![("token_embd", whole), ("output_norm", 0)],
            Sublayer::Head => vec![("output", whole), ("output_norm", 0)],
        }
    }

    /// The names in front of a mixer, whose matrices have `whole` numbers together.
    fn front_names(&self, whole: u64) -> Vec<(&'static str, u64)> {
        let hidden = self.hidden;
        let queries = self.heads * self.head_dim;
        let mut names = match self.mixer {
            Mixer::Attention if joins_qkv(self.architecture) => vec![("attn_qkv", whole)],
            Mixer::Attention => {
                let kv = self.kv_width() * hidden;
                vec![("attn_q", whole.saturating_sub(2 * kv)), ("attn_k", kv), ("attn_v", kv)]
            }
            Mixer::Latent(latent) => {
                let down = ("attn_kv_a_mqa", latent.kv_numbers() * hidden);
                // The expansion is needed wherever attention is, and counts there.
                let expansion = [("attn_kv_b", 0), ("attn_k_b", 0), ("attn_v_b", 0)];
                let mut names = match latent.q_rank {
                    Some(rank) => vec![("attn_q_a", rank * hidden), ("attn_q_b", queries * rank)],
                    None => vec![("attn_q", queries * hidden)],
                };
                names.extend([down, ("attn_q_a_norm", 0), ("attn_kv_a_norm", 0)]);
                names.extend(expansion);
                names
            }
            Mixer::Compressed(compressed) => vec![
                ("attn_q_a", compressed.q_rank * hidden),
                ("attn_q_b", queries * compressed.q_rank),
                ("attn_kv", self.head_dim * hidden),
            ],
            Mixer::Recurrent(_) => vec![("attn_qkv", whole), ("attn_gate", 0), ("ssm_in", 0), ("ssm_ba", 0)],
        };
        names.extend([("attn_norm", 0), ("attn_q_norm", 0), ("attn_k_norm", 0)]);
        names
    }
}

/// Whether GGUF files have q, k and v in one tensor.
pub(crate) fn joins_qkv(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Phi3 | Architecture::GptNeoX | Architecture::Falcon)
}
