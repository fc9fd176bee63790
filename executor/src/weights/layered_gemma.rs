//! The tensors of Gemma 3n's and Gemma 4's sublayers where they differ from Gemma 3's.

use crate::weights::fused::{FusedTensor, SublayerTensors, Tensor, TensorRows};
use crate::weights::mixers;
use crate::weights::names::TensorNames;
use crate::weights::plain_tensors::{embed_tensors, expert_matrices, experts, head_norms, norm, with_biases};
use scenarios::{Architecture, Model, Sublayer};

/// Whether [`tensors`] describes the sublayer.
pub(super) fn has_own(model: &Model, sublayer: Sublayer) -> bool {
    let dense = model.experts.is_none();
    matches!(model.architecture, Architecture::Gemma3n | Architecture::Gemma4)
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
        Sublayer::FfnDown => down_tensors(model, names, layer),
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
    let own = norm(model, format!("{}{}", names.layer, names.attn_norm));
    let mut tensors = with_biases(matrix, model.qkv_bias, own);
    if let Some(streams) = model.wiring.predicted_streams {
        tensors.vectors.extend(stream_router(model, names, streams));
        let predicted = format!("{}altup.prediction_coefs.weight", names.layer);
        tensors.vectors.push(FusedTensor::one(predicted, vec![streams * streams, streams]));
    }
    if let Some(rank) = model.wiring.low_rank_residual {
        let matrix = |name: &str, rows, columns| names.matrix(&[name], 1, &[rows], columns);
        tensors.matrices.push(matrix("laurel.linear_left", rank, model.hidden));
        tensors.matrices.push(matrix("laurel.linear_right", model.hidden, rank));
        tensors.vectors.extend(norm(model, format!("{}laurel.post_laurel_norm", names.layer)));
    }
    tensors
}

/// The router of predicted streams, and the norm in front of it.
fn stream_router(model: &Model, names: &TensorNames, streams: u64) -> Vec<FusedTensor> {
    let mut router = norm(model, format!("{}altup.router_norm", names.layer));
    let name = format!("{}altup.modality_router.weight", names.layer);
    router.push(FusedTensor::one(name, vec![streams, model.hidden]));
    router
}

/// The projections of all residual streams but the first: to them, or back from them.
fn stream_projections(model: &Model, names: &TensorNames, way: &str) -> Vec<FusedTensor> {
    let name = |stream: u64| format!("{}altup_{way}.{stream}.weight", names.root);
    let one = |stream| FusedTensor::one(name(stream), vec![model.hidden, model.hidden]);
    (1..model.wiring.predicted_streams.unwrap_or(0)).map(|stream| one(stream - 1)).collect()
}

/// The token table, the table with an embedding of each token for each layer, and the projections
/// to predicted streams.
fn with_layer_table(model: &Model, names: &TensorNames) -> SublayerTensors {
    let width = model.wiring.layer_embedding.unwrap_or(0) * model.layers;
    let name = format!("{}embed_tokens_per_layer.weight", names.root);
    let own = model.wiring.layer_embedding_tokens.unwrap_or(model.vocab);
    let table = Tensor { name, shape: vec![own, width], plus_one: false };
    let mut fused = FusedTensor::whole([table.clone()]);
    if own < model.vocab {
        fused.sources.push(TensorRows::repeated(table, 0, model.vocab - own));
    }
    let mut tensors = embed_tensors(model, names);
    tensors.matrices.push(fused);
    tensors.matrices.extend(stream_projections(model, names, "projections"));
    tensors
}

/// Down; and where the layer has an embedding of its own: its gate, its share of the projection
/// that all layers have in one tensor, and its projection back. What corrects predicted streams,
/// and in the last layer joins them.
fn down_tensors(model: &Model, names: &TensorNames, layer: Option<u32>) -> SublayerTensors {
    let matrix = |name: &str, rows, columns| names.matrix(&[name], 1, &[rows], columns);
    let vector = |name: &str, shape| FusedTensor::one(format!("{}{name}", names.layer), shape);
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
    if let Some(streams) = model.wiring.predicted_streams {
        vectors.extend(stream_router(model, names, streams));
        vectors.push(vector("altup.correction_coefs.weight", vec![streams, streams]));
        vectors.push(vector("altup.correct_output_scale", vec![model.hidden]));
        if model.wiring.joins_streams {
            matrices.extend(stream_projections(model, names, "unembed_projections"));
        }
    }
    if model.wiring.layer_scale {
        vectors.push(vector("layer_scalar", vec![1]));
    }
    SublayerTensors { matrices, vectors }
}
