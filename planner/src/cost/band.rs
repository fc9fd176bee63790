//! The uncertainty of a program's time, from the uncertainty of the machine's rates.

use crate::cost::cost_model::CostModel;
use crate::program::{Action, Lane, Program};
use hwprofiles::{Basis, Bound, Bytes, Estimate, MissingRate, Ratio};
use scenarios::Step;

/// The 80 % band of a time, relative to the time: (low, high).
pub type Band = (Ratio, Ratio);

impl CostModel<'_> {
    /// The band of `step` of `program`: Σ of the tasks' lower ends ÷ Σ of their times, and the same
    /// with the upper ends. One rate serves many tasks, so the tasks are assumed to deviate
    /// together; if they were independent, the band would be narrower. Transfers are as uncertain
    /// as the rate of their link.
    ///
    /// # Errors
    /// [`MissingRate`] if a rate was not measured.
    pub fn band(&self, program: &Program, step: &Step) -> Result<Band, MissingRate> {
        let mut all = Estimate::ZERO;
        for task in &program.tasks {
            let time = match (&task.action, task.lane) {
                (Action::Compute { operator, rows, .. }, Lane::Device(device)) => {
                    let step = &task.micro_batch.step(step);
                    self.of_kind(task.kind).estimate(*operator, rows, device, step)?
                }
                _ => {
                    let price = self.task_cost(task, step)?;
                    let Some((link, _)) = price.carried.filter(|(_, bytes)| *bytes > Bytes::ZERO) else {
                        continue;
                    };
                    let basis = Basis::Measured.sourced(&self.machine.link(link).bandwidth.source);
                    Estimate::with_default_band(price.alone, Bound::Memory, basis)
                }
            };
            all = all.then(&time);
        }
        let share = |end: f64| Ratio::new(end / all.time.get()).unwrap_or(Ratio::ONE);
        Ok((share(all.low.get()), share(all.high.get())))
    }
}
