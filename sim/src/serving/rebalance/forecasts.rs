//! What a plan's steps take under every condition, as tables: asking them takes microseconds.

use super::demand::Demand;
use super::{LASTING, excess};
use crate::serving::batch::{Batch, Piece, StepPrices};
use crate::serving::engine::Engine;
use crate::serving::plan_prices::PlanPrices;
use crate::serving::summary::Limits;
use hwprofiles::{Machine, Missing, Ratio, Seconds};
use planner::{Pricing, Programs};

/// Devices' slow-downs that are looked at; between them, and beyond, times are on straight lines.
const SLOWER: [f64; 2] = [2.0, 4.0];

/// From one batch, or context, or prompt of a table to the next.
const WIDENING: u64 = 4;

/// Times of one plan, by batch and context for decode, by length for whole prompts, when nothing is slower and when one
/// device is.
#[derive(Debug, Clone)]
pub struct Forecasts {
    batches: Vec<u64>,
    contexts: Vec<u64>,
    prompts: Vec<u64>,
    as_planned: Table,
    /// By device, then by how much slower it is.
    slower: Vec<[Table; SLOWER.len()]>,
    engine: Engine,
}

/// Seconds.
#[derive(Debug, Clone)]
struct Table {
    /// By batch; contexts turn fastest.
    decode: Vec<f64>,
    prefill: Vec<f64>,
}

/// What is to be expected of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// What comes ÷ what it can do; above 1 the queue grows without end.
    pub load: f64,
    /// Mean time to the first token: where the queue grows, of those who come within the next minute.
    pub ttft: Seconds,
    /// Mean time per output token.
    pub tpot: Seconds,
    /// Mean tokens of an answer.
    output: f64,
}

/// Up to this load waiting is that of a queue; beyond it, what comes too much waits besides.
const FULL: f64 = 0.95;

impl Forecast {
    /// What is to be made least: the largest share of a limit that is used up; without limits the seconds of a request.
    pub fn score(&self, limits: &Limits) -> f64 {
        let used =
            |time: Seconds, limit: Option<Seconds>| limit.map_or(0.0, |limit| time.get() / limit.get());
        match limits.any() {
            true => used(self.ttft, limits.ttft).max(used(self.tpot, limits.tpot)),
            false => self.ttft.get() + self.tpot.get() * self.output,
        }
    }
}

impl Forecasts {
    /// The tables of `programs`, for an engine whose contexts are not longer than `longest`.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn new(
        pricing: Pricing<'_>,
        programs: &Programs,
        engine: &Engine,
        longest: u64,
    ) -> Result<Self, Missing> {
        let widening = |first: u64, last: u64| -> Vec<u64> {
            let steps =
                std::iter::successors(Some(first), |&at| (at < last).then(|| at.saturating_mul(WIDENING)));
            steps.map(|at| at.min(last)).collect()
        };
        let longest = longest.max(512);
        let (batches, contexts) = (widening(1, engine.max_num_seqs), widening(256, longest));
        let prompts = widening(64, longest);
        let table = |machine: &Machine| -> Result<Table, Missing> {
            let mut prices = PlanPrices::new(Pricing { machine, ..pricing }, programs);
            let mut decode = Vec::new();
            for &batch in &batches {
                for &context in &contexts {
                    let tokens = batch * context;
                    decode.push(prices.decode(batch, tokens)?.at(tokens).to_seconds().get());
                }
            }
            let prefill = prompts.iter().map(|&prompt| whole_prompt(&mut prices, engine, prompt));
            Ok(Table { decode, prefill: prefill.collect::<Result<_, _>>()? })
        };
        let slower = pricing.machine.device_ids().map(|device| -> Result<_, Missing> {
            let [two, four] = SLOWER.map(|factor| {
                let mut machine = pricing.machine.clone();
                let factor = Ratio::new(factor).unwrap_or(Ratio::ONE);
                machine.devices[device.0] = machine.devices[device.0].slower(factor);
                table(&machine)
            });
            Ok([two?, four?])
        });
        let (as_planned, slower) = (table(pricing.machine)?, slower.collect::<Result<_, _>>()?);
        Ok(Self { batches, contexts, prompts, as_planned, slower, engine: engine.clone() })
    }

    /// What is to be expected of it with so many blocks, while devices are so much slower.
    ///
    /// A decode step of b sequences takes t(b), and one in which a prompt enters beside them p(b) more; prompts take the share
    /// rate · p(b) of the time. So a token takes T = t(b) ÷ (1 − rate · p(b)), and b is as many as come while one is
    /// answered: b = rate · output · T, at most as many as there is room for. With as many as that, a request takes
    /// s = p(b) + output · t(b) ÷ b of the engine, whose load is rate · s; a prompt waits for those before it as in M/D/1.
    pub fn of(&self, demand: &Demand, blocks: u64, slowdown: &[Ratio]) -> Forecast {
        let (rate, prompt, output) = (demand.rate(), demand.prompt(), demand.output());
        let room = blocks as f64 * self.engine.block_size as f64 / (prompt + output);
        let seats = room.floor().min(self.engine.max_num_seqs as f64).max(1.0);
        let host = |batch: f64| self.engine.host.of(batch as u64).to_seconds().get();
        let step = |batch: f64| self.decode(batch, prompt + output / 2.0, slowdown) + host(batch);
        let entering = |batch: f64| match self.engine.prefill_first {
            true => self.prefill(prompt, slowdown),
            false => (self.prefill(prompt + batch, slowdown) - step(batch)).max(0.0),
        };
        let token = |batch: f64| step(batch) / (1.0 - rate * entering(batch)).max(1e-3);
        let service = entering(seats) + output * step(seats) / seats;
        let load = rate * service;
        let (mut least, mut most) = (0.0, seats);
        for _ in 0..8 {
            let middle = (least + most) / 2.0;
            match rate * output * token(middle) > middle {
                true => least = middle,
                false => most = middle,
            }
        }
        let queue = load.min(FULL) / (2.0 * (1.0 - load.min(FULL))) * service;
        let too_much = (load - FULL).max(0.0) * LASTING.get();
        let ttft = step(most) / 2.0 + self.prefill(prompt + most, slowdown) + queue + too_much;
        Forecast { load, ttft: Seconds::new(ttft), tpot: Seconds::new(token(most)), output }
    }

    fn decode(&self, batch: f64, context: f64, slowdown: &[Ratio]) -> f64 {
        let (low, high, more) = between(&self.batches, batch);
        let (near, far, further) = between(&self.contexts, context);
        let width = self.contexts.len();
        self.at(slowdown, |table| {
            let at = |batch: usize| {
                let [one, other] = [near, far].map(|context| table.decode[batch * width + context]);
                one + (other - one) * further
            };
            at(low) + (at(high) - at(low)) * more
        })
    }

    fn prefill(&self, prompt: f64, slowdown: &[Ratio]) -> f64 {
        let (near, far, further) = between(&self.prompts, prompt);
        self.at(slowdown, |table| table.prefill[near] + (table.prefill[far] - table.prefill[near]) * further)
    }

    /// What `time` is as planned, and what it is more for each device that is slower.
    fn at(&self, slowdown: &[Ratio], time: impl Fn(&Table) -> f64) -> f64 {
        let planned = time(&self.as_planned);
        let more = excess(slowdown).map(|(device, factor)| {
            let [two, four] = &self.slower[device];
            let (two, four) = (time(two) - planned, time(four) - planned);
            let [first, second] = SLOWER;
            match factor <= first {
                true => two * (factor - 1.0) / (first - 1.0),
                false => two + (four - two) * (factor - first) / (second - first),
            }
        });
        (planned + more.sum::<f64>()).max(0.0)
    }
}

/// Seconds of a prompt that enters alone, in chunks of as many tokens as a step may have.
fn whole_prompt(prices: &mut PlanPrices<'_>, engine: &Engine, prompt: u64) -> Result<f64, Missing> {
    let chunk = if engine.chunked_prefill { engine.max_num_batched_tokens } else { prompt };
    let mut seconds = 0.0;
    for past in (0..prompt).step_by(chunk.max(1) as usize) {
        let new = chunk.min(prompt - past);
        let pieces = [Piece { new, past }];
        let batch =
            Batch { pieces: &pieces, decodes: 0, decode_tokens: 0, sampled: u64::from(past + new == prompt) };
        seconds += (prices.step(&batch)? + engine.host.of(1)).to_seconds().get();
    }
    Ok(seconds)
}

/// The indices around `value` and how far it is on the way to the second; beyond the last, the last two and further.
fn between(nodes: &[u64], value: f64) -> (usize, usize, f64) {
    let last = nodes.len() - 1;
    let high = nodes.partition_point(|&node| (node as f64) < value).clamp(1.min(last), last);
    let low = high.saturating_sub(1);
    let (from, to) = (nodes[low] as f64, nodes[high] as f64);
    (low, high, if to > from { ((value - from) / (to - from)).max(0.0) } else { 0.0 })
}
