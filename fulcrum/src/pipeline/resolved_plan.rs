//! A plan with the machine and the model that it was made for.

use super::format_trial::{FormatTrial, format_table};
use super::lookup::{model, planned_for};
use crate::error::{Error, OrError, Result};
use hwprofiles::{Machine, Phase, Seconds, read_text, yaml};
use planner::{
    CostModel, DraftPlan, PhasePrograms, Placement, Plan, PlannerError, Prediction, Problem, Scorer, Trace,
    Variant,
};
use reports::StepRates;
use scenarios::{MTP_MODULE, Model, Requirements};
use sim::{Drafting, RandomDraws};
use std::path::Path;

/// A plan with the machine and the model that it was made for.
#[derive(Debug, Clone)]
pub struct ResolvedPlan {
    /// The document.
    pub plan: Plan,
    /// The placement, by index.
    pub placement: Placement,
    /// The machine.
    pub machine: Machine,
    /// The model.
    pub model: Model,
    /// The draft model beside it, where the plan has one.
    pub draft: Option<Model>,
    /// What came of each combination of number formats, where there was a choice.
    pub trials: Vec<FormatTrial>,
}

/// Simulates the run of a plan, task by task, with contention and overlap.
///
/// ```
/// let scenario = fulcrum::parse_scenario(
///     "{machine: rtx4090-desktop, model: opt-125m,
///       workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}}",
/// )?;
/// let plan = fulcrum::plan(&scenario)?;
/// let trace = fulcrum::simulate(&plan)?;
/// assert_eq!(trace.steps.len(), 8, "a prefill and seven steps of decode");
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// A rate that the run needs is missing from the machine.
pub fn simulate(plan: &ResolvedPlan) -> Result<Trace> {
    plan.simulate(RandomDraws::default())
}

impl ResolvedPlan {
    /// Whether its machine has a GPU.
    #[cfg(feature = "run")]
    pub(crate) fn has_gpu(&self) -> bool {
        self.machine.devices.iter().any(|device| device.kind == hwprofiles::DeviceKind::Gpu)
    }

    /// Whether a text is a plan, rather than a scenario. `file` is its name in messages.
    ///
    /// # Errors
    /// The text is no YAML.
    pub fn is_plan(text: &str, file: &str) -> Result<bool> {
        Ok(yaml::top_keys(text, file).or_input()?.iter().any(|key| key == "plan"))
    }

    /// Reads the plan of a file, and finds the machine and the model that it was made for.
    ///
    /// # Errors
    /// The file cannot be read, and the errors of [`ResolvedPlan::from_yaml`].
    pub fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| Error::input(format!("{file}: {error}")))?;
        Self::from_yaml(&text, &file)
    }

    /// Reads a plan's text, and finds the machine and the model that it was made for. `file` is its
    /// name in messages.
    ///
    /// # Errors
    /// The text is no plan, or its machine or model is missing or another than it was.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self> {
        let keys = yaml::top_keys(text, file).unwrap_or_default();
        if keys.iter().any(|key| key == "workload" || key == "machine")
            && !keys.iter().any(|key| key == "plan")
        {
            let run = format!("run `fulcrum plan {file} -o plan.yaml` first");
            return Err(Error::input(format!("{file} is a scenario, and a plan is wanted: {run}")));
        }
        let origin = Plan::from_yaml(text, file).or_input()?.from.ok_or_else(|| {
            Error::input(format!(
                "{file}: from is missing: it names the machine and the model, see `fulcrum plan`"
            ))
        })?;
        let (machine, planned_for) = planned_for(&origin)?;
        let (plan, placement) = Plan::read(text, file, &machine, &planned_for).or_input()?;
        // A plan that does not say where its draft came from has a preset, by the preset's name.
        let draft = plan.draft.as_ref();
        let draft = draft.map(|placed| origin.draft.as_ref().unwrap_or(&placed.model.name));
        let draft = draft.map(|name| match name.as_str() {
            // Where the model no longer has one, the draft's fingerprint does not fit.
            MTP_MODULE => Ok(planned_for.mtp_module().unwrap_or_else(|| planned_for.clone())),
            _ => model(name),
        });
        let draft = draft.transpose()?;
        let mut read = Self { plan, placement, machine, model: planned_for, draft, trials: vec![] };
        read.predict_anew()?;
        Ok(read)
    }

    /// Predicts the plan anew, so that no file shows what its placement does not take. Where its
    /// text was edited, or another version has written other numbers, all of them are made anew,
    /// the rules' too, and what only a search finds (how much is proven) is left out.
    ///
    /// # Errors
    /// The placement does not fit.
    fn predict_anew(&mut self) -> Result<()> {
        let known = &self.plan.predicted;
        let Plan { memory, predicted: own, .. } = self.evaluate(&known.chosen, &self.placement)?;
        let Prediction { proven, baselines, without, search, .. } = known.clone();
        self.plan.edited |=
            memory != self.plan.memory || Prediction { proven, baselines, without, search, ..own } != *known;
        if self.plan.edited {
            let chunk = self.plan.prefill_chunk;
            let anew = self.with_problem(|problem, scorer| {
                planner::evaluate_edited(problem, self.placement.clone(), chunk, scorer)
            })?;
            (self.plan.memory, self.plan.predicted) = (anew.memory, anew.predicted);
        }
        Ok(())
    }

    /// Refuses a plan with a draft where `what` cannot do anything with one.
    ///
    /// # Errors
    /// The plan has a draft.
    pub fn require_no_draft(&self, what: &str) -> Result<()> {
        match &self.plan.draft {
            None => Ok(()),
            Some(draft) => Err(Error::input(format!(
                "{what} knows no draft, and this plan has {} on '{}': plan without speculative, or see --draft-dir of \
                 `fulcrum run`",
                draft.model.name, draft.device,
            ))),
        }
    }

    /// The rates that a trace of this plan comes to.
    pub fn rates(&self, trace: &Trace) -> StepRates {
        StepRates::from_trace(trace, &self.machine, self.plan.formats.weights)
    }

    /// The rates of a run whose trace has its steps alone, without their tasks.
    ///
    /// # Errors
    /// A rate that the steps need is missing from the machine.
    pub fn step_rates(&self, trace: &Trace) -> Result<StepRates> {
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement).or_input()?;
        StepRates::from_steps(trace, self.cost_model(), &programs).or_input()
    }

    /// What each combination of number formats would give, a line for each, with a mark at the one
    /// that was chosen; empty where there was no choice.
    pub fn formats_table(&self) -> String {
        let draft = self.plan.draft.as_ref().zip(self.plan.workload.speculation);
        let chosen = Variant {
            division: self.machine.division(),
            formats: self.plan.formats,
            draft: draft.map(|(draft, speculation)| (draft.device.clone(), speculation.tokens)),
        };
        format_table(&self.trials, &chosen)
    }

    /// What tasks cost.
    pub(crate) fn cost_model(&self) -> CostModel<'_> {
        CostModel { machine: &self.machine, model: &self.model, formats: &self.plan.formats }
    }

    /// The simulated run, with what `draws` names drawn at random instead of taken in the mean.
    ///
    /// # Errors
    /// There is nothing to draw, or a rate is missing.
    pub fn simulate(&self, draws: RandomDraws) -> Result<Trace> {
        if draws.acceptance && self.draft.is_none() {
            let message = "what is accepted of a draft's tokens is drawn, and this plan has no draft";
            return Err(Error::input(message));
        }
        if draws.experts && self.model.experts.is_none() {
            let message = format!("experts are drawn for tokens, and {} has none", self.model.name);
            return Err(Error::input(message));
        }
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement).or_input()?;
        let drafts = self.draft_programs()?;
        let workload = self.plan.workload;
        let draft = self.draft.as_ref().zip(drafts.as_ref()).map(|(model, programs)| {
            let cost_model = CostModel { model, ..self.cost_model() };
            Drafting { cost_model, programs, chunk: planner::prefill_chunk(&workload), workload }
        });
        let steps = planner::steps(&workload, self.plan.prefill_chunk);
        let run = sim::BatchRun { draft, draws, ..sim::BatchRun::new(self.cost_model(), &programs, &steps) };
        let trace = run.trace(&self.plan.fingerprint()).or_input()?;
        require_in_time(
            trace.steps.iter().map(|step| Seconds::from_nanos(step.end_ns)).fold(Seconds::ZERO, Seconds::max),
        )?;
        Ok(trace)
    }

    /// The tasks of one prefill or decode step as a graph in Graphviz's `dot` language. Dashed
    /// edges are the order within a queue, others are dependencies.
    ///
    /// # Errors
    /// Bytes must move where there is no link.
    pub fn task_graph(&self, phase: Phase) -> Result<String> {
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement).or_input()?;
        Ok(programs.program(phase).to_dot(&self.machine))
    }

    /// The draft in its place with the machine that it leaves, if the plan has a draft.
    fn draft_plan(&self) -> Result<Option<(DraftPlan, Machine)>> {
        let Some((placed, model)) = self.plan.draft.as_ref().zip(self.draft.as_ref()) else {
            return Ok(None);
        };
        let device = placed.placement(&self.machine, model).or_input()?.head[0].decode;
        let cost_model = CostModel { model, ..self.cost_model() };
        DraftPlan::new(cost_model, device, &self.plan.workload, &sim::scorer).or_input()
    }

    /// What the draft runs, where there is one.
    pub(crate) fn draft_programs(&self) -> Result<Option<PhasePrograms>> {
        let Some((placed, model)) = self.plan.draft.as_ref().zip(self.draft.as_ref()) else {
            return Ok(None);
        };
        let placement = placed.placement(&self.machine, model).or_input()?;
        PhasePrograms::lower(&self.machine, model, &placement).map(Some).or_input()
    }

    /// Another placement for the same machine, model and workload, called `name`, simulated like
    /// this one.
    ///
    /// # Errors
    /// The placement does not fit.
    pub fn evaluate(&self, name: &str, placement: &Placement) -> Result<Plan> {
        let chunk = self.plan.prefill_chunk;
        let other = self.with_problem(|problem, scorer| {
            planner::evaluate(problem, name, placement.clone(), chunk, scorer)
        })?;
        Ok(Plan { from: self.plan.from.clone(), ..other })
    }

    /// What `judge` makes of the problem that the plan solves, and of the simulator that judges its
    /// placements.
    fn with_problem(
        &self,
        judge: impl FnOnce(&Problem<'_>, &Scorer<'_>) -> Result<Plan, PlannerError>,
    ) -> Result<Plan> {
        let Plan { workload, objective, slo, costs, .. } = self.plan;
        let requirements = Requirements { workload, objective, slo, costs };
        let drafted = self.draft_plan()?;
        let machine = drafted.as_ref().map_or(&self.machine, |(_, left)| left);
        let cost_model = CostModel { machine, ..self.cost_model() };
        let draft = drafted.as_ref().map(|(draft, _)| draft);
        let problem = Problem { cost_model, requirements, draft };
        let score =
            |placement: &Placement, chunk: u64| sim::estimate(cost_model, placement, &workload, chunk);
        judge(&problem, &score).or_input()
    }
}

/// Refuses a time at which simulated time has ended: it is not how long something takes.
pub(crate) fn require_in_time(time: Seconds) -> Result<()> {
    let end = sim::SimTime::MAX.to_seconds();
    match time < end {
        true => Ok(()),
        false => Err(Error::input(format!(
            "this takes longer than the {end} that simulated time has: a rate of the machine is too low, or the workload too \
             large"
        ))),
    }
}
