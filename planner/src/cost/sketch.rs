//! Sums over a run without looking at what repeats: few steps stand for all, few layers for a run of equals.
//!
//! A step's times bend little in the tokens that came before, so of many equal steps the first, the middle and the
//! last one are looked at, and the parabola through them is summed; where they bend, both halves in the same way; of steps
//! that are nearly the same, only the middle; where the last takes what the first does, so do those between; where it is
//! known to, it is not looked at. Inside a step, a run of equal layers settles after two or three (prefetch is bounded by
//! its staging slots): what one more layer adds is the difference of two short programs.

use crate::cost::cost_model::CostModel;
use crate::placement::LayerRun;
use crate::placement::Placement;
use crate::program::{Lane, LowerError, Program};
use scenarios::{Phase, Step};
use std::collections::BTreeSet;

/// Layers until a run has settled, at least: in a layer of which one matrix streams, a slot is used again as many
/// layers later as there are slots.
const SETTLED: u64 = 3;

/// Of steps whose tokens before them differ by no larger share, the one in the middle stands for all.
const ALIKE: f64 = 0.1;

/// By what share of a step its time may lie off the straight line between two others for a parabola to do.
const BENT: f64 = 0.005;

/// What is looked at in a program.
pub trait StepProbe {
    /// Why it cannot be.
    type Error;

    /// What a step of `program` takes: as many numbers each time, each of which adds up over layers.
    fn step(&mut self, program: &Program, step: &Step) -> Result<Vec<f64>, Self::Error>;

    /// By how much each of the numbers of two steps may differ, where that is known without looking at them; it adds up
    /// over layers too.
    fn difference(&mut self, _program: &Program, _steps: [&Step; 2]) -> Result<f64, Self::Error> {
        Ok(f64::INFINITY)
    }
}

/// One phase's program with its runs cut short, and the same with one layer more in one run each.
#[derive(Debug, Clone)]
pub struct Sketch {
    short: Program,
    /// The longer programs, and how many layers each run lacks in the short one.
    longer: Vec<(Program, f64)>,
}

impl Sketch {
    /// The sketch of `placement` in `phase`.
    pub fn new(cost_model: &CostModel<'_>, placement: &Placement, phase: Phase) -> Result<Self, LowerError> {
        let runs = placement.runs();
        // Layers after which what a run adds repeats: one for each staging slot.
        let period = (placement.pipelining.slots as u64).max(2);
        let settled = SETTLED.max(period + 1);
        let lower = |runs: &[LayerRun]| {
            Program::lower(cost_model.machine, cost_model.model, &placement.with_runs(runs), phase)
        };
        let kept: u64 = runs.iter().map(|run| run.count.min(settled)).sum();
        let lacking = runs.iter().filter(|run| run.count > settled).count() as u64;
        // What a host has issued ahead in one run of layers is waited for less in the next.
        let issued = cost_model.machine.devices.iter().any(|device| device.issue.is_some());
        // Where most layers are there anyway, all of them are.
        if issued || kept * (lacking + 1) >= placement.layers.len() as u64 {
            return Ok(Self { short: lower(&runs)?, longer: Vec::new() });
        }
        let cut = |run: &LayerRun| LayerRun { count: run.count.min(settled), ..run.clone() };
        let mut few: Vec<_> = runs.iter().map(cut).collect();
        let short = lower(&few)?;
        // Where some layers stream and others do not, what is fetched for the ones may arrive while the others compute:
        // how much of it depends on how many they are.
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

    /// A program with everything of the whole one but the length of its runs.
    pub fn program(&self) -> &Program {
        &self.short
    }

    /// The sum of `look` over `steps`, equally spaced steps that differ only in the tokens before them.
    pub fn sum<L: StepProbe>(&self, steps: &[Step], look: &mut L) -> Result<Vec<f64>, L::Error> {
        let count = steps.len();
        if let [first, .., last] = steps
            && (last.past_tokens - first.past_tokens) as f64 <= ALIKE * first.past_tokens as f64
        {
            let mean = first.past_tokens.midpoint(last.past_tokens);
            let step = Step { past_tokens: mean, ..*first };
            return Ok(self.step(&step, look)?.into_iter().map(|value| value * count as f64).collect());
        }
        let [first, inner @ .., last] = steps else {
            return steps.first().map_or(Ok(Vec::new()), |only| self.step(only, look));
        };
        let begin = self.step(first, look)?;
        let apart = self.difference([first, last], look)?;
        if begin.iter().all(|begin| apart <= BENT * begin) {
            return Ok(begin.into_iter().map(|begin| (begin + apart / 2.0) * count as f64).collect());
        }
        let end = self.step(last, look)?;
        let alike = |(begin, end): (&f64, &f64)| (end - begin).abs() <= BENT * begin.min(*end);
        if begin.iter().zip(&end).all(alike) {
            let mean = |(begin, end): (&f64, &f64)| begin.midpoint(*end) * count as f64;
            return Ok(begin.iter().zip(&end).map(mean).collect());
        }
        let mut total = self.between(inner, &begin, &end, look)?;
        add(&mut total, &begin, 1.0);
        add(&mut total, &end, 1.0);
        Ok(total)
    }

    /// The sum over `steps`, before which a step took `before` and after which one takes `after`: the parabola through
    /// these and the middle, or where that bends, the sum of both halves.
    fn between<L: StepProbe>(
        &self,
        steps: &[Step],
        before: &[f64],
        after: &[f64],
        look: &mut L,
    ) -> Result<Vec<f64>, L::Error> {
        let count = steps.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let middle = count / 2;
        let mid = self.step(&steps[middle], look)?;
        let (m, n) = (middle as f64 + 1.0, count as f64 + 1.0);
        let straight = |((before, mid), after): ((&f64, &f64), &f64)| {
            (before + (after - before) * m / n - mid).abs() <= BENT * mid.abs()
        };
        if before.iter().zip(&mid).zip(after).all(straight) {
            // Newton's form of the parabola through the three, summed over what lies between the outer two.
            let (sum, squares) = (n * (n - 1.0) / 2.0, n * (n - 1.0) * (2.0 * n - 1.0) / 6.0);
            let parabola = |((before, mid), after): ((&f64, &f64), &f64)| {
                let slope = (mid - before) / m;
                let bend = ((after - before) / n - slope) / (n - m);
                before * count as f64 + slope * sum + bend * (squares - m * sum)
            };
            return Ok(before.iter().zip(&mid).zip(after).map(parabola).collect());
        }
        let mut total = self.between(&steps[..middle], before, &mid, look)?;
        add(&mut total, &mid, 1.0);
        add(&mut total, &self.between(&steps[middle + 1..], &mid, after, look)?, 1.0);
        Ok(total)
    }

    fn step<L: StepProbe>(&self, step: &Step, look: &mut L) -> Result<Vec<f64>, L::Error> {
        let short = look.step(&self.short, step)?;
        let mut total = short.clone();
        for (longer, lacking) in &self.longer {
            add(&mut total, &look.step(longer, step)?, *lacking);
            add(&mut total, &short, -*lacking);
        }
        Ok(total)
    }

    fn difference<L: StepProbe>(&self, steps: [&Step; 2], look: &mut L) -> Result<f64, L::Error> {
        let short = look.difference(&self.short, steps)?;
        let mut total = short;
        // What is not known stays so: no difference is taken of it.
        for (longer, lacking) in self.longer.iter().filter(|_| short.is_finite()) {
            total += (look.difference(longer, steps)? - short) * lacking;
        }
        Ok(total)
    }
}

/// Whether something is fetched for some layers, or for embed or head, and nothing for others.
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
