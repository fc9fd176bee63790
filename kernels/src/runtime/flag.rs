//! A completion flag: one thread sets it, others wait for it.

use super::futex::{self, Word};
use std::sync::atomic::{AtomicU32, Ordering};

/// A completion flag between threads: clear until a thread sets it.
///
/// Waiting spins for about 500 µs and then sleeps. What a thread writes before [`Flag::set`] is
/// visible to every thread that returned from [`Flag::wait`] or saw [`Flag::is_set`].
#[derive(Debug, Default)]
pub struct Flag<W: Word = AtomicU32> {
    state: W,
    sleepers: W,
}

const CLEAR: u32 = 0;
const SET: u32 = 1;

impl Flag {
    /// A clear flag.
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(CLEAR), sleepers: AtomicU32::new(0) }
    }
}

impl<W: Word> Flag<W> {
    /// Sets the flag and wakes all waiting threads. Setting it again changes nothing.
    pub fn set(&self) {
        futex::change(&self.state, SET, &self.sleepers);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) == SET
    }

    /// Returns when the flag is set.
    pub fn wait(&self) {
        futex::wait_while(&self.state, CLEAR, &self.sleepers);
    }

    /// As [`Flag::wait`], but sleeps at once: for a thread that shares its core with a computing
    /// one.
    pub fn wait_asleep(&self) {
        if !self.is_set() {
            futex::sleep_while(&self.state, CLEAR, &self.sleepers);
        }
    }

    /// Clears the flag for its next use. No thread may be waiting for it then.
    pub fn clear(&self) {
        self.state.store(CLEAR, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_written_before_set_is_seen_after_wait() {
        static VALUE: AtomicU32 = AtomicU32::new(0);
        // Without a delay the waiter spins, with one it sleeps.
        for delay in [Duration::ZERO, 5 * futex::SPIN, 50 * futex::SPIN] {
            VALUE.store(0, Ordering::Relaxed);
            let flag = Flag::new();
            std::thread::scope(|scope| {
                for patient in [false, true, false] {
                    let flag = &flag;
                    scope.spawn(move || {
                        if patient {
                            flag.wait_asleep()
                        } else {
                            flag.wait()
                        }
                        assert_eq!(VALUE.load(Ordering::Relaxed), 42);
                        assert!(flag.is_set());
                    });
                }
                std::thread::sleep(delay);
                assert!(!flag.is_set());
                VALUE.store(42, Ordering::Relaxed);
                flag.set();
                flag.set();
            });
        }
    }

    #[test]
    fn a_pair_of_flags_hands_a_turn_back_and_forth() {
        let (ping, pong) = (Flag::new(), Flag::new());
        let (turns, most) = (AtomicU32::new(0), if cfg!(miri) { 4 } else { 200 });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..most {
                    ping.wait();
                    ping.clear();
                    assert_eq!(turns.fetch_add(1, Ordering::Relaxed), 2 * turn);
                    pong.set();
                }
            });
            for turn in 0..most {
                ping.set();
                pong.wait();
                pong.clear();
                assert_eq!(turns.fetch_add(1, Ordering::Relaxed), 2 * turn + 1);
            }
        });
        assert_eq!(turns.into_inner(), 2 * most);
    }
}
