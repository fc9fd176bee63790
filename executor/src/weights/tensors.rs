//! The tensors of a model.

use crate::error::ExecutorError;
use crate::weights::fused::{FusedTensor, SublayerTensors, Tensor};
use crate::weights::layered_gemma;
use crate::weights::mixers;
use crate::weights::mtp_names::{self, ModuleNames};
use crate::weights::names::TensorNames;
use crate::weights::plain_tensors::{
    bias, embed_tensors, expert_matrices, experts, head_norms, norm, with_biases,
};
use scenarios::{Activation, Architecture, BlockOrder, Mixer, Model, Recurrence, RouterScoring, Sublayer};

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
        _ if layered_gemma::has_own(model, sublayer) => {
            layered_gemma::tensors(model, &names, layer, sublayer)
        }
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
            let mut embed = sublayer_tensors(model, None, Sublayer::Embed).matrices;
            // Behind it may be a table of other embeddings.
            embed.truncate(1);
            let own = FusedTensor::one(format!("{}.weight", names.head), vec![model.vocab, hidden]);
            let own_norm = ModuleNames::new(model).map(|module| module.head_norm());
            let norm = own_norm.unwrap_or_else(|| format!("{}{}", names.root, names.head_norm));
            let norm = self::norm(model, norm);
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

/// The first feature of layers of `shape` that no kernel computes.
fn missing_feature(shape: &Model) -> Option<&'static str> {
    let wiring = &shape.wiring;
    let gemma = matches!(shape.architecture, Architecture::Gemma3n | Architecture::Gemma4);
    let nemotron = shape.architecture == Architecture::NemotronH;
    let features = [
        (matches!(shape.mixer, Mixer::Compressed(_)), "compressed attention"),
        (
            matches!(shape.mixer, Mixer::Recurrent(recurrence) if !runs(shape, recurrence)),
            "a recurrence other than a gated delta net or Nemotron-H's Mamba-2",
        ),
        (wiring.output_gate && shape.mixer != Mixer::Attention, "gated latent attention"),
        (wiring.gates_heads, "a gate for each head"),
        (
            shape.mixer != Mixer::Attention && shape.qkv_bias,
            "biases in front of another mixer than attention",
        ),
        (shape.activation == Activation::Xielu, "another non-linearity"),
        (
            !nemotron && shape.activation == Activation::ReluSquared && shape.experts.is_some(),
            "experts without a gate",
        ),
        (nemotron && shape.activation.is_gated(), "another non-linearity than ReLU²"),
        (shape.architecture == Architecture::Decoder, "tensors of a family that is only counted"),
        (shape.index.is_some(), "an indexer"),
        (shape.experts.as_ref().is_some_and(|experts| experts.latent.is_some()), "latent experts"),
        (!(nemotron || shape.has_mixer() && shape.has_network()), "layers of one sublayer"),
        ((wiring.shares_kv || wiring.keys_are_values) && !gemma, "shared keys and values"),
        (wiring.value_dim.is_some(), "values of another width than keys"),
        (
            matches!(
                shape.architecture,
                Architecture::Olmo2 | Architecture::Exaone4 | Architecture::OlmoHybrid
            ),
            "norms behind its sublayers alone",
        ),
        (wiring.residual_streams.is_some(), "hyper-connections"),
        (wiring.predicted_streams.is_some() && shape.qkv_bias, "biases in front of predicted streams"),
        (wiring.layer_embedding.is_some() && !gemma, "embeddings for each layer"),
        (wiring.layer_embedding.is_some() && shape.experts.is_some(), "embeddings for each layer of experts"),
    ];
    features.into_iter().find_map(|(present, feature)| present.then_some(feature))
}

/// Whether a recurrence of layers of `shape` has kernels and tensor names.
fn runs(shape: &Model, recurrence: Recurrence) -> bool {
    match recurrence {
        Recurrence::GatedDelta { .. } => true,
        Recurrence::Mamba2 { .. } => shape.architecture == Architecture::NemotronH,
        _ => false,
    }
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

/// Every matrix and vector of the model once, in the order of computation.
pub(crate) fn all_fused(model: &Model) -> Vec<FusedTensor> {
    let own = |(layer, sublayer): (Option<u32>, Sublayer)| {
        let SublayerTensors { mut matrices, vectors } = sublayer_tensors(model, layer, sublayer);
        if sublayer == Sublayer::Head && model.tied_embeddings {
            matrices.clear();
        }
        matrices.into_iter().chain(vectors)
    };
    sublayers(model).flat_map(own).collect()
}

/// Every tensor of the model once, in the order of computation.
pub(crate) fn all_tensors(model: &Model) -> Vec<Tensor> {
    let mut seen = std::collections::BTreeSet::new();
    let tensors = all_fused(model).into_iter().flat_map(FusedTensor::tensors);
    tensors.filter(|tensor| seen.insert(tensor.name.clone())).collect()
}

/// The MTP module of `model`, if its tensors have names here.
///
/// # Errors
/// [`ExecutorError::Refused`]: there is no module, or it cannot be run.
pub(crate) fn runnable_module(model: &Model) -> Result<Model, ExecutorError> {
    let module = model.mtp_module().ok_or_else(|| {
        let found = format!("mtp, and '{}' has no MTP module", model.name);
        ExecutorError::refused("speculative.draft", found, "name a draft model, or leave speculative out")
    })?;
    mtp_names::check_family(&module)?;
    check_runnable(&module)?;
    Ok(module)
}

/// The tensors that the MTP module of `model` does not share with it; none where it cannot be run.
pub(crate) fn module_tensors(model: &Model) -> Vec<Tensor> {
    let mut tensors = runnable_module(model).as_ref().map_or(vec![], all_tensors);
    tensors.retain(|tensor| !mtp_names::is_shared(&tensor.name));
    tensors
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
        let models = Model::preset_names().filter(runs).map(preset);
        let with_modules = models.flat_map(|model| [runnable_module(&model).ok(), Some(model)]);
        for model in with_modules.flatten() {
            let name = &model.name;
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
