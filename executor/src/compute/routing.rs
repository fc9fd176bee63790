//! The experts that each token goes to.

use crate::compute::job::OperatorJob;
use crate::setup::run_setup::RunSetup;
use hwprofiles::DeviceId;
use planner::Slice;
use scenarios::{Experts, Phase, RouterScoring};
use std::collections::BTreeSet;
use std::ops::Range;

/// Whether a job is the first of its sublayer's jobs on a device, of experts or a shared expert. It
/// starts the sum, and the device's later jobs add to it.
pub(crate) fn starts_sum(setup: &RunSetup, phase: Phase, device: DeviceId, job: OperatorJob<'_>) -> bool {
    let layer = &setup.placement.layers[job.layer.expect("experts are in a layer") as usize];
    let mine = |slice: &&Slice| slice.device(phase) == device;
    let first = layer.slices(job.operator.sublayer()).iter().find(mine).expect("its own slice");
    first.rows.start == job.rows.start
}

/// The number of devices that have a part of the job's sublayer, of experts or a shared expert.
pub(crate) fn device_count(setup: &RunSetup, phase: Phase, job: OperatorJob<'_>) -> usize {
    let layer = &setup.placement.layers[job.layer.expect("experts are in a layer") as usize];
    let slices = layer.slices(job.operator.sublayer()).iter();
    slices.map(|slice| slice.device(phase)).collect::<BTreeSet<_>>().len()
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
            // Another router than a plain one has written the weights themselves.
            let weight =
                if experts.has_plain_router() { exponential(expert) / total } else { scores[*expert] };
            if range.contains(&(*expert as u64)) {
                tokens[expert - range.start as usize].push((token, weight));
            }
        }
    }
    tokens
}

/// Replaces the outputs of a router that is not plain ([`Experts::has_plain_router`]) by the
/// weights of each token's experts, and by 0 for all others. `correction` has a number for each
/// expert, or none.
///
/// DeepSeek-V3 (arXiv:2412.19437, section 2.1.2) scores by a sigmoid, adds the correction for the
/// choice alone, and prefers the groups whose two best scores have the largest sum. DeepSeek-V2
/// (arXiv:2405.04434, section 2.2.2) scores by a softmax over all experts and prefers the groups
/// with the best expert.
pub(crate) fn weigh_experts(experts: &Experts, outputs: &mut [f32], correction: &[f32]) {
    let count = experts.count as usize;
    let descending = |a: &f32, b: &f32| b.total_cmp(a);
    for outputs in outputs.chunks_exact_mut(count) {
        let sigmoid = experts.scoring != RouterScoring::Softmax;
        if sigmoid {
            outputs.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp()));
        } else {
            let highest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            outputs.iter_mut().for_each(|x| *x = (*x - highest).exp());
            let total: f32 = outputs.iter().sum();
            outputs.iter_mut().for_each(|x| *x /= total);
        }
        let mut preferred = outputs.to_vec();
        preferred.iter_mut().zip(correction).for_each(|(score, correction)| *score += correction);
        let size = count / experts.groups as usize;
        let group_score = |group: &[f32]| {
            let mut best = group.to_vec();
            best.sort_by(descending);
            best.iter().take(if sigmoid { 2 } else { 1 }).sum::<f32>()
        };
        let groups: Vec<f32> = preferred.chunks_exact(size).map(group_score).collect();
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by(|&a, &b| descending(&groups[a], &groups[b]));
        for &group in &order[experts.groups_per_token as usize..] {
            preferred[group * size..][..size].fill(f32::NEG_INFINITY);
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| descending(&preferred[a], &preferred[b]));
        let (chosen, others) = order.split_at(experts.per_token as usize);
        let total: f32 = chosen.iter().map(|&expert| outputs[expert]).sum();
        let scale = experts.weight_scale as f32 / if experts.normalised { total + 1e-20 } else { 1.0 };
        chosen.iter().for_each(|&expert| outputs[expert] *= scale);
        others.iter().for_each(|&expert| outputs[expert] = 0.0);
    }
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
