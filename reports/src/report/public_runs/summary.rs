//! Errors of public runs by group, slopes and ranks.

use super::{PublicRow, PublicRows, SettingsOrder};
use crate::numbers::statistics::{
    magnitudes, median, median_absolute_error, quantile, rank_correlation, relative_error,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A sweep of fewer points has no slope.
const SLOPED: usize = 4;
/// Fewer setups on a machine are not ranked.
const RANKED: usize = 3;
/// By how much an error may grow before a comparison fails.
const KEPT: f64 = 0.02;

/// The statistics of all rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublicSummary {
    /// Errors by group.
    pub groups: Vec<PublicGroup>,
    /// The growth of the time per token with the context, sweep by sweep.
    pub slopes: Vec<SweepSlope>,
    /// The median of the slopes' relative errors.
    pub median_slope_error: Option<f64>,
    /// The order of setups on each machine.
    pub ranks: Vec<MachineRank>,
    /// The order of all settings of a machine, and of placements alone.
    pub orders: Vec<SettingsOrder>,
    /// Errors with constants that were chosen without the CPU's runs; empty where none was chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<PublicGroup>,
    /// The order of settings with these constants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_orders: Vec<SettingsOrder>,
}

/// Errors of one phase of the rows that have something in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublicGroup {
    /// What they have in common: `all`, `set`, `engine`, `machine`, `model`, `format`, `placement`.
    pub by: String,
    /// Its value.
    pub name: String,
    /// `decode` or `prompt`.
    pub phase: String,
    /// Rows.
    pub rows: usize,
    /// Rows that have a prediction.
    pub answered: usize,
    /// The median of |ours ÷ measured − 1|.
    pub median_error: Option<f64>,
    /// Its 90th percentile.
    pub p90_error: Option<f64>,
    /// The median of ours ÷ measured.
    pub median_ratio: Option<f64>,
}

/// The slope of a sweep: seconds per token, per token in the cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepSlope {
    /// The setup.
    pub setup: String,
    /// The machine.
    pub machine: String,
    /// The measured slope.
    pub measured: f64,
    /// Ours.
    pub ours: f64,
    /// Ours ÷ measured − 1.
    pub error: Option<f64>,
}

/// The rank correlation of the decode rates of a machine's setups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineRank {
    /// The machine.
    pub machine: String,
    /// Setups that are not alike.
    pub setups: usize,
    /// Spearman's correlation.
    pub rank: f64,
}

impl PublicRows {
    /// The statistics of these rows.
    pub fn summary(&self) -> PublicSummary {
        let slopes = self.slopes();
        let errors: Vec<_> = slopes.iter().filter_map(|slope| slope.error).collect();
        PublicSummary {
            groups: self.groups(),
            median_slope_error: median_absolute_error(&errors),
            slopes,
            ranks: self.ranks(),
            orders: self.orders(),
            left_out: vec![],
            left_out_orders: vec![],
        }
    }

    fn groups(&self) -> Vec<PublicGroup> {
        let mut all: BTreeMap<(usize, String, &str), Vec<&PublicRow>> = BTreeMap::new();
        for row in &self.0 {
            let names =
                ["all", row.set(), &row.engine, row.machine_name(), &row.model, &row.format, &row.placement];
            for (by, name) in names.into_iter().enumerate() {
                let name = if name.is_empty() { "not named" } else { name };
                all.entry((by, name.to_owned(), &row.phase)).or_default().push(row);
            }
        }
        all.into_iter()
            .map(|((by, name, phase), rows)| PublicGroup::new([BY[by], &name, phase], &rows))
            .collect()
    }

    /// Decode rows of each setup that have a prediction.
    fn decode_by_setup(&self) -> BTreeMap<&str, Vec<&PublicRow>> {
        let mut setups: BTreeMap<&str, Vec<&PublicRow>> = BTreeMap::new();
        for row in self.0.iter().filter(|row| row.phase == "decode" && row.ours.is_some()) {
            setups.entry(&row.setup).or_default().push(row);
        }
        setups
    }

    fn slopes(&self) -> Vec<SweepSlope> {
        let sweeps = self.decode_by_setup().into_iter();
        let sweeps = sweeps.filter(|(_, rows)| rows.len() >= SLOPED && rows[0].is_of_a_sweep());
        let slope = |(setup, rows): (&str, Vec<&PublicRow>)| {
            let of = |rate: &dyn Fn(&PublicRow) -> f64| {
                least_squares(rows.iter().map(|row| (row.past as f64, 1.0 / rate(row))))
            };
            let (measured, ours) = (of(&|row| row.measured)?, of(&|row| row.ours.unwrap_or(f64::NAN))?);
            Some(SweepSlope {
                setup: setup.to_owned(),
                machine: rows[0].machine.clone(),
                measured,
                ours,
                error: relative_error(ours, measured),
            })
        };
        sweeps.filter_map(slope).collect()
    }

    /// Each setup counts with its rate at the shortest context. Setups that are alike to us are
    /// one, with the median of what was measured.
    fn ranks(&self) -> Vec<MachineRank> {
        let mut machines: BTreeMap<&str, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
        for rows in self.decode_by_setup().into_values() {
            let Some(row) = rows.iter().min_by_key(|row| row.past) else { continue };
            let Some(ours) = row.ours else { continue };
            // Positive numbers are ordered as their bits.
            let alike = machines.entry(&row.machine).or_default().entry(ours.to_bits()).or_default();
            alike.push(row.measured);
        }
        let ranked = machines.into_iter().filter(|(_, setups)| setups.len() >= RANKED);
        let rank = |(machine, setups): (&str, BTreeMap<u64, Vec<f64>>)| {
            let pair = |(ours, rates): (&u64, &Vec<f64>)| Some((f64::from_bits(*ours), median(rates)?));
            let pairs: Vec<_> = setups.iter().filter_map(pair).collect();
            let rank = rank_correlation(&pairs)?;
            Some(MachineRank { machine: machine.to_owned(), setups: pairs.len(), rank })
        };
        ranked.filter_map(rank).collect()
    }
}

/// What rows are grouped by.
const BY: [&str; 7] = ["all", "set", "engine", "machine", "model", "format", "placement"];

impl PublicGroup {
    fn new([by, name, phase]: [&str; 3], rows: &[&PublicRow]) -> Self {
        let errors: Vec<f64> = rows.iter().filter_map(|row| row.error()).collect();
        let ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio()).collect();
        Self {
            by: by.to_owned(),
            name: name.to_owned(),
            phase: phase.to_owned(),
            rows: rows.len(),
            answered: ratios.len(),
            median_error: median_absolute_error(&errors),
            p90_error: quantile(&magnitudes(&errors), 0.9),
            median_ratio: median(&ratios),
        }
    }
}

impl PublicSummary {
    /// What is worse than in `before`, as sentences: an error that grew by two points, rows that
    /// are no longer answered, or settings in a worse order.
    pub fn worse_than(&self, before: &Self) -> Vec<String> {
        let mut worse = Vec::new();
        for old in &before.groups {
            let what = format!("{} {}, {}", old.by, old.name, old.phase);
            let same = |group: &&PublicGroup| {
                [&group.by, &group.name, &group.phase] == [&old.by, &old.name, &old.phase]
            };
            let Some(new) = self.groups.iter().find(same) else {
                worse.push(format!("{what}: the group is gone"));
                continue;
            };
            if new.answered < old.answered {
                worse.push(format!("{what}: {} rows are answered, not {}", new.answered, old.answered));
            }
            for (of, new, old) in
                [("median", new.median_error, old.median_error), ("p90", new.p90_error, old.p90_error)]
            {
                // The 90th percentile of few rows is one of them, which the median already guards.
                let guarded = of == "median" || what.starts_with("all") || what.starts_with("set");
                worse
                    .extend(grown(new, old).filter(|_| guarded).map(|by| format!("{what}: {of} error {by}")));
            }
        }
        let slope = grown(self.median_slope_error, before.median_slope_error);
        worse.extend(slope.map(|by| format!("slopes: median error {by}")));
        for (new, old) in self.orders.iter().zip(&before.orders) {
            let missed = |order: &SettingsOrder| order.best_found.map(|found| 1.0 - found);
            let lost = |order: &SettingsOrder| order.of_best.map(|of_best| 1.0 - of_best);
            let missed = grown(missed(new), missed(old)).map(|by| format!("share of bests missed {by}"));
            let lost = grown(lost(new), lost(old)).map(|by| format!("mean loss of our picks {by}"));
            worse.extend(missed.into_iter().chain(lost).map(|what| format!("order of {}: {what}", old.by)));
        }
        worse
    }
}

/// By how much an error grew, where that is too much.
fn grown(new: Option<f64>, old: Option<f64>) -> Option<String> {
    let (new, old) = (new.unwrap_or(f64::INFINITY), old?);
    (new > old + KEPT).then(|| format!("{:.1} %, it was {:.1} %", new * 100.0, old * 100.0))
}

/// The slope of the line with the least squared error; `None` where all points are at one place.
fn least_squares(points: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let points: Vec<_> = points.collect();
    let count = points.len() as f64;
    let [x, y] = points.iter().fold([0.0; 2], |[x, y], point| [x + point.0 / count, y + point.1 / count]);
    let [across, along] = points.iter().fold([0.0; 2], |[across, along], point| {
        [across + (point.0 - x) * (point.1 - y), along + (point.0 - x).powi(2)]
    });
    (along > 0.0).then(|| across / along)
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;

    #[test]
    fn groups_slopes_and_ranks() {
        let summary = rows().summary();
        let group = |by: &str, phase: &str| {
            let found = summary.groups.iter().find(|group| group.by == by && group.phase == phase);
            found.expect("a group").clone()
        };
        let decode = group("engine", "decode");
        assert_eq!((decode.rows, decode.answered), (8, 7));
        assert!((group("all", "prompt").median_error.expect("rows") - 0.5).abs() < 1e-12);
        assert_eq!(summary.slopes.len(), 1);
        assert!((summary.slopes[0].measured * 1024.0 - 1e-3).abs() < 1e-9);
        assert!((summary.median_slope_error.expect("a slope") - 0.5).abs() < 1e-9);
        assert_eq!((summary.ranks.len(), summary.ranks[0].setups), (1, 3));
    }

    #[test]
    fn what_is_worse_is_said_and_what_is_better_is_not() {
        let before = rows().summary();
        assert!(before.worse_than(&before).is_empty());
        let mut worse = rows();
        worse.0[2].ours = Some(153.0);
        let said = worse.summary().worse_than(&before).join("; ");
        assert!(said.contains("prompt: median error 53.0 %, it was 50.0 %"), "{said}");
        assert!(before.worse_than(&worse.summary()).is_empty());
        worse.0[2].ours = None;
        let said = worse.summary().worse_than(&before).join("; ");
        assert!(said.contains("0 rows are answered, not 1"), "{said}");
        let mut wrong = rows();
        wrong.0[1].ours = Some(10.5);
        let said = wrong.summary().worse_than(&before).join("; ");
        assert!(
            said.contains("order of all settings: share of bests missed 100.0 %, it was 0.0 %"),
            "{said}"
        );
    }
}
