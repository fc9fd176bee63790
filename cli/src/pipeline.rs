//! The pipeline's stages wired to each other: a question becomes a plan, a plan a trace.

use crate::exit::{Failure, Outcome, Sort};
use crate::inputs;
use crate::machines::Machines;
use crate::models::Models;
use crate::tried::Tried;
use anyhow::anyhow;
use executor::Setup;
use hwprofiles::{Machine, yaml};
use planner::{
    ChosenFormats, Criterion, Draft, Front, Identity, Origin, Placement, Plan, PlannerError, Pricing,
    Programs, Rule, Times, Trace,
};
use reports::Rates;
use scenarios::{
    Costs, Document, EngineChoice, FormatChoice, MachineSpec, Model, Objective, Scenario, Serving, Setting,
    Slo, Speculation, Training, Workload,
};
use sim::{Drafting, Draws};
use std::path::Path;
use std::sync::Arc;

/// Everything a plan depends on, looked up.
#[derive(Clone)]
pub struct Question {
    /// The machine, with its GPUs grouped in each way that may be chosen; at least one.
    pub machines: Arc<[Machine]>,
    /// What plans record of each, where somebody knows.
    pub identities: Option<Arc<[Identity]>>,
    /// The model.
    pub model: Model,
    /// Number formats: those that may be chosen, and those that lose too much.
    pub formats: FormatChoice,
    /// The draft that may propose tokens, and how many.
    pub speculative: Option<(Model, Vec<Speculation>)>,
    /// The load: a static batch, or one like those that an engine will run.
    pub workload: Workload,
    /// Requests that come and go.
    pub serving: Option<Serving>,
    /// A training step.
    pub training: Option<Training>,
    /// The engine that serves them.
    pub engine: EngineChoice,
    /// What to be best at.
    pub objective: Objective,
    /// What to keep.
    pub slo: Slo,
    /// What the machine and its electricity cost.
    pub costs: Costs,
    /// Where machine and model came from.
    pub origin: Option<Origin>,
}

/// A plan with what it was made for.
pub struct Planned {
    /// The document.
    pub plan: Plan,
    /// The placement, by index.
    pub placement: Placement,
    /// The machine.
    pub machine: Machine,
    /// The model.
    pub model: Model,
    /// The draft beside it, where there is one.
    pub draft: Option<Model>,
    /// What came of each combination of number formats, where there was a choice.
    pub tried: Vec<Tried>,
}

impl Question {
    /// The question of a scenario's file, with the settings of the command line.
    pub fn read(scenario: &Path, settings: &[Setting]) -> Outcome<Self> {
        let scenario = Document::from_file(scenario).or_input()?.scenario_with(settings).or_input()?;
        Self::of(&scenario)
    }

    /// The question of a scenario.
    pub fn of(scenario: &Scenario) -> Outcome<Self> {
        Self::with(scenario, &Machines::default())
    }

    /// The same where some machines are known.
    pub fn with(scenario: &Scenario, machines: &Machines) -> Outcome<Self> {
        Self::known(scenario, machines, &Models::default())
    }

    /// The same where some models are known too.
    pub fn known(scenario: &Scenario, machines: &Machines, models: &Models) -> Outcome<Self> {
        let found = scenario.resolve_with(&|reference| models.get(reference)).or_input()?;
        let grouped = machines.get(&found.machine, &found.tensor_parallel)?;
        let tensor_parallel = match grouped.degrees[..] {
            [degree] => Some(degree).filter(|degree| *degree > 1),
            _ => None,
        };
        let origin = Origin {
            machine: found.machine.source(),
            model: scenario.model.anchored(),
            expert_skew: Some(scenario.expert_skew).filter(|skew| *skew > 0.0),
            draft: scenario.speculative.as_ref().map(|(draft, _)| draft.anchored()),
            tensor_parallel,
        };
        Ok(Self {
            machines: grouped.machines.clone(),
            identities: Some(grouped.identities.clone()),
            model: found.model,
            formats: found.formats,
            speculative: found.speculative,
            workload: found.workload,
            serving: found.serving,
            training: found.training,
            engine: found.engine,
            objective: found.objective,
            slo: found.slo.unwrap_or_default(),
            costs: found.costs.unwrap_or_default(),
            origin: Some(origin),
        })
    }

    /// The best plan in the best formats, every candidate judged by the simulator.
    pub fn plan(&self) -> Outcome<Planned> {
        let chosen = self.chosen()?;
        let plan = chosen.plan;
        tracing::info!(model = self.model.name, chosen = plan.predicted.chosen, formats = %plan.formats, "planned");
        Ok(Planned { tried: Tried::all(chosen.tried, &self.formats), ..self.planned(plan, chosen.machine)? })
    }

    /// The document alone: of a plan that nobody runs.
    pub fn plan_document(&self) -> Outcome<Plan> {
        Ok(self.chosen()?.plan)
    }

    fn chosen(&self) -> Outcome<ChosenFormats> {
        if self.training.is_some() {
            return Err(Failure::Input(anyhow!(
                "a training step has one way to be made, and nothing to plan: `fulcrum sim` says what it takes"
            )));
        }
        let score = |pricing: Pricing<'_>, workload: &Workload, placement: &Placement, chunk: u64| {
            sim::estimate(pricing, placement, workload, chunk)
        };
        let draft = self.speculative.as_ref().map(|(model, choices)| Draft { model, choices });
        let formats = &self.formats.allowed;
        let known = self.identities.as_deref();
        planner::plan_among(&self.question(), &self.machines, known, formats, draft, &score).map_err(sorted)
    }

    /// The same question for a batch of another size.
    pub fn with_batch(&self, batch: u64) -> Self {
        Self { workload: Workload { batch, ..self.workload }, ..self.clone() }
    }

    /// Itself, where there is one combination of number formats, and one way to group GPUs.
    pub fn in_one_format(self, what: &str) -> Outcome<Self> {
        if self.speculative.is_some() {
            let wanted = "leave speculative out, or use `fulcrum plan` without";
            return Err(Failure::Input(anyhow!("{what} is made without a draft: {wanted} it")));
        }
        if let [one, _, ..] = &self.machines[..] {
            let degrees: Vec<_> = self.machines.iter().map(|m| m.tensor_parallel().to_string()).collect();
            return Err(Failure::Input(anyhow!(
                "the GPUs of '{}' can be grouped by {}, and {what} needs one way: name it, like --set \
                 tensor_parallel={}",
                one.name,
                degrees.join(", "),
                degrees[degrees.len() - 1],
            )));
        }
        match &self.formats.allowed[..] {
            [_] => Ok(self),
            several => Err(Failure::Input(anyhow!(
                "dtype allows {} combinations of number formats, and {what} needs one: name it, like --set \
                 \"dtype={{weights: {}, kv: {}, activations: {}}}\"",
                several.len(),
                several[0].weights,
                several[0].kv,
                several[0].activations,
            ))),
        }
    }

    /// What can be traded off between `criteria`: about so many points, each judged by the simulator.
    pub fn front(&self, criteria: &[Criterion], points: usize) -> Outcome<Front> {
        planner::front(&self.question(), criteria, points, &self.scorer()).map_err(sorted)
    }

    /// The plan that follows `rule`, judged alike; `None`, with a note, where it cannot be followed.
    pub fn follow(&self, rule: Rule) -> Outcome<Option<Planned>> {
        match planner::follow(&self.question(), rule, &self.scorer()) {
            Ok(plan) => self.planned(plan, 0).map(Some),
            Err(reason) => {
                crate::terminal::errln!("note: {} is left out: {reason}", rule.name());
                Ok(None)
            }
        }
    }

    /// As the planner takes it.
    pub fn question(&self) -> planner::Question<'_> {
        let (workload, objective, slo, costs) = (self.workload, self.objective, self.slo, self.costs);
        planner::Question { pricing: self.pricing(), workload, objective, slo, costs, draft: None }
    }

    /// The simulator's judgement.
    fn scorer(&self) -> impl Fn(&Placement, u64) -> Result<Times, PlannerError> + '_ {
        |placement, chunk| sim::estimate(self.pricing(), placement, &self.workload, chunk)
    }

    /// What tasks cost in the formats of most bits, on the first of the machines.
    pub fn pricing(&self) -> Pricing<'_> {
        Pricing { machine: &self.machines[0], model: &self.model, formats: &self.formats.allowed[0] }
    }

    fn planned(&self, mut plan: Plan, machine: usize) -> Outcome<Planned> {
        let (machine, model) = (self.machines[machine].clone(), self.model.clone());
        let tensor_parallel = Some(machine.tensor_parallel()).filter(|degree| *degree > 1);
        let draft =
            self.speculative.as_ref().filter(|_| plan.draft.is_some()).map(|(model, _)| model.clone());
        let from = |origin: Origin| {
            let draft = origin.draft.filter(|_| plan.draft.is_some());
            Origin { tensor_parallel, draft, ..origin }
        };
        plan.from = self.origin.clone().map(from);
        let placement = plan.placement(&machine, &model).or_failed()?;
        Ok(Planned { plan, placement, machine, model, draft, tried: vec![] })
    }
}

/// A planner's error by its exit status.
pub fn sorted(error: PlannerError) -> Failure {
    match error.is_infeasible() {
        true => Failure::Infeasible(error.into()),
        false => Failure::Input(error.into()),
    }
}

impl Planned {
    /// Whether `path` is a plan, rather than a scenario.
    pub fn is_plan(path: &Path) -> Outcome<bool> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| Failure::Input(anyhow!("{file}: {e}")))?;
        Ok(yaml::top_keys(&text, &file).or_input()?.iter().any(|key| key == "plan"))
    }

    /// Refuses a plan with a draft, where nobody knows what to do with one.
    pub fn without_draft(&self, what: &str) -> Outcome<()> {
        match &self.plan.draft {
            None => Ok(()),
            Some(draft) => Err(Failure::Input(anyhow!(
                "{what} knows no draft, and this plan has {} on '{}': plan without speculative",
                draft.model.name,
                draft.device,
            ))),
        }
    }

    /// The rates that a trace of it means.
    pub fn rates(&self, trace: &Trace) -> Rates {
        Rates::of(trace, &self.machine, self.plan.formats.weights)
    }

    /// Reads a plan, and finds the machine and the model that it was made for.
    pub fn read(path: &Path) -> Outcome<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| Failure::Input(anyhow!("{file}: {e}")))?;
        let origin = Plan::from_yaml(&text, &file).or_input()?.from.ok_or_else(|| {
            Failure::Input(anyhow!(
                "{file}: from is missing: it names the machine and the model, see `fulcrum plan`"
            ))
        })?;
        let machine = MachineSpec::from(origin.machine)
            .machine(inputs::library().this, origin.tensor_parallel.unwrap_or(1))
            .or_input()?;
        let machine = match origin.tensor_parallel {
            Some(degree) => machine.with_tensor_parallel(degree).or_input()?,
            None => machine,
        };
        let model = inputs::model(&origin.model)?.with_expert_skew(origin.expert_skew.unwrap_or(0.0));
        let (plan, placement) = Plan::read(&text, &file, &machine, &model).or_input()?;
        // A preset's name is the model's own.
        let draft = plan.draft.as_ref().map(|placed| origin.draft.as_ref().unwrap_or(&placed.model.name));
        let draft = draft.map(|name| inputs::model(name)).transpose()?;
        Ok(Self { plan, placement, machine, model, draft, tried: vec![] })
    }

    /// What tasks cost.
    pub fn pricing(&self) -> Pricing<'_> {
        Pricing { machine: &self.machine, model: &self.model, formats: &self.plan.formats }
    }

    /// The steps of its workload.
    pub fn steps(&self) -> Vec<scenarios::Step> {
        let load = &self.plan.workload;
        planner::steps(load, self.plan.prefill_chunk)
    }

    /// The run as the simulator expects it.
    pub fn simulate(&self, draws: Draws) -> Outcome<Trace> {
        if draws.acceptance && self.draft.is_none() {
            let message = "what is accepted of a draft's tokens is drawn, and this plan has no draft";
            return Err(Failure::Input(anyhow!(message)));
        }
        if draws.experts && self.model.experts.is_none() {
            let message = format!("experts are drawn for tokens, and {} has none", self.model.name);
            return Err(Failure::Input(anyhow!(message)));
        }
        let programs = Programs::lower(&self.machine, &self.model, &self.placement).or_input()?;
        let drafts = self.draft_programs()?;
        let load = self.plan.workload;
        let draft = self.draft.as_ref().zip(drafts.as_ref()).map(|(model, programs)| {
            let pricing = Pricing { model, ..self.pricing() };
            Drafting { pricing, programs, chunk: planner::prefill_chunk(&load), workload: load }
        });
        let steps = self.steps();
        let run = sim::Run { draft, draws, ..sim::Run::new(self.pricing(), &programs, &steps) };
        run.trace(&self.plan.fingerprint()).or_input()
    }

    /// What the draft runs, where there is one.
    fn draft_programs(&self) -> Outcome<Option<Programs>> {
        let Some((placed, model)) = self.plan.draft.as_ref().zip(self.draft.as_ref()) else {
            return Ok(None);
        };
        let placement = placed.placement(&self.machine, model).or_input()?;
        Programs::lower(&self.machine, model, &placement).map(Some).or_input()
    }

    /// Another placement for the same machine, model and workload, called `name`, simulated like this one.
    pub fn evaluate(&self, name: &str, placement: &Placement) -> Outcome<Plan> {
        self.without_draft("a comparison of placements")?;
        let (pricing, plan) = (self.pricing(), &self.plan);
        let Plan { workload, objective, slo, costs, .. } = *plan;
        let question = planner::Question { pricing, workload, objective, slo, costs, draft: None };
        let score = |placement: &Placement, chunk: u64| sim::estimate(pricing, placement, &workload, chunk);
        let other = planner::evaluate(&question, name, placement.clone(), plan.prefill_chunk, &score);
        Ok(Plan { from: plan.from.clone(), ..other.or_input()? })
    }

    /// What the executor needs to run it.
    pub fn setup(&self) -> Outcome<Setup> {
        self.without_draft("the executor")?;
        Setup::of_plan(self.machine.clone(), self.model.clone(), &self.plan).or_input()
    }
}
