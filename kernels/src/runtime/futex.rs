//! Sleeping on a 32-bit word until it changes.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread spins before it sleeps.
///
/// A wake-up through the kernel costs 5–50 µs. Most waits inside a decode layer are shorter than
/// `SPIN`, so they cost a fraction of a microsecond. In a longer wait the wake-up does not matter.
/// Much longer spinning would starve other threads on the core, such as a link's copies.
pub(crate) const SPIN: Duration = Duration::from_micros(200);

/// Spins until `ready` holds or [`SPIN`] has passed; returns whether it holds.
pub(crate) fn spin_until(ready: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        // Reading the clock costs about as much as these pauses.
        for _ in 0..32 {
            if ready() {
                return true;
            }
            spin_loop();
        }
        if start.elapsed() >= SPIN {
            return ready();
        }
    }
}

/// Sleeps while `word` holds `value`; may return early, so call it in a loop.
pub(crate) fn sleep(word: &AtomicU32, value: u32) {
    // SAFETY: the address of a live AtomicU32; FUTEX_WAIT only reads it. No timeout (null).
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes every thread that sleeps on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the address of a live AtomicU32; FUTEX_WAKE does not access it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
    }
}

/// Waits until `word` is not `value` any more: spins first, then sleeps. `sleepers` counts the
/// sleeping threads, so that [`change`] saves the system call when there are none.
pub(crate) fn wait_while(word: &AtomicU32, value: u32, sleepers: &AtomicU32) {
    if spin_until(|| word.load(Ordering::Acquire) != value) {
        return;
    }
    sleep_while(word, value, sleepers);
}

/// As [`wait_while`], without spinning first.
pub(crate) fn sleep_while(word: &AtomicU32, value: u32, sleepers: &AtomicU32) {
    // Sequentially consistent, as in `change`: either the sleeper sees the new word, or the waker
    // sees the sleeper. FUTEX_WAIT compares once more inside the kernel.
    sleepers.fetch_add(1, Ordering::SeqCst);
    while word.load(Ordering::SeqCst) == value {
        sleep(word, value);
    }
    sleepers.fetch_sub(1, Ordering::SeqCst);
}

/// Sets `word` to `value` and wakes the sleeping threads.
pub(crate) fn change(word: &AtomicU32, value: u32, sleepers: &AtomicU32) {
    word.store(value, Ordering::SeqCst);
    if sleepers.load(Ordering::SeqCst) > 0 {
        wake_all(word);
    }
}
