//! One forward pass: the sequences that it computes, and how many tokens of each.

use kernels::KvSpan;
use planner::{Action, MicroBatch, Task};
use scenarios::{Phase, Step};

/// A sequence in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledSequence {
    /// Its slot of the KV cache; there are as many slots as the extent has sequences.
    pub slot: usize,
    /// Tokens that are in the cache already.
    pub past: usize,
    /// Tokens that enter.
    pub new: usize,
    /// Of how many of its last tokens the logits are wanted: none within a prompt, one in decode,
    /// all where proposed tokens are verified.
    pub logits: usize,
}

/// What one run of a program computes. Each sequence has its own past and its own number of new
/// tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    pub phase: Phase,
    /// By micro-batch.
    pub parts: Vec<MicroBatchPass>,
}

/// The part of a pass that one micro-batch computes. Its sequences are counted from its first slot;
/// their rows follow one another in that order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MicroBatchPass {
    /// Its first slot.
    pub first: usize,
    pub spans: Vec<KvSpan>,
    /// Position of each row.
    pub positions: Vec<usize>,
    /// The rows whose logits are wanted, ascending: the last rows of sampled sequences.
    pub ends: Vec<usize>,
}

impl Pass {
    /// The pass of `sequences`, with `batch` slots divided among `micro_batches`.
    pub fn new(phase: Phase, sequences: &[ScheduledSequence], batch: u64, micro_batches: u64) -> Self {
        let part = |part: MicroBatch| {
            let slots = part.sequences(batch);
            let (first, end) = (slots.start as usize, slots.end as usize);
            let mut part = MicroBatchPass { first, ..MicroBatchPass::default() };
            sequences.iter().filter(|it| (first..end).contains(&it.slot)).for_each(|it| part.add(it));
            part
        };
        Self { phase, parts: MicroBatch::all(micro_batches).map(part).collect() }
    }

    /// The pass of a step: equal sequences, all with logits, spread over the micro-batches.
    pub fn uniform(step: &Step, batch: u64, micro_batches: u64) -> Self {
        let (past, new) = (step.past_tokens as usize, step.new_tokens as usize);
        let sequence = |slot| ScheduledSequence { slot, past, new, logits: 1 };
        let sequences: Vec<_> = slots_of(step.batch, batch, micro_batches).map(sequence).collect();
        Self::new(step.phase, &sequences, batch, micro_batches)
    }

    /// Whether nothing in this pass needs `task`. Weights that are fetched for one micro-batch
    /// serve those that follow.
    pub fn is_idle(&self, task: &Task) -> bool {
        let serves_later = matches!(task.action, Action::FetchWeights { .. });
        let mut users = self.parts[task.micro_batch.index as usize..].iter();
        if serves_later {
            users.all(|part| part.spans.is_empty())
        } else {
            users.next().is_none_or(|part| part.spans.is_empty())
        }
    }

    /// The slots whose logits are wanted, in the order of the logits' rows, each with its number of
    /// tokens up to that row.
    pub fn sampled(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.parts.iter().flat_map(MicroBatchPass::sampled)
    }
}

/// The slots of `sequences` sequences among `batch` slots. Each micro-batch gets as many sequences
/// as in a batch of exactly that size.
pub(crate) fn slots_of(sequences: u64, batch: u64, micro_batches: u64) -> impl Iterator<Item = usize> {
    MicroBatch::all(micro_batches).flat_map(move |part| {
        let (ours, first) = (part.sequences(sequences), part.sequences(batch).start);
        (0..ours.end - ours.start).map(move |sequence| (first + sequence) as usize)
    })
}

impl MicroBatchPass {
    fn add(&mut self, sequence: &ScheduledSequence) {
        let &ScheduledSequence { slot, past, new, logits } = sequence;
        self.spans.push(KvSpan { sequence: slot - self.first, past, new });
        self.positions.extend(past..past + new);
        let rows = self.positions.len();
        self.ends.extend(rows - logits.min(new)..rows);
    }

    /// As [`Pass::sampled`], of this micro-batch.
    pub fn sampled(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut rest = &self.ends[..];
        let mut rows = 0;
        self.spans.iter().flat_map(move |span| {
            let first = rows;
            rows += span.new;
            let (ours, later) = rest.split_at(rest.partition_point(|&end| end < rows));
            rest = later;
            ours.iter().map(move |&end| (self.first + span.sequence, span.past + end - first + 1))
        })
    }

    /// Rows of every activation inside the layers.
    pub fn rows(&self) -> usize {
        self.positions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sequence_is_in_one_part_and_its_rows_and_logits_are_where_its_slot_says(
            lengths in prop::collection::vec((0usize..50, 0usize..7, 0usize..4), 1..12), micro_batches in 1u64..5,
        ) {
            let batch = lengths.len() as u64;
            let micro_batches = micro_batches.min(batch);
            let sequences: Vec<_> = lengths
                .iter()
                .enumerate()
                .filter(|(_, (_, new, _))| *new > 0)
                .map(|(slot, &(past, new, logits))| ScheduledSequence { slot, past, new, logits: logits.min(new) })
                .collect();
            let pass = Pass::new(Phase::Prefill, &sequences, batch, micro_batches);
            let mut found = vec![];
            for part in &pass.parts {
                let mut rows = 0;
                for span in &part.spans {
                    prop_assert!(part.positions[rows..rows + span.new].iter().copied().eq(span.past..span.past + span.new));
                    rows += span.new;
                    let logits = part.ends.iter().filter(|&&end| (rows - span.new..rows).contains(&end)).count();
                    found.push(ScheduledSequence { slot: part.first + span.sequence, past: span.past, new: span.new, logits });
                }
                prop_assert_eq!(rows, part.rows());
            }
            prop_assert_eq!(&found, &sequences);
            let reached = |it: &ScheduledSequence| {
                let (slot, end) = (it.slot, it.past + it.new);
                (end + 1 - it.logits..=end).map(move |reached| (slot, reached))
            };
            let wanted: Vec<_> = sequences.iter().flat_map(reached).collect();
            prop_assert_eq!(pass.sampled().collect::<Vec<_>>(), wanted);
        }

        #[test]
        fn a_batch_that_is_not_full_is_spread_over_the_micro_batches_as_evenly_as_a_full_one(
            batch in 1u64..20, sequences in 0u64..20, micro_batches in 1u64..6,
        ) {
            let sequences = sequences.min(batch);
            let pass = Pass::uniform(&Step::decode(sequences, 3), batch, micro_batches);
            let sizes: Vec<_> = pass.parts.iter().map(|part| part.spans.len() as u64).collect();
            let even = MicroBatch::all(micro_batches).map(|part| part.step(&Step::decode(sequences, 3)).batch);
            prop_assert_eq!(sizes, even.collect::<Vec<_>>());
        }
    }
}
