//! A run: the steps of one static batch, one after the other.

use crate::clock::{SimTime, Tick};
use crate::step::drafts::{Drafting, RunStep, recorded_steps, run_steps};
use crate::step::expert_loads::{StepExpertLoads, is_routed};
use crate::step::random_draws::RandomDraws;
use crate::step::simulator::{Simulator, StepOutcome};
use hwprofiles::{DeviceId, MissingRate, Seconds};
use planner::{
    CostModel, Lane, PhasePrograms, PhaseTimes, Program, Recorder, StepOverlap, StepSpan, TaskId, Trace,
    TraceEvent,
};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use scenarios::{ActivationBuffer, Operator, Phase, Step};

/// A run to simulate.
#[derive(Debug, Clone, Copy)]
pub struct BatchRun<'a> {
    /// The prices of the tasks.
    pub cost_model: CostModel<'a>,
    /// The programs of both phases.
    pub programs: &'a PhasePrograms,
    /// The steps, in order: see [`planner::steps`].
    pub steps: &'a [Step],
    /// The draft that proposes tokens, if there is one. The steps are then those of the mean.
    pub draft: Option<Drafting<'a>>,
    /// What the run draws at random.
    pub draws: RandomDraws,
}

impl<'a> BatchRun<'a> {
    /// The run of `steps` without a draft and without random draws.
    pub fn new(cost_model: CostModel<'a>, programs: &'a PhasePrograms, steps: &'a [Step]) -> Self {
        Self { cost_model, programs, steps, draft: None, draws: RandomDraws::default() }
    }

    /// Its times, without a list of events.
    pub fn times(&self) -> Result<PhaseTimes, MissingRate> {
        let mut steps = Vec::new();
        self.simulate(&mut self.random(), |_, span, _, _| steps.push(span))?;
        Ok(PhaseTimes::from_steps(&steps))
    }

    /// All its events. `plan` is the plan's fingerprint.
    pub fn trace(&self, plan: &str) -> Result<Trace, MissingRate> {
        let machine = self.cost_model.machine;
        let (mut steps, mut events) = (Vec::new(), Vec::new());
        self.simulate(&mut self.random(), |index, span, program, outcome| {
            steps.push(span);
            let at = |time: SimTime| span.start_ns.saturating_add(time.nanos());
            for (task, (ran, price)) in outcome.spans.iter().zip(outcome.prices()).enumerate() {
                let id = TaskId(task as u32);
                events.push(TraceEvent::from_task(
                    machine,
                    program,
                    id,
                    &price,
                    index,
                    at(ran.start),
                    at(ran.end),
                ));
            }
        })?;
        Ok(self.traced(plan, steps, events))
    }

    /// The steps of a run that was recorded, each with its own shape and tokens, without events:
    /// how many steps there are with a draft depends on what the model accepts. `plan` is the
    /// plan's fingerprint.
    pub fn repeat(&self, recorded: &[StepSpan], plan: &str) -> Result<Trace, MissingRate> {
        let mut steps = Vec::new();
        let visit = |_, span, _: &Program, _: &StepOutcome<'_>| steps.push(span);
        self.simulate_steps(recorded_steps(recorded), &mut self.random(), visit)?;
        Ok(self.traced(plan, steps, vec![]))
    }

    fn traced(&self, plan: &str, steps: Vec<StepSpan>, events: Vec<TraceEvent>) -> Trace {
        let CostModel { machine, model, .. } = self.cost_model;
        let (machine, model) = (machine.name.clone(), model.name.clone());
        Trace { recorder: Recorder::Simulated, machine, model, plan: plan.to_owned(), steps, events }
    }

    fn random(&self) -> Pcg64 {
        Pcg64::seed_from_u64(self.draws.seed)
    }

    /// Simulates the run's steps.
    fn simulate(
        &self,
        random: &mut Pcg64,
        visit: impl FnMut(u32, StepSpan, &Program, &StepOutcome<'_>),
    ) -> Result<(), MissingRate> {
        let steps = run_steps(self.steps, self.draft.as_ref(), self.draws, random);
        self.simulate_steps(steps, random, visit)
    }

    /// Simulates step after step. The next one starts when the last task has ended and its token is
    /// sampled, or earlier where steps of a prompt overlap.
    fn simulate_steps(
        &self,
        run_steps: Vec<RunStep>,
        random: &mut Pcg64,
        mut visit: impl FnMut(u32, StepSpan, &Program, &StepOutcome<'_>),
    ) -> Result<(), MissingRate> {
        let mut model = (Simulator::new(self.cost_model), self.programs);
        let mut draft = self.draft.map(|draft| (Simulator::new(draft.cost_model), draft.programs));
        // A run may outlast `SimTime`, so it counts in the trace's nanoseconds.
        let mut start_ns = 0_u64;
        let mut run_steps = run_steps.into_iter().enumerate().peekable();
        while let Some((index, RunStep { draft: by_draft, step, samples, tokens })) = run_steps.next() {
            let (simulator, programs) = draft.as_mut().filter(|_| by_draft).unwrap_or(&mut model);
            let (cost_model, program) = (simulator.cost_model(), programs.program(step.phase));
            let outcome = match &cost_model.model.experts {
                Some(experts) if self.draws.experts => {
                    let loads = StepExpertLoads::draw(experts, program, &step, random);
                    simulator
                        .step_priced_by(program, is_routed, |task| loads.price(&cost_model, task, &step))?
                }
                _ => simulator.step(program, &step)?,
            };
            let mut end_ns = start_ns.saturating_add(outcome.duration.nanos());
            if samples {
                let sampling = sampling_time(&cost_model, program, &step);
                end_ns = end_ns.saturating_add(SimTime::rounding_up(sampling, Tick::Nanosecond).nanos());
            }
            let span = StepSpan { draft: by_draft, tokens, ..StepSpan::new(step, start_ns, end_ns) };
            visit(index as u32, span, program, &outcome);
            let next = run_steps.peek().filter(|(_, next)| next.step.phase == Phase::Prefill);
            let overlap = next.and_then(|_| StepOverlap::new(&cost_model, program));
            let saved = overlap.map_or(0.0, |overlap| {
                let lanes = program.tasks.iter().map(|task| task.lane);
                let alone = lanes.zip(outcome.prices().map(|price| price.alone.get()));
                overlap.saved(outcome.seconds().get(), &overlap.busy(alone))
            });
            start_ns = end_ns.saturating_sub(Seconds::new(saved).to_nanos_ceil());
        }
        Ok(())
    }
}

/// Time to choose the next token of each sequence: the device that has the head's logits reads them
/// once, at its rate for elementwise work. Zero for a program without a head.
pub fn sampling_time(cost_model: &CostModel<'_>, program: &Program, step: &Step) -> Seconds {
    let Some(device) = sampling_device(program) else { return Seconds::ZERO };
    let device = cost_model.machine.device(device);
    // Of several micro-batches in flight, each is sampled by itself.
    let in_flight = device.ranks.as_ref().map_or(1, |ranks| ranks.micro_batches(step.batch));
    let logits = ActivationBuffer::Logits.bytes(
        cost_model.formats,
        step.sampled().div_ceil(in_flight),
        ActivationBuffer::Logits.columns(cost_model.model),
    );
    device.elementwise_time(logits).time
}

/// The device that chooses tokens.
pub(crate) fn sampling_device(program: &Program) -> Option<DeviceId> {
    let is_head_norm = |task: &&planner::Task| match task.action {
        planner::Action::Compute { operator, .. } => operator == Operator::HeadNorm,
        _ => false,
    };
    // The head's first device computes the norm, and the lowering brings all logits to that device.
    match program.tasks.iter().rev().find(is_head_norm)?.lane {
        Lane::Device(device) => Some(device),
        Lane::Link(_) => None,
    }
}
