//! The tensors that sublayers of most families have.

use crate::weights::fused::{FusedTensor, SublayerTensors, Tensor, TensorRows};
use crate::weights::mtp_names::ModuleNames;
use crate::weights::names::{SINKS, TensorNames};
use scenarios::{Experts, Model, Norm, Positions};

/// The norms of a head's queries and keys, and the heads' sinks, where the model has them.
pub(super) fn head_norms(model: &Model, names: &TensorNames) -> Vec<FusedTensor> {
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

/// The token table and, where positions are learned, theirs. An MTP module also has the projection
/// of its two inputs, and their norms.
pub(super) fn embed_tensors(model: &Model, names: &TensorNames) -> SublayerTensors {
    let table = format!("{}{}.weight", names.root, names.embed);
    let positions = |offset| {
        let name = format!("{}embed_positions.weight", names.root);
        FusedTensor::one(name, vec![model.max_positions + offset, model.hidden])
    };
    let mut tensors = SublayerTensors {
        matrices: vec![FusedTensor::one(table, vec![model.vocab, model.hidden])],
        vectors: match model.positions {
            Positions::Learned { offset } => vec![positions(offset)],
            _ => vec![],
        },
    };
    if let Some(module) = ModuleNames::new(model) {
        tensors.matrices.push(FusedTensor::one(module.projection(), vec![model.hidden, 2 * model.hidden]));
        tensors.vectors.extend(module.input_norms().into_iter().flat_map(|name| norm(model, name)));
    }
    tensors
}

/// One expert's matrices.
pub(super) fn expert_matrices(model: &Model, names: &TensorNames, expert: u64) -> [FusedTensor; 2] {
    let parts = names.expert.map(|name| format!("{}.{expert}.{name}", names.experts));
    network_matrices(model, names, &parts, experts(model).intermediate)
}

/// The matrices of a network of `width` neurons, an expert or a shared one: gate joined with up, or
/// up alone; and down.
pub(super) fn network_matrices(
    model: &Model,
    names: &TensorNames,
    [gate, up, down]: &[String; 3],
    width: u64,
) -> [FusedTensor; 2] {
    let front: &[&str] = if model.activation.is_gated() { &[gate, up] } else { &[up] };
    let rows = vec![width; front.len()];
    [names.matrix(front, 1, &rows, model.hidden), names.matrix(&[down], 1, &[model.hidden], width)]
}

pub(super) fn experts(model: &Model) -> &Experts {
    model.experts.as_ref().expect("only models with experts have layers of them")
}

/// A norm's weight and, for layer norms, its bias.
pub(super) fn norm(model: &Model, name: String) -> Vec<FusedTensor> {
    let plus_one = model.norm == Norm::RmsPlusOne;
    let weight = Tensor { name: format!("{name}.weight"), shape: vec![model.hidden], plus_one };
    let mut vectors = vec![FusedTensor::whole([weight])];
    if model.norm == Norm::Layer {
        vectors.push(FusedTensor::one(format!("{name}.bias"), vec![model.hidden]));
    }
    vectors
}

/// A bias has the names and the row order of its matrix's tensors.
pub(super) fn with_biases(
    matrix: FusedTensor,
    present: bool,
    mut vectors: Vec<FusedTensor>,
) -> SublayerTensors {
    if present {
        vectors.push(bias(&matrix));
    }
    SublayerTensors { matrices: vec![matrix], vectors }
}

/// The bias of a matrix.
pub(super) fn bias(matrix: &FusedTensor) -> FusedTensor {
    let mut bias = matrix.clone();
    for TensorRows { tensor, .. } in &mut bias.sources {
        tensor.name = tensor.name.replace(".weight", ".bias");
        tensor.shape.truncate(1);
    }
    bias
}
