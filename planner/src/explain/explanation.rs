//! A plan explained: what binds it, where another device would be better, and what more of each resource would bring.

use super::binding::{PhaseBinding, binding};
use super::break_even::{BreakEven, break_evens};
use super::worth::{Worth, worth};
use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::memory::MemoryUsage;
use crate::plan::Plan;
use crate::program::BatchSteps;
use crate::search::Goal;
use hwprofiles::{Bytes, Machine};
use scenarios::Model;
use serde::Serialize;

/// What there is to say about a plan; as text in lines of at most 80 columns ([`std::fmt::Display`]), or as it is.
///
/// With the plan, which says where everything is and what each simple rule would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// How full each memory is, in the machine's order.
    pub memories: Vec<Filled>,
    /// What sets the pace of prefill and of decode.
    pub binding: Vec<PhaseBinding>,
    /// Where another device would become better.
    pub break_evens: Vec<BreakEven>,
    /// What a little more of each resource would bring, the most valuable first.
    pub more: Vec<Worth>,
    /// What whole parts would bring.
    pub parts: Vec<Worth>,
}

/// A memory and what the plan fills it with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Filled {
    /// Its name.
    pub memory: String,
    /// Exact bytes by use.
    pub used: MemoryUsage,
    /// What it holds.
    pub holds: Bytes,
}

/// Explains `plan`, made for `machine` and `model`.
///
/// # Errors
/// [`PlannerError::Plan`] where the plan was made for something else.
pub fn explain(plan: &Plan, machine: &Machine, model: &Model) -> Result<Explanation, PlannerError> {
    let placement = plan.placement(machine, model)?;
    let cost_model = CostModel { machine, model, formats: &plan.formats };
    let batch_steps = BatchSteps::new(&plan.workload, plan.prefill_chunk);
    let goal = Goal::new(machine, &plan.workload, plan.objective, plan.slo, &plan.costs)?;
    let filled = |memory: &hwprofiles::Memory| {
        let used = *plan.memory.get(&memory.name)?;
        Some(Filled { memory: memory.name.clone(), used, holds: memory.capacity.value })
    };
    let (more, parts) = worth(cost_model, &plan.workload, &goal)?;
    Ok(Explanation {
        memories: machine.memories.iter().filter_map(filled).collect(),
        binding: binding(cost_model, &placement, &batch_steps)?,
        break_evens: break_evens(cost_model, &placement, &batch_steps)?,
        more,
        parts,
        plan: plan.clone(),
    })
}
