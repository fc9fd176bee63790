//! Sleeping on a 32-bit word until it changes.

use std::fmt::Debug;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread spins before it sleeps.
///
/// A wake-up through the kernel costs the waker 10 to 25 µs on a virtual machine, and the sleeper
/// as much again. Most waits inside a decode layer are shorter than `SPIN`, so they cost a fraction
/// of a microsecond. Beside a longer wait a wake-up is small. Much longer spinning would starve
/// other threads on the core, such as a link's copies. Yielding meanwhile is worse: where another
/// program wants the core, it keeps it for a time slice of 4 ms.
pub(crate) const SPIN: Duration = Duration::from_micros(500);

/// A 32-bit word that threads change and wait on.
///
/// [`AtomicU32`] is the one that runs. What waits is generic over it, so that tests can bring one
/// whose every access lets a scheduler choose which thread goes on.
pub trait Word: Debug + Default + Send + Sync {
    /// As [`AtomicU32::load`].
    fn load(&self, order: Ordering) -> u32;

    /// As [`AtomicU32::store`].
    fn store(&self, value: u32, order: Ordering);

    /// As [`AtomicU32::swap`].
    fn swap(&self, value: u32, order: Ordering) -> u32;

    /// As [`AtomicU32::fetch_add`].
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;

    /// As [`AtomicU32::fetch_sub`].
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;

    /// Waits awake for a short time while the word holds `value`; returns whether it changed.
    fn spin_while(&self, value: u32) -> bool;

    /// Sleeps while the word holds `value`; may return early, so call it in a loop.
    fn sleep(&self, value: u32);

    /// Wakes every thread that sleeps on the word.
    fn wake_all(&self);
}

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_sub(value, order)
    }

    /// Spins for at most 500 µs.
    fn spin_while(&self, value: u32) -> bool {
        let start = Instant::now();
        loop {
            // Reading the clock costs about as much as these pauses.
            for _ in 0..32 {
                if self.load(Ordering::Acquire) != value {
                    return true;
                }
                spin_loop();
            }
            if start.elapsed() >= SPIN {
                return self.load(Ordering::Acquire) != value;
            }
        }
    }

    fn sleep(&self, value: u32) {
        // SAFETY: the address of a live AtomicU32; FUTEX_WAIT only reads it. No timeout (null).
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }

    fn wake_all(&self) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the address of a live AtomicU32; FUTEX_WAKE does not access it.
        unsafe {
            libc::syscall(libc::SYS_futex, self.as_ptr(), operation, i32::MAX);
        }
    }
}

/// Waits until `word` is not `value` any more: spins first, then sleeps. `sleepers` counts the
/// sleeping threads, so that [`change`] saves the system call when there are none.
pub(crate) fn wait_while<W: Word>(word: &W, value: u32, sleepers: &W) {
    if !word.spin_while(value) {
        sleep_while(word, value, sleepers);
    }
}

/// As [`wait_while`], without spinning first.
pub(crate) fn sleep_while<W: Word>(word: &W, value: u32, sleepers: &W) {
    // Sequentially consistent, as in `change`: either the sleeper sees the new word, or the waker
    // sees the sleeper. FUTEX_WAIT compares once more inside the kernel.
    sleepers.fetch_add(1, Ordering::SeqCst);
    while word.load(Ordering::SeqCst) == value {
        word.sleep(value);
    }
    sleepers.fetch_sub(1, Ordering::SeqCst);
}

/// Sets `word` to `value` and wakes the sleeping threads.
pub(crate) fn change<W: Word>(word: &W, value: u32, sleepers: &W) {
    word.store(value, Ordering::SeqCst);
    if sleepers.load(Ordering::SeqCst) > 0 {
        word.wake_all();
    }
}
