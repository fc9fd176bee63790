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
        const { assert!(N <= 4, "there are as many corners as fit in the array") };
        let mut outside = 0.0;
        // The corners around the place, with their numbers and weights, one axis after the other.
        let mut corners = [(0, 1.0); 16];
        let mut count = 1;
        for (axis, &x) in self.axes.iter().zip(place) {
            let last = axis.len() - 1;
            outside += (axis[0] - x).max(x - axis[last]).max(0.0);
            let below = axis.partition_point(|&a| a <= x).saturating_sub(1);
            let low = below.min(last.saturating_sub(1));
            let high = (low + 1).min(last);
            let width = axis[high] - axis[low];
            let share = if width > 0.0 { ((x - axis[low]) / width).clamp(0.0, 1.0) } else { 0.0 };
            // Corners of no weight are left out.
            let both = share > 0.0;
            for corner in 0..count {
                let (index, weight) = corners[corner];
                corners[corner] = (index * axis.len() + low, weight * (1.0 - share));
                if both {
                    corners[count + corner] = (index * axis.len() + high, weight * share);
                }
            }
            count <<= usize::from(both);
        }
        let sum =
            corners[..count].iter().fold(0.0, |sum, &(index, weight)| sum + weight * self.values[index]);
        (sum, outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plane() -> Lattice<2> {
        let places = [1.0, 2.0, 4.0].into_iter().flat_map(|x| [0.0, 10.0].map(|y| [x, y]));
        let nodes: Vec<_> = places.map(|[x, y]| ([x, y], 3.0 * x - y)).collect();
        Lattice::from_nodes(&nodes).unwrap()
    }

    #[test]
    fn a_plane_is_exact_between_its_nodes_and_has_its_borders_values_outside() {
        assert_eq!(plane().at(&[3.0, 5.0]), (4.0, 0.0));
        assert_eq!(plane().at(&[8.0, -1.0]), (12.0, 5.0));
    }

    /// The sum over all corners, those of no weight too.
    fn sum_of_corners<const N: usize>(lattice: &Lattice<N>, place: &[f64; N]) -> f64 {
        let corners = (0..1_usize << N).map(|choice| {
            let mut corner = (0, 1.0);
            for (i, (axis, &x)) in lattice.axes.iter().zip(place).enumerate() {
                let last = axis.len() - 1;
                let low = axis.iter().rposition(|&a| a <= x).unwrap_or(0).min(last.saturating_sub(1));
                let high = (low + 1).min(last);
                let width = axis[high] - axis[low];
                let share = if width > 0.0 { ((x - axis[low]) / width).clamp(0.0, 1.0) } else { 0.0 };
                let (at, weight) = if choice >> i & 1 == 1 { (high, share) } else { (low, 1.0 - share) };
                corner = (corner.0 * axis.len() + at, corner.1 * weight);
            }
            corner
        });
        corners.fold(0.0, |sum, (index, weight)| sum + weight * lattice.values[index])
    }

    proptest! {
        #[test]
        fn corners_of_no_weight_change_no_bit(
            values in prop::collection::vec(-2.0..2.0f64, 24),
            place in prop::array::uniform4(prop_oneof![-1.0..4.0f64, (-1i32..4).prop_map(f64::from)]),
        ) {
            let axes: [&[f64]; 4] = [&[0.0, 1.0, 2.0], &[0.0, 2.0], &[1.0], &[0.0, 0.5, 1.0, 3.0]];
            let mut nodes = Vec::new();
            for &a in axes[0] {
                for &b in axes[1] {
                    for &c in axes[2] {
                        nodes.extend(axes[3].iter().map(|&d| [a, b, c, d]));
                    }
                }
            }
            let nodes: Vec<_> = nodes.into_iter().zip(values).collect();
            let lattice = Lattice::from_nodes(&nodes).unwrap();
            prop_assert_eq!(lattice.at(&place).0.to_bits(), sum_of_corners(&lattice, &place).to_bits());
        }
    }

    #[test]
    fn a_lattice_with_a_hole_is_none() {
        let node = |x, y| ([x, y], 1.0);
        assert_eq!(Lattice::from_nodes(&[node(0.0, 0.0), node(1.0, 0.0), node(0.0, 1.0)]), None);
        assert_eq!(Lattice::from_nodes(&[node(0.0, 0.0), node(0.0, 0.0)]), None);
        assert_eq!(Lattice::<2>::from_nodes(&[]), None);
    }
}
