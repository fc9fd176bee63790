//! Which points of a grid are run.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

/// Every n-th point of a sweep, beginning with the i-th: written `i/n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepShard {
    /// The first point, from 0.
    pub index: u64,
    /// How many shards there are, at least 1.
    pub of: u64,
}

impl SweepShard {
    /// The only shard of an undivided sweep.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Whether there are other shards.
    pub fn is_part(self) -> bool {
        self.of > 1
    }
}

impl std::str::FromStr for SweepShard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(format!("'{text}' is no shard: i/n is wanted, i from 0 to n − 1, like 0/4")),
        }
    }
}

/// How many points are drawn where there are more, and the seed of the draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointBudget {
    /// Points to draw, at least 1.
    pub points: u64,
    /// The seed of the draw.
    pub seed: u64,
}

/// The points that are run, by position, ascending.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SweepPoints {
    /// The points of a shard, of this many points in all.
    Shard(SweepShard, u64),
    /// Points that were drawn.
    Drawn(Vec<u64>),
}

impl SweepPoints {
    /// The points of `shard` of `count` points. Where there are more than the budget has, points of
    /// all that are drawn, each as likely as any other.
    pub(crate) fn new(count: u64, shard: SweepShard, budget: Option<PointBudget>) -> Self {
        match budget {
            Some(budget) if budget.points < count => Self::Drawn(drawn(count, budget)),
            _ => Self::Shard(shard, count),
        }
    }

    /// How many points there are.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Shard(shard, count) => count.saturating_sub(shard.index).div_ceil(shard.of),
            Self::Drawn(points) => points.len() as u64,
        }
    }

    /// The point at a position below [`Self::count`].
    pub(crate) fn index(&self, position: u64) -> u64 {
        match self {
            Self::Shard(shard, _) => shard.index + position * shard.of,
            Self::Drawn(points) => points[position as usize],
        }
    }
}

/// Floyd's algorithm: each set of so many numbers below `count` is as likely as any other, and no
/// list of `count` numbers is held.
fn drawn(count: u64, PointBudget { points, seed }: PointBudget) -> Vec<u64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut chosen = BTreeSet::new();
    for last in count - points..count {
        let point = random.random_range(0..=last);
        if !chosen.insert(point) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(points: u64, seed: u64) -> Option<PointBudget> {
        Some(PointBudget { points, seed })
    }

    #[test]
    fn a_budget_is_spent_on_points_that_differ_and_a_seed_draws_the_same_ones() {
        for (count, points) in [(10, 9), (1000, 40), (1_000_000_000_000_000_000, 500)] {
            let SweepPoints::Drawn(drawn) = SweepPoints::new(count, SweepShard::WHOLE, budget(points, 7))
            else {
                panic!("{count} are more than {points}")
            };
            assert_eq!(drawn.len() as u64, points);
            assert!(drawn.is_sorted_by(|a, b| a < b) && drawn.last() < Some(&count), "{drawn:?}");
            assert_eq!(
                SweepPoints::new(count, SweepShard::WHOLE, budget(points, 7)),
                SweepPoints::Drawn(drawn.clone())
            );
            assert_ne!(
                SweepPoints::new(count, SweepShard::WHOLE, budget(points, 8)),
                SweepPoints::Drawn(drawn)
            );
        }
        assert_eq!(
            SweepPoints::new(10, SweepShard::WHOLE, budget(10, 7)),
            SweepPoints::Shard(SweepShard::WHOLE, 10),
            "all are within it"
        );
    }

    #[test]
    fn every_point_is_as_likely_to_be_drawn() {
        let mut times = [0; 20];
        for seed in 0..2000 {
            let points = SweepPoints::new(20, SweepShard::WHOLE, budget(5, seed));
            (0..points.count()).for_each(|position| times[points.index(position) as usize] += 1);
        }
        // Each is drawn 500 times on average; five standard deviations are 97.
        assert!(times.iter().all(|times| (403..597).contains(times)), "{times:?}");
    }

    #[test]
    fn shards_have_every_point_once() {
        let all = (0..4).flat_map(|index| {
            let points = SweepPoints::new(10, SweepShard { index, of: 4 }, None);
            (0..points.count()).map(move |position| points.index(position)).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }
}
