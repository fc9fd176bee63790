//! A part of a step's batch.

use scenarios::Step;
use std::ops::Range;

/// One of several parts of a batch. Each has contiguous sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroBatch {
    /// Index of the part, from 0.
    pub index: u64,
    /// Number of parts.
    pub of: u64,
}

impl MicroBatch {
    /// The whole batch.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// All parts of a batch in `of` parts, in order.
    pub fn all(of: u64) -> impl Iterator<Item = Self> {
        (0..of).map(move |index| Self { index, of })
    }

    /// The sequences of this part in a batch. All parts have the same number of sequences, the
    /// first ones one more if the batch cannot be divided evenly. The last parts are empty if the
    /// batch has fewer sequences than parts.
    pub fn sequences(self, batch: u64) -> Range<u64> {
        let start = |index: u64| index * (batch / self.of) + index.min(batch % self.of);
        start(self.index)..start(self.index + 1)
    }

    /// The step of this part of the batch.
    pub fn step(self, step: &Step) -> Step {
        let sequences = self.sequences(step.batch);
        Step { batch: sequences.end - sequences.start, ..*step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_follow_each_other_cover_the_batch_and_differ_by_one_at_most(batch in 0u64..99, of in 1u64..20) {
            let mut end = 0;
            let mut sizes = vec![];
            for part in MicroBatch::all(of) {
                let sequences = part.sequences(batch);
                prop_assert_eq!(sequences.start, end);
                end = sequences.end;
                sizes.push(part.step(&Step::decode(batch, 7)).batch);
                // Memory that holds a part also holds a part of fewer sequences.
                prop_assert!(part.step(&Step::decode(batch + 1, 7)).batch >= *sizes.last().unwrap());
            }
            prop_assert_eq!(end, batch);
            prop_assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[sizes.len() - 1] <= 1);
        }
    }

    #[test]
    fn five_sequences_in_two_parts_are_three_and_two() {
        assert_eq!(MicroBatch::all(2).map(|part| part.sequences(5)).collect::<Vec<_>>(), [0..3, 3..5]);
        assert_eq!(MicroBatch::WHOLE.sequences(5), 0..5);
    }
}
