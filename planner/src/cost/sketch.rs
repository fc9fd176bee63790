//! Sums over the steps of a run that measure few steps and few layers.
//!
//! The time of a step is nearly linear in the tokens before it. So of many steps that differ only
//! in these tokens, a sketch measures the first, the middle and the last one and sums the parabola
//! through them. If the parabola does not fit, it halves the steps. If the first and the last step
//! are nearly equal, it measures fewer. Within a step, a run of equal layers reaches a steady state
//! after two or three layers (prefetches are limited by their staging slots); so the difference of
//! two short programs tells what each further layer adds.

use crate::cost::cost_model::CostModel;
use crate::placement::{LayerPlacement, LayerRun, PhasePlacement, Slice};
use crate::program::{LowerError, OperandSource, Program};
use hwprofiles::Machine;
use scenarios::{Step, Sublayer};

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
    /// A program as this probe takes it.
    type Program;
    /// The error of a measurement.
    type Error;

    /// Measures a step of `program`. Each call returns the same number of values, and each value
    /// adds up over layers.
    fn step(&mut self, program: &Self::Program, step: &Step) -> Result<Vec<f64>, Self::Error>;

    /// An upper bound of the difference of each value between two steps that is known without
    /// measuring them. It adds up over layers too.
    fn difference(
        &mut self,
        _program: &Self::Program,
        _steps: [&Step; 2],
    ) -> Result<Option<f64>, Self::Error> {
        Ok(None)
    }
}

/// The program of one phase with shortened runs of layers, and for each shortened run a program
/// with one period more of it.
#[derive(Debug, Clone)]
pub struct Sketch<P = Program> {
    short: P,
    /// The longer programs, each with the number of periods that the short one lacks.
    longer: Vec<(P, f64)>,
}

impl Sketch {
    /// The sketch of `placement` in its phase.
    ///
    /// # Errors
    /// [`LowerError`] if bytes must move between two memories without a link.
    pub fn new(cost_model: &CostModel<'_>, placement: &PhasePlacement) -> Result<Self, LowerError> {
        let CostModel { machine, model, .. } = *cost_model;
        // Number of layers after which the use of slots repeats.
        let period = (placement.pipelining.slots as u64).max(2);
        let settled = STEADY.max(period + 1);
        let lower = |counts: &[u64]| {
            Program::lower_view(machine, model, &placement.with_counts(counts), placement.phase)
        };
        let counts: Vec<u64> = placement.runs.iter().map(|run| run.count).collect();
        let mut few: Vec<u64> = counts.iter().map(|count| *count.min(&settled)).collect();
        let lacking = counts.iter().filter(|&&count| count > settled).count() as u64;
        // If the host issues kernels ahead in one run of layers, the next run waits less for them:
        // runs are not independent.
        let issued = machine.devices.iter().any(|device| device.issue.is_some());
        // A sketch with almost all layers saves nothing.
        let most = few.iter().sum::<u64>() * (lacking + 1) >= counts.iter().sum();
        // If layers stream different bytes, the fetches of some can overlap with the computation of
        // the others, and how much depends on the number of layers.
        if issued || most || streams_unevenly(machine, placement) {
            return Ok(Self { short: lower(&counts)?, longer: Vec::new() });
        }
        let short = lower(&few)?;
        let mut longer = Vec::new();
        for (run, &count) in counts.iter().enumerate().filter(|(_, count)| **count > settled) {
            few[run] += period;
            longer.push((lower(&few)?, (count - settled) as f64 / period as f64));
            few[run] -= period;
        }
        Ok(Self { short, longer })
    }

    /// The sketch with its programs as a probe takes them.
    pub fn map<P>(self, mut program: impl FnMut(Program) -> P) -> Sketch<P> {
        let short = program(self.short);
        let longer = self.longer.into_iter().map(|(longer, lacking)| (program(longer), lacking));
        Sketch { short, longer: longer.collect() }
    }
}

impl<P> Sketch<P> {
    /// A program with all kinds of tasks of the whole one and fewer layers.
    pub fn program(&self) -> &P {
        &self.short
    }

    /// The sum of the probe's values over `steps`: equally spaced steps that differ only in the
    /// tokens before them.
    pub fn sum<L: StepProbe<Program = P>>(
        &self,
        steps: &[Step],
        probe: &mut L,
    ) -> Result<Vec<f64>, L::Error> {
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
        add_times(&mut total, &begin, 1.0);
        add_times(&mut total, &end, 1.0);
        Ok(total)
    }

    /// The sum over `steps` that lie between a step with the values `before` and one with the
    /// values `after`: the parabola through these and the middle step, or the sum of both halves if
    /// it does not fit.
    fn between<L: StepProbe<Program = P>>(
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
        add_times(&mut total, &mid, 1.0);
        add_times(&mut total, &self.between(&steps[middle + 1..], &mid, after, probe)?, 1.0);
        Ok(total)
    }

    fn step<L: StepProbe<Program = P>>(&self, step: &Step, probe: &mut L) -> Result<Vec<f64>, L::Error> {
        let short = probe.step(&self.short, step)?;
        let mut total = short.clone();
        for (longer, lacking) in &self.longer {
            add_times(&mut total, &probe.step(longer, step)?, *lacking);
            add_times(&mut total, &short, -*lacking);
        }
        Ok(total)
    }

    fn difference<L: StepProbe<Program = P>>(
        &self,
        steps: [&Step; 2],
        probe: &mut L,
    ) -> Result<Option<f64>, L::Error> {
        let Some(short) = probe.difference(&self.short, steps)? else { return Ok(None) };
        let mut total = short;
        for (longer, lacking) in &self.longer {
            let Some(longer) = probe.difference(longer, steps)? else { return Ok(None) };
            total += (longer - short) * lacking;
        }
        Ok(Some(total))
    }
}

/// Whether the head streams, or runs of layers stream different parts of their layers.
fn streams_unevenly(machine: &Machine, placement: &PhasePlacement) -> bool {
    let phase = placement.phase;
    let streams = |slice: &Slice| OperandSource::in_place(machine, slice.home, slice.device(phase)).is_none();
    let differs = |pair: &[LayerRun]| {
        let [one, other] =
            [&pair[0], &pair[1]].map(|run| slices_of(&run.layer).filter(|(_, one)| streams(one)));
        !one.eq(other)
    };
    placement.head.iter().any(streams) || placement.runs.windows(2).any(differs)
}

/// The slices of a layer, each with its sublayer.
fn slices_of(layer: &LayerPlacement) -> impl Iterator<Item = (Sublayer, &Slice)> {
    layer.iter().flat_map(|(sublayer, slices)| slices.iter().map(move |slice| (sublayer, slice)))
}

/// Adds `times` values to sums, which may not have begun.
pub fn add_times(sums: &mut Vec<f64>, values: &[f64], times: f64) {
    sums.resize(sums.len().max(values.len()), 0.0);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += times * value);
}
