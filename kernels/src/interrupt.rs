//! Ctrl-C as a flag.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Release);
}

/// From now on the first Ctrl-C (SIGINT), or a request to end (SIGTERM), sets the flag that this returns; the second ends the
/// process as ever. Where the system refuses, the flag stays clear and the first ends the process too.
pub fn interrupts() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all bytes zero are a valid sigaction: no flags, an empty mask, the default handler.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        // SAFETY: `action` is initialised; its handler only stores to an atomic, which a signal handler may do.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
    &INTERRUPTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_sets_the_flag_and_the_process_goes_on() {
        let interrupted = interrupts();
        // SAFETY: raising a signal that has a handler.
        unsafe { libc::raise(libc::SIGINT) };
        assert!(interrupted.load(Ordering::Acquire));
    }
}
