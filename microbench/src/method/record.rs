//! What is written beside the numbers: their provenance, and warnings.

use crate::method::options::{Options, Warning};
use crate::method::sample_summary::{SampleSummary, summary};
use hwprofiles::{Provenance, Sourced};

/// Spread of samples above which a point is called noisy.
const NOISY: f64 = 0.10;
/// A point with fewer samples than this is warned of.
const FEW: usize = 3;

/// Makes the provenance of numbers, and remembers how well each point is known.
#[derive(Debug)]
pub(crate) struct MeasurementRecord<'a> {
    options: &'a Options,
    /// The experiment whose points are being recorded.
    subject: String,
    points: Vec<KnownPoint>,
}

/// How well one point is known.
#[derive(Debug)]
struct KnownPoint {
    subject: String,
    label: String,
    /// `None` for a number that the system states and nothing samples.
    summary: Option<SampleSummary>,
}

impl KnownPoint {
    fn spread(&self) -> f64 {
        self.summary.map_or(0.0, |summary| summary.spread)
    }
}

/// The points of one table, as they are gathered.
#[derive(Debug, Default)]
pub(crate) struct TablePoints(Vec<(String, SampleSummary)>);

impl TablePoints {
    /// Adds a point; `label` names it in a warning.
    pub fn add(&mut self, label: String, summary: SampleSummary) {
        self.0.push((label, summary));
    }
}

impl<'a> MeasurementRecord<'a> {
    pub fn new(options: &'a Options) -> Self {
        Self { options, subject: String::new(), points: Vec::new() }
    }

    /// The points that follow belong to `subject`.
    pub fn begin(&mut self, subject: String) {
        self.subject = subject;
    }

    /// A measured number with its source. `label` names it in a warning.
    pub fn sourced<T>(&mut self, label: &str, value: T, summary: SampleSummary) -> Sourced<T> {
        self.add_point(label.to_owned(), Some(summary));
        Sourced { value, source: self.source(summary.spread, None) }
    }

    /// A number that the system states, with the measurement as its source and no spread.
    pub fn stated<T>(&mut self, label: &str, value: T) -> Sourced<T> {
        self.add_point(label.to_owned(), None);
        Sourced { value, source: self.source(0.0, None) }
    }

    /// The source of the table that `by` names ("2 threads"). Its spread is the median of its
    /// points' spreads. `note` follows the command as a shell comment.
    pub fn table(&mut self, by: &str, points: TablePoints, note: Option<&str>) -> Provenance {
        // A single sample has no spread.
        let known = points.0.iter().filter(|(_, summary)| summary.count > 1);
        let spreads: Vec<f64> = known.map(|(_, summary)| summary.spread).collect();
        for (label, summary) in points.0 {
            self.add_point(format!("{label} by {by}"), Some(summary));
        }
        self.source(summary(&spreads).map_or(0.0, |summary| summary.median), note)
    }

    fn add_point(&mut self, label: String, summary: Option<SampleSummary>) {
        self.points.push(KnownPoint { subject: self.subject.clone(), label, summary });
    }

    fn source(&self, spread: f64, note: Option<&str>) -> Provenance {
        let command = match note {
            Some(note) => format!("{} # {note}", self.options.command),
            None => self.options.command.clone(),
        };
        Provenance::Measured { date: self.options.date.clone(), command, spread }
    }

    /// One warning for each subject of which some points are not well known.
    pub fn warnings(&self) -> Vec<Warning> {
        let of_one_subject = self.points.chunk_by(|a, b| a.subject == b.subject);
        of_one_subject.filter_map(warning).collect()
    }
}

fn warning(points: &[KnownPoint]) -> Option<Warning> {
    let few = points.iter().filter(|p| p.summary.is_some_and(|summary| summary.count < FEW)).count();
    let noisy = points.iter().filter(|p| p.spread() > NOISY);
    let all = points.len();
    let mut complaints = Vec::new();
    if few > 0 {
        complaints.push(format!("{few} of {all} points have fewer than {FEW} samples"));
    }
    if let Some(worst) = noisy.clone().max_by(|a, b| a.spread().total_cmp(&b.spread())) {
        complaints.push(format!(
            "samples of {} of {all} points differ by more than {:.0} % ({}: {:.0} %)",
            noisy.count(),
            NOISY * 100.0,
            worst.label,
            worst.spread() * 100.0
        ));
    }
    let message = format!("{}: measure on a quiet machine", complaints.join(", "));
    (!complaints.is_empty()).then(|| Warning { subject: points[0].subject.clone(), message })
}

/// "1 thread", "2 threads".
pub(crate) fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// A time without the fork-join that it contains. Where the fork-join is most of it, the difference
/// of two noisy numbers would be noise, so at least half of the time is kept.
pub(crate) fn without_launch(time: f64, launch: f64) -> f64 {
    (time - launch).max(time / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::options::Depth;

    #[test]
    fn a_table_has_the_median_spread_and_its_worst_point_is_named() {
        let options = Options { depth: Depth::Tiny, date: "2026-11-21".into(), command: "bench".into() };
        let mut record = MeasurementRecord::new(&options);
        record.begin("streams".to_owned());
        let mut points = TablePoints::default();
        for (label, spread) in [("a", 0.01), ("b", 0.3), ("c", 0.2), ("d", 0.02), ("e", 0.03)] {
            points.add(label.to_owned(), SampleSummary { count: 3, median: 1.0, spread });
        }
        // One sample: no spread is known.
        points.add("f".to_owned(), SampleSummary { count: 1, median: 1.0, spread: 0.0 });
        let source = record.table("2 threads", points, Some("2 MiB pages"));
        let Provenance::Measured { command, spread, .. } = source else { panic!("{source}") };
        assert_eq!((command.as_str(), spread), ("bench # 2 MiB pages", 0.03));
        record.begin("fork-joins".to_owned());
        record.sourced("2 threads", 1, SampleSummary { count: 3, median: 1.0, spread: 0.05 });
        record.begin("wake-ups".to_owned());
        record.sourced("the last core", 1, SampleSummary { count: 3, median: 1.0, spread: 0.5 });
        let warnings: Vec<_> = record.warnings().iter().map(Warning::to_string).collect();
        assert_eq!(
            warnings,
            [
                "streams: 1 of 6 points have fewer than 3 samples, samples of 2 of 6 points differ by more than 10 % \
                 (b by 2 threads: 30 %): measure on a quiet machine",
                "wake-ups: samples of 1 of 1 points differ by more than 10 % (the last core: 50 %): \
                 measure on a quiet machine",
            ]
        );
    }

    #[test]
    fn a_fork_join_takes_off_no_more_than_half() {
        assert_eq!(without_launch(10.0, 2.0), 8.0);
        assert_eq!(without_launch(10.0, 9.0), 5.0);
    }
}
