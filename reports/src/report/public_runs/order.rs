//! Whether the settings of one machine are ordered as they were measured.
//!
//! A *family* is what one build of an engine did with one model on one host, in one phase; its
//! *settings* differ in placement, formats and threads. At each context at which two settings or
//! more were measured, the one that we find fastest is our pick. Differences within the noise are
//! ties: runs with the same settings differ as much. Contexts without a larger difference do not
//! count. Where our rates of several settings are equal, the one that was measured slowest is our
//! pick, and a measured difference between them counts as not ordered.

use super::{PublicRow, PublicRows};
use crate::numbers::statistics::{magnitudes, mean, median, quantile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Our rates within this ratio are equal.
const EQUAL: f64 = 0.001;
/// Pairs of runs with fewer common contexts do not tell the noise.
const COMPARED: usize = 8;
/// A loss that does not matter.
const SMALL_LOSS: f64 = 0.03;

/// The order of settings in families of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingsOrder {
    /// What differs within a family: `all settings`, or `placement`. [`BY_MEDIANS`] is all settings
    /// by their medians over contexts.
    pub by: String,
    /// The noise of each phase, as a logarithm of rates.
    pub noise: BTreeMap<String, f64>,
    /// Families in which settings differ by more than the noise.
    pub families: Vec<SettingsFamily>,
    /// The mean over families of the rank correlation.
    pub rank_correlation: Option<f64>,
    /// The mean over families of the share of contexts at which the best was found.
    pub best_found: Option<f64>,
    /// The share of families whose pick loses 3 % at most, at the median of contexts.
    pub small_loss: Option<f64>,
    /// The mean over families of the pick's measured rate ÷ the best one's.
    pub of_best: Option<f64>,
}

/// The order of settings of one build of an engine with one model on one host, in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingsFamily {
    /// Host, model, engine and build, and what else is the same.
    pub name: String,
    /// `decode` or `prompt`.
    pub phase: String,
    /// The most settings at a context.
    pub settings: usize,
    /// Contexts at which settings differ by more than the noise.
    pub contexts: usize,
    /// Pairs that differ by more than the noise, over all contexts.
    pub pairs: usize,
    /// Kendall's rank correlation of these pairs: those in our order less the others, ÷ all.
    pub rank_correlation: f64,
    /// The share of contexts at which our pick is within the noise of the best.
    pub best_found: f64,
    /// The pick's measured rate ÷ the best one's: the median over contexts.
    pub of_best: f64,
    /// The least of them.
    pub least: f64,
}

/// The order of all settings by their medians over contexts.
pub const BY_MEDIANS: &str = "all settings by medians over contexts";

/// Tokens in the cache, and those of the prompt and of the answer.
type Load = (u64, [u64; 2]);

/// The rows of a family by context.
type Contexts<'r> = BTreeMap<Load, Vec<&'r PublicRow>>;

/// A setting at one context: our rate and the measured one.
struct Setting {
    ours: f64,
    measured: f64,
}

impl PublicRows {
    /// The order of all settings, that of placements alone, and that of all settings by medians.
    pub(super) fn orders(&self) -> Vec<SettingsOrder> {
        let noise = self.noise(|apart| quantile(&magnitudes(apart), 0.9));
        let of_medians = self.noise(|apart| median(apart).map(f64::abs));
        let all = |row: &PublicRow| row.family();
        let placement = |row: &PublicRow| format!("{}, {}", row.family(), row.choice);
        let each = |contexts: Contexts<'_>, phase: &str| {
            (contexts.values().map(|rows| settings(rows)).collect(), noise.get(phase).copied())
        };
        let medians = |contexts: Contexts<'_>, phase: &str| {
            let (settings, common) = settings_over(&contexts);
            let noise = if common < COMPARED { &noise } else { &of_medians };
            (vec![settings], noise.get(phase).copied())
        };
        vec![
            self.order("all settings", &noise, all, each),
            self.order("placement", &noise, placement, each),
            self.order(BY_MEDIANS, &of_medians, all, medians),
        ]
    }

    fn order(
        &self,
        by: &str,
        noise: &BTreeMap<String, f64>,
        name: impl Fn(&PublicRow) -> String,
        compared: impl Fn(Contexts<'_>, &str) -> (Vec<Vec<Setting>>, Option<f64>),
    ) -> SettingsOrder {
        let mut families: BTreeMap<(String, &str), Contexts<'_>> = BTreeMap::new();
        for row in self.0.iter().filter(|row| row.ours.is_some()) {
            families.entry((name(row), &row.phase)).or_default().entry(row.at()).or_default().push(row);
        }
        let family = |((name, phase), contexts): ((String, &str), Contexts<'_>)| {
            let (contexts, noise) = compared(contexts, phase);
            SettingsFamily::new(name, phase, &contexts, noise.unwrap_or(0.0))
        };
        let families: Vec<_> = families.into_iter().filter_map(family).collect();
        let over = |of: &dyn Fn(&SettingsFamily) -> f64| mean(&families.iter().map(of).collect::<Vec<_>>());
        SettingsOrder {
            by: by.to_owned(),
            noise: noise.clone(),
            rank_correlation: over(&|family| family.rank_correlation),
            best_found: over(&|family| family.best_found),
            small_loss: over(&|family| f64::from(family.of_best >= 1.0 - SMALL_LOSS)),
            of_best: over(&|family| family.of_best),
            families,
        }
    }

    /// By phase, the median over pairs of runs with the same settings of what `spread` makes of
    /// ln(one ÷ the other) at the same contexts: the 90th percentile of its size for single
    /// contexts, its median for medians.
    fn noise(&self, spread: impl Fn(&[f64]) -> Option<f64>) -> BTreeMap<String, f64> {
        let mut runs: BTreeMap<_, BTreeMap<&str, BTreeMap<Load, f64>>> = BTreeMap::new();
        for row in self.0.iter().filter(|row| row.ours.is_some()) {
            let same = (row.family(), &row.choice, &row.placed, &row.phase);
            runs.entry(same).or_default().entry(&row.setup).or_default().insert(row.at(), row.measured);
        }
        let mut pairs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for ((.., phase), runs) in &runs {
            let runs: Vec<_> = runs.values().collect();
            for (at, one) in runs.iter().enumerate() {
                for other in &runs[..at] {
                    let apart = |(at, rate): (&Load, &f64)| Some((rate / other.get(at)?).ln());
                    let apart: Vec<_> = one.iter().filter_map(apart).collect();
                    let spread = spread(&apart).filter(|_| apart.len() >= COMPARED);
                    pairs.entry((*phase).clone()).or_default().extend(spread);
                }
            }
        }
        pairs.into_iter().filter_map(|(phase, spreads)| Some((phase, median(&spreads)?))).collect()
    }
}

impl PublicRow {
    /// What an owner who compares settings keeps.
    fn family(&self) -> String {
        format!("{}, {}, {}", self.host, self.model, self.build)
    }

    fn at(&self) -> Load {
        (self.past, self.load)
    }
}

/// Rows of one context by setting: the median where a setting was measured more than once.
fn settings(rows: &[&PublicRow]) -> Vec<Setting> {
    let mut settings: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        let rates = (row.ours.unwrap_or(f64::NAN), row.measured);
        settings.entry((&row.choice, &row.placed)).or_default().push(rates);
    }
    let setting = |rates: &Vec<(f64, f64)>| {
        let (ours, measured): (Vec<_>, Vec<_>) = rates.iter().copied().unzip();
        Some(Setting { ours: median(&ours)?, measured: median(&measured)? })
    };
    settings.values().filter_map(setting).collect()
}

/// The settings by their medians over the contexts that all setups of the family have, and the
/// number of these contexts.
fn settings_over(contexts: &Contexts<'_>) -> (Vec<Setting>, usize) {
    let all: BTreeSet<&str> = contexts.values().flatten().map(|row| row.setup.as_str()).collect();
    let has_all = |rows: &&Vec<&PublicRow>| {
        let own: BTreeSet<&str> = rows.iter().map(|row| row.setup.as_str()).collect();
        own == all
    };
    let common: Vec<_> = contexts.values().filter(has_all).collect();
    // Where tensors are can depend on the context: the last one says which setups are alike.
    let Some(last) = common.last() else { return (vec![], 0) };
    let alike: BTreeMap<&str, (&str, &str)> =
        last.iter().map(|row| (row.setup.as_str(), (row.choice.as_str(), row.placed.as_str()))).collect();
    let mut rows_alike: BTreeMap<(&str, &str), Vec<&PublicRow>> = BTreeMap::new();
    for row in common.iter().copied().flatten() {
        rows_alike.entry(alike[row.setup.as_str()]).or_default().push(row);
    }
    let setting = |rows: &Vec<&PublicRow>| {
        let ours: Vec<f64> = rows.iter().map(|row| row.ours.unwrap_or(f64::NAN)).collect();
        let measured: Vec<f64> = rows.iter().map(|row| row.measured).collect();
        Some(Setting { ours: median(&ours)?, measured: median(&measured)? })
    };
    (rows_alike.values().filter_map(setting).collect(), common.len())
}

impl SettingsFamily {
    /// `None` where no context has settings that differ by more than `noise`.
    fn new(name: String, phase: &str, contexts: &[Vec<Setting>], noise: f64) -> Option<Self> {
        let (mut most, mut pairs, mut ordered) = (0, 0, 0.0);
        let mut kept = Vec::new();
        for settings in contexts {
            let rates = || settings.iter().map(|setting| setting.measured);
            let (best, worst) = (rates().fold(0.0, f64::max), rates().fold(f64::INFINITY, f64::min));
            if settings.len() < 2 || (best / worst).ln() <= noise {
                continue;
            }
            most = most.max(settings.len());
            for (at, one) in settings.iter().enumerate() {
                for other in &settings[..at] {
                    let [measured, ours] =
                        [one.measured / other.measured, one.ours / other.ours].map(f64::ln);
                    if measured.abs() > noise {
                        pairs += 1;
                        ordered += if ours.abs() <= EQUAL { 0.0 } else { (measured * ours).signum() };
                    }
                }
            }
            let fastest = settings.iter().map(|setting| setting.ours).fold(0.0, f64::max);
            let picks = settings.iter().filter(|setting| setting.ours >= fastest * (1.0 - EQUAL));
            kept.push(picks.map(|setting| setting.measured).fold(f64::INFINITY, f64::min) / best);
        }
        let found: Vec<_> = kept.iter().map(|of_best| f64::from(-of_best.ln() <= noise)).collect();
        Some(Self {
            name,
            phase: phase.to_owned(),
            settings: most,
            contexts: kept.len(),
            pairs,
            rank_correlation: ordered / f64::from(pairs as u32),
            best_found: mean(&found)?,
            of_best: median(&kept)?,
            least: kept.iter().copied().fold(f64::INFINITY, f64::min),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;
    use super::*;

    /// One context of settings of (ours, measured).
    fn family(settings: &[(f64, f64)], noise: f64) -> Option<SettingsFamily> {
        let context = settings.iter().map(|&(ours, measured)| Setting { ours, measured }).collect();
        SettingsFamily::new("f".to_owned(), "decode", &[context], noise)
    }

    #[test]
    fn the_right_order_finds_the_best_and_the_opposite_one_loses_all() {
        let right = family(&[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)], 0.05).expect("a family");
        assert_eq!((right.rank_correlation, right.best_found, right.of_best), (1.0, 1.0, 1.0));
        let wrong = family(&[(3.0, 10.0), (2.0, 20.0), (1.0, 30.0)], 0.05).expect("a family");
        assert_eq!((wrong.rank_correlation, wrong.best_found), (-1.0, 0.0));
        assert!((wrong.of_best - 1.0 / 3.0).abs() < 1e-12 && wrong.pairs == 3);
    }

    #[test]
    fn differences_within_the_noise_are_ties() {
        assert_eq!(family(&[(2.0, 10.0), (1.0, 10.3)], 0.05), None);
        let near = family(&[(3.0, 10.0), (2.0, 10.3), (1.0, 5.0)], 0.05).expect("a family");
        assert_eq!((near.pairs, near.rank_correlation, near.best_found), (2, 1.0, 1.0));
        assert!((near.least - 10.0 / 10.3).abs() < 1e-12);
    }

    #[test]
    fn settings_that_are_equal_to_us_are_not_ordered_and_the_slowest_is_the_pick() {
        let tied = family(&[(1.0, 10.0), (1.0, 20.0)], 0.05).expect("a family");
        assert_eq!((tied.rank_correlation, tied.best_found, tied.of_best), (0.0, 0.0, 0.5));
    }

    #[test]
    fn medians_over_contexts_are_ordered_where_single_contexts_are_disturbed() {
        let row = |setup: &str, past, [ours, measured]: [f64; 2]| PublicRow {
            setup: setup.to_owned(),
            choice: setup.to_owned(),
            past,
            measured,
            ours: Some(ours),
            ..rows().0[0].clone()
        };
        let runs = |past: u64| {
            let disturbed = if past.is_multiple_of(3) { 0.5 } else { 1.0 };
            [row("fast", past, [3.0, 30.0 * disturbed]), row("slow", past, [2.0, 20.0])]
        };
        let orders = PublicRows((1..=COMPARED as u64 + 1).flat_map(runs).collect()).orders();
        assert!(orders[0].rank_correlation < Some(0.5), "{orders:?}");
        let by_medians = &orders[2];
        assert_eq!((by_medians.rank_correlation, by_medians.best_found), (Some(1.0), Some(1.0)));
        assert_eq!((by_medians.families[0].pairs, by_medians.families[0].contexts), (1, 1));
        let alone = PublicRows(vec![row("fast", 1, [3.0, 30.0]), row("slow", 2, [2.0, 20.0])]).orders();
        assert!(alone[2].families.is_empty(), "they have no context in common");
    }

    #[test]
    fn families_are_of_one_host_and_the_noise_of_equal_runs() {
        let mut all = rows();
        let orders = all.orders();
        assert_eq!(orders[0].families.len(), 1, "{orders:?}");
        assert_eq!((orders[0].families[0].contexts, orders[0].families[0].rank_correlation), (1, 1.0));
        assert!(orders[0].noise.is_empty(), "no run was made twice");
        let again: Vec<_> = (0..COMPARED as u64)
            .flat_map(|at| {
                let row = PublicRow { past: 1 << 20 | at, measured: 10.0, ..all.0[0].clone() };
                [row.clone(), PublicRow { setup: "again".to_owned(), measured: 11.0, ..row }]
            })
            .collect();
        all.0.extend(again);
        assert!((all.orders()[0].noise["decode"] - 1.1_f64.ln()).abs() < 1e-9);
        all.0[0].host = "another".to_owned();
        assert!(all.orders()[0].families.is_empty(), "what is left differs by its host or not at all");
    }
}
