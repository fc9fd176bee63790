//! Another placement while devices are slower than planned.

use crate::pipeline::ResolvedPlan;
use hwprofiles::{Bytes, Ratio, Seconds};
use planner::{CostModel, Placement, PlannerError, moved_sequences, moving_time};
use scenarios::{Requirements, Workload};
use std::fmt;

/// A placement that is better while devices are slow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BetterPlacement {
    /// The placement.
    pub(crate) placement: Placement,
    /// Time per output token with the present placement, and with this one.
    tpot: [Seconds; 2],
    /// The bytes that move, and how long that takes.
    moves: (Bytes, Seconds),
}

impl fmt::Display for BetterPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([now, then], (bytes, time)) = (self.tpot, self.moves);
        write!(f, "planned again: TPOT {then} instead of {now}; {bytes} moved in {time}")
    }
}

/// The placement that the planner chooses for devices that take `slowdown` times as long as
/// measured, with as many micro-batches as `present`. `None` where it saves less in the plan's
/// decode steps than it takes to move there.
pub(crate) fn better_placement(
    planned: &ResolvedPlan,
    present: &Placement,
    slowdown: &[Ratio],
) -> Option<BetterPlacement> {
    let mut machine = planned.machine.clone();
    for (device, slowdown) in machine.devices.iter_mut().zip(slowdown) {
        *device = device.slower(*slowdown);
    }
    let cost_model = CostModel { machine: &machine, ..planned.cost_model() };
    let load = planned.plan.workload;
    let (chunk, objective) = (planned.plan.prefill_chunk, planned.plan.objective);
    let score = |placement: &Placement, chunk: u64| sim::estimate(cost_model, placement, &load, chunk);
    let requirements = Requirements { objective, ..Requirements::from(load) };
    let problem = planner::Problem { cost_model, requirements, draft: None };
    let plan = planner::plan(&problem, &score).ok()?;
    let mut placement = plan.placement(&machine, &planned.model).ok()?;
    placement.pipelining.micro_batches = present.pipelining.micro_batches;
    let decode = |placement| -> Result<Seconds, PlannerError> {
        Ok(sim::estimate(cost_model, placement, &load, chunk)?.tpot.unwrap_or(Seconds::ZERO))
    };
    let tpot = [decode(present).ok()?, decode(&placement).ok()?];
    let Workload { batch, .. } = load;
    let moves = moved_sequences(cost_model, present, &placement, [batch, load.context()]);
    let time = moving_time(cost_model, &moves)?;
    let saved = (tpot[0].get() - tpot[1].get()) * load.decode_steps() as f64;
    let bytes = moves.values().copied().sum();
    let is_better = placement != *present && saved > time.get();
    is_better.then_some(BetterPlacement { placement, tpot, moves: (bytes, time) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{parse_scenario, plan};
    use planner::PhasePrograms;

    /// However slow devices are: a placement that is followed instead is faster, saves more than it
    /// takes to move, and fits.
    #[test]
    fn another_placement_is_followed_only_where_it_saves_more_than_its_moves_take() {
        let scenario = "{machine: example-loopback, model: fulcrum-tiny,
            workload: {batch: 2, prompt_tokens: 64, output_tokens: 256}}";
        let planned = plan(&parse_scenario(scenario).expect("valid")).expect("a plan");
        let alike = vec![Ratio::ONE; planned.machine.devices.len()];
        let unchanged = better_placement(&planned, &planned.placement, &alike);
        assert_eq!(unchanged, None, "the plan is the best as long as its rates hold");
        let mut found = 0;
        for device in planned.machine.device_ids() {
            for times in [2.0, 8.0, 50.0] {
                let mut slowdown = alike.clone();
                slowdown[device.0] = Ratio::new(times).expect("positive");
                let Some(better) = better_placement(&planned, &planned.placement, &slowdown) else {
                    continue;
                };
                found += 1;
                let [now, then] = better.tpot.map(|tpot| tpot.get());
                let steps = planned.plan.workload.decode_steps() as f64;
                assert!(then < now && (now - then) * steps > better.moves.1.get(), "{better}");
                assert_ne!(better.placement, planned.placement);
                PhasePrograms::lower(&planned.machine, &planned.model, &better.placement).expect("it runs");
            }
        }
        assert!(found > 0, "a device that is 50 times as slow is worth leaving");
    }
}
