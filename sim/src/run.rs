//! A run: the steps of one static batch, one after the other.

use crate::expert_loads::{StepLoads, is_routed};
use crate::step::{Outcome, Simulator};
use crate::time::SimTime;
use crate::turns::{Drafting, Turn, turns};
use hwprofiles::{DeviceId, Missing, Seconds};
use planner::{Event, Lane, Pricing, Program, Programs, Recorder, StepSpan, TaskId, Times, Trace};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use scenarios::{Buffer, Operator, Step};

/// What is drawn at random in a run; by default nothing: what happens in the mean happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Draws {
    /// To which experts each token goes, in each layer of each step.
    pub experts: bool,
    /// How many of the tokens that a draft proposes for a sequence are accepted, in each step.
    pub acceptance: bool,
    /// The same seed draws the same.
    pub seed: u64,
}

/// A run to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What tasks cost.
    pub pricing: Pricing<'a>,
    /// What runs.
    pub programs: &'a Programs,
    /// The steps, in order: see [`planner::steps`].
    pub steps: &'a [Step],
    /// Who proposes tokens, where somebody does; the steps are then those of the mean.
    pub draft: Option<Drafting<'a>>,
    /// What is drawn at random in it.
    pub draws: Draws,
}

impl<'a> Run<'a> {
    /// The run of `steps` in which nothing is proposed or drawn.
    pub fn new(pricing: Pricing<'a>, programs: &'a Programs, steps: &'a [Step]) -> Self {
        Self { pricing, programs, steps, draft: None, draws: Draws::default() }
    }

    /// Its times, without a list of what happened.
    pub fn times(&self) -> Result<Times, Missing> {
        let mut steps = Vec::new();
        self.each(|_, span, _, _| steps.push(span))?;
        Ok(Times::of(&steps))
    }

    /// Everything that happened; `plan` is the plan's fingerprint.
    pub fn trace(&self, plan: &str) -> Result<Trace, Missing> {
        let machine = self.pricing.machine;
        let (mut steps, mut events) = (Vec::new(), Vec::new());
        self.each(|index, span, program, outcome| {
            steps.push(span);
            let at = |time: SimTime| span.start_ns + time.nanos();
            for (task, (ran, price)) in outcome.spans.iter().zip(outcome.prices()).enumerate() {
                let id = TaskId(task as u32);
                events.push(Event::of(machine, program, id, &price, index, at(ran.start), at(ran.end)));
            }
        })?;
        Ok(Trace {
            recorder: Recorder::Simulated,
            machine: machine.name.clone(),
            model: self.pricing.model.name.clone(),
            plan: plan.to_owned(),
            steps,
            events,
        })
    }

    /// Simulates step after step. The next one starts when the last task has ended and its token is sampled.
    fn each(&self, mut visit: impl FnMut(u32, StepSpan, &Program, &Outcome<'_>)) -> Result<(), Missing> {
        let mut random = Pcg64::seed_from_u64(self.draws.seed);
        let turns = turns(self.steps, self.draft.as_ref(), self.draws, &mut random);
        let mut model = (Simulator::new(self.pricing), self.programs);
        let mut draft = self.draft.map(|draft| (Simulator::new(draft.pricing), draft.programs));
        let mut now = SimTime::ZERO;
        for (index, Turn { draft: drafts, step, samples, tokens }) in turns.into_iter().enumerate() {
            let (simulator, programs) = draft.as_mut().filter(|_| drafts).unwrap_or(&mut model);
            let (pricing, program) = (simulator.pricing(), programs.of(step.phase));
            let outcome = match &pricing.model.experts {
                Some(experts) if self.draws.experts => {
                    let loads = StepLoads::draw(experts, program, &step, &mut random);
                    simulator.step_by(program, is_routed, |task| loads.price(&pricing, task, &step))?
                }
                _ => simulator.step(program, &step)?,
            };
            let mut end = now + outcome.duration;
            if samples {
                end += SimTime::rounding_up(sampling_time(&pricing, program, &step));
            }
            let span = StepSpan { draft: drafts, tokens, ..StepSpan::new(step, now.nanos(), end.nanos()) };
            visit(index as u32, span, program, &outcome);
            now = end;
        }
        Ok(())
    }
}

/// Time to choose each sequence's next token: the device where the head leaves its logits reads them once, at its
/// rate for elementwise work. Zero for a program without a head.
pub fn sampling_time(pricing: &Pricing<'_>, program: &Program, step: &Step) -> Seconds {
    let Some(device) = sampler(program) else { return Seconds::ZERO };
    let logits = Buffer::Logits.bytes(pricing.formats, step.sampled(), Buffer::Logits.columns(pricing.model));
    pricing.machine.device(device).elementwise_time(logits).time
}

/// The device that chooses tokens.
pub(crate) fn sampler(program: &Program) -> Option<DeviceId> {
    let is_head_norm = |task: &&planner::Task| match task.action {
        planner::Action::Compute { operator, .. } => operator == Operator::HeadNorm,
        _ => false,
    };
    // The norm is computed by the head's first device, to which the lowering brings all logits.
    match program.tasks.iter().rev().find(is_head_norm)?.lane {
        Lane::Device(device) => Some(device),
        Lane::Link(_) => None,
    }
}
