//! Hugging Face's names for the tensors of a GGUF file.

use crate::weights::names::{SINKS, TensorNames};
use scenarios::{Architecture, BlockOrder, Mixer, Model, Recurrence};

/// The name of a tensor outside the layers.
pub(super) fn outside_layers(word: &str, names: &TensorNames) -> Option<String> {
    let rooted = |name: &str| Some(format!("{}{name}", names.root));
    match word {
        "token_embd" => rooted(names.embed),
        "output_norm" => rooted(names.head_norm),
        "output" => Some(names.head.to_owned()),
        "per_layer_token_embd" => rooted("embed_tokens_per_layer"),
        "per_layer_model_proj" => rooted("per_layer_model_projection"),
        "per_layer_proj_norm" => rooted("per_layer_projection_norm"),
        _ => None,
    }
}

/// The name, without their numbers, of the tensors that one outside the layers holds.
pub(super) fn stack_outside_layers(word: &str, names: &TensorNames) -> Option<String> {
    let stack = match word {
        "altup_proj" => "altup_projections",
        "altup_unembd_proj" => "altup_unembed_projections",
        _ => return None,
    };
    Some(format!("{}{stack}", names.root))
}

/// The name of a layer's tensor `word.kind` behind the layer's; `model` has the layer's shape.
pub(super) fn within_layer(word: &str, kind: &str, names: &TensorNames, model: &Model) -> Option<String> {
    if let Some(whole) = whole_name(word, kind, names, model) {
        return Some(whole);
    }
    let name = shared_expert(word, names).or_else(|| mixer(word, model).map(str::to_owned));
    name.or_else(|| plain(word, names, model).map(str::to_owned)).map(|name| format!("{name}.{kind}"))
}

/// Names that do not end in `weight` or `bias`.
fn whole_name(word: &str, kind: &str, names: &TensorNames, model: &Model) -> Option<String> {
    let own = |name: &str| Some(format!("{}.{name}", recurrence(model)));
    match (word, kind) {
        ("attn_sinks", _) => Some(SINKS.to_owned()),
        ("exp_probs_b", _) => Some(names.correction.to_owned()),
        ("altup_correct_scale", _) => Some("altup.correct_output_scale".to_owned()),
        ("layer_output_scale", _) => Some("layer_scalar".to_owned()),
        ("ffn_gate_inp", "scale") => Some("router.scale".to_owned()),
        ("ffn_down_exps", "scale") => Some("router.per_expert_scale".to_owned()),
        ("ssm_a", _) => own("A_log"),
        ("ssm_d", _) => own("D"),
        ("ssm_dt", "bias") => own("dt_bias"),
        _ => None,
    }
}

/// The name before those of a recurrence's tensors.
fn recurrence(model: &Model) -> &'static str {
    match model.mixer {
        Mixer::Recurrent(Recurrence::GatedDelta { .. }) => "linear_attn",
        _ => "mixer",
    }
}

/// A tensor of a layer's shared expert.
fn shared_expert(word: &str, names: &TensorNames) -> Option<String> {
    let part = match word {
        "ffn_gate_inp_shexp" => "_gate",
        "ffn_gate_shexp" => ".gate_proj",
        "ffn_up_shexp" => ".up_proj",
        "ffn_down_shexp" => ".down_proj",
        _ => return None,
    };
    Some(format!("{}{part}", names.shared_expert))
}

/// A tensor of latent attention, or of a recurrence.
fn mixer(word: &str, model: &Model) -> Option<&'static str> {
    let delta = recurrence(model) == "linear_attn";
    Some(match word {
        "attn_q_a" => "self_attn.q_a_proj",
        "attn_q_a_norm" => "self_attn.q_a_layernorm",
        "attn_q_b" => "self_attn.q_b_proj",
        "attn_kv_a_mqa" => "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm" => "self_attn.kv_a_layernorm",
        "attn_kv_b" => "self_attn.kv_b_proj",
        "attn_k_b" => "self_attn.k_b_proj",
        "attn_v_b" => "self_attn.v_b_proj",
        "attn_qkv" if delta => "linear_attn.in_proj_qkv",
        "attn_gate" if delta => "linear_attn.in_proj_z",
        "ssm_beta" => "linear_attn.in_proj_b",
        "ssm_alpha" => "linear_attn.in_proj_a",
        "ssm_ba" => "linear_attn.in_proj_ba",
        "ssm_in" if delta => "linear_attn.in_proj_qkvz",
        "ssm_conv1d" if delta => "linear_attn.conv1d",
        "ssm_norm" if delta => "linear_attn.norm",
        "ssm_out" if delta => "linear_attn.out_proj",
        "ssm_in" => "mixer.in_proj",
        "ssm_conv1d" => "mixer.conv1d",
        "ssm_norm" => "mixer.norm",
        "ssm_out" => "mixer.out_proj",
        _ => return None,
    })
}

/// A tensor that most families have, or Gemma.
fn plain(word: &str, names: &TensorNames, model: &Model) -> Option<&'static str> {
    let two = model.architecture == Architecture::Falcon && model.wiring.block == BlockOrder::Parallel;
    let at = |list: &'static [&'static str], index: usize| list.get(index).copied();
    Some(match word {
        // In GGUF files, Falcon's second norm is attention's.
        "attn_norm" if two => names.ffn_norm,
        "attn_norm_2" if two => names.attn_norm,
        "attn_norm" => names.attn_norm,
        "attn_q" | "attn_qkv" => at(names.qkv, 0)?,
        "attn_k" => at(names.qkv, 1)?,
        "attn_v" => at(names.qkv, 2)?,
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "attn_output" => names.out,
        // Where no norm is behind attention, it is the one in front of the network.
        "post_attention_norm" if !model.wiring.norms_behind => names.ffn_norm,
        "post_attention_norm" => names.norms_behind[0],
        "ffn_norm" => names.ffn_norm,
        "ffn_gate" => at(names.up, 0)?,
        "ffn_up" => names.up.last().copied()?,
        "ffn_down" => names.down,
        "post_ffw_norm" => names.norms_behind[1],
        "ffn_gate_inp" => names.router,
        "pre_ffw_norm_2" => "pre_feedforward_layernorm_2",
        "post_ffw_norm_1" => "post_feedforward_layernorm_1",
        "post_ffw_norm_2" => "post_feedforward_layernorm_2",
        "inp_gate" => "per_layer_input_gate",
        "proj" => "per_layer_projection",
        "post_norm" => "post_per_layer_input_norm",
        "laurel_l" => "laurel.linear_left",
        "laurel_r" => "laurel.linear_right",
        "laurel_post_norm" => "laurel.post_laurel_norm",
        "altup_correct_coef" => "altup.correction_coefs",
        "altup_predict_coef" => "altup.prediction_coefs",
        "altup_router" => "altup.modality_router",
        "altup_router_norm" => "altup.router_norm",
        _ => return None,
    })
}
