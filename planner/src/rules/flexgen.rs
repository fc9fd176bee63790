//! FlexGen's policy with a machine's rates.

use super::NoRule;
use super::fit::largest;
use super::lia::{link, matrix_rate};
use super::sides::Sides;
use crate::cost::Pricing;
use crate::course::Course;
use crate::error::PlannerError;
use crate::footprint::footprint;
use crate::placement::Placement;
use crate::published::flexgen::{Block, Question, Rates};
use hwprofiles::{Bytes, DeviceId, FlopPerSec};
use scenarios::{Operator, Shape, Sublayer, Work};

/// Its shares in whole layers, from the back. The block is the batch, there is no disk: no accelerator of ours reads
/// one. Where exact bytes do not let all of it fit, fewer layers are the accelerator's.
pub(super) fn placement(pricing: Pricing<'_>, course: &Course, sides: &Sides) -> Result<Placement, NoRule> {
    let model = pricing.model;
    let layers = model.layers as usize;
    let of = |weights: usize, cache: usize| {
        let home = |count: usize, index: usize| if index + count >= layers { sides.own } else { sides.dram };
        let mut placement = sides.placement(model, |_| (sides.dram, [sides.accelerator; 2]));
        for (index, layer) in placement.layers.iter_mut().enumerate() {
            *layer = sides.layer(model, |sublayer| match sublayer {
                Sublayer::Attention => {
                    let kv = home(cache, index);
                    let decode = if kv == sides.own { sides.accelerator } else { sides.host };
                    (kv, [sides.accelerator, decode])
                }
                _ => (home(weights, index), [sides.accelerator; 2]),
            });
        }
        placement
    };
    let [weights, cache] =
        shares(pricing, course, sides, &of(0, 0))?.map(|share| (share * layers as f64) as usize);
    largest(pricing, &course.extent, sides, weights.max(cache), |most| of(weights.min(most), cache.min(most)))
}

/// The shares of weights and KV cache on the accelerator; `streamed` says what it needs beside them.
fn shares(
    pricing: Pricing<'_>,
    course: &Course,
    sides: &Sides,
    streamed: &Placement,
) -> Result<[f64; 2], PlannerError> {
    let Pricing { machine, model, formats } = pricing;
    let working = footprint(pricing, &course.extent, streamed)?;
    let room = |memory: hwprofiles::MemoryId| {
        let used = &working[memory.0];
        machine.memory(memory).capacity.value.saturating_sub(used.activations + used.staging)
    };
    let attention = |device: DeviceId| -> Result<FlopPerSec, PlannerError> {
        let work = Work::of(Operator::Attention, model, formats, &course.decode, &(0..0));
        match work.shape {
            Shape::Attention(shape) => {
                let time = machine.device(device).attention_time(formats.kv, &shape)?.time;
                Ok(work.flop / time)
            }
            _ => Ok(FlopPerSec::new(f64::INFINITY)),
        }
    };
    let link = link(pricing, sides)?;
    let prompt = course.prefill.iter().flatten().map(|step| step.new_tokens).sum();
    let question = Question {
        model,
        formats,
        prompt,
        output: course.decodes + 1,
        block: Block { gpu_batch: course.extent.batch, batches: 1 },
        rates: Rates {
            to_gpu: link,
            to_cpu: link,
            disk: None,
            matrix: matrix_rate(pricing, machine.device(sides.accelerator))?,
            attention: attention(sides.accelerator)?,
            cpu: attention(sides.host)?,
        },
        room: [room(sides.own), room(sides.dram), Bytes::ZERO],
    };
    // Where its own count says that nothing fits, nothing is put on the accelerator; the exact count decides.
    Ok(question.policy()?.map_or([0.0; 2], |policy| [policy.shares.weights[0], policy.shares.cache[0]]))
}
