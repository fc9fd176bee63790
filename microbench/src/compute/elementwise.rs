//! Element-wise operators, which lie between the matrix products.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::late_points::{is_no_larger, late_points};
use crate::method::record::{MeasurementRecord, threads, without_launch};
use crate::method::rig::Rig;
use crate::method::sample_summary::sum;
use crate::method::series::SampleSeries;
use crate::operands::arena::{random, random_buffer};
use hwprofiles::{Bytes, Host, Seconds};
use kernels::{Buffer, MemoryArena, PANEL, Pool, RopeTable};

/// The element-wise operators of one Llama layer (hidden 1024, 16 heads over 4 of 64, intermediate
/// 2816), in their order: norm, rotation, addition, norm, gated activation, addition. Gate and up
/// lie side by side in panels, as one product writes both.
///
/// The rate is their bytes (every activation that an operator reads or writes, in f32) over their
/// time without six fork-joins. Many rows are measured, because at one row of a decode step the
/// fork-join dominates.
#[derive(Debug)]
pub(crate) struct ElementwiseExperiment {
    layer: Layer,
    /// By team: its size, and the times of each operator.
    teams: Vec<(usize, [SampleSeries; OPERATORS])>,
}

#[derive(Debug)]
struct Layer {
    rows: usize,
    residual: Buffer,
    normed: Buffer,
    qkv: Buffer,
    projected: Buffer,
    up: Buffer,
    inner: Buffer,
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
const OPERATORS: usize = 6;
/// Values that the six operators read and write for each row.
const VALUES: usize = 2 * (2 * HIDDEN) + 2 * QKV + 2 * (3 * HIDDEN) + 3 * INTERMEDIATE;

impl ElementwiseExperiment {
    /// For all teams of the rig, with `rows` rows.
    pub fn new(rig: &Rig<'_>, rows: usize) -> Result<Self, MeasureError> {
        let memory = MemoryArena::new("table", Bytes::new(u64::MAX));
        let frequencies: Vec<f32> =
            (0..HEAD_DIM / 2).map(|i| 10000f32.powf(-2.0 * i as f32 / HEAD_DIM as f32)).collect();
        let layer = Layer {
            rows,
            residual: random_buffer(rows * HIDDEN, 7)?,
            normed: random_buffer(rows * HIDDEN, 12)?,
            qkv: random_buffer(rows * QKV, 8)?,
            projected: random_buffer(rows * HIDDEN, 9)?,
            up: random_buffer(rows * 2 * INTERMEDIATE, 10)?,
            inner: random_buffer(rows * INTERMEDIATE, 13)?,
            gamma: random(HIDDEN, 11),
            table: RopeTable::new(&memory, &frequencies, rows)?,
            positions: (0..rows).collect(),
        };
        let teams = rig.teams.iter().map(|pool| (pool.members(), Default::default())).collect();
        Ok(Self { layer, teams })
    }
}

impl Layer {
    /// Runs one operator. Operators are numbered in the order of the layer.
    fn run(&mut self, rig: &Rig<'_>, pool: &Pool, operator: usize) {
        let subject = rig.subject;
        match operator {
            0 | 3 => {
                subject.rms_norm(pool, self.normed.view_mut(), self.residual.view(), &self.gamma);
            }
            // Queries and keys lie side by side, so one call rotates both.
            1 => {
                let (qk, table) = (self.qkv.view_mut(), &self.table);
                kernels::rope(pool, qk, QKV, HEADS + KV_HEADS, HEAD_DIM, table, &self.positions);
            }
            4 => {
                let (inner, gate) = (self.inner.view_mut(), self.up.view());
                subject.silu_mul(pool, inner, gate, &gate[PANEL..], 2 * PANEL, PANEL);
            }
            _ => subject.add(pool, self.residual.view_mut(), self.projected.view()),
        }
    }

    /// Runs the layer once and compares one value of every row that each operator wrote with its
    /// definition.
    fn verify(&mut self, rig: &Rig<'_>, team: usize, pool: &Pool) -> Result<(), MeasureError> {
        let floats = |buffer: &Buffer| buffer.view::<f32>().to_vec();
        let (residual, qkv) = (floats(&self.residual), floats(&self.qkv));
        (0..OPERATORS).for_each(|operator| self.run(rig, pool, operator));
        let (after, rotated) = (self.residual.view::<f32>(), self.qkv.view::<f32>());
        let (normed, inner) = (self.normed.view::<f32>(), self.inner.view::<f32>());
        let (projected, gates) = (self.projected.view::<f32>(), self.up.view::<f32>());
        let check = |name: &str, got: f32, wanted: f64| {
            let kernel = || format!("{name} over {} rows by {}", self.rows, threads(team));
            expect(kernel, f64::from(got), wanted, 1e-4 * (1.0 + wanted.abs()))
        };
        for row in 0..self.rows {
            let at = row * HIDDEN + row * 3 % HIDDEN;
            let (before, added) = (f64::from(residual[at]), f64::from(projected[at]));
            check("addition", after[at], before + 2.0 * added)?;
            let line = row * HIDDEN..(row + 1) * HIDDEN;
            let summed = residual[line.clone()].iter().zip(&projected[line]);
            let squares: f64 = summed.map(|(x, y)| (f64::from(*x) + f64::from(*y)).powi(2)).sum();
            let inverse = 1.0 / (squares / HIDDEN as f64 + 1e-5).sqrt();
            let gamma = f64::from(self.gamma[at % HIDDEN]);
            check("norm", normed[at], (before + added) * inverse * gamma)?;
            let at = row * 5 % INTERMEDIATE;
            let gate_at = row * 2 * INTERMEDIATE + at / PANEL * 2 * PANEL + at % PANEL;
            let (gate, up) = (f64::from(gates[gate_at]), f64::from(gates[gate_at + PANEL]));
            check("activation", inner[row * INTERMEDIATE + at], gate / (1.0 + (-gate).exp()) * up)?;
            // The first pair of a head rotates by `row` radians.
            let at = row * QKV + row % (HEADS + KV_HEADS) * HEAD_DIM;
            let (sin, cos) = (row as f64).sin_cos();
            let (low, high) = (f64::from(qkv[at]), f64::from(qkv[at + HEAD_DIM / 2]));
            check("rotation", rotated[at], low * cos - high * sin)?;
        }
        Ok(())
    }
}

impl Experiment for ElementwiseExperiment {
    fn name(&self) -> String {
        "element-wise work".to_owned()
    }

    fn points(&self) -> usize {
        self.teams.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let (members, operators) = &mut self.teams[point];
        let pool = &rig.teams[point];
        if operators[0].is_empty() {
            self.layer.verify(rig, *members, pool)?;
        }
        for (operator, series) in operators.iter_mut().enumerate() {
            series.visit(rig, || self.layer.run(rig, pool, operator));
        }
        Ok(())
    }

    fn doubtful(&self) -> Vec<usize> {
        let layer = |(_, operators): &(usize, [SampleSeries; OPERATORS])| {
            sum(operators.iter().map(SampleSeries::summary)).map(|layer| layer.median)
        };
        late_points(&self.teams, layer, |other, team| is_no_larger(other.0, team.0))
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let bytes = Bytes::new((self.layer.rows * VALUES * size_of::<f32>()) as u64);
        for team in &mut host.teams {
            let Some((_, operators)) = self.teams.iter().find(|(members, _)| *members == team.threads) else {
                continue;
            };
            let Some(layer) = sum(operators.iter().map(SampleSeries::summary)) else {
                continue;
            };
            let launches = OPERATORS as f64 * team.launch.value.get();
            let time = Seconds::new(without_launch(layer.median, launches));
            team.elementwise = record.sourced(&threads(team.threads), bytes / time, layer);
        }
    }
}
