//! The only count of FLOP and bytes in Fulcrum.

use crate::model::experts::Traffic;
use crate::model::operators::operator::{Buffer, Formats, Operator, Step};
use crate::model::operators::sublayer::Sublayer;
use crate::model::sliding_window::mean_attention;
use crate::model::transformer::Model;
use hwprofiles::{AttentionShape, Bytes, Elements, Flop};
use std::ops::Range;

/// What limits an operator's time, with the numbers that a device's rate depends on.
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
    /// Causal attention.
    Attention(AttentionShape),
    /// Bound by the activations it moves.
    Elementwise,
}

/// The work of one operator, or of one device's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// Shape of the computation.
    pub shape: Shape,
    /// A multiply-add is 2; attention counts only what lies below the causal diagonal.
    pub flop: Flop,
    /// Matrix bytes read.
    pub weights: Bytes,
    /// KV-cache bytes read.
    pub kv_read: Bytes,
    /// KV-cache bytes written.
    pub kv_written: Bytes,
    /// Activation bytes read and written.
    pub activations: Bytes,
    /// Fork-joins, or kernel launches.
    pub launches: u32,
}

impl Work {
    /// The work of `operator` in `step`; `rows` is the range of the matrix's output rows (all of them where the
    /// operator has no matrix or is not split).
    pub fn of(operator: Operator, model: &Model, formats: &Formats, step: &Step, rows: &Range<u64>) -> Self {
        Self::routed(operator, model, formats, step, rows, None)
    }

    /// [`Work::of`] where so much is asked of the experts `rows`; in the mean over what tokens choose where nothing is
    /// said.
    pub fn routed(
        operator: Operator,
        model: &Model,
        formats: &Formats,
        step: &Step,
        rows: &Range<u64>,
        traffic: Option<Traffic>,
    ) -> Self {
        let sublayer = operator.sublayer();
        let tokens = match sublayer {
            Sublayer::Head => step.sampled(),
            _ => step.rows(),
        };
        let moved = |buffer: Buffer| buffer.bytes(formats, tokens, buffer.columns(model));
        let read: Bytes = operator.reads().iter().map(|&buffer| moved(buffer)).sum();
        let mut work = Self {
            shape: Shape::Elementwise,
            flop: Flop::ZERO,
            weights: Bytes::ZERO,
            kv_read: Bytes::ZERO,
            kv_written: Bytes::ZERO,
            activations: read + moved(operator.writes()),
            launches: 1,
        };
        match (operator, sublayer.matrix(model)) {
            (Operator::Experts, Some(_)) => {
                let mean = || model.experts.as_ref().map(|experts| experts.traffic(rows, tokens));
                if let Some(traffic) = traffic.or_else(mean) {
                    work.run_experts(model, formats, tokens, rows, traffic);
                }
            }
            (op, Some((_, numbers))) if op.is_matmul() => {
                // A row of the shared expert is a row of each of its matrices.
                let k = sublayer.inputs(model).unwrap_or(numbers);
                let n = (rows.end - rows.start) * (numbers / k);
                work.shape = Shape::Gemm { m: tokens, n, k };
                work.flop = Flop::new(2 * u128::from(tokens) * u128::from(n) * u128::from(k));
                work.weights = sublayer.matrix_bytes(model, formats.weights, rows);
                let columns = op.output_columns(model, rows);
                work.activations = read + op.writes().bytes(formats, tokens, columns.end - columns.start);
                if op == Operator::SharedExpert {
                    work.launches = LAUNCHES_OF_A_NETWORK;
                    work.activations += inner(model, formats, tokens * (rows.end - rows.start));
                }
            }
            (Operator::Embed, _) => {
                work.weights = formats.weights.of(sublayer).matrix_bytes(tokens, model.hidden);
            }
            (Operator::Rotate, _) => {
                work.kv_written = kv_bytes(model, formats, step.batch, step.new_tokens);
            }
            (Operator::Attention, _) => {
                let (shape, flop, tokens) = attention(model, step);
                work.shape = Shape::Attention(shape);
                work.flop = flop;
                work.kv_read = kv_bytes(model, formats, step.batch, tokens);
            }
            _ => {}
        }
        work
    }

    /// The experts `range`, of which so much is asked: every expert that is touched is read once.
    ///
    /// The shape is one product of the same bytes and FLOP: the touched experts' matrices stacked, each with the
    /// tokens of a touched expert in the mean.
    fn run_experts(
        &mut self,
        model: &Model,
        formats: &Formats,
        tokens: u64,
        range: &Range<u64>,
        traffic: Traffic,
    ) {
        let Some(experts) = &model.experts else { return };
        let numbers = (experts.intermediate * model.neuron()) as f64;
        let one = Sublayer::Experts.matrix_bytes(model, formats.weights, &(0..1)).as_f64();
        let rows = (traffic.touched * numbers / model.hidden as f64).ceil();
        let tokens_each = if traffic.touched > 0.0 { traffic.pairs / traffic.touched } else { 0.0 };
        let neurons = (traffic.pairs * experts.intermediate as f64).round() as u64;
        let columns = Operator::Experts.output_columns(model, range);
        let read = Operator::Experts.reads().iter().map(|b| b.bytes(formats, tokens, b.columns(model)));
        let written = Operator::Experts.writes().bytes(formats, tokens, columns.end - columns.start);
        // A mean of 2 computed as 2.0000000001 is no third token.
        self.shape = Shape::Gemm { m: (tokens_each - 1e-6).ceil() as u64, n: rows as u64, k: model.hidden };
        self.flop = Flop::new((2.0 * traffic.pairs * numbers).round() as u128);
        self.weights = Bytes::new((traffic.touched * one).round() as u64);
        self.activations = read.sum::<Bytes>() + written + inner(model, formats, neurons);
        self.launches = LAUNCHES_OF_A_NETWORK;
    }
}

/// A whole feed-forward network as one operator: both of its products, and the non-linearity between them.
const LAUNCHES_OF_A_NETWORK: u32 = 3;

/// What is written and read again between the matrices of experts, for so many neurons of all tokens.
fn inner(model: &Model, formats: &Formats, neurons: u64) -> Bytes {
    formats.activations.bytes(Elements::product(&[2, model.inner_numbers(), neurons]))
}

/// KV bytes of one layer: 2 · batch · tokens · kv_heads rows of head_dim numbers, or with latent attention
/// batch · tokens rows of kv_rank + rope_dim. Formats with groups pad each row.
pub fn kv_bytes(model: &Model, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
    let rows = Elements::product(&[batch, tokens, model.kv_rows()]).get();
    formats.kv.matrix_bytes(rows, model.kv_numbers() / model.kv_rows())
}

/// The attention of one layer in `step`, its FLOP, and the tokens of each sequence whose keys and values are read; in the mean
/// over the layers where some have windows.
fn attention(model: &Model, step: &Step) -> (AttentionShape, Flop, u64) {
    let shape = AttentionShape {
        phase: step.phase,
        batch: step.batch,
        new_tokens: step.new_tokens,
        past_tokens: step.past_tokens,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim,
    };
    match model.latent {
        Some(latent) => {
            let (of_latent, flop) = latent.attention(model, shape);
            (of_latent, flop, shape.tokens())
        }
        None => mean_attention(model, step, shape),
    }
}
