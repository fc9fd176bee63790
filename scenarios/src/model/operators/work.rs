//! The count of FLOP and bytes of each operator. No other code in Fulcrum counts them.

use crate::model::experts::ExpertTraffic;
use crate::model::mixer::Mixer;
use crate::model::operators::activation_buffer::ActivationBuffer;
use crate::model::operators::attention::{index_scores, layer_attention};
use crate::model::operators::formats::Formats;
use crate::model::operators::operator::Operator;
use crate::model::operators::step::Step;
use crate::model::operators::sublayer::Sublayer;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use hwprofiles::{AttentionShape, Bytes, Elements, Flop, Phase};
use std::ops::Range;

/// The kind of computation, with the sizes that a device's rate depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// y[m, n] = x[m, k] · W[n, k]ᵀ.
    Gemm {
        /// Rows of x.
        m: u64,
        /// Rows of W.
        n: u64,
        /// Columns of W.
        k: u64,
    },
    /// Several such products, one after the other.
    Gemms(GemmChain),
    /// Causal attention.
    Attention(AttentionShape),
    /// A recurrence: limited by the state and the activations that it moves, or by its products,
    /// which together are as large as y[m, n] = x[m, k] · W[n, k]ᵀ.
    Recurrence {
        /// Tokens.
        m: u64,
        /// As many rows as the FLOP make with `k` columns.
        n: u64,
        /// Depth of the products.
        k: u64,
        /// Passes over the state for each token that is computed alone.
        passes: u64,
    },
    /// Elementwise: limited by the activations that it moves.
    Elementwise,
}

/// Products of one operator that run one after the other: (m, n, k) of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GemmChain {
    products: [[u64; 3]; GemmChain::MOST],
    count: usize,
}

impl GemmChain {
    /// The most products of one operator.
    const MOST: usize = 10;

    /// The chain of these products.
    ///
    /// # Panics
    /// There are more than any sublayer has.
    fn new(all: impl Iterator<Item = [u64; 3]>) -> Self {
        let mut chain = Self { products: [[0; 3]; Self::MOST], count: 0 };
        for product in all {
            chain.products[chain.count] = product;
            chain.count += 1;
        }
        chain
    }

    /// Each product's m, n and k.
    pub fn iter(&self) -> impl Iterator<Item = [u64; 3]> + '_ {
        self.products[..self.count].iter().copied()
    }
}

/// The work of one operator, or of one device's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// Shape of the computation.
    pub shape: Shape,
    /// A multiply-add counts as 2; attention counts only the part below the causal diagonal.
    pub flop: Flop,
    /// Matrix bytes read.
    pub weights: Bytes,
    /// KV-cache bytes read.
    pub kv_read: Bytes,
    /// KV-cache bytes written.
    pub kv_written: Bytes,
    /// Activation bytes read and written.
    pub activations: Bytes,
    /// Those of them that the kernels around the products of a network move where each is a kernel
    /// of its own: tokens are gathered by expert, gate and up become inner values, and the experts'
    /// results are summed for each token.
    pub between: Bytes,
    /// Fork-joins on a CPU, kernel launches on a GPU.
    pub launches: u32,
    /// Experts that are computed with; zero for other operators.
    pub experts: u64,
}

impl Work {
    /// Counts the work of `operator` in `step`. `rows` is the range of the matrix's output rows:
    /// all of them if the operator is not divided; without a matrix it is not used. The work of
    /// experts is the mean over the tokens' choices.
    pub fn count(
        operator: Operator,
        model: &Model,
        formats: &Formats,
        step: &Step,
        rows: &Range<u64>,
    ) -> Self {
        Self::count_routed(operator, model, formats, step, rows, None)
    }

    /// [`Work::count`] with this `traffic` on the experts `rows`; `None` means the mean traffic.
    pub fn count_routed(
        operator: Operator,
        model: &Model,
        formats: &Formats,
        step: &Step,
        rows: &Range<u64>,
        traffic: Option<ExpertTraffic>,
    ) -> Self {
        let sublayer = operator.sublayer();
        let tokens = match sublayer {
            Sublayer::Head => step.sampled(),
            _ => step.rows(),
        };
        let bytes = |buffer: ActivationBuffer| buffer.bytes(formats, tokens, buffer.columns(model));
        let read: Bytes = operator.reads().iter().map(|&buffer| bytes(buffer)).sum();
        let mut work = Self {
            shape: Shape::Elementwise,
            flop: Flop::ZERO,
            weights: Bytes::ZERO,
            kv_read: Bytes::ZERO,
            kv_written: Bytes::ZERO,
            activations: read + bytes(operator.writes()),
            between: Bytes::ZERO,
            launches: 1,
            experts: 0,
        };
        match (operator, sublayer.matrix(model)) {
            (Operator::Experts, Some(_)) => {
                let mean = || model.experts.as_ref().map(|experts| experts.traffic(rows, tokens));
                if let Some(traffic) = traffic.or_else(mean) {
                    work.add_experts(model, formats, tokens, rows, traffic);
                }
            }
            (op, Some((all, _))) if op.is_matmul() && !sublayer.is_single(model) => {
                work.add_products(sublayer, model, step, tokens, rows, all);
                let expansions = sublayer.products(model).into_iter().filter(|p| p.is_expansion);
                let format = formats.weights.for_sublayer(sublayer);
                work.weights = sublayer.matrix_bytes(model, formats.weights, rows)
                    + expansions.map(|p| format.matrix_bytes(p.rows, p.columns)).sum();
            }
            (op, Some((_, numbers))) if op.is_matmul() => {
                // A row of the shared expert holds one row of each of its matrices.
                let k = sublayer.inputs(model).unwrap_or(numbers);
                let n = (rows.end - rows.start) * (numbers / k);
                work.shape = Shape::Gemm { m: tokens, n, k };
                work.flop = Flop::new(2 * u128::from(tokens) * u128::from(n) * u128::from(k));
                work.weights = sublayer.matrix_bytes(model, formats.weights, rows);
                let columns = op.output_columns(model, rows);
                work.activations = read + op.writes().bytes(formats, tokens, columns.end - columns.start);
                if op == Operator::SharedExpert {
                    work.launches = NETWORK_LAUNCHES;
                    let neurons = tokens * (rows.end - rows.start);
                    work.activations += inner_bytes(model, formats, neurons);
                    work.between = activation_bytes(model, formats, neurons);
                }
            }
            (Operator::Embed, _) => {
                work.add_embedding(model, formats, tokens);
            }
            (Operator::Rotate, _) => {
                work.kv_written = model.appended_bytes(formats, step.batch, step.new_tokens);
            }
            (Operator::IndexScores | Operator::Attention, _) => {
                work.add_mixer(operator, model, formats, step);
            }
            _ => {}
        }
        work
    }

    /// Adds the rows of the token table, and the projection of embeddings.
    fn add_embedding(&mut self, model: &Model, formats: &Formats, tokens: u64) {
        let format = formats.weights.for_sublayer(Sublayer::Embed);
        let table = |columns| format.matrix_bytes(tokens, columns);
        self.weights = table(model.hidden) + table(model.layer_embeddings());
        if let Some(ngrams) = model.wiring.ngrams {
            let looking = (0..model.layers).filter(|&layer| model.layer(layer).wiring.ngrams.is_some());
            let rows = tokens * ngrams.hashes * looking.count() as u64;
            self.weights += format.matrix_bytes(rows, ngrams.width);
        }
        let Some(projection) = model.embedding_product() else { return };
        let [m, n, k] = [tokens, projection.rows, projection.columns];
        self.shape = Shape::Gemm { m, n, k };
        self.flop = Flop::new(2 * [m, n, k].map(u128::from).iter().product::<u128>());
        self.weights += format.matrix_bytes(n, k);
        // Its input is written and read again.
        self.activations += formats.activations.bytes(Elements::product(&[2, m, k]));
        self.launches = 2;
    }

    /// Adds the work of an indexer, of attention, or of a recurrence.
    fn add_mixer(&mut self, operator: Operator, model: &Model, formats: &Formats, step: &Step) {
        let attention = match (operator, &model.index, model.mixer) {
            (Operator::IndexScores, Some(index), _) => {
                let scores = index_scores(model, index, step);
                self.kv_read = model.index_key_bytes(formats, step.batch * scores.kv_tokens);
                scores
            }
            (Operator::IndexScores, None, _) => return,
            (_, _, Mixer::Recurrent(recurrence)) => return self.add_recurrence(recurrence, model, step),
            _ => {
                let attention = layer_attention(model, step);
                self.kv_read = model.attended_bytes(formats, step.batch, attention.kv_tokens);
                attention
            }
        };
        self.shape = Shape::Attention(attention.shape);
        self.flop = attention.flop;
    }

    /// Adds the products of a sublayer of several matrices; `rows` of `all` rows are computed.
    fn add_products(
        &mut self,
        sublayer: Sublayer,
        model: &Model,
        step: &Step,
        tokens: u64,
        rows: &Range<u64>,
        all: u64,
    ) {
        let part = |count: u64| {
            let share = u128::from(rows.end - rows.start) * u128::from(count);
            // It is at most `count`.
            share.div_ceil(u128::from(all.max(1))) as u64
        };
        let products = sublayer.products(model);
        let sizes = products.iter().map(|p| [p.tokens(step, tokens), part(p.rows), p.columns]);
        let chain = GemmChain::new(sizes);
        self.shape = Shape::Gemms(chain);
        self.flop =
            chain.iter().map(|size| Flop::new(2 * size.map(u128::from).iter().product::<u128>())).sum();
        self.launches = products.len() as u32;
    }

    /// Adds the work of a recurrence, which reads and writes the state of each sequence: tokens in
    /// turn in decode, in chunks in prefill.
    fn add_recurrence(&mut self, recurrence: Recurrence, model: &Model, step: &Step) {
        let each = match step.phase {
            Phase::Decode => recurrence.flop_in_turn(),
            Phase::Prefill => recurrence.flop_in_chunks(),
        };
        let tokens = step.rows();
        let k = recurrence.product_depth();
        self.flop = Flop::new(u128::from(tokens) * u128::from(each));
        let passes = recurrence.state_passes();
        self.shape = Shape::Recurrence { m: tokens, n: each.div_ceil(2 * k), k, passes };
        self.kv_read = model.state_bytes() * step.batch;
        self.kv_written = self.kv_read;
    }

    /// Adds the work of the experts `range` with this `traffic`. Every touched expert is read once.
    ///
    /// The shape is one product with the same bytes and FLOP: the touched experts' matrices are
    /// stacked, and the number of tokens is the mean over the touched experts.
    fn add_experts(
        &mut self,
        model: &Model,
        formats: &Formats,
        tokens: u64,
        range: &Range<u64>,
        traffic: ExpertTraffic,
    ) {
        let Some(experts) = &model.experts else { return };
        let (numbers, width) = (model.expert_parameters() as f64, model.expert_width());
        let one = Sublayer::Experts.matrix_bytes(model, formats.weights, &(0..1)).as_f64();
        let rows = (traffic.touched * numbers / width as f64).ceil();
        let tokens_each = if traffic.touched > 0.0 { traffic.pairs / traffic.touched } else { 0.0 };
        let neurons = (traffic.pairs * experts.intermediate as f64).round() as u64;
        let columns = Operator::Experts.output_columns(model, range);
        let read = Operator::Experts.reads().iter().map(|b| b.bytes(formats, tokens, b.columns(model)));
        let written = Operator::Experts.writes().bytes(formats, tokens, columns.end - columns.start);
        // Rounding errors must not add a token: a mean of 2 may be computed as 2.0000000001.
        self.shape = Shape::Gemm { m: (tokens_each - 1e-6).ceil() as u64, n: rows as u64, k: width };
        self.flop = Flop::new((2.0 * traffic.pairs * numbers).round() as u128);
        self.weights = Bytes::new((traffic.touched * one).round() as u64);
        self.activations = read.sum::<Bytes>() + written + inner_bytes(model, formats, neurons);
        let gathered = Elements::product(&[2, tokens + traffic.pairs.round() as u64, width]);
        self.between = formats.activations.bytes(gathered) + activation_bytes(model, formats, neurons);
        self.launches = NETWORK_LAUNCHES;
        self.experts = traffic.touched.round() as u64;
    }
}

/// Launches of a whole feed-forward network as one operator: two products, and the non-linearity.
const NETWORK_LAUNCHES: u32 = 3;

/// Bytes written and read again between the matrices of experts. `neurons` is summed over tokens.
fn inner_bytes(model: &Model, formats: &Formats, neurons: u64) -> Bytes {
    formats.activations.bytes(Elements::product(&[2, model.neuron_activations(), neurons]))
}

/// Bytes that the non-linearity between two products reads and writes. `neurons` is summed over
/// tokens.
fn activation_bytes(model: &Model, formats: &Formats, neurons: u64) -> Bytes {
    formats.activations.bytes(Elements::product(&[model.neuron_activations() + 1, neurons]))
}
