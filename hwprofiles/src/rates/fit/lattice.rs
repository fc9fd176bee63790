//! A table over a lattice of places, interpolated between its nodes.

/// A value at every combination of the coordinates on `N` axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lattice<const N: usize> {
    axes: [Vec<f64>; N],
    /// The last axis runs fastest.
    values: Vec<f64>,
}

impl<const N: usize> Lattice<N> {
    /// The lattice of these values, in any order. `None` unless there is exactly one value at every
    /// combination of the coordinates that occur.
    pub(crate) fn from_nodes(places: &[([f64; N], f64)]) -> Option<Self> {
        let axes: [Vec<f64>; N] = std::array::from_fn(|axis| {
            let mut along: Vec<f64> = places.iter().map(|(place, _)| place[axis]).collect();
            along.sort_by(f64::total_cmp);
            along.dedup();
            along
        });
        let count: usize = axes.iter().map(Vec::len).product();
        if places.is_empty() || places.len() != count {
            return None;
        }
        let mut values = vec![None; count];
        for (place, value) in places {
            let index = axes.iter().zip(place).try_fold(0, |index, (axis, x)| {
                axis.binary_search_by(|a| a.total_cmp(x)).ok().map(|i| index * axis.len() + i)
            })?;
            values[index] = Some(*value);
        }
        Some(Self { axes, values: values.into_iter().collect::<Option<_>>()? })
    }

    /// The smallest coordinate on an axis.
    pub(crate) fn first(&self, axis: usize) -> f64 {
        self.axes[axis][0]
    }

    /// The value at a place, linear between nodes, and the distance from the lattice (the sum over
    /// the axes; 0 inside). Outside, the nearest place of the boundary gives the value.
    pub(crate) fn at(&self, place: &[f64; N]) -> (f64, f64) {
        let mut outside = 0.0;
        let mut corner = [(0, 0, 0.0); N];
        for ((axis, &x), corner) in self.axes.iter().zip(place).zip(&mut corner) {
            let last = axis.len() - 1;
            outside += (axis[0] - x).max(x - axis[last]).max(0.0);
            let low = axis.iter().rposition(|&a| a <= x).unwrap_or(0).min(last.saturating_sub(1));
            let high = (low + 1).min(last);
            let width = axis[high] - axis[low];
            let share = if width > 0.0 { ((x - axis[low]) / width).clamp(0.0, 1.0) } else { 0.0 };
            *corner = (low, high, share);
        }
        let mut sum = 0.0;
        for choice in 0..1_usize << N {
            let (mut index, mut weight) = (0, 1.0);
            for (i, (axis, &(low, high, share))) in self.axes.iter().zip(&corner).enumerate() {
                let upper = choice >> i & 1 == 1;
                index = index * axis.len() + if upper { high } else { low };
                weight *= if upper { share } else { 1.0 - share };
            }
            sum += weight * self.values[index];
        }
        (sum, outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane() -> Lattice<2> {
        let places = [1.0, 2.0, 4.0].into_iter().flat_map(|x| [0.0, 10.0].map(|y| [x, y]));
        let nodes: Vec<_> = places.map(|[x, y]| ([x, y], 3.0 * x - y)).collect();
        Lattice::from_nodes(&nodes).unwrap()
    }

    #[test]
    fn a_plane_is_read_exactly_between_its_nodes_and_carried_on_outside() {
        assert_eq!(plane().at(&[3.0, 5.0]), (4.0, 0.0));
        assert_eq!(plane().at(&[8.0, -1.0]), (12.0, 5.0));
    }

    #[test]
    fn a_lattice_with_a_hole_is_none() {
        let node = |x, y| ([x, y], 1.0);
        assert_eq!(Lattice::from_nodes(&[node(0.0, 0.0), node(1.0, 0.0), node(0.0, 1.0)]), None);
        assert_eq!(Lattice::from_nodes(&[node(0.0, 0.0), node(0.0, 0.0)]), None);
        assert_eq!(Lattice::<2>::from_nodes(&[]), None);
    }
}
