//! The sequences that wait, in the order of the engine's policy.

use crate::clock::SimTime;
use crate::serving::engine::settings::AdmissionPolicy;
use crate::serving::schedule::sequence::Sequence;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Places of waiting sequences.
#[derive(Debug, Clone)]
pub(crate) enum WaitingQueue {
    /// In the order of arrival. Preempted sequences come first.
    Fcfs(VecDeque<u32>),
    /// By tokens of the prompt, then as above. `arrived` counts up for arrivals, `preempted` counts
    /// down.
    Shortest { heap: BinaryHeap<Reverse<(u64, i64, u32)>>, arrived: i64, preempted: i64 },
    /// By the time that each sequence has left.
    Slack(SlackQueue),
}

/// The queue of the SLO policy: see `replica/slo.rs`.
#[derive(Debug, Clone)]
pub(crate) struct SlackQueue {
    /// The limit on the time to the first token.
    ttft: SimTime,
    /// New arrivals, whose latest begin is not known yet.
    fresh: Vec<u32>,
    /// Preempted sequences that had their first token in time. The last one comes before all
    /// others.
    preempted: Vec<u32>,
    /// The others by their latest begin. Equals are in the order of arrival.
    others: VecDeque<(SimTime, u32)>,
}

impl WaitingQueue {
    pub fn new(policy: AdmissionPolicy) -> Self {
        match policy {
            AdmissionPolicy::Fcfs => Self::Fcfs(VecDeque::new()),
            AdmissionPolicy::ShortestFirst => {
                Self::Shortest { heap: BinaryHeap::new(), arrived: 0, preempted: 0 }
            }
            AdmissionPolicy::Slo { ttft, .. } => {
                let (fresh, preempted, others) = Default::default();
                Self::Slack(SlackQueue { ttft, fresh, preempted, others })
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Shortest { heap, .. } => heap.len(),
            Self::Slack(SlackQueue { fresh, preempted, others, .. }) => {
                fresh.len() + preempted.len() + others.len()
            }
        }
    }

    /// Adds a new arrival.
    pub fn push(&mut self, place: u32, sequence: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.push_back(place),
            Self::Shortest { heap, arrived, .. } => {
                heap.push(Reverse((sequence.request.prompt_tokens, *arrived, place)));
                *arrived += 1;
            }
            Self::Slack(slack) => slack.fresh.push(place),
        }
    }

    /// Adds a sequence that was preempted.
    pub fn push_preempted(&mut self, place: u32, sequence: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.push_front(place),
            Self::Shortest { heap, preempted, .. } => {
                *preempted -= 1;
                heap.push(Reverse((sequence.request.prompt_tokens, *preempted, place)));
            }
            Self::Slack(slack) if sequence.had_first_within(slack.ttft) => slack.preempted.push(place),
            Self::Slack(slack) => slack.insert(place, sequence.latest),
        }
    }

    /// The first sequence, for a step that would end at `end` without it.
    pub fn first(&self, end: SimTime) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Shortest { heap, .. } => heap.peek().map(|Reverse((_, _, place))| *place),
            Self::Slack(slack) => match slack.preempted.last() {
                Some(&place) => Some(place),
                None => slack.others.get(slack.first_index(end)).map(|&(_, place)| place),
            },
        }
    }

    /// Removes the first sequence.
    pub fn pop(&mut self, end: SimTime) {
        match self {
            Self::Fcfs(queue) => drop(queue.pop_front()),
            Self::Shortest { heap, .. } => drop(heap.pop()),
            Self::Slack(slack) => {
                if slack.preempted.pop().is_none() {
                    slack.others.remove(slack.first_index(end));
                }
            }
        }
    }

    /// Whether a waiting sequence can still be in time after a step that ends at `end`.
    pub fn anyone_in_time(&self, end: SimTime) -> bool {
        matches!(self, Self::Slack(slack) if slack.others.back().is_some_and(|last| last.0 >= end))
    }

    /// The queue of the SLO policy, if the engine has that policy.
    pub fn slack(&mut self) -> Option<&mut SlackQueue> {
        match self {
            Self::Slack(slack) => Some(slack),
            Self::Fcfs(_) | Self::Shortest { .. } => None,
        }
    }
}

impl SlackQueue {
    /// Sorts the new arrivals in. `latest_begin` is called for each of them, in the order of
    /// arrival.
    ///
    /// # Errors
    /// Those of `latest_begin`.
    pub fn sort_arrivals<E>(
        &mut self,
        mut latest_begin: impl FnMut(u32) -> Result<SimTime, E>,
    ) -> Result<(), E> {
        let mut fresh = std::mem::take(&mut self.fresh);
        for place in fresh.drain(..) {
            let latest = latest_begin(place)?;
            self.insert(place, latest);
        }
        self.fresh = fresh;
        Ok(())
    }

    fn insert(&mut self, place: u32, latest: SimTime) {
        let index = self.others.partition_point(|other| other.0 <= latest);
        self.others.insert(index, (latest, place));
    }

    /// The sequence with the least time left among those that can still be in time. If there is
    /// none, the one that has been late for the longest time.
    fn first_index(&self, end: SimTime) -> usize {
        let late = self.others.partition_point(|other| other.0 < end);
        if late == self.others.len() { 0 } else { late }
    }
}
