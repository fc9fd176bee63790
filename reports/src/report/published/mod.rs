//! Published results beside ours: for each row, each system, and all together.

mod page;
mod plot;
mod table;
mod text;

use crate::numbers::statistics::{
    geometric_mean_ratio, median_absolute_error, rank_correlation, relative_error,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The target for the median of all errors.
const WANTED_OVERALL: f64 = 0.18;
/// The target range for the geometric mean of ours ÷ published.
const WANTED_RATIO: [f64; 2] = [0.9, 1.1];
/// The target for the rank correlation of a table.
const WANTED_RANKS: f64 = 0.9;
/// Tables with fewer rows are not ranked.
const RANKED: usize = 4;

/// The reproductions of all systems.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproductions(pub Vec<Reproduction>);

/// The reproduction of one published system.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub system: String,
    /// Where its numbers were published.
    pub source: String,
    /// The licence of the published numbers.
    pub licence: String,
    /// The target for the median of |error|; `None` where nothing can be scored.
    pub target_error: Option<f64>,
    /// Whether two resources work at the same time: CPU and GPU, memories, a link.
    pub two_resources: bool,
    /// How the system works and how it is modelled.
    pub mechanism: String,
    /// The outcome, in a sentence.
    pub verdict: String,
    /// The constants of its engine.
    pub constants: Vec<EngineConstant>,
    /// Its rows.
    pub rows: Vec<ReproducedRow>,
}

/// A constant of a system's engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineConstant {
    /// Its name.
    pub name: String,
    /// The value in use.
    pub value: f64,
    /// The range that was expected before fitting.
    pub prior: [f64; 2],
    /// What it is, and the source of the expected range.
    #[serde(rename = "why")]
    pub description: String,
    /// Whether it was fitted to rows.
    pub fitted: bool,
}

/// A published number beside ours.
#[derive(Debug, Clone, PartialEq)]
pub struct ReproducedRow {
    /// The row's identifier.
    pub id: String,
    /// The machine.
    pub hardware: String,
    /// What was run.
    pub description: String,
    /// The table in which the row is ranked.
    pub table: String,
    /// The metric.
    pub metric: String,
    /// The unit of both numbers.
    pub unit: String,
    /// How certain the published number is.
    pub certainty: String,
    /// The published number; absent where a range was published.
    pub published: Option<f64>,
    /// Our number, if there is one.
    pub ours: Option<f64>,
    /// Whether a simulated run answers it. Otherwise a formula over rates of the machine does.
    pub simulated: bool,
    /// Whether the row counts.
    pub standing: Standing,
}

/// Whether a row counts, and the reason if not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It counts.
    Scored,
    /// It does not count, because constants were fitted on it.
    Fitted,
    /// It is reproduced but does not count, because its setup was not published in full.
    Shown(String),
    /// It cannot be scored.
    Unscored(String),
    /// It could not be reproduced because its description has an error.
    Failed(String),
}

impl Standing {
    /// Why the row does not count; empty where it does.
    pub fn reason(&self) -> &str {
        match self {
            Standing::Scored => "",
            Standing::Fitted => "constants were fitted on it",
            Standing::Shown(why) | Standing::Unscored(why) | Standing::Failed(why) => why,
        }
    }
}

impl ReproducedRow {
    /// Ours ÷ published − 1; `None` where the published number is not a target.
    pub fn error(&self) -> Option<f64> {
        let target = !matches!(self.standing, Standing::Unscored(_));
        relative_error(self.ours?, self.published?).filter(|error| target && error.is_finite())
    }

    /// The standing in one word.
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

    /// What answers it: `run`, `formula`, or nothing.
    pub fn answered_by(&self) -> &'static str {
        match (self.ours, self.simulated) {
            (None, _) => "",
            (_, true) => "run",
            (_, false) => "formula",
        }
    }

    /// Our number and the published one of a row that counts, if both are above zero.
    fn scored(&self) -> Option<(f64, f64)> {
        let pair = (self.ours?, self.published?);
        (self.standing == Standing::Scored && pair.0 > 0.0 && pair.1 > 0.0).then_some(pair)
    }
}

/// Statistics of the rows that count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// The number of rows that count.
    pub rows: usize,
    /// The median of |ours ÷ published − 1|.
    pub median_error: Option<f64>,
    /// The geometric mean of ours ÷ published.
    pub ratio: Option<f64>,
    /// The rank correlation of each table that can be ranked.
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

    /// The targets that are missed, as texts.
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
    /// The statistics of this system's rows.
    pub fn score(&self) -> Score {
        Score::from_rows(self.rows.iter())
    }

    /// The targets that this system misses, as texts.
    pub fn missed_targets(&self) -> Vec<String> {
        self.target_error.map_or_else(Vec::new, |target| self.score().missed_targets(target))
    }
}

impl Reproductions {
    /// The statistics of all rows. Tables with the same name in two systems stay apart.
    pub fn score(&self) -> Score {
        let mut score = Score::from_rows(self.0.iter().flat_map(|it| &it.rows));
        score.ranks.clear();
        for it in &self.0 {
            let of_system = it.score().ranks.into_iter();
            score.ranks.extend(of_system.map(|(table, rank)| (format!("{}: {table}", it.id), rank)));
        }
        score
    }

    /// The statistics of the rows that a simulated run of a system with two resources answers.
    pub fn headline(&self) -> Score {
        let systems = self.0.iter().filter(|it| it.two_resources);
        Score::from_rows(systems.flat_map(|it| &it.rows).filter(|row| row.simulated))
    }

    /// The statistics of the rows that a formula answers.
    pub fn by_formula(&self) -> Score {
        Score::from_rows(self.0.iter().flat_map(|it| &it.rows).filter(|row| !row.simulated))
    }

    /// The statistics that stand beside those of all rows, each with its name.
    fn parts(&self) -> [(&'static str, Score); 2] {
        [("CPU + GPU runs", self.headline()), ("by formula", self.by_formula())]
    }

    /// The systems with rows that count.
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
            published: Some(published),
            ours: Some(ours),
            simulated: true,
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
            two_resources: true,
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
    fn a_formula_is_reported_apart() {
        let mut all = reproductions();
        all.0[0].rows[3].simulated = false;
        let [headline, formula, every] = [all.headline(), all.by_formula(), all.score()];
        assert_eq!([headline.rows, formula.rows, every.rows], [3, 1, 4]);
        all.0[0].two_resources = false;
        assert_eq!([all.headline().rows, all.by_formula().rows], [0, 1]);
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
