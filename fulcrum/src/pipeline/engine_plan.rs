//! Plans among what an engine can run: the one that a command names, or the scenario's own.

use super::prepared::{PreparedScenario, export_error, planner_error};
use super::resolved_plan::ResolvedPlan;
use crate::error::{OrError, Result};
use hwprofiles::DeviceKind;
use planner::{Effort, Export, ExportTarget, Placement};
use scenarios::{OffloadOptions, PlacementChoice, Scenario};

impl PreparedScenario {
    /// The best plan among the options of llama.cpp, or of an engine that places tensors as it
    /// does.
    /// `on_gpus` is the same question with everything on the GPUs, where the engine may take other
    /// times.
    ///
    /// # Errors
    /// Nothing fits.
    fn plan_offload(&self, on_gpus: &Self) -> Result<ResolvedPlan> {
        let engine = self.nothing_on_cpus(OffloadOptions::DEFAULT.micro_batch);
        let planned = planner::plan_offload(&self.problem(), &on_gpus.machines()[0], &engine, &sim::scorer);
        let (plan, options) = planned.map_err(planner_error)?;
        let of = if options.is_whole_on_gpus(self.model()) { on_gpus } else { self };
        of.resolve_plan(plan, 0)
    }

    /// The options of llama.cpp that place nothing with the CPU.
    fn nothing_on_cpus(&self, micro_batch: u64) -> OffloadOptions {
        let options = OffloadOptions { micro_batch, ..OffloadOptions::DEFAULT };
        options.completed_by(&self.engine().profile, self.model())
    }

    /// The plan of `scenario` with `options`, which place nothing with the CPU: the engine takes
    /// other times where it divides nothing.
    ///
    /// # Errors
    /// It does not fit.
    fn whole_on_gpus(scenario: &Scenario, options: OffloadOptions, chosen: String) -> Result<ResolvedPlan> {
        let mut forced = scenario.clone();
        forced.placement = Some(PlacementChoice::Offload(options));
        let mut whole = Self::new(&forced)?.plan()?;
        whole.plan.predicted.chosen = chosen;
        Ok(ResolvedPlan { trials: vec![], ..whole })
    }

    /// The best plan of `scenario` that `engine` can run, with the options that make it run so.
    ///
    /// # Errors
    /// Nobody knows the engine or it cannot run the model, there is a choice of formats or of ways
    /// to group GPUs (engines without tensor parallelism take each alone), a placement is forced,
    /// or nothing fits.
    pub fn plan_for(scenario: &Scenario, engine: &str) -> Result<(ResolvedPlan, Export)> {
        let target: ExportTarget = engine.parse().or_input()?;
        let mut scenario = scenario.clone();
        if !target.divides_matrices() && scenario.groups.tensor.is_empty() {
            scenario.groups.tensor = vec![1];
        }
        let scenario = &scenario;
        let prepared = Self::new(scenario)?;
        prepared.require_one_format("--for")?;
        let planned = match target {
            ExportTarget::LlamaCpp | ExportTarget::IkLlamaCpp => {
                let mut on_gpus = scenario.clone();
                let options = prepared.nothing_on_cpus(OffloadOptions::DEFAULT.micro_batch);
                on_gpus.placement = Some(PlacementChoice::Offload(options));
                prepared.plan_offload(&Self::new(&on_gpus)?)?
            }
            other => prepared.plan_options(scenario, other)?,
        };
        let export = planned.export(target)?;
        Ok((planned, export))
    }

    /// The best plan among what `target` makes of its options. `scenario` is what this was made of.
    ///
    /// # Errors
    /// As [`PreparedScenario::plan_for`].
    fn plan_options(&self, scenario: &Scenario, target: ExportTarget) -> Result<ResolvedPlan> {
        let planned = planner::plan_for_engine(&self.problem(), target, Effort::PLAN, &self.scorer());
        let planned = self.resolve_plan(planned.map_err(export_error)?, 0)?;
        if self.engine().profile.execution.on_gpus.is_none() {
            return Ok(planned);
        }
        let options = self.nothing_on_cpus(planned.plan.prefill_chunk);
        let whole = Self::whole_on_gpus(scenario, options, planned.plan.predicted.chosen.clone());
        // Nothing is fetched ahead, so the number of slots says nothing.
        let pipelining = planned.placement.pipelining;
        let is_same =
            |whole: &ResolvedPlan| Placement { pipelining, ..whole.placement.clone() } == planned.placement;
        Ok(whole.ok().filter(is_same).unwrap_or(planned))
    }

    /// The best plan among what the scenario's own engine can run. An engine whose host computes,
    /// and that nobody exports to, is taken to run any plan; an engine whose host does not may
    /// still fetch the weights of its first layers, as vLLM does. Without a GPU, with several
    /// formats, drafts or a forced placement any plan counts; of several groups of GPUs the largest
    /// that has one.
    ///
    /// # Errors
    /// As [`PreparedScenario::plan`].
    pub(crate) fn plan_of_engine(&self) -> Result<ResolvedPlan> {
        let profile = &self.engine().profile;
        let target = match profile.engine.parse::<ExportTarget>() {
            Ok(target) => target,
            Err(_) if profile.host_computes => return self.plan(),
            Err(_) => ExportTarget::Vllm,
        };
        let mut devices = self.machines().iter().flat_map(|machine| &machine.devices);
        let is_choice = self.resolved.speculative.is_some() || self.formats().allowed.len() > 1;
        if self.is_forced() || is_choice || devices.all(|device| device.kind != DeviceKind::Gpu) {
            return self.plan();
        }
        let mut refused = None;
        for machine in self.machines().iter().rev() {
            match self.clone().on(machine.clone(), *self.cost_model().formats).plan_of_target(target) {
                Ok(planned) => return Ok(planned),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or_else(|| self.plan(), Err)
    }

    /// The best plan on the only machine among what `target` makes of its options. What does not
    /// fit on the GPUs asks for it, so their times with nothing on the CPU do not matter.
    fn plan_of_target(&self, target: ExportTarget) -> Result<ResolvedPlan> {
        if matches!(target, ExportTarget::LlamaCpp | ExportTarget::IkLlamaCpp) {
            return self.plan_offload(self);
        }
        let plan = planner::plan_for_engine(&self.problem(), target, Effort::PLAN, &self.scorer());
        self.resolve_plan(plan.map_err(export_error)?, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_scenario, plan};

    #[test]
    fn a_plan_for_an_engine_takes_the_times_of_the_same_placement_forced() {
        let scenario = |placement: &str| {
            let text = format!(
                "{{machine: rtx4090-desktop, model: llama-3.1-8b, dtype: {{weights: int4}}, engine: llama.cpp,
                   workload: {{batch: 1, prompt_tokens: 512, output_tokens: 64}}{placement}}}"
            );
            parse_scenario(&text).expect("a scenario")
        };
        for engine in ["llama.cpp", "ollama"] {
            let (planned, _) = PreparedScenario::plan_for(&scenario(""), engine).expect("it fits");
            let chunk = planned.plan.prefill_chunk;
            let forced = plan(&scenario(&format!(", placement: {{gpu_layers: 99, micro_batch: {chunk}}}")));
            let forced = forced.expect("it fits");
            assert_eq!(planned.placement, forced.placement, "{engine}");
            assert_eq!(planned.plan.predicted.simulated, forced.plan.predicted.simulated, "{engine}");
        }
    }
}
