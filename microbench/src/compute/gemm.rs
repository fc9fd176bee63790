//! Matrix products with the shapes of transformers and weights from memory.

use crate::compute::ceilings::tolerance;
use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::late_points::late_points;
use crate::method::record::{MeasurementRecord, TablePoints, threads, without_launch};
use crate::method::rig::{Rig, TeamId};
use crate::method::series::SampleSeries;
use crate::operands::arena::random_buffer;
use hwprofiles::{DType, GemmPoint, GemmRates, Host, Seconds};
use kernels::{Buffer, Pool, Scratch, WeightsView};

/// The products of one weight format: every shape, row count and team.
///
/// A decode step reads every weight once, and all other weights before it reads the same one again.
/// So each call takes the next matrix of an arena larger than the caches.
#[derive(Debug)]
pub(crate) struct GemmExperiment {
    dtype: DType,
    x: Buffer,
    y: Buffer,
    scratch: Scratch,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    m: usize,
    n: usize,
    k: usize,
    team: TeamId,
    series: SampleSeries,
}

impl GemmExperiment {
    /// For weights in `dtype`, matrices of `shapes` (n, k), and `rows` of x.
    pub fn new(
        rig: &Rig<'_>,
        dtype: DType,
        shapes: &[(usize, usize)],
        rows: &[usize],
    ) -> Result<Self, MeasureError> {
        let mut points = Vec::new();
        for &(n, k) in shapes {
            for &m in rows {
                for team in rig.team_ids() {
                    points.push(Point { m, n, k, team, series: SampleSeries::default() });
                }
            }
        }
        let most = |of: fn(&Point) -> usize| points.iter().map(of).max().unwrap_or(0);
        let scratch = most(|p| kernels::gemm::scratch_bytes(p.team.threads, p.m, p.k));
        Ok(Self {
            dtype,
            x: random_buffer(most(|p| p.m * p.k), 4)?,
            y: random_buffer(most(|p| p.m * p.n), 5)?,
            scratch: Scratch::unaccounted(scratch)?,
            points,
        })
    }

    /// Whether one call at this point would take too long, estimated from the measured point with
    /// fewer rows.
    fn takes_too_long(&self, point: &Point, rig: &Rig<'_>) -> bool {
        let alike = |p: &&Point| (p.n, p.k, p.team) == (point.n, point.k, point.team) && p.m < point.m;
        let fewer = self.points.iter().filter(alike).filter_map(|p| Some((p.m, p.series.summary()?)));
        let Some((m, summary)) = fewer.max_by_key(|(m, _)| *m) else { return false };
        summary.median * point.m as f64 / m as f64 > rig.longest
    }
}

impl Point {
    /// Whether its product has at least the rows and the matrix of that of `less`, for no more
    /// threads.
    fn does_more(&self, less: &Self) -> bool {
        let threads = self.team.threads <= less.team.threads;
        self.m >= less.m && self.n >= less.n && self.k >= less.k && threads
    }

    fn bytes(&self, dtype: DType) -> usize {
        dtype.matrix_bytes(self.n as u64, self.k as u64).get() as usize
    }

    /// Compares a sample of y with the definition of the product.
    fn verify(&self, pool: &Pool, x: &[f32], w: WeightsView<'_>, y: &[f32]) -> Result<(), MeasureError> {
        let tolerance = tolerance(pool, w.dtype());
        for sample in 0..16 {
            // Rows and columns far apart, the last ones included.
            let (row, column) = (self.m - 1 - sample * 7 % self.m, self.n - 1 - sample * 61 % self.n);
            let term = |i: usize| f64::from(x[row * self.k + i]) * f64::from(w.value(column, i));
            let wanted: f64 = (0..self.k).map(term).sum();
            let size: f64 = (0..self.k).map(|i| term(i).abs()).sum();
            let Point { m, n, k, team, .. } = self;
            let kernel = || {
                format!(
                    "the product of {m} × {k} and {n} × {k} in {} by {}",
                    w.dtype(),
                    threads(team.threads)
                )
            };
            expect(kernel, f64::from(y[row * self.n + column]), wanted, size * tolerance)?;
        }
        Ok(())
    }
}

impl Experiment for GemmExperiment {
    fn name(&self) -> String {
        format!("matrix products in {}", self.dtype)
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        if self.takes_too_long(&self.points[point], rig) {
            return Ok(());
        }
        let Self { dtype, x, y, scratch, points } = self;
        let mut weights = rig.arena(*dtype);
        let point = &mut points[point];
        let Point { m, n, k, team, .. } = *point;
        let (pool, bytes) = (rig.team(team), point.bytes(*dtype));
        let (x, y) = (&x.view()[..m * k], &mut y.view_mut()[..m * n]);
        if point.series.is_empty() {
            let w = WeightsView::new(*dtype, n, k, weights.next(bytes))?;
            rig.subject.gemm(pool, m, y, x, w, scratch);
            point.verify(pool, x, w, y)?;
        }
        let mut failed = Ok(());
        point.series.visit(rig, || match WeightsView::new(*dtype, n, k, weights.next(bytes)) {
            Ok(w) => rig.subject.gemm(pool, m, y, x, w, scratch),
            Err(error) => failed = Err(error),
        });
        Ok(failed?)
    }

    fn doubtful(&self) -> Vec<usize> {
        late_points(&self.points, |point| Some(point.series.summary()?.median), Point::does_more)
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        for team in &mut host.teams {
            let (mut points, mut labels) = (Vec::new(), TablePoints::default());
            for point in self.points.iter().filter(|p| p.team.threads == team.threads) {
                let Some(summary) = point.series.summary() else { continue };
                let Point { m, n, k, .. } = *point;
                labels.add(format!("m = {m}, n = {n}, k = {k}"), summary);
                let time = Seconds::new(without_launch(summary.median, team.launch.value.get()));
                points.push(GemmPoint { m: m as u64, n: n as u64, k: k as u64, time });
            }
            let source = record.table(&threads(team.threads), labels, None);
            team.gemm.insert(self.dtype, GemmRates::new(source, points));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_matrices_and_threads_say_which_product_does_more() {
        let point = |m, n, threads| Point {
            m,
            n,
            k: 64,
            team: TeamId::of_threads(threads),
            series: SampleSeries::default(),
        };
        let more = [point(2, 16, 1), point(1, 32, 1), point(1, 16, 1)];
        let [one, two] = [point(1, 16, 1), point(1, 16, 2)];
        assert!(more.iter().all(|more| more.does_more(&one) && more.does_more(&two)));
        assert!(!two.does_more(&one) && !one.does_more(&more[0]));
        // One has more rows, the other a larger matrix.
        assert!(!more[0].does_more(&more[1]) && !more[1].does_more(&more[0]));
    }
}
