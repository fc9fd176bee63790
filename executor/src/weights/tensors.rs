//! The tensors of a model.

use crate::error::ExecutorError;
use crate::weights::fused::{FusedTensor, SublayerTensors, Tensor, TensorRows};
use crate::weights::mixers;
use crate::weights::names::{SINKS, TensorNames};
use scenarios::{
    Activation, Architecture, BlockOrder, Experts, Mixer, Model, Norm, Positions, Recurrence, RouterScoring,
    Sublayer,
};

/// The tensors of `sublayer` of `layer` (`None` for embed and head).
pub(crate) fn sublayer_tensors(model: &Model, layer: Option<u32>, sublayer: Sublayer) -> SublayerTensors {
    let model = model.layer_or_ends(layer);
    let names = TensorNames::new(model, layer);
    let matrix =
        |projections: &[&str], rows: &[u64], columns| names.matrix(projections, names.groups, rows, columns);
    let (context, kv, hidden) = (model.context_width(), model.kv_width(), model.hidden);
    let behind = |half: usize| match model.wiring.norms_behind {
        true => norm(model, format!("{}{}", names.layer, names.norms_behind[half])),
        false => vec![],
    };
    match sublayer {
        Sublayer::Embed => embed_tensors(model, &names),
        Sublayer::Qkv if model.mixer != Mixer::Attention || model.wiring.output_gate => {
            let norm = norm(model, format!("{}{}", names.layer, names.attn_norm));
            mixers::front_tensors(model, &names, norm)
        }
        Sublayer::Attention if model.mixer != Mixer::Attention => mixers::mixer_tensors(model, &names),
        Sublayer::Qkv => with_biases(
            matrix(names.qkv, &[context, kv, kv], hidden),
            model.qkv_bias,
            norm(model, format!("{}{}", names.layer, names.attn_norm)),
        ),
        Sublayer::Attention => SublayerTensors { matrices: vec![], vectors: head_norms(model, &names) },
        Sublayer::Out => with_biases(matrix(&[names.out], &[hidden], context), model.out_bias, behind(0)),
        Sublayer::FfnUp => {
            let gated = model.activation.is_gated();
            let rows = [model.intermediate; 2];
            let mut up = names.matrix(names.up, 1, &rows[..1 + usize::from(gated)], hidden);
            up.interleaved = gated;
            let own = match model.wiring.block {
                BlockOrder::ParallelOneNorm => vec![],
                _ => norm(model, format!("{}{}", names.layer, names.ffn_norm)),
            };
            with_biases(up, model.ffn_bias, own)
        }
        Sublayer::FfnDown => {
            with_biases(matrix(&[names.down], &[hidden], model.intermediate), model.ffn_bias, behind(1))
        }
        Sublayer::Router => with_biases(
            matrix(&[names.router], &[experts(model).count], hidden),
            model.ffn_bias,
            router_vectors(model, &names),
        ),
        Sublayer::Experts => {
            let each = (0..experts(model).count).flat_map(|expert| expert_matrices(model, &names, expert));
            let matrices: Vec<_> = each.collect();
            let vectors = if model.ffn_bias { matrices.iter().map(bias).collect() } else { vec![] };
            SublayerTensors { matrices, vectors }
        }
        Sublayer::SharedExpert => mixers::shared_expert_tensors(model, &names),
        Sublayer::Head => {
            let embed = sublayer_tensors(model, None, Sublayer::Embed).matrices;
            let own = FusedTensor::one(format!("{}.weight", names.head), vec![model.vocab, hidden]);
            let norm = norm(model, format!("{}{}", names.root, names.head_norm));
            match model.tied_embeddings {
                true => SublayerTensors { matrices: embed, vectors: norm },
                false => with_biases(own, model.wiring.head_bias, norm),
            }
        }
    }
}

/// The norm in front of a router, and the correction of its choice.
fn router_vectors(model: &Model, names: &TensorNames) -> Vec<FusedTensor> {
    let mut vectors = norm(model, format!("{}{}", names.layer, names.ffn_norm));
    let experts = experts(model);
    if experts.scoring == RouterScoring::Sigmoid && experts.router_bias {
        let name = format!("{}{}", names.layer, names.correction);
        vectors.push(FusedTensor::one(name, vec![experts.count]));
    }
    vectors
}

/// The norms of queries and keys, and the heads' sinks, where the model has them.
fn head_norms(model: &Model, names: &TensorNames) -> Vec<FusedTensor> {
    let norm = |(name, heads): (&str, u64)| {
        let name = format!("{}self_attn.{name}.weight", names.layer);
        let plus_one = model.norm == Norm::RmsPlusOne;
        let heads = if model.wiring.norms_whole_qk { heads } else { 1 };
        FusedTensor::whole([Tensor { name, shape: vec![heads * model.head_dim], plus_one }])
    };
    let both = [("q_norm", model.heads), ("k_norm", model.kv_heads)];
    let norms = if model.qk_norm { both.map(norm).to_vec() } else { vec![] };
    // Kernels expect them behind the norms.
    let sinks = || FusedTensor::one(format!("{}{SINKS}", names.layer), vec![model.heads]);
    norms.into_iter().chain(model.wiring.sinks.then(sinks)).collect()
}

/// Refuses models without kernels and tensor names here. No checkpoint of such a model is made or
/// opened, so none is run.
///
/// # Errors
/// [`ExecutorError::Refused`] names the feature.
pub(crate) fn check_runnable(model: &Model) -> Result<(), ExecutorError> {
    let Some(feature) = model.shapes().iter().find_map(missing_feature) else { return Ok(()) };
    let wanted = "it can be planned and simulated, but not run: use a model without";
    Err(ExecutorError::refused("model", format!("'{}' with {feature}", model.name), wanted))
}

/// The token table and, where positions are learned, theirs.
fn embed_tensors(model: &Model, names: &TensorNames) -> SublayerTensors {
    let table = format!("{}{}.weight", names.root, names.embed);
    let positions = |offset| {
        let name = format!("{}embed_positions.weight", names.root);
        FusedTensor::one(name, vec![model.max_positions + offset, model.hidden])
    };
    SublayerTensors {
        matrices: vec![FusedTensor::one(table, vec![model.vocab, model.hidden])],
        vectors: match model.positions {
            Positions::Learned { offset } => vec![positions(offset)],
            _ => vec![],
        },
    }
}

/// The first feature of layers of `shape` that no kernel computes.
fn missing_feature(shape: &Model) -> Option<&'static str> {
    let wiring = &shape.wiring;
    let features = [
        (matches!(shape.mixer, Mixer::Compressed(_)), "compressed attention"),
        (
            matches!(shape.mixer, Mixer::Recurrent(recurrence) if !matches!(recurrence, Recurrence::GatedDelta { .. })),
            "a recurrence other than a gated delta net",
        ),
        (wiring.output_gate && shape.mixer != Mixer::Attention, "gated latent attention"),
        (
            shape.mixer != Mixer::Attention && shape.qkv_bias,
            "biases in front of another mixer than attention",
        ),
        (matches!(shape.activation, Activation::ReluSquared | Activation::Xielu), "another non-linearity"),
        (shape.architecture == Architecture::Decoder, "tensors of a family that is only counted"),
        (shape.index.is_some(), "an indexer"),
        (shape.experts.as_ref().is_some_and(|experts| experts.latent.is_some()), "latent experts"),
        (!shape.has_mixer() || !shape.has_network(), "layers of one sublayer"),
        (wiring.shares_kv || wiring.keys_are_values, "shared keys and values"),
        (wiring.value_dim.is_some(), "values of another width than keys"),
        (
            matches!(
                shape.architecture,
                Architecture::Olmo2 | Architecture::Exaone4 | Architecture::OlmoHybrid
            ),
            "norms behind its sublayers alone",
        ),
        (wiring.residual_streams.or(wiring.predicted_streams).is_some(), "several residual streams"),
        (wiring.layer_embedding.is_some(), "embeddings for each layer"),
    ];
    features.into_iter().find_map(|(present, feature)| present.then_some(feature))
}

/// Every sublayer of the model with its layer, in the order of computation.
pub(crate) fn sublayers(model: &Model) -> impl Iterator<Item = (Option<u32>, Sublayer)> + use<> {
    let kinds: Vec<_> = (0..model.layers).map(|layer| model.kind(layer)).collect();
    let inner = kinds
        .into_iter()
        .zip(0..)
        .flat_map(|(kind, layer)| kind.sublayers().iter().map(move |&sublayer| (Some(layer), sublayer)));
    std::iter::once((None, Sublayer::Embed)).chain(inner).chain(std::iter::once((None, Sublayer::Head)))
}

/// Every tensor of the model once, in the order of computation.
pub(crate) fn all_tensors(model: &Model) -> Vec<Tensor> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for (layer, sublayer) in sublayers(model) {
        if sublayer == Sublayer::Head && model.tied_embeddings {
            tensors.extend(
                sublayer_tensors(model, layer, sublayer).vectors.into_iter().flat_map(FusedTensor::tensors),
            );
            continue;
        }
        let SublayerTensors { matrices, vectors } = sublayer_tensors(model, layer, sublayer);
        tensors.extend(matrices.into_iter().chain(vectors).flat_map(FusedTensor::tensors));
    }
    tensors
}

/// One expert's gate joined with up, and its down.
fn expert_matrices(model: &Model, names: &TensorNames, expert: u64) -> [FusedTensor; 2] {
    let (width, hidden) = (experts(model).intermediate, model.hidden);
    let [gate, up, down] = names.expert.map(|name| format!("{}.{expert}.{name}", names.experts));
    [names.matrix(&[&gate, &up], 1, &[width; 2], hidden), names.matrix(&[&down], 1, &[hidden], width)]
}

fn experts(model: &Model) -> &Experts {
    model.experts.as_ref().expect("only models with experts have layers of them")
}

/// A norm's weight and, for layer norms, its bias.
fn norm(model: &Model, name: String) -> Vec<FusedTensor> {
    let plus_one = model.norm == Norm::RmsPlusOne;
    let weight = Tensor { name: format!("{name}.weight"), shape: vec![model.hidden], plus_one };
    let mut vectors = vec![FusedTensor::whole([weight])];
    if model.norm == Norm::Layer {
        vectors.push(FusedTensor::one(format!("{name}.bias"), vec![model.hidden]));
    }
    vectors
}

/// A bias has the names and the row order of its matrix's tensors.
fn with_biases(matrix: FusedTensor, present: bool, mut vectors: Vec<FusedTensor>) -> SublayerTensors {
    if present {
        vectors.push(bias(&matrix));
    }
    SublayerTensors { matrices: vec![matrix], vectors }
}

/// The bias of a matrix.
fn bias(matrix: &FusedTensor) -> FusedTensor {
    let mut bias = matrix.clone();
    for TensorRows { tensor, .. } in &mut bias.sources {
        tensor.name = tensor.name.replace(".weight", ".bias");
        tensor.shape.truncate(1);
    }
    bias
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{DType, Elements};
    use scenarios::WeightFormats;

    fn preset(name: &str) -> Model {
        Model::preset(name).expect("a preset")
    }

    #[test]
    fn the_tensors_of_a_sublayer_take_the_bytes_that_the_one_count_of_work_says() {
        let runs = |name: &&str| check_runnable(&preset(name)).is_ok();
        for name in Model::preset_names().filter(runs) {
            let model = preset(name);
            for (layer, sublayer) in sublayers(&model) {
                let SublayerTensors { matrices, vectors } = sublayer_tensors(&model, layer, sublayer);
                let model = model.layer_or_ends(layer);
                let formats = WeightFormats::all(DType::F32);
                let numbers = matrices.iter().map(|fused| fused.rows() * fused.columns()).sum();
                let rows = 0..sublayer.matrix(model).map_or(0, |(rows, _)| rows);
                assert_eq!(
                    DType::F32.bytes(Elements::new(numbers)),
                    sublayer.matrix_bytes(model, formats, &rows),
                    "{name} {sublayer}"
                );
                if matrices.len() <= 1 {
                    let shape = matrices.first().map(|fused| (fused.rows(), fused.columns()));
                    assert_eq!(shape, sublayer.matrix(model), "{name} {sublayer}");
                }
                let count = vectors.iter().map(|fused| fused.rows() * fused.columns()).sum();
                assert_eq!(
                    DType::F32.bytes(Elements::new(count)),
                    sublayer.vector_bytes(model),
                    "{name} {sublayer}"
                );
            }
        }
    }
}
