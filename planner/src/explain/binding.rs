//! The resource that limits each phase, and how busy every other resource is meanwhile.

use crate::cost::CostModel;
use crate::cost::{Binding, Roofline};
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::BatchSteps;
use crate::program::PhasePrograms;
use hwprofiles::{Machine, Ratio, Seconds};
use scenarios::Phase;
use serde::Serialize;

/// The resource that limits one phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseBinding {
    /// The phase: all prefill steps, or one decode step in the middle of the output.
    pub phase: Phase,
    /// A lower bound of its time.
    pub at_least: Seconds,
    /// The name, among those of [`Self::busy`], of the resource that limits it.
    pub bound_by: String,
    /// The chain of tasks, each lane, each memory's bandwidth, and the host where it issues kernels
    /// one by one.
    pub busy: Vec<Busy>,
}

/// A resource and how long it is busy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Busy {
    /// `chain`, a device, a link, a memory's bandwidth, or the launches of a device.
    pub what: String,
    /// How long it is busy.
    pub time: Seconds,
    /// Its share of the phase; the rest is slack. Absent where the phase is idle.
    pub share: Option<Ratio>,
}

/// The name of the chain of tasks.
pub(super) const CHAIN: &str = "chain";

/// The prefix of the names of launches that the host issues for a device.
pub(super) const LAUNCHES: &str = "launches of ";

/// The limits of both phases of `placement` over `batch_steps`.
pub(super) fn binding(
    cost_model: CostModel<'_>,
    placement: &Placement,
    batch_steps: &BatchSteps,
) -> Result<Vec<PhaseBinding>, PlannerError> {
    let machine = cost_model.machine;
    let programs = PhasePrograms::lower(machine, cost_model.model, placement)?;
    let mut phases = Vec::new();
    for phase in [Phase::Prefill, Phase::Decode] {
        let program = programs.program(phase);
        let mut total = Roofline::default();
        for step in batch_steps.kinds(phase).iter().flatten() {
            total = total.then(&Roofline::new(&cost_model, program, step)?);
        }
        let total = total.overlapped(&cost_model, program);
        let (at_least, binding) = total.bound();
        let busy = |what: String, time: Seconds| Busy { what, time, share: Ratio::new(time / at_least) };
        let mut all = vec![busy(CHAIN.to_owned(), total.critical_path)];
        all.extend(total.lanes.iter().map(|(lane, &time)| busy(lane.name(machine).to_owned(), time)));
        all.extend(total.memories.iter().map(|(&id, &time)| busy(name(Binding::Memory(id), machine), time)));
        let launches = total.launches.iter();
        all.extend(launches.map(|(&id, &time)| busy(name(Binding::Launches(id), machine), time)));
        phases.push(PhaseBinding { phase, at_least, bound_by: name(binding, machine), busy: all });
    }
    Ok(phases)
}

fn name(binding: Binding, machine: &Machine) -> String {
    match binding {
        Binding::Chain => CHAIN.to_owned(),
        Binding::Lane(lane) => lane.name(machine).to_owned(),
        Binding::Launches(device) => format!("{LAUNCHES}{}", machine.device(device).name),
        Binding::Memory(memory) => format!("{} bandwidth", machine.memory(memory).name),
    }
}
