//! The mixtures of llama.cpp's quantiser, computed from a model's shape.
//!
//! Which tensors get more bits is a fact of `llama-quantize` (`src/llama-quant.cpp`): the output
//! projection, attention's values and the down projections of some layers, attention of models with
//! eight experts, the token table of files below 3 bits. Routers stay in f32. Rows that are no
//! multiple of a block's values get a format with smaller blocks. Kinds named `iq` are taken as
//! made with an importance matrix, as they are published; others as made without one.

use crate::model::architecture::Architecture;
use crate::model::formats::file_type::GgufFileType;
use crate::model::formats::weight_format::WeightFormat;
use crate::model::operators::formats::{WeightClass, WeightFormats};
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::DType;

/// What a tensor is to the quantiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TensorRole {
    AttentionQ,
    AttentionK,
    AttentionV,
    /// q, k and v in one tensor, which is treated as values.
    AttentionQkv,
    AttentionOutput,
    FfnUp,
    FfnDown,
    /// A tensor that always has the base format.
    Other,
}

/// A tensor with its role and its columns.
struct Tensor {
    role: TensorRole,
    /// Whether it holds all experts of a layer.
    experts: bool,
    rows: u64,
    columns: u64,
}

impl GgufFileType {
    /// The formats of `model` in such a file.
    ///
    /// # Errors
    /// More formats in one class than a mixture can hold.
    pub fn formats(self, model: &Model) -> Result<WeightFormats, String> {
        let rules = Rules { file: self, model };
        let mut by_class: [Vec<(DType, u64)>; WeightClass::ALL.len()] = Default::default();
        for layer in 0..model.layers {
            for &sublayer in model.kind(layer).sublayers() {
                let parts = &mut by_class[WeightClass::from_sublayer(sublayer) as usize];
                for tensor in rules.tensors(sublayer) {
                    let dtype =
                        if sublayer == Sublayer::Router { DType::F32 } else { rules.dtype(&tensor, layer) };
                    parts.push((dtype, tensor.rows * tensor.columns));
                }
            }
        }
        let head = rules.output();
        let mut formats = WeightFormats::all(head).for_model(model);
        for class in [WeightClass::Attention, WeightClass::Ffn, WeightClass::Experts] {
            let parts = std::mem::take(&mut by_class[class as usize]);
            if !parts.is_empty() {
                formats = formats.with_format(class, WeightFormat::from_values(parts)?);
            }
        }
        let embed = if model.tied_embeddings { head } else { rules.token_table() };
        Ok(formats.for_model(model).with_embed(embed).named(self))
    }
}

/// The rules for one kind of file and one model.
struct Rules<'a> {
    file: GgufFileType,
    model: &'a Model,
}

impl Rules<'_> {
    /// The tensors of one layer's sublayer.
    fn tensors(&self, sublayer: Sublayer) -> Vec<Tensor> {
        let model = self.model;
        let Some((rows, columns)) = sublayer.matrix(model) else { return vec![] };
        let experts = sublayer == Sublayer::Experts;
        let tensor = |role, rows, columns| Tensor { role, experts, rows, columns };
        let joined =
            matches!(model.architecture, Architecture::Phi3 | Architecture::GptNeoX | Architecture::Falcon);
        let gates = model.neuron_activations() - 1;
        match sublayer {
            Sublayer::Qkv if model.latent().is_some() => vec![tensor(TensorRole::Other, rows, columns)],
            Sublayer::Qkv if joined => vec![tensor(TensorRole::AttentionQkv, rows, columns)],
            Sublayer::Qkv => {
                let kv = model.kv_width();
                vec![
                    tensor(TensorRole::AttentionQ, rows.saturating_sub(2 * kv), columns),
                    tensor(TensorRole::AttentionK, kv, columns),
                    tensor(TensorRole::AttentionV, kv, columns),
                ]
            }
            Sublayer::Out => vec![tensor(TensorRole::AttentionOutput, rows, columns)],
            Sublayer::FfnUp => vec![tensor(TensorRole::FfnUp, rows, columns)],
            Sublayer::FfnDown => vec![tensor(TensorRole::FfnDown, rows, columns)],
            Sublayer::SharedExpert | Sublayer::Experts => {
                let experts = model.experts.as_ref();
                let (count, width) = match sublayer {
                    Sublayer::Experts => {
                        experts.map_or((0, 0), |experts| (experts.count, experts.intermediate))
                    }
                    _ => (1, experts.map_or(0, |experts| experts.shared)),
                };
                vec![
                    tensor(TensorRole::FfnUp, count * gates * width, model.hidden),
                    tensor(TensorRole::FfnDown, count * model.hidden, width),
                ]
            }
            _ => vec![tensor(TensorRole::Other, rows, columns)],
        }
    }

    /// Query heads for each head of keys and values.
    fn grouping(&self) -> u64 {
        self.model.heads / self.model.kv_heads.max(1)
    }

    fn experts(&self) -> u64 {
        self.model.experts.as_ref().map_or(0, |experts| experts.count)
    }

    /// The output projection's format, and that of a token table that it shares.
    fn output(&self) -> DType {
        use GgufFileType as F;
        let block = self.file.base().block().values;
        match self.file {
            F::Mxfp4Moe | F::Q8_0 => DType::Q8_0,
            _ if self.model.architecture == Architecture::Falcon => DType::Q8_0,
            _ if !self.model.hidden.is_multiple_of(block) => DType::Q8_0,
            F::Iq1S | F::Iq1M | F::Iq2Xxs | F::Iq2Xs | F::Iq2S | F::Iq2M | F::Iq3Xxs => {
                fitting(DType::Q5K, self.model.hidden)
            }
            _ => fitting(DType::Q6K, self.model.hidden),
        }
    }

    /// The format of a token table of its own.
    fn token_table(&self) -> DType {
        use GgufFileType as F;
        let dtype = match self.file {
            F::Mxfp4Moe => DType::Q8_0,
            F::Iq1S | F::Iq1M | F::Iq2Xxs | F::Iq2Xs => DType::Q2K,
            F::Iq2S | F::Iq2M | F::Iq3Xxs => DType::Iq3S,
            other => other.base(),
        };
        fitting(dtype, self.model.hidden)
    }

    fn dtype(&self, tensor: &Tensor, layer: u64) -> DType {
        use GgufFileType as F;
        let dtype = match self.file {
            F::Mxfp4Moe if tensor.experts => DType::Mxfp4,
            F::Mxfp4Moe => DType::Q8_0,
            F::Iq1S | F::Iq1M | F::Iq2Xxs | F::Iq2Xs | F::Iq2S | F::Iq2M => {
                self.below_three(tensor.role, layer)
            }
            _ => match tensor.role {
                TensorRole::AttentionV | TensorRole::AttentionQkv => self.values(layer),
                TensorRole::AttentionQ | TensorRole::AttentionK => self.queries(tensor.role),
                TensorRole::AttentionOutput => self.attention_output(),
                TensorRole::FfnDown => self.down(layer),
                TensorRole::FfnUp => self.up(layer),
                TensorRole::Other => self.file.base(),
            },
        };
        fitting(dtype, tensor.columns)
    }

    /// The kinds with 1 and 2 bits.
    fn below_three(&self, role: TensorRole, layer: u64) -> DType {
        use GgufFileType as F;
        let larger = matches!(self.file, F::Iq2S | F::Iq2M);
        let more = if larger { DType::Iq3S } else { DType::Q2K };
        match role {
            TensorRole::AttentionV | TensorRole::AttentionQkv => {
                if self.grouping() >= 4 || self.experts() >= 4 { DType::Q4K } else { more }
            }
            TensorRole::AttentionK if self.experts() == 8 => DType::Q4K,
            TensorRole::FfnDown if layer < self.model.layers / 8 => more,
            TensorRole::AttentionOutput if self.experts() == 8 => DType::Q5K,
            TensorRole::AttentionOutput if larger => DType::Iq3S,
            TensorRole::AttentionOutput if matches!(self.file, F::Iq1S | F::Iq1M) => DType::Iq2Xxs,
            _ => self.file.base(),
        }
    }

    /// Whether llama.cpp gives tensors of `layer` more bits in the medium kinds: in the first and
    /// the last eighth of the layers, and in every third one between.
    fn more_bits(&self, layer: u64) -> bool {
        let (layers, first) = (self.model.layers, self.model.layers / 8);
        layer < first || layer >= 7 * layers / 8 || (layer - first) % 3 == 2
    }

    fn values(&self, layer: u64) -> DType {
        use GgufFileType as F;
        let grouped = self.grouping() >= 4;
        let mut dtype = match self.file {
            F::Q2K | F::Q2KS | F::Iq3Xxs | F::Iq3Xs | F::Iq3S if grouped => DType::Q4K,
            F::Q2K => DType::Q3K,
            F::Iq3M => DType::Q4K,
            F::Q3KM if layer < 2 => DType::Q5K,
            F::Q3KM => DType::Q4K,
            F::Q3KL => DType::Q5K,
            F::Iq4Nl | F::Iq4Xs if grouped => DType::Q5K,
            F::Q4KM | F::Q5KM if self.more_bits(layer) => DType::Q6K,
            F::Q4KS if layer < 4 => DType::Q5K,
            other => other.base(),
        };
        // Llama-2-70B and its like.
        let is_70b = self.model.layers == 80 && self.grouping() > 1;
        if is_70b && matches!(dtype, DType::Q3K | DType::Q4K) {
            dtype = DType::Q5K;
        }
        if self.experts() == 8 { DType::Q8_0 } else { dtype }
    }

    fn queries(&self, role: TensorRole) -> DType {
        use GgufFileType as F;
        match self.file {
            _ if role == TensorRole::AttentionK && self.experts() == 8 => DType::Q8_0,
            F::Iq3Xs => DType::Iq3Xxs,
            F::Iq3Xxs => DType::Iq2S,
            other => other.base(),
        }
    }

    fn attention_output(&self) -> DType {
        use GgufFileType as F;
        let base = self.file.base();
        if self.model.architecture == Architecture::Falcon {
            return if self.file == F::Q3KL { DType::Q4K } else { base };
        }
        if self.experts() == 8 {
            return match self.file {
                F::Q2K
                | F::Iq3Xs
                | F::Iq3Xxs
                | F::Q3KS
                | F::Q3KM
                | F::Iq4Nl
                | F::Q4KS
                | F::Q4KM
                | F::Iq3S
                | F::Iq3M
                | F::Iq4Xs => DType::Q5K,
                _ => base,
            };
        }
        match self.file {
            F::Q2K => DType::Q3K,
            F::Iq3Xxs => DType::Iq3S,
            F::Q3KM | F::Iq3M => DType::Q4K,
            F::Q3KL => DType::Q5K,
            _ => base,
        }
    }

    fn down(&self, layer: u64) -> DType {
        use GgufFileType as F;
        let (layers, base) = (self.model.layers, self.file.base());
        let falcon = self.model.architecture == Architecture::Falcon;
        let (more, early) = (self.more_bits(layer), layer < layers / 8);
        let important = self.file.has_importance();
        match self.file {
            F::Q2K => DType::Q3K,
            F::Q2KS if early => DType::Q4K,
            F::Q3KM if layer < layers / 16 => DType::Q5K,
            F::Q3KM if !falcon || more => DType::Q4K,
            F::Iq3M if early || (self.experts() == 8 && more) => DType::Q4K,
            F::Q3KL => {
                if falcon {
                    DType::Q4K
                } else {
                    DType::Q5K
                }
            }
            F::Q4KM if falcon && layer < layers / 16 => DType::Q6K,
            F::Q4KM if falcon && more => DType::Q5K,
            F::Q4KM | F::Q5KM if !falcon && more => DType::Q6K,
            F::Q5KM if more => DType::Q6K,
            F::Q4KS if !falcon && early => DType::Q5K,
            F::Iq4Nl | F::Iq4Xs if early && !important => DType::Q5K,
            _ => base,
        }
    }

    fn up(&self, layer: u64) -> DType {
        let (layers, file) = (self.model.layers, self.file);
        let middle = layer >= layers / 8 && layer < 7 * layers / 8;
        if file == GgufFileType::Iq3Xs && middle { DType::Iq3Xxs } else { file.base() }
    }
}

/// `dtype`, or the format that replaces it where rows are no multiple of its blocks.
fn fitting(dtype: DType, columns: u64) -> DType {
    let fits = |dtype: DType| columns.is_multiple_of(dtype.block().values);
    if fits(dtype) {
        return dtype;
    }
    let smaller = match dtype {
        DType::Iq1S
        | DType::Iq1M
        | DType::Iq2Xxs
        | DType::Iq2Xs
        | DType::Iq2S
        | DType::Iq3Xxs
        | DType::Iq3S
        | DType::Iq4Xs => DType::Iq4Nl,
        DType::Q2K | DType::Q3K => DType::Q4_0,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        other => other,
    };
    if fits(smaller) { smaller } else { DType::F16 }
}
