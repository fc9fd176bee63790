//! Signals that ask the program to end.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The flag that the first Ctrl-C (SIGINT), or a request to end (SIGTERM), sets. The second one
/// ends the process as ever. Where the system refuses a handler, the first one does.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order counts: a signal ends the process only if the flag was set before it came.
        let _ = signal_hook::flag::register_conditional_default(signal, flag.clone());
        let _ = signal_hook::flag::register(signal, flag.clone());
    }
    flag
}
