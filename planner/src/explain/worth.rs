//! The gain of more of each resource: the solver's optimum on a machine that has more of it.

use super::larger_machine::{Part, Resource};
use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::IdenticalGpus;
use crate::program::PhaseTimes;
use crate::program::{BatchSteps, prefill_chunks};
use crate::search::Goal;
use crate::search::SearchBudget;
use crate::search::SearchSpace;
use hwprofiles::{Bytes, Machine, Ratio};
use scenarios::Workload;
use serde::Serialize;

/// The factor that is tried.
const MORE: f64 = 1.1;

/// The gain of more of one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worth {
    /// The resource.
    pub what: String,
    /// The share by which the best objective falls; 0 where nothing is gained. The price of the
    /// part is not counted.
    pub gain: f64,
    /// The times of the best placement then, without contention.
    pub times: PhaseTimes,
}

/// The best placement over all chunks, without contention.
#[derive(Debug, Clone, Copy)]
struct Optimum {
    value: f64,
    times: PhaseTimes,
    /// The index of its search space.
    space: usize,
}

/// What stays the same while machines change: the load and the goal.
struct Asked<'a> {
    cost_model: CostModel<'a>,
    workload: &'a Workload,
    goal: &'a Goal,
    budget: SearchBudget,
}

/// The gain of 10 % more of each resource, the largest first, and of whole parts; empty where the
/// solver finds nothing that fits and keeps the limits on the machine itself.
pub(super) fn worth(
    cost_model: CostModel<'_>,
    workload: &Workload,
    goal: &Goal,
) -> Result<(Vec<Worth>, Vec<Worth>), PlannerError> {
    let asked = Asked { cost_model, workload, goal, budget: SearchBudget::PLAN };
    let machine = cost_model.machine;
    let chunks = prefill_chunks(workload);
    let spaces = asked.spaces(machine, &chunks)?;
    let Some(now) = asked.optimum(&spaces, &capacity(machine))? else { return Ok((vec![], vec![])) };
    let factor = Ratio::new(MORE).expect("the constant is above zero");
    let mut more = Vec::new();
    for resource in Resource::all(machine) {
        let other = resource.more_of(machine, factor);
        // A tenth more of a resource changes little, so the best chunk stays.
        let then = match resource {
            Resource::Capacity(_) => asked.optimum(&spaces[now.space..=now.space], &capacity(&other))?,
            _ => asked.optimum(&asked.spaces(&other, &[chunks[now.space]])?, &capacity(&other))?,
        };
        more.push(now.worth(resource.name(machine), then));
    }
    more.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    let mut parts = Vec::new();
    for part in Part::ALL {
        let Some((name, other)) = part.added_to(machine) else { continue };
        let then = match part {
            Part::Expander => asked.optimum(&asked.spaces(&other, &chunks)?, &capacity(&other))?,
            Part::Accelerator | Part::Dram => asked.optimum(&spaces, &capacity(&other))?,
        };
        parts.push(now.worth(name, then));
    }
    Ok((more, parts))
}

fn capacity(machine: &Machine) -> Vec<Bytes> {
    IdenticalGpus::from_machine(machine).capacity(machine)
}

impl Optimum {
    /// What fitted still fits and nothing got slower, so a loss within the search's tolerance is
    /// none.
    fn worth(self, what: String, then: Option<Self>) -> Worth {
        let then = then.filter(|then| then.value < self.value).unwrap_or(self);
        Worth { what, gain: 1.0 - then.value / self.value, times: then.times }
    }
}

impl<'a> Asked<'a> {
    /// The search space of each of `chunks` on `machine`, at the prices of the original machine.
    fn spaces<'m>(&self, machine: &'m Machine, chunks: &[u64]) -> Result<Vec<SearchSpace<'m>>, PlannerError>
    where
        'a: 'm,
    {
        let cost_model = CostModel { machine, ..self.cost_model };
        let space =
            |&chunk: &u64| SearchSpace::new(cost_model, &BatchSteps::new(self.workload, chunk), self.goal);
        chunks.iter().map(space).collect()
    }

    fn optimum(
        &self,
        spaces: &[SearchSpace<'_>],
        capacity: &[Bytes],
    ) -> Result<Option<Optimum>, PlannerError> {
        let mut best: Option<Optimum> = None;
        for (index, space) in spaces.iter().enumerate() {
            let Some(solution) = space.solve(self.goal, capacity, self.budget)?.solution else { continue };
            if best.is_none_or(|best| solution.value < best.value) {
                let [ttft, tpot] = solution.times();
                let tpot = (self.workload.output_tokens > 1).then_some(tpot);
                best =
                    Some(Optimum { value: solution.value, times: PhaseTimes { ttft, tpot }, space: index });
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Spec, formats, model};
    use scenarios::{Costs, Objective, Slo};

    #[test]
    fn more_of_a_resource_or_a_whole_part_never_makes_the_optimum_worse_and_what_binds_makes_it_better() {
        let (model, formats) = (model(4, 256), formats());
        let workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };
        let specs = [Spec::gpu(9_000_000), Spec { cxl: Some(1 << 30), link: 2e11, ..Spec::gpu(6_000_000) }];
        let mut gained = 0;
        for spec in specs {
            let machine = spec.machine(&model);
            let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
            let goal = Goal::new(&machine, &workload, Objective::Latency, Slo::default(), &Costs::default());
            let asked =
                Asked { cost_model, workload: &workload, goal: &goal.unwrap(), budget: SearchBudget::EXACT };
            let best = |machine: &Machine| {
                let spaces = asked.spaces(machine, &prefill_chunks(&workload)).unwrap();
                asked.optimum(&spaces, &capacity(machine)).unwrap().expect("the host holds everything").value
            };
            let now = best(&machine);
            let factor = Ratio::new(MORE).unwrap();
            let more = Resource::all(&machine).into_iter();
            let more = more.map(|resource| (resource.name(&machine), resource.more_of(&machine, factor)));
            for (name, other) in more.chain(Part::ALL.iter().filter_map(|part| part.added_to(&machine))) {
                let then = best(&other);
                assert!(then <= now * (1.0 + 1e-9), "{name}: {then} > {now}");
                gained += usize::from(then < now * (1.0 - NOTICED));
            }
        }
        assert!(gained >= 6, "{gained}");
    }

    const NOTICED: f64 = 1e-3;
}
