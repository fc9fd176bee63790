//! Points whose times cannot be right beside each other.

/// Noise alone may make a call seem to take this many times as long as one that does more.
const NOISE: f64 = 1.1;

/// The points that took longer than another one that does at least as much with no more threads, as
/// `does_more` says of it and of them. Whatever else ran on the machine made them late, in all of
/// the few samples that a short measurement takes.
pub(crate) fn late_points<P>(
    points: &[P],
    median: impl Fn(&P) -> Option<f64>,
    does_more: impl Fn(&P, &P) -> bool,
) -> Vec<usize> {
    let is_late = |point: &P| {
        let Some(time) = median(point) else { return false };
        let others = points.iter().filter(|other| does_more(other, point)).filter_map(&median);
        others.fold(f64::INFINITY, f64::min) * NOISE < time
    };
    (0..points.len()).filter(|&index| is_late(&points[index])).collect()
}

/// Whether a team of `other` threads does at least as much per thread as one of `members`: it has
/// no more of them, or hardly more.
pub(crate) fn is_no_larger(other: usize, members: usize) -> bool {
    other <= members + members / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_of_hardly_more_threads_is_no_larger() {
        assert!(is_no_larger(16, 15) && is_no_larger(15, 16) && is_no_larger(1, 2));
        assert!(!is_no_larger(2, 1) && !is_no_larger(16, 8));
    }

    /// The late ones of points that do so much work and took so long.
    fn late(points: &[(u64, Option<f64>)]) -> Vec<usize> {
        late_points(points, |point| point.1, |more, less| more.0 >= less.0)
    }

    #[test]
    fn a_point_is_late_where_more_work_took_less_time() {
        assert_eq!(late(&[(1, Some(1.0)), (2, Some(9.0)), (4, Some(1.2)), (8, Some(2.4))]), [1]);
        assert_eq!(late(&[(1, Some(9.0)), (2, Some(9.0)), (4, Some(1.2))]), [0, 1]);
    }

    #[test]
    fn neither_noise_nor_what_was_not_measured_makes_one_late() {
        assert_eq!(late(&[(1, Some(1.05)), (2, Some(1.0)), (4, None)]), [] as [usize; 0]);
        assert_eq!(late(&[(1, None), (2, Some(1.0)), (2, Some(1.09))]), [] as [usize; 0]);
        assert_eq!(late(&[]), [] as [usize; 0]);
    }
}
