//! The objective as numbers, for the solver's sums and for simulated times.

use crate::cost::{CostModel, PowerDraw, energy_of, power, price};
use crate::error::PlannerError;
use crate::placement::{LayerPlacement, Placement};
use crate::program::{Action, BatchSteps, Lane, PerPhase, PhasePrograms, PhaseTimes, Program, Task};
use crate::search::criterion::Criterion;
use crate::search::measure::Measure;
use hwprofiles::{Dollars, Joules, Machine, MissingRate, Seconds};
use scenarios::{Costs, Objective, Phase, Slo, Step, Sublayer, Workload};

/// Weight of the secondary criterion, which decides between equal solutions: of prefill if TPOT is
/// the objective, of time if energy is.
pub(crate) const TIE: f64 = 1e-4;

/// An objective with its limits, for one workload on one machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Goal {
    pub objective: Objective,
    pub slo: Slo,
    /// Number of decode steps.
    decodes: f64,
    /// Output tokens that one decode step yields for each sequence. Times and limits in this type
    /// are per step.
    tokens_per_step: f64,
    /// Output tokens of all sequences.
    tokens: f64,
    /// Power of each device, if known.
    power: Option<Vec<PowerDraw>>,
    /// Cost of a second of the machine and cost of a joule, if known.
    price: Option<(Dollars, Dollars)>,
}

impl Goal {
    /// The goal `objective` within the limits `slo`.
    ///
    /// # Errors
    /// [`PlannerError::Unpriced`] if the objective needs a power, a price or a lifetime that is
    /// missing.
    pub fn new(
        machine: &Machine,
        workload: &Workload,
        objective: Objective,
        slo: Slo,
        costs: &Costs,
    ) -> Result<Self, PlannerError> {
        let (power, price) = (power(machine), price(machine, costs));
        let decodes = workload.decode_steps() as f64;
        let tokens_per_step = workload.output_tokens.saturating_sub(1).max(1) as f64 / decodes.max(1.0);
        let goal = Self {
            objective,
            slo: Slo { tpot: slo.tpot.map(|limit| limit * tokens_per_step), ..slo },
            decodes,
            tokens_per_step,
            tokens: (workload.batch * workload.output_tokens) as f64,
            power: power.as_ref().ok().cloned(),
            price: price.as_ref().ok().copied(),
        };
        match objective {
            Objective::Energy => power.map(|_| goal),
            Objective::Cost => power.and(price).map(|_| goal),
            Objective::Latency | Objective::Tpot | Objective::Throughput => Ok(goal),
        }
    }

    /// Whether the goal depends on how long each device works, and not only on the times of the
    /// phases.
    pub fn prices_device_work(&self) -> bool {
        matches!(self.objective, Objective::Energy | Objective::Cost)
    }

    /// The same objective within other limits.
    pub fn with_limits(&self, slo: Slo) -> Self {
        Self { slo, ..self.clone() }
    }

    /// The time of one phase as the objective: TTFT or TPOT.
    pub fn for_phase(&self, phase: usize) -> Self {
        let objective = if phase == 0 { Objective::Latency } else { Objective::Tpot };
        Self { objective, decodes: if phase == 0 { 0.0 } else { self.decodes }, ..self.clone() }
    }

    /// The measure of the objective, then those of the limits.
    pub fn measures(&self) -> Vec<Measure> {
        let none = || self.power.as_ref().map_or(vec![], |power| vec![0.0; power.len()]);
        let limits = [(self.slo.ttft, [1.0, 0.0]), (self.slo.tpot, [0.0, 1.0])];
        let limit = |(limit, weight): (Option<Seconds>, [f64; 2])| {
            limit.map(|limit| Measure { weight, busy: [none(), none()], limit: limit.get() })
        };
        std::iter::once(self.measure()).chain(limits.into_iter().filter_map(limit)).collect()
    }

    fn measure(&self) -> Measure {
        let run = [1.0, self.decodes];
        let watts = self.power.iter().flatten().map(|draw| draw.working.get());
        let scaled = |by: f64| run.map(|times| watts.clone().map(|watts| watts * times * by).collect());
        let (weight, busy) = match (self.objective, self.price) {
            (Objective::Tpot, _) if self.decodes > 0.0 => ([TIE, 1.0 / self.tokens_per_step], scaled(0.0)),
            (Objective::Energy, _) => (self.over_the_run(self.idle() + TIE), scaled(1.0)),
            (Objective::Cost, Some((second, joule))) => {
                (self.over_the_run(second.get() + joule.get() * self.idle()), scaled(joule.get()))
            }
            _ => (run, scaled(0.0)),
        };
        Measure { weight, busy, limit: f64::INFINITY }
    }

    /// Idle power of all devices, in watts.
    fn idle(&self) -> f64 {
        self.power.iter().flatten().map(|draw| draw.idle.get()).sum()
    }

    /// Weights of a second of each phase, if a second of the run has the weight `weight`.
    fn over_the_run(&self, weight: f64) -> [f64; 2] {
        [weight, weight * self.decodes]
    }

    /// The measure of one criterion of a front: seconds, or joules or dollars of the whole run.
    pub fn criterion_measure(&self, criterion: Criterion) -> Measure {
        let alone = |objective| Self { objective, ..self.clone() }.measure();
        match criterion {
            Criterion::Ttft => Measure { weight: [1.0, 0.0], ..alone(Objective::Latency) },
            Criterion::Tpot => Measure { weight: [0.0, 1.0], ..alone(Objective::Latency) },
            Criterion::Energy => {
                Measure { weight: self.over_the_run(self.idle()), ..alone(Objective::Energy) }
            }
            Criterion::Cost => alone(Objective::Cost),
        }
    }

    /// The objective's value for these times, with `work` seconds of each device in each phase.
    pub fn value(&self, times: &PhaseTimes, work: &DeviceWork) -> f64 {
        let measure = self.measure();
        let tpot = times.tpot.unwrap_or(Seconds::ZERO);
        let busy = |phase: Phase| {
            let devices = measure.busy[phase as usize].iter().zip(&work[phase]);
            devices.map(|(weight, time)| weight * time.get()).sum::<f64>()
        };
        measure.weight[0] * times.ttft.get()
            + measure.weight[1] * tpot.get()
            + busy(Phase::Prefill)
            + busy(Phase::Decode)
    }

    /// Converts times per step to times per token.
    pub fn per_token(&self, times: PhaseTimes) -> PhaseTimes {
        PhaseTimes { tpot: times.tpot.map(|step| step / self.tokens_per_step), ..times }
    }

    /// Whether `times` keep the limits.
    pub fn keeps(&self, times: &PhaseTimes) -> bool {
        let within = |time: Option<Seconds>, limit: Option<Seconds>| match (time, limit) {
            (Some(time), Some(limit)) => time <= limit,
            _ => true,
        };
        within(Some(times.ttft), self.slo.ttft) && within(times.tpot, self.slo.tpot)
    }

    /// Energy per output token, with `work` seconds of each device in each phase. `None` if the
    /// power of a device is not known.
    pub fn energy(&self, times: &PhaseTimes, work: &DeviceWork) -> Option<Joules> {
        let power = self.power.as_ref()?;
        let PerPhase { prefill, decode } = work;
        let tpot = times.tpot.unwrap_or(Seconds::ZERO);
        Some(
            (energy_of(power, times.ttft, prefill) + energy_of(power, tpot, decode) * self.decodes)
                / self.tokens,
        )
    }

    /// Cost per output token. `None` if prices, lifetime or power are not known.
    pub fn cost(&self, times: &PhaseTimes, work: &DeviceWork) -> Option<Dollars> {
        let (second, joule) = self.price?;
        let run = times.ttft.get() + times.tpot.map_or(0.0, Seconds::get) * self.decodes;
        Some(second * (run / self.tokens) + joule * self.energy(times, work)?.get())
    }
}

/// A layer and the one before it.
type LayerAfter<'p> = (Option<&'p LayerPlacement>, &'p LayerPlacement);

/// Seconds that each device computes, by phase.
pub(crate) type DeviceWork = PerPhase<Vec<Seconds>>;

/// Seconds that each device computes with `placement`: over all prefill steps, and in one decode
/// step.
///
/// # Errors
/// A rate that was not measured, or a link that does not exist.
pub(crate) fn device_work(
    cost_model: &CostModel<'_>,
    placement: &Placement,
    batch_steps: &BatchSteps,
) -> Result<DeviceWork, PlannerError> {
    let outline = placement.outline();
    let programs = PhasePrograms::lower(cost_model.machine, cost_model.model, &outline)?;
    // Number of layers of the placement that each layer of the outline represents.
    let counts = represented_layers(placement, &outline);
    let phase = |phase: Phase| -> Result<Vec<Seconds>, MissingRate> {
        let mut work = vec![Seconds::ZERO; cost_model.machine.devices.len()];
        for steps in batch_steps.kinds(phase) {
            add_work(cost_model, programs.program(phase), &steps, &counts, &mut work)?;
        }
        Ok(work)
    };
    Ok(PerPhase::try_from_fn(phase)?)
}

/// Number of layers of `placement` that each layer of its outline represents. The first of several
/// equal pairs of neighbours represents all pairs that the others do not.
fn represented_layers(placement: &Placement, outline: &Placement) -> Vec<u64> {
    let count =
        |placement, pair: &LayerAfter<'_>| layers_after(placement).filter(|other| other == pair).count();
    let represented = |(at, pair)| match layers_after(outline).take(at).any(|other| other == pair) {
        true => 1,
        false => (1 + count(placement, &pair) - count(outline, &pair)) as u64,
    };
    layers_after(outline).enumerate().map(represented).collect()
}

/// Each layer with the one before it.
fn layers_after(placement: &Placement) -> impl Iterator<Item = LayerAfter<'_>> {
    let before = std::iter::once(None).chain(placement.layers.iter().map(Some));
    before.zip(&placement.layers)
}

/// Adds the work of a group of steps. What does not depend on their contexts is priced once.
fn add_work(
    cost_model: &CostModel<'_>,
    program: &Program,
    steps: &[Step],
    counts: &[u64],
    work: &mut [Seconds],
) -> Result<(), MissingRate> {
    let mut known: Vec<Option<Seconds>> = vec![None; program.tasks.len()];
    for step in steps {
        for (task, known) in program.tasks.iter().zip(&mut known) {
            let Lane::Device(device) = task.lane else { continue };
            let alone = match *known {
                Some(alone) => alone,
                None => cost_model.task_cost(task, step)?.alone,
            };
            *known = Some(alone).filter(|_| !depends_on_context(task));
            let count = task.layer.map_or(1, |layer| counts[layer as usize]);
            work[device.0] += alone * count as f64;
        }
    }
    Ok(())
}

/// Whether the tokens before a step may make a difference to a task that computes. Latent attention
/// expands those of a prompt with its projections.
fn depends_on_context(task: &Task) -> bool {
    let Action::Compute { operator, .. } = task.action else { return true };
    matches!(operator.sublayer(), Sublayer::Attention | Sublayer::Qkv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Spec, formats};
    use hwprofiles::DeviceId;
    use scenarios::Model;

    #[test]
    fn what_is_priced_once_takes_as_long_after_any_context() {
        for name in Model::preset_names() {
            let (model, formats) = (Model::preset(name).unwrap(), formats());
            let machine = Spec::gpu(1 << 40).machine(&model);
            let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
            let gpu = DeviceId(1);
            let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory).outline();
            let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
            for phase in [Phase::Prefill, Phase::Decode] {
                let steps = [512, 65_536].map(|prompt_tokens| {
                    let batch_steps = BatchSteps::new(&Workload::new(3, prompt_tokens, 32), 512);
                    *batch_steps.kinds(phase)[0].last().unwrap()
                });
                let once = programs.program(phase).tasks.iter().filter(|task| !depends_on_context(task));
                for task in once {
                    let [short, long] = steps.map(|step| cost_model.task_cost(task, &step).unwrap().alone);
                    assert_eq!(short, long, "{name}: {:?}", task.action);
                }
            }
        }
    }
}
