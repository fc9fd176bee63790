//! Who waits, in the order of the engine's policy.

use super::engine::Policy;
use super::picos::Picos;
use super::sequence::Sequence;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Places of sequences that wait.
#[derive(Debug, Clone)]
pub(super) enum Waiting {
    /// In the order of their coming; who was sent back comes first.
    Fcfs(VecDeque<u32>),
    /// By tokens of the prompt, then alike. `came` counts those that came up, `back` those that were sent back down.
    Shortest { heap: BinaryHeap<Reverse<(u64, i64, u32)>>, came: i64, back: i64 },
    /// By the time that each has left.
    Slack(Slack),
}

/// See `replica/slack.rs`.
#[derive(Debug, Clone)]
pub(super) struct Slack {
    /// The limit on the time to the first token.
    ttft: Picos,
    /// Who came, and was not yet told by when it must begin.
    fresh: Vec<u32>,
    /// Who had its first token in time and was sent back: the last one comes first of all.
    back: Vec<u32>,
    /// The others, by when they must begin; equals in the order of their coming.
    others: VecDeque<(Picos, u32)>,
}

impl Waiting {
    pub fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fcfs => Self::Fcfs(VecDeque::new()),
            Policy::ShortestFirst => Self::Shortest { heap: BinaryHeap::new(), came: 0, back: 0 },
            Policy::Slo { ttft, .. } => {
                let (fresh, back, others) = Default::default();
                Self::Slack(Slack { ttft, fresh, back, others })
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Shortest { heap, .. } => heap.len(),
            Self::Slack(Slack { fresh, back, others, .. }) => fresh.len() + back.len() + others.len(),
        }
    }

    pub fn push(&mut self, place: u32, sequence: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.push_back(place),
            Self::Shortest { heap, came, .. } => {
                heap.push(Reverse((sequence.request.prompt_tokens, *came, place)));
                *came += 1;
            }
            Self::Slack(slack) => slack.fresh.push(place),
        }
    }

    /// Who ran already.
    pub fn push_back_to_front(&mut self, place: u32, sequence: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.push_front(place),
            Self::Shortest { heap, back, .. } => {
                *back -= 1;
                heap.push(Reverse((sequence.request.prompt_tokens, *back, place)));
            }
            Self::Slack(slack) if sequence.had_first_within(slack.ttft) => slack.back.push(place),
            Self::Slack(slack) => slack.insert(place, sequence.latest),
        }
    }

    /// The first, where a step that it can enter would end at `end` without it.
    pub fn first(&self, end: Picos) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Shortest { heap, .. } => heap.peek().map(|Reverse((_, _, place))| *place),
            Self::Slack(slack) => match slack.back.last() {
                Some(&place) => Some(place),
                None => slack.others.get(slack.turn(end)).map(|&(_, place)| place),
            },
        }
    }

    /// Takes the first out.
    pub fn pop(&mut self, end: Picos) {
        match self {
            Self::Fcfs(queue) => drop(queue.pop_front()),
            Self::Shortest { heap, .. } => drop(heap.pop()),
            Self::Slack(slack) => {
                if slack.back.pop().is_none() {
                    slack.others.remove(slack.turn(end));
                }
            }
        }
    }

    /// Whether somebody can still be in time after a step that ends at `end`.
    pub fn anyone_in_time(&self, end: Picos) -> bool {
        matches!(self, Self::Slack(slack) if slack.others.back().is_some_and(|last| last.0 >= end))
    }

    /// The queue by slack, where the policy is that.
    pub fn slack(&mut self) -> Option<&mut Slack> {
        match self {
            Self::Slack(slack) => Some(slack),
            Self::Fcfs(_) | Self::Shortest { .. } => None,
        }
    }
}

impl Slack {
    /// Asks `latest` of each of them, in the order of their coming.
    ///
    /// # Errors
    /// What `latest` could not say.
    pub fn ask<E>(&mut self, mut latest: impl FnMut(u32) -> Result<Picos, E>) -> Result<(), E> {
        let mut fresh = std::mem::take(&mut self.fresh);
        for place in fresh.drain(..) {
            let latest = latest(place)?;
            self.insert(place, latest);
        }
        self.fresh = fresh;
        Ok(())
    }

    fn insert(&mut self, place: u32, latest: Picos) {
        let index = self.others.partition_point(|other| other.0 <= latest);
        self.others.insert(index, (latest, place));
    }

    /// Of those that can still be in time, who has the least left; where there is nobody, who is late longest.
    fn turn(&self, end: Picos) -> usize {
        let late = self.others.partition_point(|other| other.0 < end);
        if late == self.others.len() { 0 } else { late }
    }
}
