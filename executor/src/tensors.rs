//! Which tensors a model has, and how they are joined.
//!
//! We keep fewer, larger matrices than most checkpoints do: q, k and v are one matrix, and so are gate and up. Their
//! rows are [`Fused`] from the checkpoint's: q, k, v one after the other; gate and up interleaved in panels of
//! [`INTERLEAVE`] rows (16 of gate, 16 of up, 16 of gate, …; a last panel has what is left of each), so that a range of
//! rows that starts and ends at [`planner::ROW_PANEL`] has each gate with its own up. Where a checkpoint joins them
//! too, in whatever order, each of the matrices is a [`Share`] of the tensor that they are in.

use crate::error::Error;
use crate::names::Names;
use scenarios::{Architecture, Block, Experts, Model, Norm, Positions, Sublayer};

/// Rows of gate, and of up, that lie side by side.
pub(crate) const INTERLEAVE: u64 = 16;

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Its name in the files.
    pub name: String,
    /// Its shape: [rows, columns] or [elements].
    pub shape: Vec<u64>,
    /// Whether it is stored as the difference from 1.
    pub plus_one: bool,
}

/// A matrix (or vector) that has all rows of a tensor, or runs of them at equal distances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The tensor.
    pub tensor: Tensor,
    /// How many rows of it.
    pub rows: u64,
    /// Where the first run begins.
    first: u64,
    /// Rows of a run.
    run: u64,
    /// Rows from the beginning of a run to that of the next.
    stride: u64,
}

impl Share {
    fn whole(tensor: Tensor) -> Self {
        let rows = tensor.shape[0];
        Self { tensor, rows, first: 0, run: rows, stride: rows }
    }

    /// Matrices of so many rows that share a tensor of `columns` columns: `groups` groups follow each other, and in each
    /// of them that part of every matrix.
    pub fn of_groups(name: &str, groups: u64, rows: &[u64], columns: u64) -> Vec<Self> {
        let all: u64 = rows.iter().sum();
        let tensor = Tensor { name: name.to_owned(), shape: vec![all, columns], plus_one: false };
        let mut first = 0;
        let share = |&rows: &u64| {
            let run = rows / groups;
            first += run;
            Self { tensor: tensor.clone(), rows, first: first - run, run, stride: all / groups }
        };
        rows.iter().map(share).collect()
    }

    /// The tensor's row that is `row` of the matrix.
    fn locate(&self, row: u64) -> u64 {
        self.first + row / self.run * self.stride + row % self.run
    }
}

/// Matrices whose rows (or vectors whose elements) are joined to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fused {
    /// The matrices; all have as many columns.
    pub shares: Vec<Share>,
    /// Whether the rows alternate in panels rather than follow each other.
    pub interleaved: bool,
}

impl Fused {
    fn one(name: String, shape: Vec<u64>) -> Self {
        Self::whole([Tensor { name, shape, plus_one: false }])
    }

    /// Whole tensors, one after the other.
    pub fn whole(tensors: impl IntoIterator<Item = Tensor>) -> Self {
        Self { shares: tensors.into_iter().map(Share::whole).collect(), interleaved: false }
    }

    /// Rows of all matrices together.
    pub fn rows(&self) -> u64 {
        self.shares.iter().map(|share| share.rows).sum()
    }

    /// Values of a row: 1 of a vector.
    pub fn columns(&self) -> u64 {
        self.shares[0].tensor.shape.get(1).copied().unwrap_or(1)
    }

    /// Index of the share that has `row`, and the row of its tensor.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        if self.interleaved {
            let panel = row / (2 * INTERLEAVE) * INTERLEAVE;
            let height = INTERLEAVE.min(self.shares[0].rows - panel);
            let offset = row - 2 * panel;
            let (index, row) =
                if offset < height { (0, panel + offset) } else { (1, panel + offset - height) };
            return (index, self.shares[index].locate(row));
        }
        let mut row = row;
        for (index, share) in self.shares.iter().enumerate() {
            match row.checked_sub(share.rows) {
                Some(beyond) => row = beyond,
                None => return (index, share.locate(row)),
            }
        }
        panic!("row {row} is beyond {:?}", self.shares)
    }

    /// Its tensors, each once.
    fn tensors(self) -> Vec<Tensor> {
        let mut tensors: Vec<_> = self.shares.into_iter().map(|share| share.tensor).collect();
        tensors.dedup();
        tensors
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
    let matrix =
        |projections: &[&str], rows: &[u64], columns| names.matrix(projections, names.groups, rows, columns);
    let (context, kv, hidden) = (model.context_width(), model.kv_width(), model.hidden);
    let behind = |half: usize| match model.wiring.norms_behind {
        true => norm(model, format!("{}{}", names.layer, names.norms_behind[half])),
        false => vec![],
    };
    match sublayer {
        Sublayer::Embed => Parts {
            matrices: vec![Fused::one(
                format!("{}{}.weight", names.root, names.embed),
                vec![model.vocab, hidden],
            )],
            vectors: match model.positions {
                Positions::Learned { offset } => vec![Fused::one(
                    format!("{}embed_positions.weight", names.root),
                    vec![model.max_positions + offset, hidden],
                )],
                _ => vec![],
            },
        },
        Sublayer::Qkv => with_biases(
            matrix(names.qkv, &[context, kv, kv], hidden),
            model.qkv_bias,
            norm(model, format!("{}{}", names.layer, names.attn_norm)),
        ),
        Sublayer::Attention => Parts { matrices: vec![], vectors: head_norms(model, &names) },
        Sublayer::Out => with_biases(matrix(&[names.out], &[hidden], context), model.out_bias, behind(0)),
        Sublayer::FfnUp => {
            let gated = model.activation.is_gated();
            let rows = [model.intermediate; 2];
            let mut up = names.matrix(names.up, 1, &rows[..1 + usize::from(gated)], hidden);
            up.interleaved = gated;
            let own = match model.wiring.block {
                Block::ParallelOneNorm => vec![],
                _ => norm(model, format!("{}{}", names.layer, names.ffn_norm)),
            };
            with_biases(up, model.ffn_bias, own)
        }
        Sublayer::FfnDown => {
            with_biases(matrix(&[names.down], &[hidden], model.intermediate), model.ffn_bias, behind(1))
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
            let own = Fused::one(format!("{}.weight", names.head), vec![model.vocab, hidden]);
            let norm = norm(model, format!("{}{}", names.root, names.head_norm));
            match model.tied_embeddings {
                true => Parts { matrices: embed, vectors: norm },
                false => with_biases(own, model.wiring.head_bias, norm),
            }
        }
    }
}

/// The norms of a head's queries and keys, where there are any.
fn head_norms(model: &Model, names: &Names) -> Vec<Fused> {
    let norm = |name: &str| {
        let name = format!("{}self_attn.{name}.weight", names.layer);
        let plus_one = model.norm == Norm::RmsPlusOne;
        Fused::whole([Tensor { name, shape: vec![model.head_dim], plus_one }])
    };
    if model.qk_norm { vec![norm("q_norm"), norm("k_norm")] } else { vec![] }
}

/// Refuses what has no kernels and no tensor names here: no checkpoint of it is made or opened, so none is run.
///
/// # Errors
/// [`Error::Refused`] for latent attention and gpt-oss.
pub(crate) fn check_runs(model: &Model) -> Result<(), Error> {
    let feature = match model {
        Model { latent: Some(_), .. } => "latent attention",
        Model { architecture: Architecture::GptOss, .. } => "attention sinks",
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
            tensors.extend(parts(model, layer, sublayer).vectors.into_iter().flat_map(Fused::tensors));
            continue;
        }
        let Parts { matrices, vectors } = parts(model, layer, sublayer);
        tensors.extend(matrices.into_iter().chain(vectors).flat_map(Fused::tensors));
    }
    tensors
}

/// Gate over up, and down, of one expert.
fn expert_matrices(model: &Model, names: &Names, expert: u64) -> [Fused; 2] {
    let (width, hidden) = (experts(model).intermediate, model.hidden);
    let [gate, up, down] = names.expert.map(|name| format!("{}.{expert}.{name}", names.experts));
    [names.matrix(&[&gate, &up], 1, &[width; 2], hidden), names.matrix(&[&down], 1, &[hidden], width)]
}

fn experts(model: &Model) -> &Experts {
    model.experts.as_ref().expect("only models with experts have layers of them")
}

/// A norm's weight and, of layer norms, its bias.
fn norm(model: &Model, name: String) -> Vec<Fused> {
    let plus_one = model.norm == Norm::RmsPlusOne;
    let weight = Tensor { name: format!("{name}.weight"), shape: vec![model.hidden], plus_one };
    let mut vectors = vec![Fused::whole([weight])];
    if model.norm == Norm::Layer {
        vectors.push(Fused::one(format!("{name}.bias"), vec![model.hidden]));
    }
    vectors
}

/// The bias of a matrix has its tensors' names and row order.
fn with_biases(matrix: Fused, present: bool, mut vectors: Vec<Fused>) -> Parts {
    if present {
        let mut bias = matrix.clone();
        for Share { tensor, .. } in &mut bias.shares {
            tensor.name = tensor.name.replace(".weight", ".bias");
            tensor.shape.truncate(1);
        }
        vectors.push(bias);
    }
    Parts { matrices: vec![matrix], vectors }
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
        let runs = |name: &&str| check_runs(&preset(name)).is_ok();
        for name in Model::preset_names().filter(runs) {
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
            let tensor = |rows| Tensor { name: String::new(), shape: vec![rows, 3], plus_one: false };
            let fused = Fused { interleaved, ..Fused::whole(rows.map(tensor)) };
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

    #[test]
    fn matrices_that_share_a_tensor_have_each_of_its_rows_once_and_keep_to_their_groups() {
        for (groups, rows, interleaved) in [
            (1, vec![40, 40], true),
            (1, vec![48, 16, 16], false),
            (4, vec![48, 16, 16], false),
            (8, vec![16, 16, 16], false),
        ] {
            let shares = Share::of_groups("", groups, &rows, 3);
            let all: u64 = rows.iter().sum();
            let fused = Fused { shares, interleaved };
            let located: Vec<_> = (0..fused.rows()).map(|row| fused.locate(row)).collect();
            // In a group, that part of the first matrix comes first, then that of the second, …
            for &(share, row) in &located {
                let within = row % (all / groups) * groups;
                let before: u64 = rows[..share].iter().sum();
                assert!((before..before + rows[share]).contains(&within), "{share} {row}");
            }
            let mut seen: Vec<_> = located.into_iter().map(|(_, row)| row).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..all).collect::<Vec<_>>());
        }
    }
}
