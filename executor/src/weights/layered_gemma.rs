//! The tensors of Gemma 4's sublayers where they differ from Gemma 3's.

use crate::weights::fused::{FusedTensor, SublayerTensors, Tensor, TensorRows};
use crate::weights::mixers;
use crate::weights::names::TensorNames;
use crate::weights::plain_tensors::{embed_tensors, expert_matrices, experts, head_norms, norm, with_biases};
use scenarios::{Architecture, Model, Sublayer};

/// Whether [`tensors`] describes the sublayer.
pub(super) fn has_own(model: &Model, sublayer: Sublayer) -> bool {
    let dense = model.experts.is_none();
    model.architecture == Architecture::Gemma4
        && match sublayer {
            Sublayer::Embed => model.wiring.layer_embedding.is_some(),
            Sublayer::Qkv | Sublayer::Attention => true,
            Sublayer::FfnDown => dense,
            Sublayer::Router | Sublayer::SharedExpert | Sublayer::Experts => !dense,
            Sublayer::Out | Sublayer::FfnUp | Sublayer::Head => false,
        }
}

/// The tensors of a sublayer that has its own here.
pub(super) fn tensors(
    model: &Model,
    names: &TensorNames,
    layer: Option<u32>,
    sublayer: Sublayer,
) -> SublayerTensors {
    let inner = |name: &str| norm(model, format!("{}{name}", names.layer));
    let vector = |name: &str, len| FusedTensor::one(format!("{}{name}", names.layer), vec![len]);
    let scale = || vector("layer_scalar", 1);
    match sublayer {
        Sublayer::Embed => with_layer_table(model, names),
        Sublayer::Qkv => front_tensors(model, names),
        Sublayer::Attention => {
            let count = if model.wiring.shares_kv { 1 } else { 2 };
            let vectors = head_norms(model, names).into_iter().take(count).collect();
            SublayerTensors { matrices: vec![], vectors }
        }
        Sublayer::FfnDown => down_tensors(model, names, layer, scale()),
        Sublayer::Router => {
            let matrix = names.matrix(&[names.router], 1, &[experts(model).count], model.hidden);
            SublayerTensors { matrices: vec![matrix], vectors: vec![vector("router.scale", model.hidden)] }
        }
        Sublayer::SharedExpert => {
            let vectors = ["pre_feedforward_layernorm", "post_feedforward_layernorm_1"].map(inner).concat();
            SublayerTensors { vectors, ..mixers::shared_expert_tensors(model, names) }
        }
        Sublayer::Experts => {
            let count = experts(model).count;
            let mut vectors = ["pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"]
                .into_iter()
                .chain(["post_feedforward_layernorm"])
                .flat_map(inner)
                .collect::<Vec<_>>();
            vectors.extend([vector("router.per_expert_scale", count), scale()]);
            let matrices = (0..count).flat_map(|expert| expert_matrices(model, names, expert)).collect();
            SublayerTensors { matrices, vectors }
        }
        Sublayer::Out | Sublayer::FfnUp | Sublayer::Head => unreachable!("{sublayer} is Gemma 3's"),
    }
}

/// q alone, q and k, or all three.
fn front_tensors(model: &Model, names: &TensorNames) -> SublayerTensors {
    let (queries, kv) = (model.heads * model.head_dim, model.kv_width());
    let wiring = &model.wiring;
    let count = if wiring.shares_kv {
        1
    } else if wiring.keys_are_values {
        2
    } else {
        3
    };
    // One name would mean one tensor that all of them share.
    let matrix = names.matrix(&names.qkv[..count], 1, &[queries, kv, kv][..count], model.hidden);
    with_biases(matrix, model.qkv_bias, norm(model, format!("{}{}", names.layer, names.attn_norm)))
}

/// The token table, and the table with an embedding of each token for each layer.
fn with_layer_table(model: &Model, names: &TensorNames) -> SublayerTensors {
    let width = model.wiring.layer_embedding.unwrap_or(0) * model.layers;
    let name = format!("{}embed_tokens_per_layer.weight", names.root);
    let mut tensors = embed_tensors(model, names);
    tensors.matrices.push(FusedTensor::one(name, vec![model.vocab, width]));
    tensors
}

/// Down; and where the layer has an embedding of its own: its gate, its share of the projection
/// that all layers have in one tensor, and its projection back.
fn down_tensors(
    model: &Model,
    names: &TensorNames,
    layer: Option<u32>,
    scale: FusedTensor,
) -> SublayerTensors {
    let matrix = |name: &str, rows, columns| names.matrix(&[name], 1, &[rows], columns);
    let mut matrices = vec![matrix(names.down, model.hidden, model.intermediate)];
    let mut vectors = norm(model, format!("{}{}", names.layer, names.norms_behind[1]));
    if let (Some(width), Some(layer)) = (model.wiring.layer_embedding, layer) {
        let name = format!("{}per_layer_model_projection.weight", names.root);
        let all = Tensor { name, shape: vec![model.layers * width, model.hidden], plus_one: false };
        let share = TensorRows::part(all, u64::from(layer) * width, width);
        matrices.push(matrix("per_layer_input_gate", width, model.hidden));
        matrices.push(FusedTensor { sources: vec![share], interleaved: false });
        matrices.push(matrix("per_layer_projection", model.hidden, width));
        vectors.extend(norm(model, format!("{}post_per_layer_input_norm", names.layer)));
        vectors
            .push(FusedTensor::one(format!("{}per_layer_projection_norm.weight", names.root), vec![width]));
    }
    vectors.push(scale);
    SublayerTensors { matrices, vectors }
}
