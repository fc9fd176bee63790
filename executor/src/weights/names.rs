//! The names of tensors in each model family.

use crate::weights::fused::{FusedTensor, Tensor, TensorRows};
use crate::weights::mtp_names::ModuleNames;
use scenarios::{Architecture, BlockOrder, Mixer, Model};

/// The names of a layer's tensors, and of those outside the layers.
pub(crate) struct TensorNames {
    /// Prefix of all names but the head's.
    pub root: &'static str,
    pub embed: &'static str,
    pub layer: String,
    pub attn_norm: &'static str,
    /// Three names, or the one tensor that q, k and v share.
    pub qkv: &'static [&'static str],
    /// Groups of heads in a tensor that q, k and v share. In each group q, k and v follow one
    /// another.
    pub groups: u64,
    pub out: &'static str,
    pub ffn_norm: &'static str,
    /// The norms behind attention and behind the feed-forward network, in models that have them.
    pub norms_behind: [&'static str; 2],
    /// Gate and up, the one tensor that they share, or up alone.
    pub up: &'static [&'static str],
    pub down: &'static str,
    pub router: &'static str,
    /// The correction of the router's choice.
    pub correction: &'static str,
    /// The name before an expert's number, and the names after it.
    pub experts: &'static str,
    pub expert: [&'static str; 3],
    pub shared_expert: &'static str,
    pub head_norm: &'static str,
    pub head: &'static str,
}

/// The scores of a layer's heads that no token has.
pub(crate) const SINKS: &str = "self_attn.sinks";

const QKV: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];

impl TensorNames {
    /// The matrices of these projections of the layer; `rows` has the number of rows of each. Every
    /// matrix is a tensor, or all are in one tensor, in `groups` groups, where there is one
    /// projection.
    pub fn matrix(&self, projections: &[&str], groups: u64, rows: &[u64], columns: u64) -> FusedTensor {
        let name = |projection: &str| format!("{}{projection}.weight", self.layer);
        if let ([shared], [_, _, ..]) = (projections, rows) {
            let sources = TensorRows::grouped(&name(shared), groups, rows, columns);
            return FusedTensor { sources, interleaved: false };
        }
        let tensor = |(projection, &rows): (&&str, &u64)| Tensor {
            name: name(projection),
            shape: vec![rows, columns],
            plus_one: false,
        };
        FusedTensor::whole(projections.iter().zip(rows).map(tensor))
    }

    /// Llama's names, which most later families use, with the prefixes of `model` and `layer`.
    fn llama(model: &Model, layer: Option<u32>) -> Self {
        let (root, layers) = match model.architecture {
            Architecture::Opt => ("model.decoder.", "layers"),
            Architecture::GptNeoX => ("gpt_neox.", "layers"),
            Architecture::NemotronH => ("backbone.", "layers"),
            Architecture::GptJ | Architecture::Falcon => ("transformer.", "h"),
            _ => ("model.", "layers"),
        };
        let layer = layer.map_or_else(String::new, |layer| {
            ModuleNames::new(model).map_or_else(|| format!("{root}{layers}.{layer}."), |names| names.layer)
        });
        let mixtral = matches!(model.architecture, Architecture::Mixtral | Architecture::MiniMaxM2);
        // Qwen's shared expert has a gate and another name than DeepSeek's and GLM's.
        let several = model.experts.as_ref().is_some_and(|experts| !experts.shared_gate);
        Self {
            root,
            embed: "embed_tokens",
            layer,
            attn_norm: "input_layernorm",
            qkv: QKV,
            groups: 1,
            out: match model.mixer {
                Mixer::Recurrent(_) => "linear_attn.out_proj",
                _ => "self_attn.o_proj",
            },
            ffn_norm: if model.wiring.norms_behind {
                "pre_feedforward_layernorm"
            } else {
                "post_attention_layernorm"
            },
            norms_behind: ["post_attention_layernorm", "post_feedforward_layernorm"],
            up: &["mlp.gate_proj", "mlp.up_proj"],
            down: "mlp.down_proj",
            router: if mixtral { "block_sparse_moe.gate" } else { "mlp.gate" },
            correction: if mixtral {
                "block_sparse_moe.e_score_correction_bias"
            } else {
                "mlp.gate.e_score_correction_bias"
            },
            experts: if mixtral { "block_sparse_moe.experts" } else { "mlp.experts" },
            expert: if mixtral { ["w1", "w3", "w2"] } else { ["gate_proj", "up_proj", "down_proj"] },
            shared_expert: if several { "mlp.shared_experts" } else { "mlp.shared_expert" },
            head_norm: "norm",
            head: "lm_head",
        }
    }

    /// The names for `layer` of `model`.
    pub fn new(model: &Model, layer: Option<u32>) -> Self {
        let llama = Self::llama(model, layer);
        match model.architecture {
            Architecture::Opt => Self {
                attn_norm: "self_attn_layer_norm",
                out: "self_attn.out_proj",
                ffn_norm: "final_layer_norm",
                up: &["fc1"],
                down: "fc2",
                head_norm: "final_layer_norm",
                ..llama
            },
            Architecture::Phi => Self {
                out: "self_attn.dense",
                up: &["mlp.fc1"],
                down: "mlp.fc2",
                head_norm: "final_layernorm",
                ..llama
            },
            Architecture::Phi3 => Self { qkv: &["self_attn.qkv_proj"], up: &["mlp.gate_up_proj"], ..llama },
            Architecture::GptNeoX => Self {
                embed: "embed_in",
                qkv: &["attention.query_key_value"],
                groups: model.kv_heads,
                out: "attention.dense",
                head_norm: "final_layer_norm",
                head: "embed_out",
                ..llama.with_4h()
            },
            Architecture::GptJ => Self {
                embed: "wte",
                attn_norm: "ln_1",
                qkv: &["attn.q_proj", "attn.k_proj", "attn.v_proj"],
                out: "attn.out_proj",
                up: &["mlp.fc_in"],
                down: "mlp.fc_out",
                head_norm: "ln_f",
                ..llama
            },
            Architecture::Falcon => {
                let two = model.wiring.block == BlockOrder::Parallel;
                Self {
                    embed: "word_embeddings",
                    attn_norm: if two { "ln_attn" } else { llama.attn_norm },
                    qkv: &["self_attention.query_key_value"],
                    groups: model.kv_heads,
                    out: "self_attention.dense",
                    ffn_norm: if two { "ln_mlp" } else { llama.ffn_norm },
                    head_norm: "ln_f",
                    ..llama.with_4h()
                }
            }
            Architecture::GptOss => Self { router: "mlp.router", ..llama },
            Architecture::Llama4 => Self {
                up: &["feed_forward.gate_proj", "feed_forward.up_proj"],
                down: "feed_forward.down_proj",
                router: "feed_forward.router",
                experts: "feed_forward.experts",
                shared_expert: "feed_forward.shared_expert",
                ..llama
            },
            Architecture::Gemma4 => {
                Self { router: "router.proj", experts: "experts", shared_expert: "mlp", ..llama }
            }
            Architecture::NemotronH => llama.of_nemotron(model),
            // Models that `check_runnable` refuses never get here.
            _ => llama,
        }
    }

    /// Nemotron-H's names: every layer has one sublayer, its mixer.
    fn of_nemotron(self, model: &Model) -> Self {
        let recurrent = matches!(model.mixer, Mixer::Recurrent(_));
        Self {
            embed: "embeddings",
            attn_norm: "norm",
            qkv: &["mixer.q_proj", "mixer.k_proj", "mixer.v_proj"],
            out: if recurrent { "mixer.out_proj" } else { "mixer.o_proj" },
            ffn_norm: "norm",
            up: &["mixer.up_proj"],
            down: "mixer.down_proj",
            router: "mixer.gate",
            correction: "mixer.gate.e_score_correction_bias",
            experts: "mixer.experts",
            shared_expert: "mixer.shared_experts",
            head_norm: "norm_f",
            ..self
        }
    }

    /// The feed-forward matrices under Megatron-LM's names.
    fn with_4h(self) -> Self {
        Self { up: &["mlp.dense_h_to_4h"], down: "mlp.dense_4h_to_h", ..self }
    }
}
