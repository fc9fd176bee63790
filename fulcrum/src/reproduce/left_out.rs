//! The public runs of each CPU, predicted with constants that were chosen without them.
//!
//! Constants are chosen among a few values of their priors, with the middle of the prior where no
//! other run speaks for another value. The loss is the mean of the median |ln(ours ÷ measured)| of
//! each CPU's prompts and each CPU's decoding, on a few points of each setup. To find the choice,
//! the logarithms of the changes that constants make alone are added up; the runs that were left
//! out are then predicted with the choice itself.

use super::public_run::{PublicRun, rows_with};
use crate::error::{OrError, Result};
use crate::pipeline::machine_library;
use hwprofiles::Profile;
use rayon::prelude::*;
use reports::public_runs::{ChosenConstant, LeftOut, PublicRows};
use reports::statistics::{mean, median};
use scenarios::published::{PublicConstant, PublicSetup};
use std::collections::{BTreeMap, BTreeSet};

/// Most rounds over all constants.
const ROUNDS: usize = 10;

/// The largest loss of one point, so that a run that the mechanisms do not explain cannot bend the
/// constants: one whose weights fill all memory reads them from a disk.
const MOST: f64 = 0.7;

/// Predicts the public runs of each CPU with constants that were chosen on those of the others.
///
/// # Errors
/// A shipped table is wrong.
pub fn reproduce_public_left_out() -> Result<LeftOut> {
    let constants = PublicConstant::shipped().or_input()?;
    let setups = PublicSetup::shipped().or_input()?;
    let all: Vec<_> = setups.iter().map(|setup| ConcernedSetup::new(setup, &constants)).collect();
    let own_kernels = all.par_iter().filter(|setup| !setup.setup.multiplies_by_library());
    let effects: Vec<_> = own_kernels.filter_map(ConcernedSetup::effects).collect();
    let cpus: BTreeSet<&str> = effects.iter().map(|effects| effects.cpu).collect();
    let choices: BTreeMap<&str, Vec<usize>> =
        cpus.iter().map(|&cpu| (cpu, choose(&effects, Some(cpu), constants.len()))).collect();
    let rows = all.par_iter().flat_map_iter(|setup| {
        let choice = choices.get(setup.setup.cell("cpu"));
        choice.into_iter().flat_map(|choice| rows_with(setup.setup, &setup.execution(choice)))
    });
    let rows = PublicRows(rows.collect());
    let chosen = choose(&effects, None, constants.len());
    let constants = constants.iter().enumerate().map(|(index, constant)| ChosenConstant {
        name: constant.name.clone(),
        prior: constant.prior.map(|end| constant.text(end)),
        of_all: constant.text(constant.candidate(chosen[index])),
        without: choices
            .iter()
            .map(|(cpu, choice)| ((*cpu).to_owned(), constant.text(constant.candidate(choice[index]))))
            .collect(),
    });
    Ok(LeftOut { constants: constants.collect(), rows })
}

/// A setup with the constants that it depends on, by their places in the list.
struct ConcernedSetup<'s> {
    setup: &'s PublicSetup,
    constants: Vec<(usize, &'s PublicConstant)>,
}

impl<'s> ConcernedSetup<'s> {
    fn new(setup: &'s PublicSetup, constants: &'s [PublicConstant]) -> Self {
        let channels = match machine_library().profile(setup.cell("cpu")) {
            Ok(Profile::Cpu(part)) => part.dram.channels.map(|channels| channels.value),
            _ => None,
        };
        let constants = constants.iter().enumerate();
        let constants = constants.filter(|(_, constant)| constant.applies_to(setup, channels)).collect();
        Self { setup, constants }
    }

    /// The engine's values with this choice of all constants.
    fn execution(&self, choice: &[usize]) -> BTreeMap<String, serde_json::Value> {
        self.constants.iter().map(|(index, constant)| constant.entry(choice[*index])).collect()
    }

    /// What constants do to a few of its points; `None` where it has no answer.
    fn effects(&self) -> Option<SetupEffects<'s>> {
        let few = self.setup.thinned();
        let most = self.constants.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
        let middle = vec![PublicConstant::MIDDLE; most];
        let logs = |choice: &[usize]| -> Option<Vec<f64>> {
            let mut run = PublicRun::new(&few, &self.execution(choice)).ok()?;
            few.points.iter().map(|point| Some((run.rate(point).ok()? / point.rate).ln())).collect()
        };
        let base = logs(&middle)?;
        let mut changes = BTreeMap::new();
        for &(index, _) in &self.constants {
            for candidate in (0..PublicConstant::CANDIDATES).filter(|it| *it != PublicConstant::MIDDLE) {
                let mut choice = middle.clone();
                choice[index] = candidate;
                let change = logs(&choice)?.iter().zip(&base).map(|(log, base)| log - base).collect();
                changes.insert((index, candidate), change);
            }
        }
        let phases = few.points.iter().map(|point| point.metric.phase()).collect();
        Some(SetupEffects { cpu: self.setup.cell("cpu"), phases, base, changes })
    }
}

/// The logarithms of ours ÷ measured of a setup's points.
struct SetupEffects<'s> {
    cpu: &'s str,
    /// What each point measures.
    phases: Vec<&'static str>,
    /// With all constants in the middle of their priors.
    base: Vec<f64>,
    /// What is added, by constant and candidate.
    changes: BTreeMap<(usize, usize), Vec<f64>>,
}

impl SetupEffects<'_> {
    fn log(&self, point: usize, choice: &[usize]) -> f64 {
        let change = |pair: (usize, &usize)| self.changes.get(&(pair.0, *pair.1)).map_or(0.0, |it| it[point]);
        self.base[point] + choice.iter().enumerate().map(change).sum::<f64>()
    }
}

/// The constants with the least loss on the runs of all CPUs but `without`, one after the other.
fn choose(effects: &[SetupEffects<'_>], without: Option<&str>, constants: usize) -> Vec<usize> {
    let mut choice = vec![PublicConstant::MIDDLE; constants];
    let mut least = loss(effects, without, &choice);
    for _ in 0..ROUNDS {
        let before = least;
        for index in 0..constants {
            for candidate in 0..PublicConstant::CANDIDATES {
                let mut tried = choice.clone();
                tried[index] = candidate;
                let lost = loss(effects, without, &tried);
                if lost < least {
                    (choice, least) = (tried, lost);
                }
            }
        }
        if least >= before {
            break;
        }
    }
    choice
}

fn loss(effects: &[SetupEffects<'_>], without: Option<&str>, choice: &[usize]) -> f64 {
    let mut groups: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for effects in effects.iter().filter(|effects| Some(effects.cpu) != without) {
        for (point, phase) in effects.phases.iter().enumerate() {
            groups.entry((effects.cpu, phase)).or_default().push(effects.log(point, choice).abs().min(MOST));
        }
    }
    let medians: Vec<f64> = groups.values().filter_map(|logs| median(logs)).collect();
    mean(&medians).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(cpu: &'static str, base: f64, slope: f64) -> SetupEffects<'static> {
        let candidates = (0..PublicConstant::CANDIDATES).filter(|it| *it != PublicConstant::MIDDLE);
        let change = |it: usize| slope * (it as f64 - PublicConstant::MIDDLE as f64);
        let changes = candidates.map(|it| ((0, it), vec![change(it)])).collect();
        SetupEffects { cpu, phases: vec!["decode"], base: vec![base], changes }
    }

    #[test]
    fn a_cpu_that_is_left_out_has_no_say() {
        let all = [effects("a", 0.2, 0.1), effects("b", -0.1, 0.1), effects("b", -0.1, 0.1)];
        assert_eq!(choose(&all, Some("b"), 2), [0, PublicConstant::MIDDLE]);
        assert_eq!(choose(&all, Some("a"), 2), [PublicConstant::MIDDLE + 1, PublicConstant::MIDDLE]);
        assert_eq!(choose(&all[..1], Some("a"), 1), [PublicConstant::MIDDLE], "nothing speaks for another");
    }
}
