//! Times of products that were asked for before.

use crate::rates::estimate::Estimate;
use rustc_hash::FxHashMap;
use std::sync::Mutex;

/// The number of products that are remembered. Then all are forgotten.
const REMEMBERED: usize = 1 << 12;

/// The times of products, by m, n and k. A planner prices the same product for many placements, and
/// most points of a sweep have products in common: what differs is attention.
#[derive(Debug, Default)]
pub(super) struct KnownTimes(Mutex<FxHashMap<[u64; 3], Estimate>>);

/// What is remembered follows from the rates, so it makes no difference between two of them.
impl PartialEq for KnownTimes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A copy of the rates may be changed, so it has nothing to remember.
impl Clone for KnownTimes {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl KnownTimes {
    /// The time of the product of this `size`, which `compute` gives if it is not remembered. While
    /// another thread looks a time up, it is computed too: that is shorter than to wait.
    pub fn get(&self, size: [u64; 3], compute: impl FnOnce() -> Estimate) -> Estimate {
        if let Ok(known) = self.0.try_lock()
            && let Some(&estimate) = known.get(&size)
        {
            return estimate;
        }
        let estimate = compute();
        if let Ok(mut known) = self.0.try_lock() {
            if known.len() == REMEMBERED {
                known.clear();
            }
            known.insert(size, estimate);
        }
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    #[test]
    fn a_product_is_computed_once_and_again_for_a_copy() {
        let taking = |seconds: f64| Estimate { time: Seconds::new(seconds), ..Estimate::ZERO };
        let known = KnownTimes::default();
        assert_eq!(known.get([1, 2, 3], || taking(1.0)), taking(1.0));
        assert_eq!(known.get([1, 2, 4], || taking(2.0)), taking(2.0));
        assert_eq!(known.get([1, 2, 3], || unreachable!("it is remembered")), taking(1.0));
        assert_eq!(known.clone().get([1, 2, 3], || taking(3.0)), taking(3.0));
    }
}
