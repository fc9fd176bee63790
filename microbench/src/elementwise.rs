//! Element-wise work: what lies between the matrix products.

use crate::Error;
use crate::arena::random;
use crate::experiment::{Experiment, expect};
use crate::record::{Record, threads, without_launch};
use crate::rig::Rig;
use crate::series::Series;
use hwprofiles::{Bytes, Host, Seconds};
use kernels::{Memory, Pool, RopeTable};

/// The element-wise operators of one Llama layer (hidden 1024, 16 heads over 4 of 64, intermediate 2816), in their
/// order: norm, rotation, addition, norm, gated activation, addition.
///
/// The rate is that of their bytes (every activation that an operator reads or writes, in f32) over their time without
/// six fork-joins. Many rows are measured: at one row of a decode step the fork-join is the cost.
#[derive(Debug)]
pub(crate) struct Elementwise {
    layer: Layer,
    teams: Vec<(usize, Series)>,
}

#[derive(Debug)]
struct Layer {
    rows: usize,
    residual: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    projected: Vec<f32>,
    up: Vec<f32>,
    inner: Vec<f32>,
    gamma: Vec<f32>,
    table: RopeTable,
    positions: Vec<usize>,
}

const HIDDEN: usize = 1024;
const HEADS: usize = 16;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 64;
const QKV: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
const INTERMEDIATE: usize = 2816;
const OPERATORS: f64 = 6.0;
/// Values that the six operators read and write for each row.
const VALUES: usize = 2 * (2 * HIDDEN) + 2 * QKV + 2 * (3 * HIDDEN) + 3 * INTERMEDIATE;

impl Elementwise {
    /// Over so many rows, for all teams of the rig.
    pub fn new(rig: &Rig<'_>, rows: usize) -> Result<Self, Error> {
        let memory = Memory::new("table", Bytes::new(u64::MAX));
        let frequencies: Vec<f32> =
            (0..HEAD_DIM / 2).map(|i| 10000f32.powf(-2.0 * i as f32 / HEAD_DIM as f32)).collect();
        let layer = Layer {
            rows,
            residual: random(rows * HIDDEN, 7),
            normed: vec![0.0; rows * HIDDEN],
            qkv: random(rows * QKV, 8),
            projected: random(rows * HIDDEN, 9),
            up: random(rows * 2 * INTERMEDIATE, 10),
            inner: vec![0.0; rows * INTERMEDIATE],
            gamma: random(HIDDEN, 11),
            table: RopeTable::new(&memory, &frequencies, rows)?,
            positions: (0..rows).collect(),
        };
        let teams = rig.teams.iter().map(|pool| (pool.members(), Series::default())).collect();
        Ok(Self { layer, teams })
    }
}

impl Layer {
    fn run(&mut self, rig: &Rig<'_>, pool: &Pool) {
        let subject = rig.subject;
        subject.rms_norm(pool, &mut self.normed, &self.residual, &self.gamma);
        // Queries and keys lie side by side: one call rotates both.
        kernels::rope(pool, &mut self.qkv, QKV, HEADS + KV_HEADS, HEAD_DIM, &self.table, &self.positions);
        subject.add(pool, &mut self.residual, &self.projected);
        subject.rms_norm(pool, &mut self.normed, &self.residual, &self.gamma);
        subject.silu_mul(
            pool,
            &mut self.inner,
            &self.up,
            &self.up[INTERMEDIATE..],
            2 * INTERMEDIATE,
            INTERMEDIATE,
        );
        subject.add(pool, &mut self.residual, &self.projected);
    }

    /// Runs the layer once and compares one value of every row that each operator wrote with its definition.
    fn verify(&mut self, rig: &Rig<'_>, team: usize, pool: &Pool) -> Result<(), Error> {
        let (residual, qkv) = (self.residual.clone(), self.qkv.clone());
        self.run(rig, pool);
        let check = |name: &str, got: f32, wanted: f64| {
            let what = || format!("{name} over {} rows by {}", self.rows, threads(team));
            expect(what, f64::from(got), wanted, 1e-4 * (1.0 + wanted.abs()))
        };
        for row in 0..self.rows {
            let at = row * HIDDEN + row * 3 % HIDDEN;
            let (before, added) = (f64::from(residual[at]), f64::from(self.projected[at]));
            check("addition", self.residual[at], before + 2.0 * added)?;
            let line = row * HIDDEN..(row + 1) * HIDDEN;
            let normed = residual[line.clone()].iter().zip(&self.projected[line]);
            let squares: f64 = normed.map(|(x, y)| (f64::from(*x) + f64::from(*y)).powi(2)).sum();
            let inverse = 1.0 / (squares / HIDDEN as f64 + 1e-5).sqrt();
            let gamma = f64::from(self.gamma[at % HIDDEN]);
            check("norm", self.normed[at], (before + added) * inverse * gamma)?;
            let at = row * 5 % INTERMEDIATE;
            let gate = f64::from(self.up[row * 2 * INTERMEDIATE + at]);
            let up = f64::from(self.up[row * 2 * INTERMEDIATE + INTERMEDIATE + at]);
            check("activation", self.inner[row * INTERMEDIATE + at], gate / (1.0 + (-gate).exp()) * up)?;
            // The first pair of a head turns by `row` radians.
            let at = row * QKV + row % (HEADS + KV_HEADS) * HEAD_DIM;
            let (sin, cos) = (row as f64).sin_cos();
            let (low, high) = (f64::from(qkv[at]), f64::from(qkv[at + HEAD_DIM / 2]));
            check("rotation", self.qkv[at], low * cos - high * sin)?;
        }
        Ok(())
    }
}

impl Experiment for Elementwise {
    fn what(&self) -> String {
        "element-wise work".to_owned()
    }

    fn points(&self) -> usize {
        self.teams.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), Error> {
        let (members, series) = &mut self.teams[point];
        let pool = &rig.teams[point];
        if series.is_empty() {
            self.layer.verify(rig, *members, pool)?;
        }
        series.visit(rig, || self.layer.run(rig, pool));
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut Record<'_>) {
        let bytes = Bytes::new((self.layer.rows * VALUES * size_of::<f32>()) as u64);
        for team in &mut host.teams {
            let series = self.teams.iter().find(|(members, _)| *members == team.threads);
            let Some(summary) = series.and_then(|(_, series)| series.summary()) else { continue };
            let time = Seconds::new(without_launch(summary.median, OPERATORS * team.launch.value.get()));
            team.elementwise = record.sourced(&threads(team.threads), bytes / time, summary);
        }
    }
}
