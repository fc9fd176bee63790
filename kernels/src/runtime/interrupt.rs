//! Turns Ctrl-C into a flag.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Release);
}

/// Installs a signal handler and returns the flag that it sets. The first Ctrl-C (SIGINT) or
/// request to end (SIGTERM) sets the flag; the second ends the process as usual. Where the system
/// refuses the handler, the flag stays clear and the first signal ends the process.
pub fn interrupt_flag() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a sigaction of zero bytes is valid: no flags, an empty mask, the default handler.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        // SAFETY: `action` is initialised. Its handler only stores to an atomic, which a signal
        // handler may do.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
    &INTERRUPTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_sets_the_flag_and_the_process_goes_on() {
        let interrupted = interrupt_flag();
        // SAFETY: raising a signal that has a handler.
        unsafe { libc::raise(libc::SIGINT) };
        assert!(interrupted.load(Ordering::Acquire));
    }
}
