//! Calls of mixtures of experts besides [`super::ExpertRouting`]: routers that are not plain, and
//! shared experts.

use super::call::{KernelCall, count};
use super::experts::ExpertRouting;
use super::slice::GpuSlice;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

/// How a router's outputs become the weights of a token's experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterRule {
    /// Experts of a token.
    pub per_token: usize,
    /// Groups of equally many experts; a token first chooses among the groups.
    pub groups: usize,
    /// Groups that a token's experts are in.
    pub groups_per_token: usize,
    /// Whether scores are sigmoids of the outputs and a group counts as the sum of its two best.
    /// Otherwise scores are a softmax of the outputs, and a group counts as its best.
    pub sigmoid: bool,
    /// Whether the weights of a token's experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the weights.
    pub factor: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct WeighArguments {
    scores: u64,
    correction: u64,
    count: i32,
    per_token: i32,
    groups: i32,
    groups_per_token: i32,
    sigmoid: i32,
    normalised: i32,
    factor: f32,
    unused: i32,
}

/// Replaces the outputs of a router, `[token][experts]`, by the weights of each token's experts,
/// and by 0 for all others. `correction` has a number for each expert, which its score is raised by
/// for the choice alone (arXiv:2412.19437, section 2.1.2).
///
/// # Panics
/// Where the groups do not divide the experts, or the lengths do not agree.
pub fn weigh_experts(
    outputs: GpuSlice<f32>,
    [tokens, experts]: [usize; 2],
    correction: Option<GpuSlice<f32>>,
    rule: RouterRule,
) -> KernelCall {
    let RouterRule { per_token, groups, groups_per_token, .. } = rule;
    assert!((1..=experts).contains(&per_token) && experts <= ExpertRouting::MOST, "{rule:?} of {experts}");
    assert!(groups > 0 && experts.is_multiple_of(groups), "{rule:?} of {experts}");
    assert!((1..=groups).contains(&groups_per_token), "{rule:?}");
    let arguments = WeighArguments {
        scores: outputs.holding(tokens * experts, "outputs"),
        correction: correction.map_or(0, |correction| correction.holding(experts, "corrections")),
        count: count(experts),
        per_token: count(per_token),
        groups: count(groups),
        groups_per_token: count(groups_per_token),
        sigmoid: rule.sigmoid.into(),
        normalised: rule.normalised.into(),
        factor: rule.factor,
        unused: 0,
    };
    KernelCall::new(GpuProgram::Mixture, "weigh_experts", [tokens, 1, 1], 32, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SharedArguments {
    out: u64,
    made: u64,
    x: u64,
    gate: u64,
    columns: i32,
    adds: i32,
}

/// out = σ(x·gate) · made for `rows` rows of `columns` values, or made where there is no gate; it
/// is added to `out` where `adds`.
pub fn add_shared(
    out: GpuSlice<u16>,
    made: GpuSlice<u16>,
    (x, gate): (GpuSlice<u16>, Option<GpuSlice<f32>>),
    [rows, columns]: [usize; 2],
    adds: bool,
) -> KernelCall {
    let values = rows * columns;
    let arguments = SharedArguments {
        out: out.holding(values, "out"),
        made: made.holding(values, "what the expert made"),
        x: x.holding(values, "x"),
        gate: gate.map_or(0, |gate| gate.holding(columns, "the gate")),
        columns: count(columns),
        adds: adds.into(),
    };
    KernelCall::new(GpuProgram::Mixture, "add_shared", [rows, 1, 1], 256, arguments)
}
