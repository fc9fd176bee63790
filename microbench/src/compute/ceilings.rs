//! The three ceilings of matrix products with each instruction set: with operands in registers, in
//! caches and in memory.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::extent::MeasurementExtent;
use crate::method::record::{MeasurementRecord, TablePoints, threads, without_launch};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use crate::operands::arena::random_buffer;
use hwprofiles::{Bytes, Crossover, DType, Flop, FlopPerSec, Host, MeasuredCeilings, Seconds};
use kernels::peak::{self, CachedProduct, Instructions};
use kernels::{Buffer, Path, Pool, Scratch, WeightsView};

/// An operand format and the instruction set that multiplies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InstructionPath {
    dtype: DType,
    /// The name of the instruction set in files.
    name: &'static str,
    /// The loop that measures the instructions alone; `None` where products mix several kinds.
    instructions: Option<Instructions>,
    /// The kernels that use the instructions; `None` where there are no such kernels yet.
    path: Option<Path>,
}

/// All known combinations, the plainest first. Where bf16 is widened, the instructions are those of
/// f32. Our tiles of integer weights are expanded to bf16.
const INSTRUCTION_PATHS: [InstructionPath; 12] = [
    way(DType::F32, "avx2", Some(Instructions::Avx2F32), Some(Path::Avx2)),
    way(DType::F32, "avx512", Some(Instructions::Avx512F32), Some(Path::Avx512)),
    way(DType::Bf16, "avx2", Some(Instructions::Avx2F32), Some(Path::Avx2)),
    way(DType::Bf16, "avx512", Some(Instructions::Avx512F32), Some(Path::Avx512)),
    way(DType::Bf16, "avx512-bf16", Some(Instructions::Avx512Bf16), Some(Path::Avx512Bf16)),
    way(DType::Bf16, "amx", Some(Instructions::AmxBf16), Some(Path::Amx)),
    way(DType::Int8, "avx2", None, Some(Path::Avx2)),
    way(DType::Int8, "avx512-vnni", Some(Instructions::Avx512Int8), Some(Path::Avx512)),
    way(DType::Int8, "amx", Some(Instructions::AmxInt8), Some(Path::Amx)),
    way(DType::Int4, "avx2", None, Some(Path::Avx2)),
    way(DType::Int4, "avx512-vnni", Some(Instructions::Avx512Int8), Some(Path::Avx512)),
    way(DType::Int4, "amx", Some(Instructions::AmxBf16), Some(Path::Amx)),
];

/// For each format, the vector and the tile instructions whose crossover is measured.
const CROSSINGS: [(DType, &str, &str); 3] = [
    (DType::Bf16, "avx512-bf16", "amx"),
    (DType::Int8, "avx512-vnni", "amx"),
    (DType::Int4, "avx512-vnni", "amx"),
];

const fn way(
    dtype: DType,
    name: &'static str,
    instructions: Option<Instructions>,
    path: Option<Path>,
) -> InstructionPath {
    InstructionPath { dtype, name, instructions, path }
}

impl InstructionPath {
    /// Whether this machine has the instructions.
    fn is_open(&self) -> bool {
        self.instructions.is_none_or(Instructions::is_present) && self.path.is_none_or(Path::is_supported)
    }
}

/// One core and all cores, with every instruction set.
#[derive(Debug)]
pub(crate) struct CeilingsExperiment {
    pools: Vec<Pool>,
    x: Buffer,
    y: Buffer,
    scratch: Scratch,
    /// (n, k) of the products whose weights come from memory.
    shape: (usize, usize),
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    way: InstructionPath,
    /// Index of the pool, which uses the kernels of `way`.
    pool: usize,
    kind: Kind,
    series: SampleSeries,
}

#[derive(Debug)]
enum Kind {
    Resident,
    Cached(Box<CachedProduct>),
    /// The number of rows of x.
    Streamed(usize),
}

/// Rows of products that stay in the caches. The faster of them is the ceiling.
const ROWS: [usize; 2] = [64, 192];

impl CeilingsExperiment {
    /// `cache` is the size of each core's own cache.
    pub fn new(rig: &Rig<'_>, extent: &MeasurementExtent, cache: Bytes) -> Result<Self, MeasureError> {
        let (mut pools, mut points): (Vec<Pool>, Vec<Point>) = (Vec::new(), Vec::new());
        let most = rig.all().members();
        for members in if most == 1 { vec![1] } else { vec![1, most] } {
            for way in INSTRUCTION_PATHS.into_iter().filter(InstructionPath::is_open) {
                let path = way.path.unwrap_or(Path::Reference);
                let same = |pool: &Pool| (pool.members(), pool.path()) == (members, path);
                let pool = match pools.iter().position(same) {
                    Some(index) => index,
                    None => {
                        // Products of few rows use the same kernels, since there is no crossover.
                        let tiles = |pool: Pool, dtype| pool.with_crossover(dtype, 0);
                        let pool = Pool::new(&rig.all().cores()[..members])?.with_path(path);
                        pools.push([DType::Bf16, DType::Int8, DType::Int4].into_iter().fold(pool, tiles));
                        pools.len() - 1
                    }
                };
                let mut add = |kind| points.push(Point { way, pool, kind, series: SampleSeries::default() });
                if way.instructions.is_some() {
                    add(Kind::Resident);
                }
                if way.path.is_some() {
                    for rows in ROWS {
                        let product = CachedProduct::new(way.dtype, rows, members, cache)?;
                        add(Kind::Cached(Box::new(product)));
                    }
                    extent.ceilings.iter().for_each(|&m| add(Kind::Streamed(m)));
                }
            }
        }
        let (shape, m) = (extent.shapes[0], extent.ceilings.iter().copied().max().unwrap_or(1));
        Ok(Self {
            pools,
            x: random_buffer(m * shape.1, 4)?,
            y: random_buffer(m * shape.0, 5)?,
            scratch: Scratch::unaccounted(kernels::gemm::scratch_bytes(most, m, shape.1))?,
            shape,
            points,
        })
    }
}

impl Experiment for CeilingsExperiment {
    fn name(&self) -> String {
        "ceilings of products".to_owned()
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let Self { pools, x, y, scratch, shape: (n, k), points } = self;
        let Point { way, pool, kind, series } = &mut points[point];
        let (n, k, pool, dtype) = (*n, *k, &pools[*pool], way.dtype);
        match kind {
            // The loop checks its own result.
            Kind::Resident => {
                if let Some(instructions) = way.instructions {
                    series.visit(rig, || {
                        std::hint::black_box(peak::run(pool, instructions, 1));
                    });
                }
            }
            Kind::Cached(product) => {
                if series.is_empty() {
                    product.run(pool, 1);
                    let kernel = || format!("the cached product in {dtype} by {}", pool.path());
                    expect(kernel, product.error(), 0.0, tolerance(pool, dtype))?;
                }
                series.visit(rig, || {
                    std::hint::black_box(product.run(pool, 1));
                });
            }
            Kind::Streamed(m) => {
                let (m, bytes) = (*m, dtype.matrix_bytes(n as u64, k as u64).get() as usize);
                let (x, y) = (&x.view()[..m * k], &mut y.view_mut()[..m * n]);
                let mut weights = rig.arena(dtype);
                if series.is_empty() {
                    let w = WeightsView::new(dtype, n, k, weights.next(bytes))?;
                    rig.subject.gemm(pool, m, y, x, w, scratch);
                    verify(pool, x, w, y)?;
                }
                let mut failed = Ok(());
                series.visit(rig, || match WeightsView::new(dtype, n, k, weights.next(bytes)) {
                    Ok(w) => rig.subject.gemm(pool, m, y, x, w, scratch),
                    Err(error) => failed = Err(error),
                });
                failed?;
            }
        }
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        for team in &mut host.teams {
            let launch = team.launch.value.get();
            let rates = |point: &&Point| self.pools[point.pool].members() == team.threads;
            let of_team: Vec<&Point> = self.points.iter().filter(rates).collect();
            for same in of_team.chunk_by(|a, b| a.way == b.way) {
                let mut labels = TablePoints::default();
                for (point, summary) in same.iter().filter_map(|point| Some((point, point.series.summary()?)))
                {
                    labels.add(point.label(), summary);
                }
                let way = same[0].way;
                let best = |wanted: fn(&Kind) -> bool| {
                    let rates = same.iter().filter(|point| wanted(&point.kind));
                    let rates = rates.filter_map(|point| self.rate(point, launch));
                    rates.max_by(FlopPerSec::total_cmp).into()
                };
                let ceilings = MeasuredCeilings {
                    resident: best(|kind| matches!(kind, Kind::Resident)),
                    cached: best(|kind| matches!(kind, Kind::Cached(_))),
                    streamed: best(|kind| matches!(kind, Kind::Streamed(_))),
                    source: record.table(&threads(team.threads), labels, None),
                };
                team.ceilings.entry(way.dtype).or_default().insert(way.name.to_owned(), ceilings);
            }
            for (dtype, below, above) in CROSSINGS {
                let times = |name| of_team.iter().filter_map(|point| point.streamed(dtype, name)).collect();
                let (slow, fast): (Vec<_>, Vec<_>) = (times(below), times(above));
                let Some(measured) = team.ceilings.get(&dtype).and_then(|ways| ways.get(above)) else {
                    continue;
                };
                if !slow.is_empty() && !fast.is_empty() {
                    let (below, above) = (below.to_owned(), above.to_owned());
                    let (source, rows) = (measured.source.clone(), crossover(&slow, &fast).into());
                    team.crossover.insert(dtype, Crossover { source, below, above, rows });
                }
            }
        }
    }
}

impl Point {
    fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Resident => "resident".to_owned(),
            Kind::Cached(ref product) => format!("cached with {} rows", product.shape().0),
            Kind::Streamed(m) => format!("streamed with {m} rows"),
        };
        format!("{} by {}, {kind}", self.way.dtype, self.way.name)
    }

    /// The rows of a streamed product, and its time.
    fn streamed(&self, dtype: DType, name: &str) -> Option<(usize, f64)> {
        let Kind::Streamed(m) = self.kind else { return None };
        let is_wanted = (self.way.dtype, self.way.name) == (dtype, name);
        Some((m, self.series.summary().filter(|_| is_wanted)?.median))
    }
}

impl CeilingsExperiment {
    /// The rate of one point, without the fork-join.
    fn rate(&self, point: &Point, launch: f64) -> Option<FlopPerSec> {
        let members = self.pools[point.pool].members();
        let (n, k) = self.shape;
        let flop = match &point.kind {
            Kind::Resident => point.way.instructions?.burst(members),
            Kind::Cached(product) => {
                let (m, n, k) = product.shape();
                Flop::new(2 * (m * n * k) as u128)
            }
            Kind::Streamed(m) => Flop::new(2 * (m * n * k) as u128),
        };
        Some(flop / Seconds::new(without_launch(point.series.summary()?.median, launch)))
    }
}

/// The smallest number of rows from which on `above` is never slower than `below`; `None` where it
/// is slower at the most rows. Both are (rows, time), ascending in rows.
fn crossover(below: &[(usize, f64)], above: &[(usize, f64)]) -> Option<u64> {
    let both = below.iter().zip(above).rev();
    both.take_while(|((_, below), (_, above))| above <= below).last().map(|((rows, _), _)| *rows as u64)
}

/// The allowed error of a product in `dtype`, as a share of Σ|x·w|, from sums in f32 and from the
/// rounding of x.
pub(crate) fn tolerance(pool: &Pool, dtype: DType) -> f64 {
    1.0 / 4096.0 + f64::from(pool.path().rounding(dtype))
}

/// Compares a sample of y with the definition of the product.
fn verify(pool: &Pool, x: &[f32], w: WeightsView<'_>, y: &[f32]) -> Result<(), MeasureError> {
    let (n, k) = (w.rows(), w.columns());
    for sample in 0..8 {
        let (row, column) = (sample * 7 % (y.len() / n), n - 1 - sample * 61 % n);
        let terms = (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(w.value(column, i)));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        let kernel = || format!("the streamed product in {} by {}", w.dtype(), pool.path());
        expect(kernel, f64::from(y[row * n + column]), sum, size * tolerance(pool, w.dtype()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_win_from_the_row_count_after_which_they_never_lose_again() {
        let below = [(1, 1.0), (4, 2.0), (16, 5.0), (64, 20.0)];
        let above = |times: [f64; 4]| [1, 4, 16, 64].into_iter().zip(times).collect::<Vec<_>>();
        assert_eq!(crossover(&below, &above([2.0, 2.5, 4.0, 9.0])), Some(16));
        assert_eq!(crossover(&below, &above([0.5, 2.5, 5.0, 9.0])), Some(16), "an early win is no win");
        assert_eq!(crossover(&below, &above([1.0, 2.0, 5.0, 20.0])), Some(1), "as fast is not slower");
        assert_eq!(crossover(&below, &above([0.5, 1.0, 2.0, 21.0])), None);
    }
}
