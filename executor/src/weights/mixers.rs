//! The tensors of mixers other than plain attention, of gated attention, and of shared experts.

use crate::weights::fused::{FusedTensor, SublayerTensors, Tensor, TensorRows};
use crate::weights::names::TensorNames;
use crate::weights::plain_tensors::network_matrices;
use scenarios::{Architecture, LatentAttention, Mixer, Model, Recurrence};

/// The matrices in front of a layer's mixer; `norm` is the norm in front of them.
pub(super) fn front_tensors(model: &Model, names: &TensorNames, norm: Vec<FusedTensor>) -> SublayerTensors {
    match model.mixer {
        Mixer::Latent(latent) => latent_front(model, names, latent, norm),
        Mixer::Recurrent(recurrence) => {
            SublayerTensors { matrices: vec![recurrent_front(model, names, recurrence)], vectors: norm }
        }
        Mixer::Attention | Mixer::Compressed(_) => gated_front(model, names, norm),
    }
}

/// The vectors of a layer's mixer.
pub(super) fn mixer_tensors(model: &Model, names: &TensorNames) -> SublayerTensors {
    let vectors = match model.mixer {
        Mixer::Latent(latent) => {
            let rows = model.heads * (latent.nope_dim + latent.v_dim);
            vec![tensor(names, "self_attn.kv_b_proj.weight", &[rows, latent.kv_rank])]
        }
        Mixer::Recurrent(Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps }) => {
            let channels = 2 * key_heads * key_dim + value_heads * value_dim;
            vec![
                tensor(names, "linear_attn.conv1d.weight", &[channels, 1, taps]),
                tensor(names, "linear_attn.A_log", &[value_heads]),
                tensor(names, "linear_attn.dt_bias", &[value_heads]),
                tensor(names, "linear_attn.norm.weight", &[value_dim]),
            ]
        }
        Mixer::Recurrent(Recurrence::Mamba2 { heads, head_dim, groups, state, taps }) => {
            let (inner, channels) = (heads * head_dim, heads * head_dim + 2 * groups * state);
            vec![
                tensor(names, "mixer.conv1d.weight", &[channels, 1, taps]),
                tensor(names, "mixer.conv1d.bias", &[channels]),
                tensor(names, "mixer.A_log", &[heads]),
                tensor(names, "mixer.dt_bias", &[heads]),
                tensor(names, "mixer.D", &[heads]),
                tensor(names, "mixer.norm.weight", &[inner]),
            ]
        }
        _ => unreachable!("`check_runnable` refuses other mixers"),
    };
    SublayerTensors { matrices: vec![], vectors }
}

/// The matrices of the shared expert, and its gate where it has one.
pub(super) fn shared_expert_tensors(model: &Model, names: &TensorNames) -> SublayerTensors {
    let experts = model.experts.as_ref().expect("only models with experts have a shared one");
    let own = names.shared_expert;
    let parts = ["gate_proj", "up_proj", "down_proj"].map(|name| format!("{own}.{name}"));
    let gated = || tensor(names, &format!("{own}_gate.weight"), &[1, model.hidden]);
    SublayerTensors {
        matrices: network_matrices(model, names, &parts, experts.shared).to_vec(),
        vectors: if experts.shared_gate { vec![gated()] } else { vec![] },
    }
}

/// q (in two steps, where it is expanded from a shorter vector), and the latent vector with the
/// rotated key.
fn latent_front(
    model: &Model,
    names: &TensorNames,
    latent: LatentAttention,
    mut vectors: Vec<FusedTensor>,
) -> SublayerTensors {
    let matrix = |name: &str, rows, columns| names.matrix(&[name], 1, &[rows], columns);
    let queries = model.heads * model.head_dim;
    let mut matrices = match latent.q_rank {
        Some(rank) => vec![
            matrix("self_attn.q_a_proj", rank, model.hidden),
            matrix("self_attn.q_b_proj", queries, rank),
        ],
        None => vec![matrix("self_attn.q_proj", queries, model.hidden)],
    };
    matrices.push(matrix("self_attn.kv_a_proj_with_mqa", latent.kv_numbers(), model.hidden));
    vectors.extend(latent.q_rank.map(|rank| tensor(names, "self_attn.q_a_layernorm.weight", &[rank])));
    vectors.push(tensor(names, "self_attn.kv_a_layernorm.weight", &[latent.kv_rank]));
    SublayerTensors { matrices, vectors }
}

/// The rows of q, k, v, z, b and a of a gated delta net, in this order; those of x, B, C, z and Δ
/// of Mamba-2, whose checkpoint has z first.
fn recurrent_front(model: &Model, names: &TensorNames, recurrence: Recurrence) -> FusedTensor {
    if let Recurrence::Mamba2 { heads, head_dim, groups, state, .. } = recurrence {
        let rows = [heads * head_dim, heads * head_dim + 2 * groups * state, heads];
        let name = format!("{}mixer.in_proj.weight", names.layer);
        let mut sources = TensorRows::grouped(&name, 1, &rows, model.hidden);
        sources.swap(0, 1);
        return FusedTensor { sources, interleaved: false };
    }
    let Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, .. } = recurrence else {
        unreachable!("`check_runnable` refuses other recurrences")
    };
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let name = |name: &str| format!("{}linear_attn.{name}.weight", names.layer);
    let sources = if model.architecture == Architecture::Qwen3Next {
        // Each head of keys has its part of everything.
        let mut sources = TensorRows::grouped(
            &name("in_proj_qkvz"),
            key_heads,
            &[keys, keys, values, values],
            model.hidden,
        );
        sources.extend(TensorRows::grouped(
            &name("in_proj_ba"),
            key_heads,
            &[value_heads, value_heads],
            model.hidden,
        ));
        sources
    } else {
        let rows = [
            ("in_proj_qkv", 2 * keys + values),
            ("in_proj_z", values),
            ("in_proj_b", value_heads),
            ("in_proj_a", value_heads),
        ];
        rows.map(|(part, rows)| TensorRows::grouped(&name(part), 1, &[rows], model.hidden)).concat()
    };
    FusedTensor { sources, interleaved: false }
}

/// q, k, v and the gate of the output. The checkpoint has the gate of each head behind its query.
fn gated_front(model: &Model, names: &TensorNames, mut vectors: Vec<FusedTensor>) -> SublayerTensors {
    let (queries, hidden) = (model.heads * model.head_dim, model.hidden);
    let sources = |kind: &str, hidden: Option<u64>| {
        let name = |part: &str| format!("{}self_attn.{part}_proj.{kind}", names.layer);
        let columns = hidden.unwrap_or(1);
        let own = |rows: u64, part: &str| TensorRows::grouped(&name(part), 1, &[rows], columns);
        let gated = TensorRows::grouped(&name("q"), model.heads, &[queries, queries], columns);
        let mut sources = vec![gated[0].clone()];
        sources.extend(own(model.kv_width(), "k"));
        sources.extend(own(model.kv_width(), "v"));
        sources.push(gated[1].clone());
        if hidden.is_none() {
            sources.iter_mut().for_each(|share| share.tensor.shape.truncate(1));
        }
        FusedTensor { sources, interleaved: false }
    };
    if model.qkv_bias {
        vectors.push(sources("bias", None));
    }
    SublayerTensors { matrices: vec![sources("weight", Some(hidden))], vectors }
}

fn tensor(names: &TensorNames, name: &str, shape: &[u64]) -> FusedTensor {
    let name = format!("{}{name}", names.layer);
    FusedTensor::whole([Tensor { name, shape: shape.to_vec(), plus_one: false }])
}
