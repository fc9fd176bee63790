//! Sums over the steps of a run that measure few steps and few layers.
//!
//! The time of a step is nearly linear in the tokens before it. So of many steps that differ only
//! in these tokens, a sketch measures the first, the middle and the last one and sums the parabola
//! through them. If the parabola does not fit, it halves the steps. If the first and the last step
//! are nearly equal, it measures fewer. Within a step, a run of equal layers reaches a steady state
//! after two or three layers (prefetches are limited by their staging slots); so the difference of
//! two short programs tells what each further layer adds.

use crate::cost::cost_model::CostModel;
use crate::placement::{LayerRun, Placement};
use crate::program::{Lane, LowerError, Program};
use scenarios::{Phase, Step};
use std::collections::BTreeSet;

/// Fewest layers after which a run is in steady state. A layer with one streamed matrix uses a slot
/// again after as many layers as there are slots.
const STEADY: u64 = 3;

/// If the tokens before the steps differ by at most this share, the middle step represents all.
const NEARLY_EQUAL: f64 = 0.1;

/// Largest deviation of a step from the straight line between two others, relative to the step, at
/// which the parabola is accurate enough.
const CURVATURE: f64 = 0.005;

/// Measures steps of programs for a [`Sketch`].
pub trait StepProbe {
    /// The error of a measurement.
    type Error;

    /// Measures a step of `program`. Each call returns the same number of values, and each value
    /// adds up over layers.
    fn step(&mut self, program: &Program, step: &Step) -> Result<Vec<f64>, Self::Error>;

    /// An upper bound of the difference of each value between two steps that is known without
    /// measuring them. It adds up over layers too.
    fn difference(&mut self, _program: &Program, _steps: [&Step; 2]) -> Result<Option<f64>, Self::Error> {
        Ok(None)
    }
}

/// The program of one phase with shortened runs of layers, and for each shortened run a program
/// with one period more of it.
#[derive(Debug, Clone)]
pub struct Sketch {
    short: Program,
    /// The longer programs, each with the number of periods that the short one lacks.
    longer: Vec<(Program, f64)>,
}

impl Sketch {
    /// The sketch of `placement` in `phase`.
    ///
    /// # Errors
    /// [`LowerError`] if bytes must move between two memories without a link.
    pub fn new(cost_model: &CostModel<'_>, placement: &Placement, phase: Phase) -> Result<Self, LowerError> {
        let runs = placement.runs();
        // Number of layers after which the use of slots repeats.
        let period = (placement.pipelining.slots as u64).max(2);
        let settled = STEADY.max(period + 1);
        let lower = |runs: &[LayerRun]| {
            Program::lower(cost_model.machine, cost_model.model, &placement.with_runs(runs), phase)
        };
        let kept: u64 = runs.iter().map(|run| run.count.min(settled)).sum();
        let lacking = runs.iter().filter(|run| run.count > settled).count() as u64;
        // If the host issues kernels ahead in one run of layers, the next run waits less for them:
        // runs are not independent.
        let issued = cost_model.machine.devices.iter().any(|device| device.issue.is_some());
        // A sketch with almost all layers saves nothing.
        if issued || kept * (lacking + 1) >= placement.layers.len() as u64 {
            return Ok(Self { short: lower(&runs)?, longer: Vec::new() });
        }
        let cut = |run: &LayerRun| LayerRun { count: run.count.min(settled), ..run.clone() };
        let mut few: Vec<_> = runs.iter().map(cut).collect();
        let short = lower(&few)?;
        // If only some layers stream, their fetches can overlap with the computation of the others,
        // and how much depends on the number of layers.
        if streams_in_part(&short) {
            return Ok(Self { short: lower(&runs)?, longer: Vec::new() });
        }
        let mut longer = Vec::new();
        for (index, run) in runs.iter().enumerate().filter(|(_, run)| run.count > settled) {
            few[index].count += period;
            longer.push((lower(&few)?, (run.count - settled) as f64 / period as f64));
            few[index].count -= period;
        }
        Ok(Self { short, longer })
    }

    /// A program with all kinds of tasks of the whole one and fewer layers.
    pub fn program(&self) -> &Program {
        &self.short
    }

    /// The sum of the probe's values over `steps`: equally spaced steps that differ only in the
    /// tokens before them.
    pub fn sum<L: StepProbe>(&self, steps: &[Step], probe: &mut L) -> Result<Vec<f64>, L::Error> {
        let count = steps.len();
        if let [first, .., last] = steps
            && (last.past_tokens - first.past_tokens) as f64 <= NEARLY_EQUAL * first.past_tokens as f64
        {
            let mean = first.past_tokens.midpoint(last.past_tokens);
            let step = Step { past_tokens: mean, ..*first };
            return Ok(self.step(&step, probe)?.into_iter().map(|value| value * count as f64).collect());
        }
        let [first, inner @ .., last] = steps else {
            return steps.first().map_or(Ok(Vec::new()), |only| self.step(only, probe));
        };
        let begin = self.step(first, probe)?;
        let difference = self.difference([first, last], probe)?;
        if let Some(apart) = difference
            && begin.iter().all(|begin| apart <= CURVATURE * begin)
        {
            return Ok(begin.into_iter().map(|begin| (begin + apart / 2.0) * count as f64).collect());
        }
        let end = self.step(last, probe)?;
        let nearly_equal = |(begin, end): (&f64, &f64)| (end - begin).abs() <= CURVATURE * begin.min(*end);
        if begin.iter().zip(&end).all(nearly_equal) {
            let mean = |(begin, end): (&f64, &f64)| begin.midpoint(*end) * count as f64;
            return Ok(begin.iter().zip(&end).map(mean).collect());
        }
        let mut total = self.between(inner, &begin, &end, probe)?;
        add(&mut total, &begin, 1.0);
        add(&mut total, &end, 1.0);
        Ok(total)
    }

    /// The sum over `steps` that lie between a step with the values `before` and one with the
    /// values `after`: the parabola through these and the middle step, or the sum of both halves if
    /// it does not fit.
    fn between<L: StepProbe>(
        &self,
        steps: &[Step],
        before: &[f64],
        after: &[f64],
        probe: &mut L,
    ) -> Result<Vec<f64>, L::Error> {
        let count = steps.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let middle = count / 2;
        let mid = self.step(&steps[middle], probe)?;
        let (m, n) = (middle as f64 + 1.0, count as f64 + 1.0);
        let straight = |((before, mid), after): ((&f64, &f64), &f64)| {
            (before + (after - before) * m / n - mid).abs() <= CURVATURE * mid.abs()
        };
        if before.iter().zip(&mid).zip(after).all(straight) {
            // Newton's form of the parabola through the three, summed over the steps between the
            // outer two.
            let (sum, squares) = (n * (n - 1.0) / 2.0, n * (n - 1.0) * (2.0 * n - 1.0) / 6.0);
            let parabola = |((before, mid), after): ((&f64, &f64), &f64)| {
                let slope = (mid - before) / m;
                let bend = ((after - before) / n - slope) / (n - m);
                before * count as f64 + slope * sum + bend * (squares - m * sum)
            };
            return Ok(before.iter().zip(&mid).zip(after).map(parabola).collect());
        }
        let mut total = self.between(&steps[..middle], before, &mid, probe)?;
        add(&mut total, &mid, 1.0);
        add(&mut total, &self.between(&steps[middle + 1..], &mid, after, probe)?, 1.0);
        Ok(total)
    }

    fn step<L: StepProbe>(&self, step: &Step, probe: &mut L) -> Result<Vec<f64>, L::Error> {
        let short = probe.step(&self.short, step)?;
        let mut total = short.clone();
        for (longer, lacking) in &self.longer {
            add(&mut total, &probe.step(longer, step)?, *lacking);
            add(&mut total, &short, -*lacking);
        }
        Ok(total)
    }

    fn difference<L: StepProbe>(&self, steps: [&Step; 2], probe: &mut L) -> Result<Option<f64>, L::Error> {
        let Some(short) = probe.difference(&self.short, steps)? else { return Ok(None) };
        let mut total = short;
        for (longer, lacking) in &self.longer {
            let Some(longer) = probe.difference(longer, steps)? else { return Ok(None) };
            total += (longer - short) * lacking;
        }
        Ok(Some(total))
    }
}

/// Whether some layers (or embed or head) stream and others do not.
fn streams_in_part(program: &Program) -> bool {
    let fetched = program.tasks.iter().filter(|task| matches!(task.lane, Lane::Link(_)));
    let streamed: BTreeSet<Option<u32>> = fetched.map(|task| task.layer).collect();
    let layers: BTreeSet<Option<u32>> = program.tasks.iter().filter_map(|t| t.layer).map(Some).collect();
    !streamed.is_empty() && !layers.is_subset(&streamed)
}

fn add(total: &mut Vec<f64>, more: &[f64], times: f64) {
    total.resize(more.len().max(total.len()), 0.0);
    total.iter_mut().zip(more).for_each(|(sum, value)| *sum += value * times);
}
