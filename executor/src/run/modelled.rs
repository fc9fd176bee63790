//! The same programs on a clock instead of devices.

use crate::error::ExecutorError;
use crate::setup::run_setup::RunSetup;
use hwprofiles::Seconds;
use planner::{Lane, Program, Recorder, StepSpan, TaskCost, TaskId, Trace, TraceEvent};
use scenarios::Step;
use std::collections::BTreeMap;

/// The trace of devices that take exactly as long as the cost model says, each task as if it ran
/// alone. Lanes keep their order and dependencies are kept, but nothing is shared. It computes
/// nothing and takes no time.
///
/// Where tasks never compete for bandwidth this is the simulator's schedule, to the nanosecond.
/// Elsewhere the difference is the cost of contention.
///
/// # Errors
/// Those of [`crate::Session::new`] that do not concern weights, and a rate that has not been
/// measured.
pub fn modelled(setup: &RunSetup, steps: &[Step]) -> Result<Trace, ExecutorError> {
    let programs = setup.programs()?;
    let (mut spans, mut events, mut now) = (Vec::new(), Vec::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        let program = programs.program(step.phase);
        let price = |task| setup.cost_model().task_cost(task, step);
        let prices = program.tasks.iter().map(price).collect::<Result<Vec<_>, _>>()?;
        let times = schedule(setup, program, &prices);
        for (task, (&(start, end), price)) in times.iter().zip(&prices).enumerate() {
            let id = TaskId(task as u32);
            events.push(TraceEvent::from_task(
                &setup.machine,
                program,
                id,
                price,
                index as u32,
                now + start,
                now + end,
            ));
        }
        let end = now + times.iter().map(|&(_, end)| end).max().unwrap_or(0);
        spans.push(StepSpan::new(*step, now, end));
        now = end;
    }
    Ok(setup.trace(Recorder::Modelled, spans, events))
}

/// Start and end of each task, in nanoseconds since the step began. A lane that had to wait for
/// another one first takes the time to wake up ([`hwprofiles::Device::sync`]); links have no
/// wake-up. No task starts before the host has issued it.
fn schedule(setup: &RunSetup, program: &Program, prices: &[TaskCost]) -> Vec<(u64, u64)> {
    let (mut free, mut issued): (BTreeMap<Lane, u64>, BTreeMap<Lane, u64>) = Default::default();
    let mut times: Vec<(u64, u64)> = Vec::with_capacity(prices.len());
    for (task, price) in program.tasks.iter().zip(prices) {
        let sync = match task.lane {
            Lane::Device(device) => setup.machine.device(device).sync.value,
            Lane::Link(_) => Seconds::ZERO,
        };
        let free = free.entry(task.lane.queue(&setup.machine)).or_insert(0);
        let ready = task.after.iter().map(|earlier| times[earlier.0 as usize].1).max().unwrap_or(0);
        let issued = issued.entry(task.lane).or_insert(0);
        *issued += price.issue.to_nanos_ceil();
        let start = if ready > *free { ready + sync.to_nanos_ceil() } else { *free }.max(*issued);
        let end = start + price.alone.to_nanos_ceil();
        times.push((start, end));
        *free = end;
    }
    times
}
