//! The times of attention that were asked for before.
//!
//! An engine asks for prompts of every length, and for decodes of every mean context. Nearly all of
//! these steps were asked for before, and their times should stay in a processor's cache. So steps
//! that differ in this one number are kept side by side, with eight bytes for each.

use crate::serving::prices::task_prices::AttentionTime;
use hwprofiles::{MissingRate, Seconds};
use rustc_hash::FxHashMap;
use scenarios::{Phase, Step};

/// Steps that are kept side by side.
const SIDE_BY_SIDE: usize = 64;

/// The number of groups of such steps that are remembered. Then all are forgotten, so that memory
/// does not grow with the number of requests.
const REMEMBERED: usize = 1 << 12;

/// The times of one task of attention, by step.
#[derive(Debug, Default)]
pub(crate) struct AttentionTimes {
    /// By the first step of a group, its index.
    indices: FxHashMap<Step, usize>,
    groups: Vec<NeighbourTimes>,
}

/// The times of steps that are kept side by side.
#[derive(Debug)]
struct NeighbourTimes {
    /// Seconds of each step, where they are known.
    alone: [f64; SIDE_BY_SIDE],
    /// The part in which no bytes move, which nearly always is the same in all of them. A step in
    /// which it differs is not remembered.
    overhead: Seconds,
}

impl AttentionTimes {
    /// The time of attention in `step`, which `compute` gives if it is not remembered.
    ///
    /// # Errors
    /// Those of `compute`.
    pub fn get(
        &mut self,
        step: &Step,
        compute: impl FnOnce() -> Result<AttentionTime, MissingRate>,
    ) -> Result<AttentionTime, MissingRate> {
        let (first, offset) = first_neighbour(step);
        let known = self.indices.get(&first).map(|&index| &mut self.groups[index]);
        if let Some(group) = &known
            && !group.alone[offset].is_nan()
        {
            return Ok(AttentionTime { alone: Seconds::new(group.alone[offset]), overhead: group.overhead });
        }
        let time = compute()?;
        let group = match known {
            Some(group) => group,
            None => self.add(first, time.overhead),
        };
        if group.overhead == time.overhead {
            group.alone[offset] = time.alone.get();
        }
        Ok(time)
    }

    /// Adds the group of the steps from `first` on.
    fn add(&mut self, first: Step, overhead: Seconds) -> &mut NeighbourTimes {
        if self.groups.len() == REMEMBERED {
            self.forget();
        }
        let index = self.groups.len();
        self.indices.insert(first, index);
        self.groups.push(NeighbourTimes { alone: [f64::NAN; SIDE_BY_SIDE], overhead });
        &mut self.groups[index]
    }

    /// Forgets all times.
    pub fn forget(&mut self) {
        self.indices.clear();
        self.groups.clear();
    }
}

/// The first of the steps beside which `step` is kept, and the number of steps between them.
fn first_neighbour(step: &Step) -> (Step, usize) {
    let offset = |tokens: u64| tokens % SIDE_BY_SIDE as u64;
    match step.phase {
        Phase::Prefill => {
            let offset = offset(step.new_tokens);
            (Step { new_tokens: step.new_tokens - offset, ..*step }, offset as usize)
        }
        Phase::Decode => {
            let offset = offset(step.past_tokens);
            (Step { past_tokens: step.past_tokens - offset, ..*step }, offset as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_time_is_the_computed_one_whatever_was_asked_for_before(
            steps in prop::collection::vec((any::<bool>(), 1u64..4, 1u64..150, 0u64..150), 1..300),
        ) {
            let mut times = AttentionTimes::default();
            for (is_prompt, batch, new_tokens, past_tokens) in steps {
                let phase = if is_prompt { Phase::Prefill } else { Phase::Decode };
                let step = Step { phase, batch, new_tokens, past_tokens };
                // The part without bytes differs among neighbours too.
                let [alone, overhead] = [new_tokens * 1000 + past_tokens, past_tokens / 100];
                let [alone, overhead] = [alone, overhead].map(|time| Seconds::new(time as f64));
                let time = times.get(&step, || Ok(AttentionTime { alone, overhead })).unwrap();
                prop_assert_eq!((time.alone, time.overhead), (alone, overhead));
            }
        }
    }
}
