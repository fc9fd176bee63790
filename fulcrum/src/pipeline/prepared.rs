//! A scenario with everything that it names looked up, and the plans that answer it.

use super::cached_catalog::CachedCatalog;
use super::format_trial::FormatTrial;
use super::resolved_plan::{ResolvedPlan, require_in_time};
use crate::error::{Error, OrError, Result};
use hwprofiles::{EngineExecution, GroupDivision, Machine};
use planner::{
    BestVariant, CostModel, Criterion, DraftModel, Effort, ExportError, ForcedPlacement, Front, Identity,
    Plan, PlanOrigin, PlannerError, Rule, Scorer,
};
use scenarios::{
    Costs, EngineChoice, FormatChoice, Formats, MTP_MODULE, Model, Objective, PlacementChoice,
    ResolvedScenario, Scenario, Serving, Slo, SpeculationChoice, Training, Workload,
};
use std::sync::Arc;

/// A scenario with its model, its formats and its machine: everything that a plan depends on.
#[derive(Debug, Clone)]
pub struct PreparedScenario {
    /// The scenario with its machine and its model looked up.
    pub(crate) resolved: ResolvedScenario,
    /// What plans record of each machine, where it was computed before.
    pub(crate) identities: Option<Arc<[Identity]>>,
    /// Where machine and model came from.
    pub(crate) origin: Option<PlanOrigin>,
    /// The placement that is forced instead of planned.
    forced: Option<ForcedPlacement>,
}

/// Plans a scenario: the best placement in the best number formats, every candidate judged by the
/// simulator.
///
/// ```
/// let scenario = fulcrum::parse_scenario(
///     "{machine: rtx4090-desktop, model: opt-125m,
///       workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}}",
/// )?;
/// let plan = fulcrum::plan(&scenario)?;
/// assert!(plan.plan.predicted.simulated.ttft.get() < 1.0);
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// [`Error::Infeasible`] where nothing fits or keeps the limits, [`Error::Input`] where the
/// scenario or something that it names is wrong.
pub fn plan(scenario: &Scenario) -> Result<ResolvedPlan> {
    PreparedScenario::new(scenario)?.plan()
}

impl PreparedScenario {
    /// Looks up what `scenario` names.
    ///
    /// # Errors
    /// There is no such machine or model, or a file of theirs is wrong.
    pub fn new(scenario: &Scenario) -> Result<Self> {
        Self::cached(scenario, &CachedCatalog::default())
    }

    /// The same where some machines and models are known.
    pub(crate) fn cached(scenario: &Scenario, catalog: &CachedCatalog) -> Result<Self> {
        let resolved = scenario.resolve(catalog).or_input()?;
        let execution = Some(&resolved.engine.profile.execution);
        let execution = execution.filter(|engine| **engine != EngineExecution::default()).cloned();
        // What is known of the machine holds without an engine's own times.
        let identities = match execution {
            None => catalog.identities(&scenario.machine, &scenario.groups),
            Some(_) => None,
        };
        let division = match &resolved.machines[..] {
            [only] => only.division(),
            _ => GroupDivision::NONE,
        };
        let origin = PlanOrigin {
            machine: scenario.machine.source(),
            model: scenario.model.anchored(),
            expert_skew: Some(scenario.expert_skew).filter(|skew| *skew > 0.0),
            draft: scenario.speculative.as_ref().map(|choice| match choice.draft.text.as_str() {
                MTP_MODULE => MTP_MODULE.to_owned(),
                _ => choice.draft.anchored(),
            }),
            tensor_parallel: None,
            pipeline_parallel: None,
            expert_parallel: false,
            data_parallel: None,
            execution: execution.map(Box::new),
        }
        .with_division(division);
        let forced = forced_placement(scenario, &resolved)?;
        Ok(Self { resolved, identities, origin: Some(origin), forced })
    }

    /// A static batch on a machine that is in no file, to be answered as soon as possible.
    #[cfg(feature = "run")]
    pub(crate) fn from_machine(
        machine: Machine,
        model: Model,
        formats: Formats,
        workload: Workload,
        origin: PlanOrigin,
    ) -> Self {
        let resolved = ResolvedScenario {
            machines: Arc::from([machine]),
            model,
            formats: FormatChoice { allowed: vec![formats], lossy: vec![] },
            speculative: None,
            requirements: scenarios::Requirements::from(workload),
            serving: None,
            training: None,
            engine: EngineChoice::default(),
            placement: None,
        };
        Self { resolved, identities: None, origin: Some(origin), forced: None }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.resolved.model
    }

    /// The machine, once for each way to group its GPUs.
    pub fn machines(&self) -> &[Machine] {
        &self.resolved.machines
    }

    /// A fingerprint of each of the machines.
    pub(crate) fn machine_fingerprints(&self) -> Vec<String> {
        match &self.identities {
            Some(known) => known.iter().map(|identity| identity.fingerprint.clone()).collect(),
            None => self.machines().iter().map(Machine::fingerprint).collect(),
        }
    }

    /// The number formats that may be chosen, and those that lose too much.
    pub fn formats(&self) -> &FormatChoice {
        &self.resolved.formats
    }

    /// The load: a static batch, or one like those that an engine will run.
    pub fn workload(&self) -> &Workload {
        &self.resolved.requirements.workload
    }

    /// Requests that come and go, where the scenario has some.
    pub fn serving(&self) -> Option<&Serving> {
        self.resolved.serving.as_ref()
    }

    /// The training step, where the scenario has one.
    pub fn training(&self) -> Option<&Training> {
        self.resolved.training.as_ref()
    }

    /// The engine that serves requests.
    pub fn engine(&self) -> &EngineChoice {
        &self.resolved.engine
    }

    /// What to be best at.
    pub fn objective(&self) -> Objective {
        self.resolved.requirements.objective
    }

    /// The limits to keep.
    pub fn slo(&self) -> Slo {
        self.resolved.requirements.slo
    }

    /// What the machine and its electricity cost.
    pub fn costs(&self) -> Costs {
        self.resolved.requirements.costs
    }

    /// The same question for another load, without limits.
    pub(crate) fn with_workload(&self, workload: Workload) -> Self {
        let mut other = self.clone();
        let requirements = &mut other.resolved.requirements;
        (requirements.workload, requirements.slo) = (workload, Slo::default());
        other
    }

    /// The same question on another machine, in one combination of formats.
    pub(crate) fn on(self, machine: Machine, formats: Formats) -> Self {
        let formats = FormatChoice { allowed: vec![formats], ..self.resolved.formats };
        let resolved = ResolvedScenario { machines: Arc::from([machine]), formats, ..self.resolved };
        Self { resolved, identities: None, ..self }
    }

    /// The best plan in the best formats.
    ///
    /// # Errors
    /// As [`plan()`].
    pub fn plan(&self) -> Result<ResolvedPlan> {
        let chosen = self.choose(Effort::PLAN)?;
        let (plan, model) = (chosen.plan, &self.model().name);
        tracing::info!(model, chosen = plan.predicted.chosen, formats = %plan.formats, "planned");
        require_in_time(
            plan.predicted.simulated.ttft.max(plan.predicted.simulated.tpot.unwrap_or_default()),
        )?;
        let trials = FormatTrial::from_planned(chosen.outcomes, self.formats());
        Ok(ResolvedPlan { trials, ..self.resolve_plan(plan, chosen.machine)? })
    }

    /// A plan of this scenario that was made before, from its document.
    ///
    /// # Errors
    /// The document is no plan, or one for another machine or model.
    pub(crate) fn known_plan(&self, document: &str) -> Result<ResolvedPlan> {
        let plan = Plan::from_yaml(document, "plan").or_input()?;
        let fingerprints = self.machine_fingerprints();
        let machine = fingerprints.iter().position(|own| *own == plan.machine.fingerprint);
        match machine {
            Some(machine) if plan.model.name == self.model().name => self.resolve_plan(plan, machine),
            _ => Err(Error::input("the plan was made for another machine or model")),
        }
    }

    /// The document of the solver's plan alone, for one of many questions.
    pub(crate) fn plan_document(&self, effort: Effort) -> Result<Plan> {
        Ok(self.choose(effort)?.plan)
    }

    fn choose(&self, effort: Effort) -> Result<BestVariant> {
        if self.training().is_some() {
            return Err(Error::input(
                "a training step has one way to be made, and nothing to plan: `fulcrum sim` says what it takes",
            ));
        }
        let draft = self.resolved.speculative.as_ref();
        let draft = draft.map(|SpeculationChoice { draft, choices }| DraftModel { model: draft, choices });
        let (formats, known) = (&self.formats().allowed, self.identities.as_deref());
        let (problem, forced) = (self.problem(), self.forced.as_ref());
        planner::plan_among(&problem, self.machines(), known, formats, draft, forced, effort, &sim::scorer)
            .map_err(planner_error)
    }

    /// The most tokens that the engine's devices compute at once, where a step may have more: what
    /// `placement` says, or the engine's own (`-ub` of llama.cpp).
    pub(crate) fn micro_batch(&self) -> Option<u64> {
        let offload = self.engine().profile.execution.op_offload.as_ref()?;
        match &self.resolved.placement {
            Some(PlacementChoice::Offload(options)) => Some(options.micro_batch),
            _ => Some(offload.micro_batch.value),
        }
    }

    /// The same where the engine runs `plan`: it may be told to compute as many as the plan does.
    pub(crate) fn micro_batch_of(&self, plan: &Plan) -> Option<u64> {
        let usual = self.micro_batch()?;
        let is_told = !matches!(self.resolved.placement, Some(PlacementChoice::Offload(_)));
        let of_plan = plan.workload.batch.saturating_mul(plan.prefill_chunk);
        Some(if is_told { usual.max(of_plan) } else { usual })
    }

    /// Whether the scenario forces a placement.
    pub(crate) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// Refuses a choice of formats, groupings or drafts where `what` knows only one of each, and a
    /// forced placement.
    ///
    /// # Errors
    /// There is a choice, and the error says how to name one; a placement is forced.
    pub fn require_one_format(&self, what: &str) -> Result<()> {
        if self.is_forced() {
            return Err(Error::input(format!("{what} looks for placements: leave placement out")));
        }
        if self.resolved.speculative.is_some() {
            return Err(Error::input(format!(
                "{what} is made without a draft: leave speculative out, or use `fulcrum plan` without it"
            )));
        }
        if let [one, _, ..] = self.machines() {
            let degree = |division: GroupDivision| match division {
                GroupDivision { tensor, stages: 1, whole_experts: false, .. } => tensor.to_string(),
                other => other.to_string(),
            };
            let degrees: Vec<_> = self.machines().iter().map(|m| degree(m.division())).collect();
            return Err(Error::input(format!(
                "the GPUs of '{}' can be grouped by {}, and {what} needs one way: name it, like --set \
                 tensor_parallel={}",
                one.name,
                degrees.join(", "),
                self.machines()[degrees.len() - 1].division().tensor,
            )));
        }
        match &self.formats().allowed[..] {
            [_] => Ok(()),
            several => Err(Error::input(format!(
                "dtype allows {} combinations of number formats, and {what} needs one: name it, like --set \
                 \"dtype={{weights: {}, kv: {}, activations: {}}}\"",
                several.len(),
                several[0].weights,
                several[0].kv,
                several[0].activations,
            ))),
        }
    }

    /// The Pareto front of `criteria`: about `points` placements, each judged by the simulator.
    ///
    /// # Errors
    /// There is a choice of formats, or nothing fits.
    pub fn front(&self, criteria: &[Criterion], points: usize) -> Result<Front> {
        self.require_one_format("--front")?;
        planner::front(&self.problem(), criteria, points, &self.scorer()).map_err(planner_error)
    }

    /// The plan that follows `rule`, judged like any other.
    #[cfg(feature = "run")]
    pub(crate) fn follow(&self, rule: Rule) -> Result<FollowedRule> {
        match planner::follow(&self.problem(), rule, &self.scorer()) {
            Ok(plan) => Ok(FollowedRule::Planned(Box::new(self.resolve_plan(plan, 0)?))),
            Err(reason) => Ok(FollowedRule::Impossible(reason.to_string())),
        }
    }

    /// The question as the planner takes it.
    pub(crate) fn problem(&self) -> planner::Problem<'_> {
        let requirements = self.resolved.requirements;
        planner::Problem { cost_model: self.cost_model(), requirements, draft: None }
    }

    /// The simulator's judgement of a placement.
    pub(super) fn scorer(&self) -> Box<Scorer<'_>> {
        sim::scorer(self.cost_model(), *self.workload())
    }

    /// What tasks cost in the formats of most bits, on the first of the machines.
    pub(crate) fn cost_model(&self) -> CostModel<'_> {
        let formats = &self.formats().allowed[0];
        CostModel { machine: &self.machines()[0], model: self.model(), formats }
    }

    pub(super) fn resolve_plan(&self, mut plan: Plan, machine: usize) -> Result<ResolvedPlan> {
        let (machine, model) = (self.machines()[machine].clone(), self.model().clone());
        let draft = self.resolved.speculative.as_ref().filter(|_| plan.draft.is_some());
        let draft = draft.map(|choice| choice.draft.clone());
        let from = |origin: PlanOrigin| {
            let draft = origin.draft.clone().filter(|_| plan.draft.is_some());
            PlanOrigin { draft, ..origin.with_division(machine.division()) }
        };
        plan.from = self.origin.clone().map(from);
        let placement = plan.placement(&machine, &model).or_failed()?;
        Ok(ResolvedPlan { plan, placement, machine, model, draft, trials: vec![] })
    }
}

/// The placement that `scenario` forces, checked against each of its machines.
fn forced_placement(scenario: &Scenario, resolved: &ResolvedScenario) -> Result<Option<ForcedPlacement>> {
    let refuse = |path: &[&str], value: &str, wanted: String| {
        let path: Vec<_> = path.iter().map(|&step| step.to_owned()).collect();
        Error::input(scenario.refuse(&path, value.to_owned(), wanted))
    };
    let forced = match &resolved.placement {
        None => return Ok(None),
        Some(PlacementChoice::Offload(options)) => {
            ForcedPlacement::Offload(options.completed_by(&resolved.engine.profile, &resolved.model))
        }
        Some(PlacementChoice::Rule(name)) => ForcedPlacement::Rule(Rule::named(name).ok_or_else(|| {
            let known = Rule::ALL.map(Rule::name).join(", ");
            refuse(&["placement", "rule"], name, format!("one of {known} is wanted"))
        })?),
        Some(PlacementChoice::Plan(file)) => {
            let path = file.path();
            let shown = path.display().to_string();
            let text = hwprofiles::read_text(&path).map_err(|error| {
                refuse(&["placement", "plan"], &shown, format!("a plan's file is wanted: {error}"))
            })?;
            ForcedPlacement::Plan(Box::new(Plan::from_yaml(&text, &shown).or_input()?))
        }
    };
    for machine in &*resolved.machines {
        forced.check(machine, &resolved.model).map_err(|error| match &forced {
            ForcedPlacement::Plan(_) => Error::input(format!("placement.plan: {error}")),
            _ => Error::input(scenario.refuse(&error.path, error.value, error.wanted)),
        })?;
    }
    Ok(Some(forced))
}

/// What came of a rule.
#[cfg(feature = "run")]
pub(crate) enum FollowedRule {
    /// A plan.
    Planned(Box<ResolvedPlan>),
    /// Why there is none.
    Impossible(String),
}

/// A planner's error by its kind.
pub(crate) fn planner_error(error: PlannerError) -> Error {
    match error.is_infeasible() {
        true => Error::infeasible(error),
        false => Error::input(error),
    }
}

/// An exporter's error by its kind.
pub(super) fn export_error(error: ExportError) -> Error {
    match error {
        ExportError::Planner(error) => planner_error(error),
        ExportError::Unfit { .. } => Error::infeasible(error),
        ExportError::Unsupported { .. } | ExportError::Plan(_) => Error::input(error),
    }
}
