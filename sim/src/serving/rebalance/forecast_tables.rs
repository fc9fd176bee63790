//! Tables of a plan's step times under every condition. A forecast from them takes microseconds.

use crate::serving::engine::settings::EngineSettings;
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::prices::plan_prices::PlanPrices;
use crate::serving::rebalance::demand::Demand;
use hwprofiles::{Machine, MissingRate, Ratio, Seconds};
use planner::{CostModel, PhasePrograms};
use scenarios::Slo;

/// The slow-downs of devices in the tables. Times are on straight lines between them and beyond.
const SLOWDOWNS: [f64; 2] = [2.0, 4.0];

/// The factor from one batch, context or prompt of a table to the next.
const WIDENING: u64 = 4;

/// How long a gain is expected to last. A move must not take longer than its share of this time,
/// and the next move comes not before this time is over.
pub(crate) const LASTING: Seconds = Seconds::new(60.0);

/// Step times of one plan: by batch and context for decode, and by length for whole prompts. There
/// is one table without slow devices, and tables with one slow device each.
#[derive(Debug, Clone)]
pub struct ForecastTables {
    batches: Vec<u64>,
    contexts: Vec<u64>,
    prompts: Vec<u64>,
    as_planned: Table,
    /// By device, then by its slow-down.
    slower: Vec<[Table; SLOWDOWNS.len()]>,
    engine: EngineSettings,
}

/// Step times in seconds.
#[derive(Debug, Clone)]
struct Table {
    /// By batch, then by context.
    decode: Vec<f64>,
    prefill: Vec<f64>,
}

/// The expected performance of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanForecast {
    /// Requests that come ÷ requests that it can serve. Above 1 the queue grows without end.
    pub load: f64,
    /// Mean time to the first token. If the queue grows, it is the mean over the next minute.
    pub ttft: Seconds,
    /// Mean time per output token.
    pub tpot: Seconds,
    /// Mean tokens of an answer.
    output: f64,
}

/// Up to this load waiting is that of a stable queue. Beyond it, the excess waits in addition.
const FULL: f64 = 0.95;

impl PlanForecast {
    /// The score, of which the least is best: the largest used share of a limit, or without limits
    /// the seconds of a request.
    pub fn score(&self, limits: &Slo) -> f64 {
        let used =
            |time: Seconds, limit: Option<Seconds>| limit.map_or(0.0, |limit| time.get() / limit.get());
        if limits.has_limits() {
            used(self.ttft, limits.ttft).max(used(self.tpot, limits.tpot))
        } else {
            self.ttft.get() + self.tpot.get() * self.output
        }
    }
}

impl ForecastTables {
    /// The tables of `programs`, for an engine with contexts of at most `longest` tokens.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn new(
        cost_model: CostModel<'_>,
        programs: &PhasePrograms,
        engine: &EngineSettings,
        longest: u64,
    ) -> Result<Self, MissingRate> {
        let widening = |first: u64, last: u64| -> Vec<u64> {
            let steps =
                std::iter::successors(Some(first), |&at| (at < last).then(|| at.saturating_mul(WIDENING)));
            steps.map(|at| at.min(last)).collect()
        };
        let longest = longest.max(512);
        let (batches, contexts) = (widening(1, engine.max_num_seqs), widening(256, longest));
        let prompts = widening(64, longest);
        let table = |machine: &Machine| -> Result<Table, MissingRate> {
            let mut prices = PlanPrices::new(CostModel { machine, ..cost_model }, programs);
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
        let slower = cost_model.machine.device_ids().map(|device| -> Result<_, MissingRate> {
            let [two, four] = SLOWDOWNS.map(|factor| {
                let mut machine = cost_model.machine.clone();
                let factor = Ratio::new(factor).unwrap_or(Ratio::ONE);
                machine.devices[device.0] = machine.devices[device.0].slower(factor);
                table(&machine)
            });
            Ok([two?, four?])
        });
        let (as_planned, slower) = (table(cost_model.machine)?, slower.collect::<Result<_, _>>()?);
        Ok(Self { batches, contexts, prompts, as_planned, slower, engine: engine.clone() })
    }

    /// The expected performance with `blocks` blocks, while each device is slower by its
    /// `slowdown`.
    ///
    /// A decode step of b sequences takes t(b), and p(b) longer if a prompt enters beside them.
    /// Prompts take the share rate · p(b) of the time. So a token takes T = t(b) ÷ (1 − rate ·
    /// p(b)). The batch b is the number of requests that come during one answer: b = rate · output
    /// · T, limited by the room for sequences. With a full batch, a request takes s = p(b) + output
    /// · t(b) ÷ b of the engine's time, so the load is rate · s. A prompt waits for earlier ones as
    /// in an M/D/1 queue.
    pub fn forecast(&self, demand: &Demand, blocks: u64, slowdown: &[Ratio]) -> PlanForecast {
        let (rate, prompt, output) = (demand.rate(), demand.prompt(), demand.output());
        let room = match self.engine.sequence.is_plain() {
            true => blocks as f64 * self.engine.block_size as f64 / (prompt + output),
            false => blocks as f64 / self.engine.blocks((prompt + output) as u64).max(1) as f64,
        };
        let seats = room.floor().min(self.engine.max_num_seqs as f64).max(1.0);
        let host = |batch: f64| self.engine.host.time(batch as u64).to_seconds().get();
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
            if rate * output * token(middle) > middle {
                least = middle;
            } else {
                most = middle;
            }
        }
        let queue = load.min(FULL) / (2.0 * (1.0 - load.min(FULL))) * service;
        let excess = (load - FULL).max(0.0) * LASTING.get();
        let ttft = step(most) / 2.0 + self.prefill(prompt + most, slowdown) + queue + excess;
        PlanForecast { load, ttft: Seconds::new(ttft), tpot: Seconds::new(token(most)), output }
    }

    fn decode(&self, batch: f64, context: f64, slowdown: &[Ratio]) -> f64 {
        let (low, high, share) = between(&self.batches, batch);
        let (near, far, context_share) = between(&self.contexts, context);
        let width = self.contexts.len();
        self.with_slowdown(slowdown, |table| {
            let at = |batch: usize| {
                let [one, other] = [near, far].map(|context| table.decode[batch * width + context]);
                one + (other - one) * context_share
            };
            at(low) + (at(high) - at(low)) * share
        })
    }

    fn prefill(&self, prompt: f64, slowdown: &[Ratio]) -> f64 {
        let (near, far, share) = between(&self.prompts, prompt);
        self.with_slowdown(slowdown, |table| {
            table.prefill[near] + (table.prefill[far] - table.prefill[near]) * share
        })
    }

    /// The planned `time`, plus the increase for each slow device.
    fn with_slowdown(&self, slowdown: &[Ratio], time: impl Fn(&Table) -> f64) -> f64 {
        let planned = time(&self.as_planned);
        let increase = slow_devices(slowdown).map(|(device, factor)| {
            let [two, four] = &self.slower[device];
            let (two, four) = (time(two) - planned, time(four) - planned);
            let [first, second] = SLOWDOWNS;
            match factor <= first {
                true => two * (factor - 1.0) / (first - 1.0),
                false => two + (four - two) * (factor - first) / (second - first),
            }
        });
        (planned + increase.sum::<f64>()).max(0.0)
    }
}

/// Seconds of a prompt that enters alone, in chunks of as many tokens as fit into a step.
fn whole_prompt(
    prices: &mut PlanPrices<'_>,
    engine: &EngineSettings,
    prompt: u64,
) -> Result<f64, MissingRate> {
    let chunk = if engine.chunked_prefill { engine.max_num_batched_tokens } else { prompt };
    let mut seconds = 0.0;
    for past in (0..prompt).step_by(chunk.max(1) as usize) {
        let new = chunk.min(prompt - past);
        let chunks = [PrefillChunk { new, past }];
        let batch =
            Batch { chunks: &chunks, decodes: 0, decode_tokens: 0, sampled: u64::from(past + new == prompt) };
        seconds += (prices.step(&batch)? + engine.host.time(1)).to_seconds().get();
    }
    Ok(seconds)
}

/// The indices of the nodes around `value`, and its share of the way to the second one. Beyond the
/// last node these are the last two nodes, and the share is above 1.
fn between(nodes: &[u64], value: f64) -> (usize, usize, f64) {
    let last = nodes.len() - 1;
    let high = nodes.partition_point(|&node| (node as f64) < value).clamp(1.min(last), last);
    let low = high.saturating_sub(1);
    let (from, to) = (nodes[low] as f64, nodes[high] as f64);
    (low, high, if to > from { ((value - from) / (to - from)).max(0.0) } else { 0.0 })
}

/// The devices whose `slowdown` is not 1, with that factor.
fn slow_devices(slowdown: &[Ratio]) -> impl Iterator<Item = (usize, f64)> + '_ {
    slowdown.iter().map(|ratio| ratio.get()).enumerate().filter(|(_, factor)| (factor - 1.0).abs() > 1e-3)
}
