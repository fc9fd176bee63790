//! Which points of a grid are run.

use anyhow::anyhow;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

/// Every `of`-th point, from `index` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: u64,
    /// At least 1.
    pub of: u64,
}

impl std::str::FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(anyhow!("'{text}' is no shard: i/n is wanted, i from 0 to n − 1, like 0/4")),
        }
    }
}

/// Of more points than this, so many, drawn with a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// At least 1.
    pub points: u64,
    /// Of the draw.
    pub seed: u64,
}

/// Points by their position among those that are run here, ascending.
#[derive(Debug, PartialEq, Eq)]
pub enum Points {
    /// Every one of a shard, of so many in all.
    Part(Shard, u64),
    /// These.
    Drawn(Vec<u64>),
}

impl Points {
    /// Those of `shard` of so many points; where there are more than the budget has, so many of all, each as likely as any other.
    pub fn of(count: u64, shard: Shard, budget: Option<Budget>) -> Self {
        match budget {
            Some(budget) if budget.points < count => Self::Drawn(drawn(count, budget)),
            _ => Self::Part(shard, count),
        }
    }

    /// How many they are.
    pub fn count(&self) -> u64 {
        match self {
            Self::Part(shard, count) => count.saturating_sub(shard.index).div_ceil(shard.of),
            Self::Drawn(points) => points.len() as u64,
        }
    }

    /// The point at a position below [`Self::count`].
    pub fn index(&self, position: u64) -> u64 {
        match self {
            Self::Part(shard, _) => shard.index + position * shard.of,
            Self::Drawn(points) => points[position as usize],
        }
    }
}

/// Floyd's algorithm: each set of so many numbers below `count` is as likely as any other, and nothing as long as `count` is held.
fn drawn(count: u64, Budget { points, seed }: Budget) -> Vec<u64> {
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

    const WHOLE: Shard = Shard { index: 0, of: 1 };

    fn budget(points: u64, seed: u64) -> Option<Budget> {
        Some(Budget { points, seed })
    }

    #[test]
    fn a_budget_is_spent_on_points_that_differ_and_a_seed_draws_the_same_ones() {
        for (count, points) in [(10, 9), (1000, 40), (1_000_000_000_000_000_000, 500)] {
            let Points::Drawn(drawn) = Points::of(count, WHOLE, budget(points, 7)) else {
                panic!("{count} are more than {points}")
            };
            assert_eq!(drawn.len() as u64, points);
            assert!(drawn.is_sorted_by(|a, b| a < b) && drawn.last() < Some(&count), "{drawn:?}");
            assert_eq!(Points::of(count, WHOLE, budget(points, 7)), Points::Drawn(drawn.clone()));
            assert_ne!(Points::of(count, WHOLE, budget(points, 8)), Points::Drawn(drawn));
        }
        assert_eq!(Points::of(10, WHOLE, budget(10, 7)), Points::Part(WHOLE, 10), "all are within it");
    }

    #[test]
    fn every_point_is_as_likely_to_be_drawn() {
        let mut times = [0; 20];
        for seed in 0..2000 {
            let points = Points::of(20, WHOLE, budget(5, seed));
            (0..points.count()).for_each(|position| times[points.index(position) as usize] += 1);
        }
        // 500 each in the mean; five standard deviations are 97.
        assert!(times.iter().all(|times| (403..597).contains(times)), "{times:?}");
    }

    #[test]
    fn shards_have_every_point_once() {
        let all = (0..4).flat_map(|index| {
            let points = Points::of(10, Shard { index, of: 4 }, None);
            (0..points.count()).map(move |position| points.index(position)).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }
}
