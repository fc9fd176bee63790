//! Sums over a run without looking at what repeats: few steps stand for all, few layers for a run of equals.
//!
//! A step's times bend little in the tokens that came before, so of many equal steps the first, the middle and the
//! last one are looked at, and the parabola through them is summed; of steps that are nearly the same, only the middle. Inside a step, a run of equal layers settles
//! after two or three (prefetch is bounded by its staging slots): what one more layer adds is the difference of two
//! short programs.

use crate::cost::Pricing;
use crate::placement::Placement;
use crate::program::{Lane, LowerError, Program};
use crate::runs::Run;
use scenarios::{Phase, Step};
use std::collections::BTreeSet;

/// Layers until a run has settled.
const SETTLED: u64 = 3;

/// Of steps whose tokens before them differ by no larger share, the one in the middle stands for all.
const ALIKE: f64 = 0.3;

/// Says of a program what a step of it takes: as many numbers each time, each of which adds up over layers.
pub type Look<'l, E> = dyn FnMut(&Program, &Step) -> Result<Vec<f64>, E> + 'l;

/// One phase's program with its runs cut short, and the same with one layer more in one run each.
#[derive(Debug, Clone)]
pub struct Sketch {
    short: Program,
    /// The longer programs, and how many layers each run lacks in the short one.
    longer: Vec<(Program, u64)>,
}

impl Sketch {
    /// The sketch of `placement` in `phase`.
    pub fn of(pricing: &Pricing<'_>, placement: &Placement, phase: Phase) -> Result<Self, LowerError> {
        let runs = placement.runs();
        let lower =
            |runs: &[Run]| Program::lower(pricing.machine, pricing.model, &placement.with_runs(runs), phase);
        let kept: u64 = runs.iter().map(|run| run.count.min(SETTLED)).sum();
        let lacking = runs.iter().filter(|run| run.count > SETTLED).count() as u64;
        // Where most layers are there anyway, all of them are.
        if kept * (lacking + 1) >= placement.layers.len() as u64 {
            return Ok(Self { short: lower(&runs)?, longer: Vec::new() });
        }
        let cut = |run: &Run| Run { count: run.count.min(SETTLED), ..run.clone() };
        let mut few: Vec<_> = runs.iter().map(cut).collect();
        let short = lower(&few)?;
        // Where some layers stream and others do not, what is fetched for the ones may arrive while the others compute:
        // how much of it depends on how many they are.
        if streams_in_part(&short) {
            return Ok(Self { short: lower(&runs)?, longer: Vec::new() });
        }
        let mut longer = Vec::new();
        for (index, run) in runs.iter().enumerate().filter(|(_, run)| run.count > SETTLED) {
            few[index].count += 1;
            longer.push((lower(&few)?, run.count - SETTLED));
            few[index].count -= 1;
        }
        Ok(Self { short, longer })
    }

    /// A program with everything of the whole one but the length of its runs.
    pub fn program(&self) -> &Program {
        &self.short
    }

    /// The sum of `look` over `steps`, equally spaced steps that differ only in the tokens before them.
    pub fn sum<E>(&self, steps: &[Step], look: &mut Look<'_, E>) -> Result<Vec<f64>, E> {
        let count = steps.len();
        if let [first, .., last] = steps
            && (last.past_tokens - first.past_tokens) as f64 <= ALIKE * first.past_tokens as f64
        {
            let mean = first.past_tokens.midpoint(last.past_tokens);
            let step = Step { past_tokens: mean, ..*first };
            return Ok(self.step(&step, look)?.into_iter().map(|value| value * count as f64).collect());
        }
        if count <= 3 {
            let mut total = Vec::new();
            for step in steps {
                add(&mut total, &self.step(step, look)?, 1.0);
            }
            return Ok(total);
        }
        let middle = (count - 1) / 2;
        let first = self.step(&steps[0], look)?;
        let mid = self.step(&steps[middle], look)?;
        let last = self.step(&steps[count - 1], look)?;
        // Newton's form of the parabola through the three, summed over 0..count.
        let (m, n) = (middle as f64, (count - 1) as f64);
        let (sum, squares) = (n * (n + 1.0) / 2.0, n * (n + 1.0) * (2.0 * n + 1.0) / 6.0);
        let parabola = |((first, mid), last): ((&f64, &f64), &f64)| {
            let slope = (mid - first) / m;
            let bend = ((last - first) / n - slope) / (n - m);
            first * count as f64 + slope * sum + bend * (squares - m * sum)
        };
        Ok(first.iter().zip(&mid).zip(&last).map(parabola).collect())
    }

    fn step<E>(&self, step: &Step, look: &mut Look<'_, E>) -> Result<Vec<f64>, E> {
        let short = look(&self.short, step)?;
        let mut total = short.clone();
        for (longer, lacking) in &self.longer {
            add(&mut total, &look(longer, step)?, *lacking as f64);
            add(&mut total, &short, -(*lacking as f64));
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
