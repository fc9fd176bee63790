//! The errors of predicted operator times against measured ones: over all rows, by kind, by GPU, by
//! source.

use crate::numbers::format::{duration, percent, signed_percent};
use crate::numbers::statistics;
use hwprofiles::{Basis, Bound, DType, Estimate, Operation, Phase, Seconds};
use serde::Serialize;
use std::collections::BTreeMap;

/// Products with n and k from here on count as the large ones of a transformer.
const LARGE: u64 = 1024;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OperationKind {
    Product { dtype: DType, large: bool },
    Attention(Phase),
}

/// The finest group of rows. Coarser groups are unions of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ErrorLeaf {
    gpu: usize,
    kind: OperationKind,
    basis: Basis,
}

/// Signed relative errors of a group's rows. They take four bytes each, because files have millions
/// of rows.
#[derive(Debug, Clone, Default)]
struct SignedErrors {
    signed: Vec<f32>,
    in_band: usize,
}

/// Collects predictions, and measured times where there are any.
#[derive(Debug, Clone, Default)]
pub struct OperationErrors {
    rows: u64,
    gpus: Vec<String>,
    bounds: BTreeMap<Bound, u64>,
    sources: BTreeMap<Basis, u64>,
    leaves: BTreeMap<ErrorLeaf, SignedErrors>,
    worst: Option<WorstOperation>,
}

/// The row with the largest error as a factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstOperation {
    /// Its line in the file.
    pub line: u64,
    /// Its GPU; empty where the file names none.
    pub gpu: String,
    /// The operation, in words.
    pub operation: String,
    /// The predicted time, in seconds.
    pub predicted_s: f64,
    /// The measured time, in seconds.
    pub measured_s: f64,
    /// Signed relative error.
    pub error: f64,
}

/// The errors of a group of rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorGroup {
    /// What the rows have in common.
    pub name: String,
    /// Rows with a measured time.
    pub rows: usize,
    /// Mean |error|.
    pub mean: f64,
    /// Median |error|.
    pub median: f64,
    /// 90th percentile of |error|.
    pub p90: f64,
    /// Mean signed error: above zero where predictions are too long.
    pub bias: f64,
    /// Share of the rows whose measured time lies within the predicted band.
    pub in_band: f64,
}

/// A summary of a file of predictions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationSummary {
    /// The number of predicted rows.
    pub rows: u64,
    /// Rows by bound.
    pub bound: BTreeMap<Bound, u64>,
    /// Rows by the source of the time.
    pub source: BTreeMap<Basis, u64>,
    /// Errors, from all rows down to small groups; empty where nothing was measured.
    pub errors: Vec<ErrorGroup>,
    /// The worst row.
    pub worst: Option<WorstOperation>,
}

impl OperationErrors {
    /// Adds a row. `gpu` is the index of its GPU and `name` the GPU's name, which is empty where
    /// the file has none.
    pub fn add(
        &mut self,
        (gpu, name): (usize, &str),
        line: u64,
        operation: &Operation,
        estimate: &Estimate,
        measured: Option<Seconds>,
    ) {
        self.rows += 1;
        *self.bounds.entry(estimate.bound).or_default() += 1;
        *self.sources.entry(estimate.basis).or_default() += 1;
        let Some(measured) = measured else { return };
        let (predicted_s, measured_s) = (estimate.time.get(), measured.get());
        let Some(error) = statistics::relative_error(predicted_s, measured_s) else { return };
        if self.gpus.len() <= gpu {
            self.gpus.resize(gpu + 1, String::new());
            self.gpus[gpu] = name.to_owned();
        }
        let kind = match *operation {
            Operation::Gemm { dtype, n, k, .. } => OperationKind::Product { dtype, large: n.min(k) >= LARGE },
            Operation::Attention { shape, .. } => OperationKind::Attention(shape.phase),
        };
        let errors = self.leaves.entry(ErrorLeaf { gpu, kind, basis: estimate.basis }).or_default();
        errors.signed.push(error as f32);
        errors.in_band += usize::from((estimate.low..=estimate.high).contains(&measured));
        if self.worst.as_ref().is_none_or(|worst| error_factor(error) > error_factor(worst.error)) {
            let (gpu, operation) = (name.to_owned(), operation.to_string());
            self.worst = Some(WorstOperation { line, gpu, operation, predicted_s, measured_s, error });
        }
    }

    /// The summary of all rows so far.
    pub fn summary(&self) -> OperationSummary {
        OperationSummary {
            rows: self.rows,
            bound: self.bounds.clone(),
            source: self.sources.clone(),
            errors: self.groups(),
            worst: self.worst.clone(),
        }
    }

    fn groups(&self) -> Vec<ErrorGroup> {
        let mut groups = vec![self.group("all rows".to_owned(), |_| true)];
        let mut kinds: Vec<_> = self.leaves.keys().map(|leaf| kind_name(leaf.kind)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in &kinds {
            groups.push(self.group(kind.clone(), |leaf| kind_name(leaf.kind) == *kind));
            let large = format!("{kind} n,k >= {LARGE}");
            groups.push(self.group(large, |leaf| kind_name(leaf.kind) == *kind && is_large(leaf.kind)));
        }
        let mut gpus: Vec<_> = self.leaves.keys().map(|leaf| &self.gpus[leaf.gpu]).collect();
        gpus.sort_unstable();
        gpus.dedup();
        for gpu in gpus.iter().copied().filter(|_| gpus.len() > 1) {
            let of_gpu = |leaf: &ErrorLeaf| self.gpus[leaf.gpu] == *gpu;
            groups.push(self.group(gpu.clone(), of_gpu));
            for kind in kinds.iter().filter(|_| kinds.len() > 1) {
                let name = format!("{gpu} {kind}");
                groups.push(self.group(name, |leaf| of_gpu(leaf) && kind_name(leaf.kind) == *kind));
            }
        }
        for &basis in self.sources.keys().filter(|_| self.sources.len() > 1) {
            groups.push(self.group(basis.name().to_owned(), |leaf| leaf.basis == basis));
        }
        groups.into_iter().flatten().collect()
    }

    fn group(&self, name: String, member: impl Fn(&ErrorLeaf) -> bool) -> Option<ErrorGroup> {
        let leaves = || self.leaves.iter().filter(|(leaf, _)| member(leaf)).map(|(_, errors)| errors);
        let signed: Vec<f32> = leaves().flat_map(|errors| errors.signed.iter().copied()).collect();
        let mut magnitudes: Vec<f32> = signed.iter().map(|error| error.abs()).collect();
        // The statistics sort their input. Sorting here, on smaller numbers, halves the time of the
        // whole command for millions of values in many groups.
        magnitudes.sort_unstable_by(f32::total_cmp);
        let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<_>>();
        let (signed, magnitudes) = (wide(signed), wide(magnitudes));
        Some(ErrorGroup {
            name,
            rows: signed.len(),
            mean: statistics::mean(&magnitudes)?,
            median: statistics::median(&magnitudes)?,
            p90: statistics::percentile(&magnitudes, 90.0)?,
            bias: statistics::mean(&signed)?,
            in_band: leaves().map(|errors| errors.in_band).sum::<usize>() as f64 / signed.len() as f64,
        })
    }
}

impl OperationSummary {
    /// For a terminal, in at most 80 columns.
    pub fn to_text(&self) -> String {
        let rows = if self.rows == 1 { "row" } else { "rows" };
        let counted = |names: Vec<(&str, u64)>| {
            let share = |n| percent(n as f64 / self.rows as f64);
            names.into_iter().map(|(name, n)| format!("{name} {}", share(n))).collect::<Vec<_>>().join(", ")
        };
        if self.rows == 0 {
            return "0 rows\n".to_owned();
        }
        let sources = counted(self.source.iter().map(|(basis, &n)| (basis.name(), n)).collect());
        let bounds = counted(self.bound.iter().map(|(bound, &n)| (bound.name(), n)).collect());
        let mut text = format!("{} {rows}: {sources}\nbound by: {bounds}\n", self.rows);
        if self.errors.is_empty() {
            return text;
        }
        text += "\n|predicted - measured| / measured; bias keeps the sign; band: low to high\n";
        text += &format!(
            "{:30} {:>8} {:>7} {:>7} {:>8} {:>8} {:>6}\n",
            "", "rows", "mean", "median", "p90", "bias", "band"
        );
        for group in &self.errors {
            let name: String = group.name.chars().take(30).collect();
            text += &format!(
                "{name:30} {:>8} {:>7} {:>7} {:>8} {:>8} {:>6}\n",
                group.rows,
                narrow(group.mean),
                narrow(group.median),
                narrow(group.p90),
                if group.bias < 0.0 {
                    signed_percent(Some(group.bias))
                } else {
                    format!("+{}", narrow(group.bias))
                },
                format!("{:.0} %", group.in_band * 100.0)
            );
        }
        text + &self.worst.as_ref().map_or_else(String::new, WorstOperation::to_text)
    }
}

impl WorstOperation {
    fn to_text(&self) -> String {
        let gpu = if self.gpu.is_empty() { String::new() } else { format!(" ({})", self.gpu) };
        let times = [self.predicted_s, self.measured_s].map(|time| duration(Seconds::new(time)));
        let error = signed_percent(Some(self.error));
        format!(
            "\nworst: line {}{gpu}, predicted {}, measured {}: {error}\n  {}\n",
            self.line, times[0], times[1], self.operation
        )
    }
}

/// A magnitude in per cent, in at most seven columns.
fn narrow(share: f64) -> String {
    if share < 9.9995 { percent(share) } else { format!("{:.0e} %", share * 100.0) }
}

/// The size of an error as a factor: half as long and twice as long are equal.
fn error_factor(error: f64) -> f64 {
    (1.0 + error).ln().abs()
}

fn kind_name(kind: OperationKind) -> String {
    match kind {
        OperationKind::Product { dtype, .. } => format!("{dtype} products"),
        OperationKind::Attention(phase) => format!("{phase} attention"),
    }
}

fn is_large(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::Product { large: true, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRODUCT: Operation = Operation::Gemm { dtype: DType::Bf16, m: 1, n: 2048, k: 64 };

    fn estimate(time: f64) -> Estimate {
        let (time, low, high) = (Seconds::new(time), Seconds::new(time / 1.5), Seconds::new(time * 1.5));
        Estimate { time, low, high, bound: Bound::Memory, basis: Basis::Interpolated }
    }

    /// The summary of rows given as (GPU, predicted, measured).
    fn summary(rows: &[(usize, f64, Option<f64>)]) -> OperationSummary {
        let mut errors = OperationErrors::default();
        for (line, &(gpu, predicted, measured)) in (2..).zip(rows) {
            let name = ["a100-sxm", "l40s"][gpu];
            errors.add((gpu, name), line, &PRODUCT, &estimate(predicted), measured.map(Seconds::new));
        }
        errors.summary()
    }

    #[test]
    fn errors_are_relative_to_the_measured_time_and_the_worst_is_off_by_the_largest_factor() {
        let it = summary(&[(0, 1.0, Some(4.0)), (0, 2.0, Some(1.0)), (0, 1.0, Some(1.0)), (0, 9.0, None)]);
        let all = &it.errors[0];
        assert_eq!((it.rows, all.rows, all.mean, all.median, all.p90), (4, 3, 1.75 / 3.0, 0.75, 1.0));
        assert_eq!((all.bias, all.in_band), (0.25 / 3.0, 1.0 / 3.0));
        let worst = it.worst.as_ref().unwrap();
        assert_eq!((worst.line, worst.error), (2, -0.75), "a quarter is further off than twice");
    }

    #[test]
    fn without_measured_times_only_rows_are_counted() {
        let it = summary(&[(0, 1.0, None)]);
        assert_eq!((it.errors.len(), it.worst.clone()), (0, None));
        assert_eq!(it.to_text(), "1 row: interpolated 100.0 %\nbound by: memory 100.0 %\n");
        assert_eq!(summary(&[]).to_text(), "0 rows\n");
    }

    #[test]
    fn a_summary_is_at_most_eighty_columns_wide() {
        let text = summary(&[(0, 1.0, Some(1e-9)), (1, 1e-9, Some(1.0))]).to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn the_groups_of_gpus_partition_all_rows(
            rows in prop::collection::vec((0..2_usize, 1e-6..1e-3_f64, (1e-6..1e-3_f64).prop_map(Some)), 1..40),
        ) {
            let it = summary(&rows);
            let group = |name: &str| it.errors.iter().find(|group| group.name == name);
            let all = group("all rows").unwrap();
            prop_assert_eq!(all.rows, rows.len());
            let gpus: Vec<_> = ["a100-sxm", "l40s"].into_iter().filter_map(group).collect();
            if gpus.len() == 2 {
                prop_assert_eq!(gpus[0].rows + gpus[1].rows, all.rows);
                let mean = (gpus[0].mean * gpus[0].rows as f64 + gpus[1].mean * gpus[1].rows as f64) / all.rows as f64;
                prop_assert!((mean - all.mean).abs() <= 1e-9 * (1.0 + all.mean));
            }
        }
    }
}
