//! The operands of a compute task.

use kernels::Scores;
use planner::{MicroBatch, OperandSource};
use scenarios::{Model, Operator, RouterScoring};
use std::ops::Range;

/// One operator of one micro-batch on one device.
#[derive(Clone, Copy)]
pub(crate) struct OperatorJob<'a> {
    pub layer: Option<u32>,
    pub part: MicroBatch,
    pub operator: Operator,
    /// Output rows of the matrix; empty where the operator has none.
    pub rows: &'a Range<u64>,
    pub source: OperandSource,
}

/// Whether what follows the norm in the vectors of a product's sublayer is the product's bias, if
/// there is anything.
pub(crate) fn is_biased(model: &Model, product: Operator) -> bool {
    match product {
        // The vector of a router with a sigmoid corrects its choice.
        Operator::Route => model.experts.as_ref().is_none_or(|it| it.scoring != RouterScoring::Sigmoid),
        Operator::QkvProj => model.qkv_bias,
        Operator::DownProj => model.ffn_bias,
        _ => true,
    }
}

/// The scale and cap of attention scores in the job's layer, and how far back a token sees there.
pub(crate) fn scores(model: &Model, job: OperatorJob<'_>) -> Scores {
    let model = model.layer_or_ends(job.layer);
    let window = model.wiring.window;
    Scores {
        scale: model.score_scale() as f32,
        cap: model.wiring.score_cap.map(|cap| cap as f32),
        window: window.map(|window| window.tokens as usize),
        chunked: window.is_some_and(|window| window.chunked),
    }
}
