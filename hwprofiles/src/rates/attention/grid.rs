//! Times between measured points on a device that computes sequences side by side, as a GPU does.
//!
//! There a decode of eight short sequences takes hardly longer than one of a single sequence. So
//! the time depends on two sizes: the values that are computed side by side, and the keys that each
//! of them is compared with. Points of several batches at several lengths form a grid over both.

use crate::rates::attention::point::AttentionPoint;
use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::rates::estimate::{Basis, Bound};
use std::sync::OnceLock;

/// A grid has at least so many rows with so many points each. The tables of a CPU's cores have
/// fewer, because their time follows from the bytes of all sequences together.
const ENOUGH: usize = 3;

/// A time is bound by its fixed part where it is less than this multiple of the shortest time.
const MOSTLY_FIXED: f64 = 2.0;

/// The grids of a table of points. They are made when the first time is asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct AttentionGrids(OnceLock<Vec<HeadGrid>>);

/// Grids follow from the points, so they make no difference between two tables.
impl PartialEq for AttentionGrids {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The points of one phase whose heads are alike.
#[derive(Debug, Clone)]
struct HeadGrid {
    /// The shape of one of them.
    heads: AttentionShape,
    /// `None` where there are too few points.
    grid: Option<AttentionGrid>,
}

/// Measured times over two sizes.
#[derive(Debug, Clone)]
pub(super) struct AttentionGrid {
    /// By ascending width.
    rows: Vec<GridRow>,
    /// The shortest time, in seconds.
    shortest: f64,
}

/// The points of one width.
#[derive(Debug, Clone)]
struct GridRow {
    width: f64,
    /// (Keys, seconds) by ascending keys; at least two.
    points: Vec<(f64, f64)>,
}

impl AttentionGrids {
    /// The grid of the heads that are most like those of `shape`; `None` where these have too few
    /// points. The work for each byte of a cache depends on how many heads share it.
    pub fn find(&self, points: &[AttentionPoint], shape: &AttentionShape) -> Option<&AttentionGrid> {
        let all = self.0.get_or_init(|| all_grids(points));
        let of_phase = all.iter().filter(|it| it.heads.phase == shape.phase);
        let nearest =
            of_phase.min_by(|a, b| a.heads.head_distance(shape).total_cmp(&b.heads.head_distance(shape)));
        nearest?.grid.as_ref()
    }
}

fn all_grids(points: &[AttentionPoint]) -> Vec<HeadGrid> {
    let mut kinds: Vec<AttentionShape> = Vec::new();
    for AttentionPoint { shape, .. } in points {
        if !kinds.iter().any(|kind| kind.phase == shape.phase && kind.has_heads_like(shape)) {
            kinds.push(*shape);
        }
    }
    let grid = |heads: AttentionShape| {
        let alike = |p: &&AttentionPoint| p.shape.phase == heads.phase && p.shape.has_heads_like(&heads);
        HeadGrid { heads, grid: AttentionGrid::new(points.iter().filter(alike)) }
    };
    kinds.into_iter().map(grid).collect()
}

/// The values that are computed side by side: those of one key of each sequence in a decode, and
/// those of all queries in a prefill.
fn width(shape: &AttentionShape) -> f64 {
    let AttentionShape { batch, new_tokens, heads, kv_heads, head_dim, .. } = *shape;
    let side_by_side = match shape.phase {
        Phase::Decode => [batch, kv_heads, head_dim, 1],
        Phase::Prefill => [batch, new_tokens, heads, head_dim],
    };
    side_by_side.into_iter().map(|size| size as f64).product()
}

/// The keys that a query is compared with, on average.
fn keys(shape: &AttentionShape) -> f64 {
    match shape.phase {
        Phase::Decode => shape.tokens() as f64,
        Phase::Prefill => shape.past_tokens as f64 + (shape.new_tokens as f64 + 1.0) / 2.0,
    }
}

impl AttentionGrid {
    /// The grid of points of one phase with heads that are alike; `None` where they are too few.
    fn new<'a>(points: impl Iterator<Item = &'a AttentionPoint>) -> Option<Self> {
        let mut all: Vec<_> = points.map(|p| (width(&p.shape), keys(&p.shape), p.time.get())).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)));
        // Two batches may have the same sizes with other numbers of heads.
        all.dedup_by_key(|(width, keys, _)| (*width, *keys));
        let shortest = all.iter().map(|(.., time)| *time).min_by(f64::total_cmp)?;
        let rows = all.chunk_by(|a, b| a.0 == b.0).filter(|row| row.len() > 1);
        let row = |row: &[(f64, f64, f64)]| GridRow {
            width: row[0].0,
            points: row.iter().map(|&(_, keys, time)| (keys, time)).collect(),
        };
        let rows: Vec<_> = rows.map(row).collect();
        let complete = rows.iter().filter(|row| row.points.len() >= ENOUGH).count();
        (complete >= ENOUGH).then_some(Self { rows, shortest })
    }

    /// The time of a shape in seconds, and whether it is between the points.
    ///
    /// Times are linear in both sizes. With more of either than was measured, the rate at the
    /// boundary holds. With fewer keys the line is continued, down to the shortest time. A narrower
    /// decode takes as long as the narrowest measured one with as many bytes, because its keys are
    /// divided among as many blocks; a narrower prefill takes as long as the narrowest.
    pub fn time(&self, shape: &AttentionShape) -> (f64, Basis) {
        let (width, keys) = (width(shape), keys(shape));
        let in_row = |row: &GridRow, keys: f64| row.time(keys, self.shortest);
        let after = self.rows.partition_point(|row| row.width < width);
        let (time, inside) = match (after.checked_sub(1), self.rows.get(after)) {
            (Some(before), Some(above)) => {
                let below = &self.rows[before];
                let ((a, a_inside), (b, b_inside)) = (in_row(below, keys), in_row(above, keys));
                let weight = (width - below.width) / (above.width - below.width);
                (a + (b - a) * weight, b_inside && (a_inside || weight == 1.0))
            }
            (Some(last), None) => {
                let last = &self.rows[last];
                (in_row(last, keys).0 * (width / last.width), false)
            }
            (None, first) => {
                let first = first.unwrap_or(&self.rows[0]);
                let of_first = width / first.width;
                let as_many_bytes = if shape.phase == Phase::Decode { of_first } else { 1.0 };
                let (time, inside) = in_row(first, keys * as_many_bytes);
                (time, inside && of_first == 1.0)
            }
        };
        (time, if inside { Basis::Interpolated } else { Basis::Extrapolated })
    }

    /// What binds a time of `phase`.
    pub fn bound(&self, phase: Phase, seconds: f64) -> Bound {
        match phase {
            _ if seconds < MOSTLY_FIXED * self.shortest => Bound::Launch,
            Phase::Decode => Bound::Memory,
            Phase::Prefill => Bound::Compute,
        }
    }
}

impl GridRow {
    /// The time at this number of keys, at least `shortest`, and whether it is between the points.
    fn time(&self, keys: f64, shortest: f64) -> (f64, bool) {
        let after = self.points.partition_point(|(known, _)| *known < keys);
        if after == self.points.len() {
            let (most, last) = self.points[after - 1];
            return (last * (keys / most), false);
        }
        let pair = after.max(1);
        let ((a_keys, a), (b_keys, b)) = (self.points[pair - 1], self.points[pair]);
        let slope = (b - a) / (b_keys - a_keys);
        if after > 0 {
            return (a + slope * (keys - a_keys), true);
        }
        ((a - slope.max(0.0) * (a_keys - keys)).max(shortest), keys == a_keys)
    }
}
