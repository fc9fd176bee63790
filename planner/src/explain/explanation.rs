//! An explanation: what limits the plan, where another device would be better, and what more of
//! each resource would bring.

use super::binding::{PhaseBinding, binding};
use super::break_even::{BreakEven, break_evens};
use super::brief::Brief;
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

/// An explanation of a plan. Its text ([`std::fmt::Display`]) has lines of at most 80 columns.
///
/// It holds the plan, which states every home and the times of each simple rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// The bytes in each memory, in the machine's order.
    pub memories: Vec<MemoryFill>,
    /// The limits of prefill and of decode.
    pub binding: Vec<PhaseBinding>,
    /// Where another device would become better.
    pub break_evens: Vec<BreakEven>,
    /// The gain of 10 % more of each resource, the largest gain first.
    pub more: Vec<Worth>,
    /// The gain of whole parts.
    pub parts: Vec<Worth>,
}

impl Explanation {
    /// Its answer in at most 25 lines of at most 80 columns.
    pub fn brief(&self) -> Brief<'_> {
        Brief(self)
    }
}

/// A memory and the plan's bytes in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryFill {
    /// Its name.
    pub memory: String,
    /// Exact bytes by use.
    pub used: MemoryUsage,
    /// Its capacity.
    pub holds: Bytes,
}

/// Explains `plan`, made for `machine` and `model`. Of a plan with a draft, the steps of the model
/// are explained, on the machine that the draft leaves.
///
/// # Errors
/// [`PlannerError::Plan`] where the plan was made for another machine or model.
pub fn explain(plan: &Plan, machine: &Machine, model: &Model) -> Result<Explanation, PlannerError> {
    let placement = plan.placement(machine, model)?;
    // A draft has its part of the memory and of each step's time; the rest is the model's.
    let left = plan.draft.as_ref().and_then(|draft| draft.leaves(machine));
    let machine = left.as_ref().unwrap_or(machine);
    let cost_model = CostModel { machine, model, formats: &plan.formats };
    let batch_steps = BatchSteps::new(&plan.workload, plan.prefill_chunk);
    let goal = Goal::new(machine, &plan.workload, plan.objective, plan.slo, &plan.costs)?;
    let filled = |memory: &hwprofiles::Memory| {
        let used = *plan.memory.get(&memory.name)?;
        Some(MemoryFill { memory: memory.name.clone(), used, holds: memory.capacity.value })
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
