//! FlexGen's policy at a machine's rates.

use super::fit::largest;
use super::host_and_accelerator::HostAndAccelerator;
use super::no_rule::NoRule;
use super::speeds::{attention_rate, link_rate, matrix_rate};
use crate::cost::CostModel;
use crate::cost::footprint;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::BatchSteps;
use crate::published::flexgen::{Block, FlexGenProblem, Rates};
use hwprofiles::{Bytes, FlopPerSec, MemoryId};
use scenarios::Sublayer;

/// FlexGen's shares in whole layers, from the last layer on. The block is the batch. There is no
/// disk, since no accelerator here reads one. Where exact bytes exceed the memory, the accelerator
/// gets fewer layers.
pub(super) fn placement(
    cost_model: CostModel<'_>,
    batch_steps: &BatchSteps,
    pair: &HostAndAccelerator,
) -> Result<Placement, NoRule> {
    let model = cost_model.model;
    let layers = model.layers as usize;
    let with_counts = |weights: usize, cache: usize| {
        let home = |count: usize, index: usize| if index + count >= layers { pair.own } else { pair.dram };
        pair.placement(model, |index, _, sublayer| match (sublayer, home(cache, index)) {
            (Sublayer::Attention, kv) if kv == pair.own => (kv, [pair.accelerator; 2]),
            (Sublayer::Attention, kv) => (kv, [pair.accelerator, pair.host]),
            _ => (home(weights, index), [pair.accelerator; 2]),
        })
    };
    let [weights, cache] = shares(cost_model, batch_steps, pair, &with_counts(0, 0))?
        .map(|share| (share * layers as f64) as usize);
    let largest = largest(cost_model, &batch_steps.extent, pair, weights.max(cache), |most| {
        with_counts(weights.min(most), cache.min(most))
    });
    Ok(largest?.0)
}

/// The shares of weights and KV cache on the accelerator; `streamed` is the room needed beside
/// them.
fn shares(
    cost_model: CostModel<'_>,
    batch_steps: &BatchSteps,
    pair: &HostAndAccelerator,
    streamed: &Placement,
) -> Result<[f64; 2], PlannerError> {
    let CostModel { machine, model, formats } = cost_model;
    let used = footprint(cost_model, &batch_steps.extent, streamed)?[pair.own.0];
    let capacity = |memory: MemoryId| machine.memory(memory).capacity.value;
    let prefill = batch_steps.prefill.first().map_or(batch_steps.decode, |alike| alike[alike.len() / 2]);
    let steps = [prefill, batch_steps.decode];
    let [mut matrix, mut attention] = [[FlopPerSec::ZERO; 2]; 2];
    for (phase, step) in steps.iter().enumerate() {
        matrix[phase] = matrix_rate(cost_model, pair.accelerator, step.rows())?;
        attention[phase] = attention_rate(cost_model, pair.accelerator, step)?;
    }
    let link = link_rate(cost_model, pair)?;
    let sequences = batch_steps.extent.batch;
    let question = FlexGenProblem {
        model,
        formats,
        prompt: batch_steps.prefill.iter().flatten().map(|step| step.new_tokens).sum(),
        output: batch_steps.decodes + 1,
        block: Block { gpu_batch: sequences, sequences },
        rates: Rates {
            to_gpu: link,
            to_cpu: [link; 2],
            disk: None,
            matrix,
            attention,
            cpu: attention_rate(cost_model, pair.host, &batch_steps.decode)?,
        },
        room: [capacity(pair.own), capacity(pair.dram), Bytes::ZERO],
        working: Some(used.activations + used.staging),
    };
    // Where FlexGen's own count says that nothing fits, nothing is put on the accelerator; the
    // exact count decides.
    Ok(question.policy()?.map_or([0.0; 2], |policy| [policy.shares.weights[0], policy.shares.cache[0]]))
}
