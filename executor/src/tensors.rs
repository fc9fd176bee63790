//! Which tensors a model has, what they are called, and how they are joined.
//!
//! We keep fewer, larger matrices than a checkpoint does: q, k and v are one matrix, and so are gate and up. Their
//! rows are [`Fused`] from the checkpoint's tensors: q, k, v one after the other; gate and up interleaved in
//! panels of [`INTERLEAVE`] rows (16 of gate, 16 of up, 16 of gate, …; a last panel has what is left of each), so
//! that a range of rows that starts and ends at [`planner::ROW_PANEL`] has each gate with its own up.

use crate::error::Error;
use scenarios::{Architecture, Experts, Model, Norm, Positions, Sublayer};

/// Rows of gate, and of up, that lie side by side.
pub(crate) const INTERLEAVE: u64 = 16;

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Its name in the files.
    pub name: String,
    /// Its shape: [rows, columns] or [elements].
    pub shape: Vec<u64>,
}

/// Tensors whose rows (or elements, of vectors) are joined to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fused {
    /// The tensors; all have as many columns.
    pub tensors: Vec<Tensor>,
    /// Whether the rows alternate in panels rather than follow each other.
    pub interleaved: bool,
}

impl Fused {
    fn one(name: String, shape: Vec<u64>) -> Self {
        Self { tensors: vec![Tensor { name, shape }], interleaved: false }
    }

    /// Rows of all tensors together.
    pub fn rows(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.shape[0]).sum()
    }

    /// Values of a row: 1 of a vector.
    pub fn columns(&self) -> u64 {
        self.tensors[0].shape.get(1).copied().unwrap_or(1)
    }

    /// Index of the tensor that has `row`, and the row in it.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        if self.interleaved {
            let panel = row / (2 * INTERLEAVE) * INTERLEAVE;
            let height = INTERLEAVE.min(self.tensors[0].shape[0] - panel);
            let offset = row - 2 * panel;
            return if offset < height { (0, panel + offset) } else { (1, panel + offset - height) };
        }
        let mut row = row;
        for (index, tensor) in self.tensors.iter().enumerate() {
            match row.checked_sub(tensor.shape[0]) {
                Some(beyond) => row = beyond,
                None => return (index, row),
            }
        }
        panic!("row {row} is beyond {:?}", self.tensors)
    }
}

/// The tensors of one sublayer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The matrix; none of attention, and of experts two for each: gate and up, then down.
    pub matrices: Vec<Fused>,
    /// Norm weights, norm biases, biases and position tables, in the order in which
    /// [`Sublayer::vector_bytes`] counts them.
    pub vectors: Vec<Fused>,
}

/// The tensors of `sublayer` of `layer` (`None` for embed and head).
pub(crate) fn parts(model: &Model, layer: Option<u32>, sublayer: Sublayer) -> Parts {
    let names = Names::of(model, layer);
    let matrix = |projections: &[&str], rows: &[u64], columns| names.matrix(projections, rows, columns);
    let (context, kv, hidden) = (model.context_width(), model.kv_width(), model.hidden);
    match sublayer {
        Sublayer::Embed => Parts {
            matrices: vec![Fused::one(
                format!("{}embed_tokens.weight", names.root),
                vec![model.vocab, hidden],
            )],
            vectors: match model.positions {
                Positions::Learned { offset } => vec![Fused::one(
                    format!("{}embed_positions.weight", names.root),
                    vec![model.max_positions + offset, hidden],
                )],
                Positions::Rotary { .. } | Positions::Yarn { .. } => vec![],
            },
        },
        Sublayer::Qkv => with_biases(
            matrix(&names.qkv, &[context, kv, kv], hidden),
            model.qkv_bias,
            norm(model, format!("{}{}", names.layer, names.attn_norm)),
        ),
        Sublayer::Attention => {
            let norm = |name: &str| {
                Fused::one(format!("{}self_attn.{name}.weight", names.layer), vec![model.head_dim])
            };
            let vectors = if model.qk_norm { vec![norm("q_norm"), norm("k_norm")] } else { vec![] };
            Parts { matrices: vec![], vectors }
        }
        Sublayer::Out => with_biases(matrix(&[names.out], &[hidden], context), model.out_bias, vec![]),
        Sublayer::FfnUp => {
            let rows = [model.intermediate; 2];
            let mut up = matrix(names.up, &rows[..names.up.len()], hidden);
            up.interleaved = model.activation.is_gated();
            with_biases(up, model.ffn_bias, norm(model, format!("{}{}", names.layer, names.ffn_norm)))
        }
        Sublayer::FfnDown => {
            with_biases(matrix(&[names.down], &[hidden], model.intermediate), model.ffn_bias, vec![])
        }
        Sublayer::Router => Parts {
            matrices: vec![matrix(&[names.router], &[experts(model).count], hidden)],
            vectors: norm(model, format!("{}{}", names.layer, names.ffn_norm)),
        },
        Sublayer::Experts => {
            let matrices =
                (0..experts(model).count).flat_map(|expert| expert_matrices(model, &names, expert));
            Parts { matrices: matrices.collect(), vectors: vec![] }
        }
        Sublayer::SharedExpert => {
            unreachable!("models with a shared expert are refused before their tensors are asked for")
        }
        Sublayer::Head => {
            let embed = parts(model, None, Sublayer::Embed).matrices;
            let own = Fused::one("lm_head.weight".to_owned(), vec![model.vocab, hidden]);
            Parts {
                matrices: if model.tied_embeddings { embed } else { vec![own] },
                vectors: norm(model, format!("{}{}", names.root, names.head_norm)),
            }
        }
    }
}

/// Refuses what has no kernels and no tensor names here: no checkpoint of it is made or opened, so none is run.
///
/// # Errors
/// [`Error::Refused`] for latent attention, gpt-oss, or YaRN's rotation.
pub(crate) fn check_runs(model: &Model) -> Result<(), Error> {
    let feature = match model {
        Model { latent: Some(_), .. } => "latent attention",
        Model { architecture: Architecture::GptOss, .. } => "attention sinks",
        Model { positions: Positions::Yarn { .. }, .. } => "a rotation stretched by YaRN",
        _ => return Ok(()),
    };
    let wanted = "it can be planned and simulated, but not run: use a model without";
    Err(Error::refused("model", format!("'{}' with {feature}", model.name), wanted))
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
pub(crate) fn all(model: &Model) -> Vec<Tensor> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for (layer, sublayer) in sublayers(model) {
        if sublayer == Sublayer::Head && model.tied_embeddings {
            tensors.extend(parts(model, layer, sublayer).vectors.into_iter().flat_map(|fused| fused.tensors));
            continue;
        }
        let Parts { matrices, vectors } = parts(model, layer, sublayer);
        tensors.extend(matrices.into_iter().chain(vectors).flat_map(|fused| fused.tensors));
    }
    tensors
}

/// Gate over up, and down, of one expert.
fn expert_matrices(model: &Model, names: &Names, expert: u64) -> [Fused; 2] {
    let (width, hidden) = (experts(model).intermediate, model.hidden);
    let [gate, up, down] = names.expert.map(|name| format!("{}.{expert}.{name}", names.experts));
    [names.matrix(&[&gate, &up], &[width; 2], hidden), names.matrix(&[&down], &[hidden], width)]
}

fn experts(model: &Model) -> &Experts {
    model.experts.as_ref().expect("only models with experts have layers of them")
}

/// A norm's weight and, of layer norms, its bias.
fn norm(model: &Model, name: String) -> Vec<Fused> {
    let mut vectors = vec![Fused::one(format!("{name}.weight"), vec![model.hidden])];
    if model.norm == Norm::Layer {
        vectors.push(Fused::one(format!("{name}.bias"), vec![model.hidden]));
    }
    vectors
}

/// The bias of a matrix has its tensors' names and row order.
fn with_biases(matrix: Fused, present: bool, mut vectors: Vec<Fused>) -> Parts {
    if present {
        let bias = |tensor: &Tensor| Tensor {
            name: tensor.name.replace(".weight", ".bias"),
            shape: vec![tensor.shape[0]],
        };
        let tensors = matrix.tensors.iter().map(bias).collect();
        vectors.push(Fused { tensors, interleaved: matrix.interleaved });
    }
    Parts { matrices: vec![matrix], vectors }
}

/// What the families call the same things.
struct Names {
    root: &'static str,
    layer: String,
    attn_norm: &'static str,
    qkv: [&'static str; 3],
    out: &'static str,
    ffn_norm: &'static str,
    up: &'static [&'static str],
    down: &'static str,
    router: &'static str,
    /// In front of an expert's number, and behind it.
    experts: &'static str,
    expert: [&'static str; 3],
    head_norm: &'static str,
}

impl Names {
    /// The matrix of these projections of the layer, each of so many rows.
    fn matrix(&self, projections: &[&str], rows: &[u64], columns: u64) -> Fused {
        let tensor = |(name, &rows): (&&str, &u64)| Tensor {
            name: format!("{}{name}.weight", self.layer),
            shape: vec![rows, columns],
        };
        let tensors = projections.iter().zip(rows).map(tensor).collect();
        Fused { tensors, interleaved: false }
    }

    fn of(model: &Model, layer: Option<u32>) -> Self {
        let root = if model.architecture == Architecture::Opt { "model.decoder." } else { "model." };
        let layer = layer.map_or_else(String::new, |layer| format!("{root}layers.{layer}."));
        let qkv = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
        let mixtral = model.architecture == Architecture::Mixtral;
        match model.architecture {
            Architecture::Opt => Self {
                root,
                layer,
                attn_norm: "self_attn_layer_norm",
                qkv,
                out: "self_attn.out_proj",
                ffn_norm: "final_layer_norm",
                up: &["fc1"],
                down: "fc2",
                router: "",
                experts: "",
                expert: [""; 3],
                head_norm: "final_layer_norm",
            },
            // Models that `check_runs` refuses are not asked for names.
            _ => Self {
                root,
                layer,
                attn_norm: "input_layernorm",
                qkv,
                out: "self_attn.o_proj",
                ffn_norm: "post_attention_layernorm",
                up: &["mlp.gate_proj", "mlp.up_proj"],
                down: "mlp.down_proj",
                router: if mixtral { "block_sparse_moe.gate" } else { "mlp.gate" },
                experts: if mixtral { "block_sparse_moe.experts" } else { "mlp.experts" },
                expert: if mixtral { ["w1", "w3", "w2"] } else { ["gate_proj", "up_proj", "down_proj"] },
                head_norm: "norm",
            },
        }
    }
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
        for name in
            ["opt-125m", "llama-3.1-8b", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-30b-a3b", "mixtral-8x7b"]
        {
            let model = preset(name);
            for (layer, sublayer) in sublayers(&model) {
                let Parts { matrices, vectors } = parts(&model, layer, sublayer);
                let formats = WeightFormats::all(DType::F32);
                let numbers = matrices.iter().map(|fused| fused.rows() * fused.columns()).sum();
                let rows = 0..sublayer.matrix(&model).map_or(0, |(rows, _)| rows);
                assert_eq!(
                    DType::F32.bytes(Elements::new(numbers)),
                    sublayer.matrix_bytes(&model, formats, &rows),
                    "{name} {sublayer}"
                );
                if sublayer != Sublayer::Experts {
                    let shape = matrices.first().map(|fused| (fused.rows(), fused.columns()));
                    assert_eq!(shape, sublayer.matrix(&model), "{name} {sublayer}");
                }
                let count = vectors.iter().map(|fused| fused.rows() * fused.columns()).sum();
                assert_eq!(
                    DType::F32.bytes(Elements::new(count)),
                    sublayer.vector_bytes(&model),
                    "{name} {sublayer}"
                );
            }
        }
    }

    #[test]
    fn every_row_of_a_fused_matrix_comes_from_its_own_row_of_one_tensor() {
        for (rows, interleaved) in [([40, 40], true), ([16, 16], true), ([5, 5], true), ([7, 20], false)] {
            let tensor = |rows| Tensor { name: String::new(), shape: vec![rows, 3] };
            let fused = Fused { tensors: rows.map(tensor).to_vec(), interleaved };
            let mut seen: Vec<_> = (0..fused.rows()).map(|row| fused.locate(row)).collect();
            if interleaved {
                // Whoever has a gate's row has the up's too, in every range of whole panels.
                for (index, panel) in seen.chunks(2 * INTERLEAVE as usize).enumerate() {
                    let (gate, up) = panel.split_at(panel.len() / 2);
                    let first = index as u64 * INTERLEAVE;
                    assert!(gate.iter().enumerate().all(|(i, &at)| at == (0, first + i as u64)));
                    assert!(up.iter().enumerate().all(|(i, &at)| at == (1, first + i as u64)));
                }
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len() as u64, rows[0] + rows[1]);
        }
    }
}
