//! The experts that each token goes to.

use crate::compute::job::OperatorJob;
use crate::setup::run_setup::RunSetup;
use hwprofiles::DeviceId;
use planner::Slice;
use scenarios::{Experts, Phase, Sublayer};
use std::ops::Range;

/// Whether a job is the first of its layer's expert jobs on a device. It starts the sum, and the
/// device's later jobs add to it.
pub(crate) fn starts_sum(setup: &RunSetup, phase: Phase, device: DeviceId, job: OperatorJob<'_>) -> bool {
    let layer = &setup.placement.layers[job.layer.expect("experts are in a layer") as usize];
    let mine = |slice: &&Slice| slice.device(phase) == device;
    let first = layer.slices(Sublayer::Experts).iter().find(mine).expect("its own slice");
    first.rows.start == job.rows.start
}

/// For each of the experts `range`: the tokens that go to it, in their order, with their weights.
///
/// `scores` has one row of router scores per token, with one score per expert. A token goes to the
/// [`Experts::per_token`] experts with the highest scores, of equal scores to the first. Its
/// weights are the softmax over all scores, or over those of its own experts where weights are
/// normalised.
pub(crate) fn tokens_by_expert(
    experts: &Experts,
    scores: &[f32],
    range: &Range<u64>,
) -> Vec<Vec<(usize, f32)>> {
    let mut tokens = vec![Vec::new(); (range.end - range.start) as usize];
    let mut order: Vec<usize> = Vec::new();
    for (token, scores) in scores.chunks_exact(experts.count as usize).enumerate() {
        order.clear();
        order.extend(0..scores.len());
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let chosen = &order[..experts.per_token as usize];
        let highest = scores[chosen[0]];
        let exponential = |expert: &usize| (scores[*expert] - highest).exp();
        let over = if experts.normalised { chosen } else { &order[..] };
        let total: f32 = over.iter().map(exponential).sum();
        for expert in chosen {
            if range.contains(&(*expert as u64)) {
                tokens[expert - range.start as usize].push((token, exponential(expert) / total));
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_goes_to_its_best_experts_with_weights_of_a_softmax() {
        let mut experts = Experts::new(4, 2, 1);
        let scores = [[1.0, 3.0, 2.0, 0.0], [0.5, 0.5, 0.5, 0.5]].concat();
        let e = |x: f32| x.exp();
        for normalised in [true, false] {
            experts.normalised = normalised;
            let sum = |of: &[f32]| of.iter().map(|&x| e(x)).sum::<f32>();
            let total = if normalised { sum(&[3.0, 2.0]) } else { sum(&scores[..4]) };
            let even = if normalised { 0.5 } else { 0.25 };
            let expected =
                [vec![(1, even)], vec![(0, e(3.0) / total), (1, even)], vec![(0, e(2.0) / total)], vec![]];
            let all = tokens_by_expert(&experts, &scores, &(0..4));
            for (found, expected) in all.iter().zip(&expected) {
                assert_eq!(found.len(), expected.len(), "{all:?}");
                for ((token, weight), (other, wanted)) in found.iter().zip(expected) {
                    assert!(token == other && (weight - wanted).abs() < 1e-6, "{all:?}");
                }
            }
            // The parts of a divided layer have each expert once.
            let parts =
                [tokens_by_expert(&experts, &scores, &(0..1)), tokens_by_expert(&experts, &scores, &(1..4))];
            assert_eq!(parts.concat(), all);
        }
    }
}
