//! The operands of a compute task.

use kernels::Scores;
use planner::{MicroBatch, OperandSource};
use scenarios::{Model, Operator};
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
