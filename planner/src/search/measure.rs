//! Measures of solutions.

use crate::search::pattern::Pattern;

/// A weighted sum of the seconds of each phase and of each device's work.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measure {
    /// Weight of a second of each phase.
    pub weight: [f64; 2],
    /// Weight of a second of each device's work, by phase.
    pub busy: [Vec<f64>; 2],
    /// Largest permitted value; infinite without a limit.
    pub limit: f64,
}

impl Measure {
    /// The measure multiplied by `by`, without a limit.
    pub fn scaled(&self, by: f64) -> Self {
        let busy = self.busy.each_ref().map(|busy| busy.iter().map(|weight| weight * by).collect());
        Self { weight: self.weight.map(|weight| weight * by), busy, limit: f64::INFINITY }
    }

    /// The sum of two measures, without a limit.
    pub fn plus(mut self, other: &Self) -> Self {
        for (phase, weight) in self.weight.iter_mut().enumerate() {
            *weight += other.weight[phase];
            self.busy[phase].iter_mut().zip(&other.busy[phase]).for_each(|(sum, weight)| *sum += weight);
        }
        self
    }

    /// What one layer that follows `pattern` adds by the work of devices.
    pub fn added_by(&self, pattern: &Pattern) -> f64 {
        let phase = |phase: usize| {
            let busy = self.busy[phase].iter().zip(&pattern.work[phase]);
            busy.map(|(weight, time)| weight * time).sum::<f64>()
        };
        phase(0) + phase(1)
    }
}
