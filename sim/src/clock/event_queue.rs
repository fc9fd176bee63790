//! The event core: what happens next.
//!
//! Events are totally ordered by (time, priority, sequence). The queue holds plain values and hands
//! out one at a time; its owner matches on the value and schedules more. So no event ever runs
//! inside another, and nothing is boxed: a heap of values is about a third faster than one of
//! closures.

use crate::clock::SimTime;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events still to come.
///
/// Of two events at one time the smaller priority comes first. Of two events with one priority the
/// one that was scheduled first comes first. So an event scheduled for the present moment comes
/// after all events that are already due with its priority.
#[derive(Debug, Clone)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
    now: SimTime,
}

#[derive(Debug, Clone)]
struct Entry<E> {
    time: SimTime,
    priority: usize,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (SimTime, usize, u64) {
        (self.time, self.priority, self.sequence)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0, now: SimTime::ZERO }
    }
}

impl<E> EventQueue<E> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time of the event that was handed out last.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// Adds an event at `time`. Of the events at one time the smallest `priority` comes first.
    ///
    /// # Panics
    /// If `time` has passed: a cause cannot have an earlier effect.
    pub fn schedule(&mut self, time: SimTime, priority: usize, event: E) {
        assert!(time >= self.now, "an event at {time} was scheduled at {}", self.now);
        let sequence = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Reverse(Entry { time, priority, sequence, event }));
    }

    /// Takes the next event and moves the clock to its time.
    pub fn pop(&mut self) -> Option<(SimTime, E)> {
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.time;
        Some((entry.time, entry.event))
    }

    /// The time of the next event.
    pub fn next_time(&self) -> Option<SimTime> {
        self.heap.peek().map(|Reverse(entry)| entry.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain<E>(queue: &mut EventQueue<E>) -> Vec<(u64, E)> {
        std::iter::from_fn(|| queue.pop()).map(|(time, event)| (time.nanos(), event)).collect()
    }

    proptest! {
        #[test]
        fn events_come_by_time_then_priority_then_fifo(events in prop::collection::vec((0u64..8, 0usize..3), 0..60)) {
            let mut queue = EventQueue::new();
            for (index, &(time, priority)) in events.iter().enumerate() {
                queue.schedule(SimTime::from_nanos(time), priority, (priority, index));
            }
            let mut expected: Vec<_> =
                events.iter().enumerate().map(|(index, &(time, priority))| (time, (priority, index))).collect();
            expected.sort_by_key(|&(time, (priority, _))| (time, priority)); // stable: FIFO
            prop_assert_eq!(drain(&mut queue), expected);
        }

        #[test]
        fn every_event_comes_out_once_and_in_order(
            first in prop::collection::vec(0u64..50, 1..20),
            delays in prop::collection::vec(0u64..10, 0..40),
        ) {
            let mut queue = EventQueue::new();
            for (index, &time) in first.iter().enumerate() {
                queue.schedule(SimTime::from_nanos(time), 0, index);
            }
            let (mut delays, mut issued, mut popped) = (delays.iter(), first.len(), Vec::new());
            while let Some((time, event)) = queue.pop() {
                popped.push((time, event));
                if let Some(&delay) = delays.next() {
                    queue.schedule(time + SimTime::from_nanos(delay), 0, issued);
                    issued += 1;
                }
            }
            prop_assert!(popped.is_sorted_by_key(|&(time, _)| time));
            let mut events: Vec<_> = popped.iter().map(|&(_, event)| event).collect();
            events.sort_unstable();
            prop_assert_eq!(events, (0..issued).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_zero_delay_event_comes_after_those_already_due() {
        let mut queue = EventQueue::new();
        let soon = SimTime::from_nanos(5);
        queue.schedule(soon, 0, "first");
        queue.schedule(soon, 0, "second");
        queue.schedule(soon, 9, "last");
        assert_eq!(queue.pop(), Some((soon, "first")));
        queue.schedule(queue.now(), 0, "zero delay");
        assert_eq!(drain(&mut queue), [(5, "second"), (5, "zero delay"), (5, "last")]);
    }

    #[test]
    #[should_panic(expected = "was scheduled at")]
    fn an_event_in_the_past_is_refused() {
        let mut queue = EventQueue::new();
        queue.schedule(SimTime::from_nanos(7), 0, ());
        queue.pop();
        queue.schedule(SimTime::from_nanos(6), 0, ());
    }
}
