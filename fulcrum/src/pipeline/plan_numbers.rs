//! A plan's numbers in plain units, for programs.

use super::resolved_plan::ResolvedPlan;
use crate::error::{OrError, Result};
use hwprofiles::Phase;
use planner::{MemoryUsage, PhasePrograms, PhaseTimes, Plan};
use serde_json::{Map, Value, json};

/// The numbers of a plan as JSON: times in seconds, memory in bytes, energy in joules, cost in
/// dollars.
pub fn plan_numbers(plan: &Plan) -> Value {
    let Plan { machine, model, workload, predicted, memory, .. } = plan;
    let run = &predicted.simulated;
    let rate = run.tpot.map(|tpot| workload.batch as f64 / tpot.get());
    let rules: Map<_, _> = predicted.baselines.iter().map(|(name, it)| (name.clone(), times(it))).collect();
    let memory: Map<_, _> = memory.iter().map(|(name, it)| (name.clone(), bytes(it))).collect();
    json!({
        "machine": machine.name,
        "model": model.name,
        "formats": plan.formats.to_string(),
        "batch": workload.batch,
        "prompt_tokens": workload.prompt_tokens,
        "output_tokens": workload.output_tokens,
        "chosen": predicted.chosen,
        "ttft_s": run.ttft.get(),
        "tpot_s": run.tpot.map(|it| it.get()),
        "decode_tokens_per_s": rate,
        "energy_per_token_j": predicted.energy_per_token.map(|it| it.get()),
        "cost_per_token_usd": predicted.cost_per_token.map(|it| it.get()),
        "proven": predicted.proven.map(|it| it.get()),
        "bound": times(&predicted.bound),
        "rules": rules,
        "memory": memory,
    })
}

fn times(times: &PhaseTimes) -> Value {
    json!({"ttft_s": times.ttft.get(), "tpot_s": times.tpot.map(|it| it.get())})
}

fn bytes(usage: &MemoryUsage) -> Value {
    json!({
        "weights": usage.weights.get(),
        "kv": usage.kv.get(),
        "activations": usage.activations.get(),
        "staging": usage.staging.get(),
    })
}

impl ResolvedPlan {
    /// The 80 % bands of its times, each from low to high and relative to the time, as JSON: of the
    /// last chunk of the prompt and of a token in the middle of the answer.
    ///
    /// # Errors
    /// A rate is missing from the machine.
    pub fn bands(&self) -> Result<Value> {
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement).or_input()?;
        let mut bands = Map::new();
        for (phase, step) in self.typical_steps() {
            let name = if phase == Phase::Prefill { "ttft" } else { "tpot" };
            let (low, high) = self.cost_model().band(programs.program(phase), &step).or_input()?;
            bands.insert(name.to_owned(), json!([low.get(), high.get()]));
        }
        Ok(Value::Object(bands))
    }
}
