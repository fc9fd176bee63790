//! Functions that are known at measured points, and straight in between.

/// A function of one number, known at points. It is a straight line between them and beyond.
#[derive(Debug, Clone)]
pub(crate) struct Interpolation {
    points: Vec<(f64, f64)>,
}

impl Interpolation {
    /// The function through `points`. Of several points at one place the first counts.
    pub fn new(mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|next, kept| next.0 == kept.0);
        Self { points }
    }

    /// The sum of functions, each multiplied by its factor, at the points of all of them.
    pub fn sum<'f>(terms: impl Iterator<Item = (f64, &'f Self)> + Clone) -> Self {
        let mut at: Vec<f64> =
            terms.clone().flat_map(|(_, term)| &term.points).map(|point| point.0).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let sum = |x: f64| terms.clone().map(|(factor, term)| factor * term.at(x)).sum();
        Self { points: at.into_iter().map(|x| (x, sum(x))).collect() }
    }

    /// The value at `x`, not below zero.
    pub fn at(&self, x: f64) -> f64 {
        let next = self.points.partition_point(|point| point.0 <= x).clamp(1, self.points.len().max(2) - 1);
        let (Some(&(x0, y0)), Some(&(x1, y1))) = (self.points.get(next - 1), self.points.get(next)) else {
            return self.points.first().map_or(0.0, |point| point.1);
        };
        (y0 + (y1 - y0) * (x - x0) / (x1 - x0)).max(0.0)
    }
}

/// A function of several numbers, known on a grid in which each value of a number has its own
/// values of the next number. It is a straight line between the nearest values of each number and
/// beyond the last. It is constant below the first.
#[derive(Debug, Clone)]
pub(crate) enum Surface {
    /// The value at a grid point.
    Known(f64),
    /// By the values of the next number, in rising order.
    Along(Vec<(f64, Surface)>),
}

impl Surface {
    /// The surface through points. Of several points at one place the first counts.
    pub fn new<const N: usize>(points: Vec<([f64; N], f64)>) -> Self {
        Self::along(points, 0)
    }

    /// The surface of points that agree in the numbers before `axis`.
    fn along<const N: usize>(mut points: Vec<([f64; N], f64)>, axis: usize) -> Self {
        if axis == N {
            return Self::Known(points[0].1);
        }
        points.sort_by(|a, b| a.0[axis].total_cmp(&b.0[axis]));
        let alike = points.chunk_by(|a, b| a.0[axis] == b.0[axis]);
        Self::Along(alike.map(|alike| (alike[0].0[axis], Self::along(alike.to_vec(), axis + 1))).collect())
    }

    /// The value at a point, not below zero.
    pub fn at(&self, point: &[f64]) -> f64 {
        self.line_at(point).max(0.0)
    }

    fn line_at(&self, point: &[f64]) -> f64 {
        let (along, x, rest) = match (self, point) {
            (Self::Known(value), _) => return *value,
            (Self::Along(along), [x, rest @ ..]) => (along, x, rest),
            (Self::Along(_), []) => unreachable!("a point has a number for each axis"),
        };
        let next = along.partition_point(|(at, _)| at <= x).min(along.len() - 1);
        let Some(low) = next.checked_sub(1) else { return along[0].1.line_at(rest) };
        let ((x0, low), (x1, high)) = (&along[low], &along[next]);
        let low = low.line_at(rest);
        if x == x0 { low } else { low + (high.line_at(rest) - low) * (x - x0) / (x1 - x0) }
    }
}
