//! A day of requests that come and go, simulated on the placement that the planner would choose
//! for batches like those that will run.

use super::engine_day::EngineDay;
use super::engine_sizing::{EngineSizing, KvResidency, SizedEngine, engines_of};
use super::engines::{EngineFleet, EnginePlan};
use super::lockstep::{LockstepRange, with_unequal_lengths};
use super::placement::ServingPlacement;
use super::prefill_pool::PrefillPool;
use super::rebalance::{RebalancedDay, add_plans};
use super::request_feed::repeats_prompts;
use super::tables::{DayTables, write_requests, write_series};
use crate::error::{Error, OrError, Result};
use crate::pipeline::PreparedScenario;
use hwprofiles::{DeviceId, Machine, Seconds, TERMINAL_COLUMNS, wrapped, write_atomically};
use planner::{CostModel, Placement};
use scenarios::{Requests, Serving};
use serde_json::{Value, json};
use sim::serving::{
    Account, EngineCount, EngineSettings, ResourceUse, ServedRequest, ServingTimeline, Summary,
};

/// What a day came to.
pub struct ServedDay {
    /// Which model on which machine, and the engine.
    pub heading: String,
    /// What the engines run: everything on one device, or what the planner chose.
    pub plan: String,
    /// Each of the engines.
    pub engine: EngineSettings,
    /// The bytes that each engine has for what it keeps of sequences.
    pub residency: KvResidency,
    /// The numbers.
    pub summary: Summary,
    /// The requests that were answered, where [`DayTables::keeps_requests`] is set.
    pub requests: Vec<ServedRequest>,
    /// What rebalancing was worth, where the scenario asks for it.
    pub rebalanced: Option<RebalancedDay>,
    /// What would change if users who move in step did not.
    pub lockstep: Option<LockstepRange>,
}

impl ServedDay {
    /// The numbers as JSON.
    pub fn to_json(&self) -> Value {
        let mut numbers = json!(self.summary);
        if let Some(rebalanced) = &self.rebalanced {
            numbers["rebalancing"] = rebalanced.to_json();
        }
        numbers["kv_residency"] = self.residency.to_json();
        if let Some(lockstep) = &self.lockstep {
            numbers["lockstep"] = lockstep.to_json();
        }
        numbers
    }
}

/// Simulates the requests of `scenario` where the planner would place them, and writes `tables`.
/// Where users may or may not move in step, it simulates both.
///
/// ```
/// use fulcrum::{DayTables, PreparedScenario};
/// let scenario = fulcrum::parse_scenario(
///     "{machine: h100-sxm, model: llama-3.2-1b, engine: vllm, slo: {ttft: 1 s},
///       workload: {concurrency: 4, requests: 20, prompt_tokens: 64, output_tokens: 8}}",
/// )?;
/// let day = fulcrum::serve_day(&PreparedScenario::new(&scenario)?, DayTables::default())?;
/// assert_eq!(day.summary.requests.completed, 20);
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// The scenario has no requests that come and go, nothing fits, or a table cannot be written.
pub fn serve_day(scenario: &PreparedScenario, tables: DayTables<'_>) -> Result<ServedDay> {
    let missing = || {
        Error::input("workload: requests that come and go are wanted: `arrivals`, `concurrency` or `trace`")
    };
    let serving = scenario.serving().ok_or_else(missing)?;
    let (placed, machines) = ServingPlacement::new(scenario)?.side_by_side(serving);
    let serving = &Serving { replicas: machines, ..serving.clone() };
    let mut day = serve_day_on(scenario, serving, placed.clone(), tables)?;
    if let Some(unequal) = with_unequal_lengths(serving) {
        let spread = serve_day_on(scenario, &unequal, placed, DayTables::default())?.summary;
        day.lockstep = Some(LockstepRange { in_step: day.summary.clone(), spread });
    }
    Ok(day)
}

/// The same for other requests, where everything is placed already. The replicas of `serving` are
/// machines.
pub(crate) fn serve_day_on(
    scenario: &PreparedScenario,
    serving: &Serving,
    placed: ServingPlacement,
    tables: DayTables<'_>,
) -> Result<ServedDay> {
    let ServingPlacement { machine, formats, placement, micro_batch, chosen, engines: each, prefill } =
        placed;
    let sizing = EngineSizing::new(scenario, micro_batch);
    let machines = serving.replicas;
    // An engine without users would leave its share of the requests undone.
    let users = match serving.requests {
        Requests::Closed { concurrency, .. } => concurrency,
        Requests::Open { .. } | Requests::Trace { .. } => u64::MAX,
    };
    let serving = &Serving { replicas: (machines * each).min(users), ..serving.clone() };
    let plan = format!("{chosen}, {formats}");
    let idle = idle_gpus(&machine, &placement, each);
    let cost_model = CostModel { machine: &machine, model: scenario.model(), formats: &formats };
    let (mut engine, residency) = match sizing.engine(cost_model, &placement)? {
        SizedEngine::Fits(engine, residency) => (*engine, residency),
        SizedEngine::NoRoom(full) => return Err(Error::infeasible(full)),
    };
    if repeats_prompts(serving) {
        engine.prefix_tokens = engine.block_size;
    }
    let name = "the scenario's load".to_owned();
    let mut plans = vec![EnginePlan { name, placement, micro_batch, engine }];
    if serving.rebalance {
        let engine = |placement: &Placement| match sizing.engine(cost_model, placement)? {
            SizedEngine::Fits(engine, _) => Ok(Some(*engine)),
            SizedEngine::NoRoom(_) => Ok(None),
        };
        add_plans(&mut plans, scenario, cost_model, sizing.utilization, &engine)?;
    }
    let engines = EngineFleet::new(scenario, serving, machine.clone(), formats, plans)?;
    let pool = prefill.map(|engines| PrefillPool::new(engines, serving, &machine, each)).transpose()?;
    let (days, rebalanced) = match (serving.rebalance, pool) {
        (_, Some(pool)) => (pool.day(&engines, &residency, tables)?, None),
        (true, None) => {
            let (days, rebalanced) = RebalancedDay::simulate(&engines, tables)?;
            (days, Some(rebalanced))
        }
        (false, None) => (engines.day(0, tables, None)?.0, None),
    };
    let name = format!("{} on {}", scenario.model().name, machine.name);
    let (mut summary, used, requests) = joined(days, tables, serving.replicas, &name)?;
    let duration = Seconds::new(summary.duration_s);
    let costs = scenario.costs();
    let count = EngineCount { machines, per_machine: each };
    let account = Account::new(&cost_model, engines.programs(0), &costs, &used, duration, count);
    summary.account = Some(account);
    let engine = engines.engine(0);
    let heading = format!(
        "{name}{}: {}, {} KV blocks of {} tokens\n",
        if machines > 1 { format!(" × {machines}") } else { String::new() },
        scenario.engine().profile.engine,
        engine.num_blocks,
        engine.block_size,
    );
    let placed = wrapped("placement: ", &plan, 2, TERMINAL_COLUMNS).join("\n") + "\n";
    let heading = heading + &placed + &step_text(&engine, micro_batch) + &residency.to_text() + &idle;
    Ok(ServedDay { heading, plan, engine, residency, summary, requests, rebalanced, lockstep: None })
}

/// A line about the tokens of a step, where devices compute fewer at once.
fn step_text(engine: &EngineSettings, micro_batch: Option<u64>) -> String {
    let tokens = engine.max_num_batched_tokens;
    let at_once = micro_batch.filter(|at_once| *at_once < tokens);
    at_once.map_or_else(String::new, |at_once| {
        format!("steps of up to {tokens} tokens, computed {at_once} at once\n")
    })
}

/// A line about the GPUs of `machine` that none of its `engines` uses; empty where all are used.
fn idle_gpus(machine: &Machine, placement: &Placement, engines: u64) -> String {
    let gpus = machine.identical_gpus();
    let uses = |gpu: &DeviceId| {
        placement
            .sublayers()
            .flat_map(|(.., slices)| slices)
            .any(|it| it.decode == *gpu || it.prefill == *gpu)
    };
    let of_one = gpus.iter().filter(|gpu| uses(gpu)).count() as u64;
    let groups = (engines / engines_of(&machine.division())).max(1);
    let idle = (gpus.len() as u64).saturating_sub(of_one * groups) * machine.tensor_parallel();
    match idle {
        0 => String::new(),
        idle if of_one == 0 => format!("none of the {idle} GPUs is used\n"),
        idle => format!(
            "{idle} of the {} GPUs are idle; `workload.replicas` puts engines side by side\n",
            gpus.len() as u64 * machine.tensor_parallel(),
        ),
    }
}

/// Joins the records of several engines, and writes what `tables` want of them.
fn joined(
    days: Vec<EngineDay<'_>>,
    tables: DayTables<'_>,
    replicas: u64,
    name: &str,
) -> Result<(Summary, ResourceUse, Vec<ServedRequest>)> {
    let (mut used, mut pictures) = (ResourceUse::default(), Vec::new());
    let mut all: Option<EngineDay<'_>> = None;
    for mut day in days {
        pictures.extend(day.picture.take());
        used.join(&day.resource_use().or_input()?);
        match &mut all {
            Some(all) => all.join(day),
            None => all = Some(day),
        }
    }
    let EngineDay { tally, mut served, series, .. } = all.expect("there is an engine");
    if let (Some(path), Some(served)) = (tables.requests, &mut served) {
        write_requests(path, served)?;
    }
    if let (Some((path, _)), Some(series)) = (tables.series, &series) {
        write_series(path, series, replicas)?;
    }
    if let Some((path, _)) = tables.picture {
        let text = ServingTimeline::perfetto(&pictures, name).or_input()?;
        write_atomically(path, text).or_failed()?;
    }
    let kept = served.filter(|_| tables.keeps_requests).unwrap_or_default();
    Ok((tally.summary(0, 0), used, kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_scenario, plan, simulate};

    /// One request alone has the first token when a run of one sequence has it: both enter the
    /// prompt in micro-batches of the engine, and both let them follow each other through GPUs.
    #[test]
    fn a_request_alone_takes_as_long_as_a_run_of_one_sequence() {
        let scenario = |gpus: u64, load: &str, placement: &str, micro_batch: u64| {
            let text = format!(
                "{{machine: {{gpu: {{part: rtx-3090, count: {gpus}}}, cpu: epyc-7543, link: pcie4-x16,
                    dram: {{capacity: 128 GB}}}},
                  model: qwen3-30b-a3b, dtype: q4_k_m, engine: llama.cpp,
                  workload: {{{load}, prompt_tokens: 1536, output_tokens: 4}},
                  placement: {{{placement}, micro_batch: {micro_batch}}}}}"
            );
            parse_scenario(&text).expect("a scenario")
        };
        for (gpus, placement) in [(1, "cpu_moe_layers: 30"), (1, "gpu_layers: 99"), (2, "gpu_layers: 99")] {
            for micro_batch in [128, 512, 1024] {
                let scenario = |load| scenario(gpus, load, placement, micro_batch);
                let run = simulate(&plan(&scenario("batch: 1")).expect("it fits")).expect("it runs");
                let alone = scenario("concurrency: 1, requests: 1");
                let alone = PreparedScenario::new(&alone).expect("a scenario");
                let day = serve_day(&alone, DayTables::default()).expect("it runs");
                let [served, run] = [day.summary.ttft_s.mean, run.ttft_ns() as f64 * 1e-9];
                assert!(
                    (served / run - 1.0).abs() < 0.02,
                    "{gpus}, {placement}, {micro_batch}: {served} s served, {run} s alone"
                );
            }
        }
    }

    /// A plan may fill the GPU's memory, and an engine keeps some of it free: it is planned again.
    #[test]
    fn a_model_that_is_too_large_for_the_gpu_is_served() {
        for (engine, users) in
            [("fulcrum", 1), ("fulcrum", 8), ("llama.cpp", 2), ("llama.cpp", 4), ("sglang", 2)]
        {
            let day = day_of_a_large_model(engine, users, 1024).expect("it fits");
            assert_eq!(day.summary.requests.completed, 8, "{engine}, {users}");
        }
    }

    /// A prompt enters in the steps of the engine's plan, however long the engine's usual ones are.
    #[test]
    fn a_planned_engine_computes_as_many_tokens_at_once_as_its_plan() {
        let ttft = |prompt| {
            let day = day_of_a_large_model("llama.cpp", 1, prompt).expect("it fits");
            day.summary.ttft_s.mean
        };
        // Each step fetches the experts from the host, whatever its tokens.
        let [short, long] = [ttft(1024), ttft(4096)];
        assert!(long < 1.5 * short, "{long} s for 4,096 tokens, {short} s for 1,024");
    }

    #[test]
    fn the_host_computes_nothing_where_the_engine_cannot_use_it() {
        for engine in ["vllm", "sglang", "trtllm"] {
            let day = day_of_a_large_model(engine, 2, 256).expect("it fits");
            let used = day.summary.account.expect("devices have been at work").utilization;
            assert!(used["gpu"] > 0.0, "{engine}: {used:?}");
            assert_eq!(used.get("cpu").copied().unwrap_or(0.0), 0.0, "{engine}: {used:?}");
        }
    }

    /// Room for few sequences is not too little where the host computes nothing: each step would
    /// fetch weights.
    #[test]
    fn few_sequences_at_once_are_better_than_weights_that_each_step_fetches() {
        let text = "{machine: h100-sxm, model: qwen3-32b, dtype: {weights: bf16}, engine: vllm,
            workload: {concurrency: 8, requests: 8, prompt_tokens: 8000, output_tokens: 16}}";
        let scenario = PreparedScenario::new(&parse_scenario(text).expect("a scenario")).expect("a scenario");
        let day = serve_day(&scenario, DayTables::default()).expect("it fits");
        assert!(day.plan.starts_with("all on "), "{}", day.plan);
        assert!(day.engine.num_blocks * day.engine.block_size < 8 * 8016, "{}", day.heading);
    }

    #[test]
    fn an_engine_that_divides_no_matrices_is_served_on_one_of_two_gpus() {
        let text =
            "{machine: {gpu: {part: rtx-3090, count: 2}, cpu: epyc-7543, link: pcie4-x16, dram: 128 GB},
            model: gpt-oss-120b, engine: ktransformers,
            workload: {concurrency: 1, requests: 2, prompt_tokens: 256, output_tokens: 16}}";
        let scenario = PreparedScenario::new(&parse_scenario(text).expect("a scenario")).expect("a scenario");
        let day = serve_day(&scenario, DayTables::default()).expect("it fits");
        assert_eq!(day.summary.requests.completed, 2, "{}", day.heading);
    }

    /// Eight requests of gpt-oss-120b on an RTX 4090, which has no room for its experts.
    fn day_of_a_large_model(engine: &str, users: u64, prompt: u64) -> Result<ServedDay> {
        let text = format!(
            "{{machine: rtx4090-desktop, model: gpt-oss-120b, engine: {engine},
              workload: {{concurrency: {users}, requests: 8, prompt_tokens: {prompt}, output_tokens: 16}}}}"
        );
        let scenario = parse_scenario(&text).expect("a scenario");
        serve_day(&PreparedScenario::new(&scenario).expect("a scenario"), DayTables::default())
    }
}
