//! Published results beside what we say: per row, per system, over all.

mod page;
mod plot;
mod table;
mod text;

use crate::numbers::statistics::{
    geometric_mean_ratio, median_absolute_error, rank_correlation, relative_error,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// How far the median of all errors may be from zero.
const WANTED_OVERALL: f64 = 0.18;
/// Between what the geometric mean of ours ÷ published is to lie.
const WANTED_RATIO: [f64; 2] = [0.9, 1.1];
/// What the rank correlation of a table is to reach.
const WANTED_RANKS: f64 = 0.9;
/// Fewer rows have no order to speak of.
const RANKED: usize = 4;

/// Every system.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproductions(pub Vec<Reproduction>);

/// One published system.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// Its id.
    pub id: String,
    /// Its name.
    pub system: String,
    /// Where its numbers were published.
    pub source: String,
    /// Under which licence they are held.
    pub licence: String,
    /// What the median of |error| is to stay below; `None` where nothing can be scored.
    pub target_error: Option<f64>,
    /// How it works and is modelled.
    pub mechanism: String,
    /// What came out.
    pub verdict: String,
    /// Numbers of its engine.
    pub constants: Vec<EngineConstant>,
    /// Its rows.
    pub rows: Vec<ReproducedRow>,
}

/// A number of an engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineConstant {
    /// Its name.
    pub name: String,
    /// What it is taken for.
    pub value: f64,
    /// Between what it was thought to lie beforehand.
    pub prior: [f64; 2],
    /// What it is, and where the prior is from.
    #[serde(rename = "why")]
    pub description: String,
    /// Whether it was fitted to rows.
    pub fitted: bool,
}

/// A published number and ours.
#[derive(Debug, Clone, PartialEq)]
pub struct ReproducedRow {
    /// Its id.
    pub id: String,
    /// Of which machine.
    pub hardware: String,
    /// Of what.
    pub description: String,
    /// In which table it is ranked.
    pub table: String,
    /// What was measured.
    pub metric: String,
    /// The unit of both numbers.
    pub unit: String,
    /// How well it is known.
    pub certainty: String,
    /// What was published; no number where that is a range.
    pub published: f64,
    /// What we say, where we say something.
    pub ours: Option<f64>,
    /// Whether it counts.
    pub standing: Standing,
}

/// Whether a row counts, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It counts.
    Scored,
    /// Constants were fitted on it.
    Fitted,
    /// It is reproduced, but its setup was not published in full.
    Shown(String),
    /// It cannot be scored, whether or not we say something.
    Unscored(String),
    /// It could not be reproduced: an error of the description.
    Failed(String),
}

impl Standing {
    /// Why it does not count; empty where it does.
    pub fn reason(&self) -> &str {
        match self {
            Standing::Scored => "",
            Standing::Fitted => "constants were fitted on it",
            Standing::Shown(why) | Standing::Unscored(why) | Standing::Failed(why) => why,
        }
    }
}

impl ReproducedRow {
    /// Ours ÷ published − 1; none where the published number is no target.
    pub fn error(&self) -> Option<f64> {
        let target = !matches!(self.standing, Standing::Unscored(_));
        relative_error(self.ours?, self.published).filter(|error| target && error.is_finite())
    }

    /// Its standing in a word.
    pub fn label(&self) -> &'static str {
        match &self.standing {
            Standing::Scored => "scored",
            Standing::Fitted => "fitted",
            Standing::Shown(_) => "shown",
            Standing::Unscored(_) if self.ours.is_some() => "shown",
            Standing::Unscored(_) => "unscored",
            Standing::Failed(_) => "failed",
        }
    }

    /// Ours and the published number, both above zero, of a row that counts.
    fn scored(&self) -> Option<(f64, f64)> {
        let pair = (self.ours?, self.published);
        (self.standing == Standing::Scored && pair.0 > 0.0 && pair.1 > 0.0).then_some(pair)
    }
}

/// The statistics of rows that count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// How many there are.
    pub rows: usize,
    /// The median of |ours ÷ published − 1|.
    pub median_error: Option<f64>,
    /// The geometric mean of ours ÷ published.
    pub ratio: Option<f64>,
    /// Rank correlation by table, of those that can be ranked.
    pub ranks: BTreeMap<String, f64>,
}

impl Score {
    fn from_rows<'a>(rows: impl Iterator<Item = &'a ReproducedRow>) -> Self {
        let mut tables: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows {
            if let Some(pair) = row.scored() {
                tables.entry(&row.table).or_default().push(pair);
            }
        }
        let pairs: Vec<_> = tables.values().flatten().copied().collect();
        let errors: Vec<_> =
            pairs.iter().filter_map(|(ours, theirs)| relative_error(*ours, *theirs)).collect();
        let ranked = tables.iter().filter(|(_, pairs)| pairs.len() >= RANKED);
        let ranks = ranked.filter_map(|(name, pairs)| Some(((*name).to_owned(), rank_correlation(pairs)?)));
        Self {
            rows: pairs.len(),
            median_error: median_absolute_error(&errors),
            ratio: geometric_mean_ratio(&pairs),
            ranks: ranks.collect(),
        }
    }

    /// What of the wanted figures is missed, in words.
    fn missed_targets(&self, target: f64) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(error) = self.median_error.filter(|error| *error > target) {
            missed.push(format!("median {:.1} % > {:.0} %", error * 100.0, target * 100.0));
        }
        if let Some(ratio) = self.ratio.filter(|ratio| !(WANTED_RATIO[0]..=WANTED_RATIO[1]).contains(ratio)) {
            missed.push(format!("ratio {ratio:.2}"));
        }
        for (table, rank) in self.ranks.iter().filter(|(_, rank)| **rank < WANTED_RANKS) {
            missed.push(format!("ranks of {table} {rank:.2}"));
        }
        missed
    }
}

impl Reproduction {
    /// Over its rows that count.
    pub fn score(&self) -> Score {
        Score::from_rows(self.rows.iter())
    }

    /// What of the wanted figures it misses, in words.
    pub fn missed_targets(&self) -> Vec<String> {
        self.target_error.map_or_else(Vec::new, |target| self.score().missed_targets(target))
    }
}

impl Reproductions {
    /// Over all rows that count. Tables of two systems are two.
    pub fn score(&self) -> Score {
        let mut score = Score::from_rows(self.0.iter().flat_map(|it| &it.rows));
        score.ranks.clear();
        for it in &self.0 {
            let of_system = it.score().ranks.into_iter();
            score.ranks.extend(of_system.map(|(table, rank)| (format!("{}: {table}", it.id), rank)));
        }
        score
    }

    /// Systems of which some rows count.
    fn scored(&self) -> impl Iterator<Item = &Reproduction> {
        self.0.iter().filter(|it| it.score().rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn row(id: &str, published: f64, ours: f64, standing: Standing) -> ReproducedRow {
        ReproducedRow {
            id: id.to_owned(),
            hardware: "a <box>".to_owned(),
            description: "OPT-30B, 32".to_owned(),
            table: "rate".to_owned(),
            metric: "rate".to_owned(),
            unit: "tok/s".to_owned(),
            certainty: "table".to_owned(),
            published,
            ours: Some(ours),
            standing,
        }
    }

    pub(super) fn reproductions() -> Reproductions {
        let why = || "a \"mock\", says its author".to_owned();
        let rows = vec![
            row("s-1", 10.0, 11.0, Standing::Scored),
            row("s-2", 20.0, 16.0, Standing::Scored),
            row("s-3", 30.0, 30.0, Standing::Scored),
            row("s-4", 40.0, 60.0, Standing::Scored),
            row("s-5", 40.0, 400.0, Standing::Fitted),
            row("s-6", 40.0, 400.0, Standing::Shown("an abstract".to_owned())),
            row("s-7", 0.0, 1.0, Standing::Scored),
            row("s-8", 1.0, 1.0, Standing::Unscored(why())),
        ];
        let constants = vec![EngineConstant {
            name: "rate".to_owned(),
            value: 1.5,
            prior: [1.0, 2.0],
            description: "GB/s, a datasheet".to_owned(),
            fitted: true,
        }];
        Reproductions(vec![Reproduction {
            id: "s".to_owned(),
            system: "System".to_owned(),
            source: "A paper".to_owned(),
            licence: "facts".to_owned(),
            target_error: Some(0.2),
            mechanism: "It streams.".to_owned(),
            verdict: "Close.".to_owned(),
            constants,
            rows,
        }])
    }

    #[test]
    fn only_rows_that_count_are_scored() {
        let score = reproductions().0[0].score();
        assert_eq!(score.rows, 4);
        // Errors of +10, −20, 0 and +50 %.
        assert!((score.median_error.expect("rows") - 0.15).abs() < 1e-12);
        let ratio = (1.1_f64 * 0.8 * 1.5).powf(0.25);
        assert!((score.ratio.expect("rows") - ratio).abs() < 1e-12);
        assert_eq!(score.ranks.get("rate"), Some(&1.0));
        assert_eq!(reproductions().0[0].missed_targets(), Vec::<String>::new());
        assert_eq!(reproductions().score().ranks.keys().collect::<Vec<_>>(), ["s: rate"]);
    }

    #[test]
    fn what_is_missed_is_said() {
        let mut it = reproductions().0.remove(0);
        for row in &mut it.rows {
            row.ours = row.ours.map(|ours| 100.0 / ours);
        }
        let missed = it.missed_targets();
        assert_eq!(missed.len(), 3, "{missed:?}");
    }
}
