//! Who waits, in the order of the engine's policy.

use super::engine::Policy;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Places of sequences that wait.
#[derive(Debug, Clone)]
pub(super) enum Waiting {
    /// In the order of their coming; who was sent back comes first.
    Fcfs(VecDeque<u32>),
    /// By tokens of the prompt, then alike. `came` counts those that came up, `back` those that were sent back down.
    Shortest { heap: BinaryHeap<Reverse<(u64, i64, u32)>>, came: i64, back: i64 },
}

impl Waiting {
    pub fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fcfs => Self::Fcfs(VecDeque::new()),
            Policy::ShortestFirst => Self::Shortest { heap: BinaryHeap::new(), came: 0, back: 0 },
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Shortest { heap, .. } => heap.len(),
        }
    }

    pub fn push(&mut self, place: u32, prompt_tokens: u64) {
        match self {
            Self::Fcfs(queue) => queue.push_back(place),
            Self::Shortest { heap, came, .. } => {
                heap.push(Reverse((prompt_tokens, *came, place)));
                *came += 1;
            }
        }
    }

    /// Who ran already.
    pub fn push_back_to_front(&mut self, place: u32, prompt_tokens: u64) {
        match self {
            Self::Fcfs(queue) => queue.push_front(place),
            Self::Shortest { heap, back, .. } => {
                *back -= 1;
                heap.push(Reverse((prompt_tokens, *back, place)));
            }
        }
    }

    pub fn first(&self) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Shortest { heap, .. } => heap.peek().map(|Reverse((_, _, place))| *place),
        }
    }

    pub fn pop(&mut self) {
        match self {
            Self::Fcfs(queue) => drop(queue.pop_front()),
            Self::Shortest { heap, .. } => drop(heap.pop()),
        }
    }
}
