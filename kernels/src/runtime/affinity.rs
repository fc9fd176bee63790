//! Which cores a thread may run on.

use super::error::KernelError;

/// The cores in the calling thread's affinity mask, ascending. The operating system (a container,
/// `taskset`) may allow fewer cores than the machine has.
pub fn available_cores() -> Vec<usize> {
    let mask = current_mask();
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&core| {
            // SAFETY: `core` is below CPU_SETSIZE, the size of the mask.
            unsafe { libc::CPU_ISSET(core, &mask) }
        })
        .collect()
}

/// Binds the calling thread to one core.
///
/// # Errors
/// [`KernelError::Pin`] where the core does not exist or this process may not use it.
pub fn pin_current_thread(core: usize) -> Result<(), KernelError> {
    confine_current_thread(&[core])
}

/// Lets the calling thread, and the threads that it starts later, run on these cores only.
///
/// # Errors
/// [`KernelError::Pin`] where one core does not exist or this process may use none of them.
pub fn confine_current_thread(cores: &[usize]) -> Result<(), KernelError> {
    let fail = |core, source| KernelError::Pin { core, available: available_cores(), source };
    // SAFETY: a cpu_set_t is a plain bit array, for which all zeros is the empty set.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        if core >= libc::CPU_SETSIZE as usize {
            return Err(fail(core, std::io::Error::from_raw_os_error(libc::EINVAL)));
        }
        // SAFETY: `core` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(core, &mut mask) };
    }
    set_mask(&mask).map_err(|source| fail(cores.first().copied().unwrap_or_default(), source))
}

/// Runs `work` and then gives the calling thread its former affinity back.
pub fn restoring<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(libc::cpu_set_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // If the cores were taken away meanwhile, the thread stays where it is.
            let _ = set_mask(&self.0);
        }
    }
    let _restore = Restore(current_mask());
    work()
}

fn current_mask() -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is a plain bit array, for which all zeros is the empty set.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size describe `mask`; 0 is the calling thread.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut mask) };
    mask
}

fn set_mask(mask: &libc::cpu_set_t) -> std::io::Result<()> {
    // SAFETY: the pointer and the size describe `mask`; 0 is the calling thread.
    let status = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), mask) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_exactly_its_core() {
        let cores = available_cores();
        let last = *cores.last().expect("a running thread has a core");
        std::thread::spawn(move || {
            pin_current_thread(last).expect("the core is in the mask");
            assert_eq!(available_cores(), [last]);
        })
        .join()
        .expect("the thread runs through");
        assert_eq!(available_cores(), cores, "other threads keep their mask");
    }

    #[test]
    fn an_absent_core_is_refused_with_the_cores_that_exist() {
        let error = pin_current_thread(1_000_000).expect_err("there is no such core").to_string();
        assert!(
            error.contains("core 1000000") && error.contains(&format!("{:?}", available_cores())),
            "{error}"
        );
    }

    #[test]
    fn affinity_is_restored_after_the_work() {
        let before = available_cores();
        restoring(|| pin_current_thread(before[0])).expect("the core is in the mask");
        assert_eq!(available_cores(), before);
    }
}
