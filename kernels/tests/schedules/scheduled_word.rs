//! A word whose accesses a scheduler orders, and the exploration of many orders.
//!
//! Unit tests of several crates include this file; each brings the trait as `super::Word`.

use super::Word;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, Runner};

/// A word as the system's futex sees it: sleeping compares and sleeps in one step, and a wake-up
/// that comes before is lost.
#[derive(Debug, Default)]
pub struct ScheduledWord {
    value: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Word for ScheduledWord {
    fn load(&self, order: Ordering) -> u32 {
        self.value.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.value.store(value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.value.swap(value, order)
    }

    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.value.fetch_add(value, order)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.value.fetch_sub(value, order)
    }

    /// Looks once: a scheduler that lets others go on before is as good as a long wait.
    fn spin_while(&self, value: u32) -> bool {
        self.load(Ordering::Acquire) != value
    }

    fn sleep(&self, value: u32) {
        let queue = self.queue.lock().expect("no thread panics with it");
        if self.load(Ordering::SeqCst) == value {
            drop(self.woken.wait(queue).expect("no thread panics with it"));
        }
    }

    fn wake_all(&self) {
        let _queue = self.queue.lock().expect("no thread panics with it");
        self.woken.notify_all();
    }
}

/// Runs `body` in `usual` different orders of its threads, multiplied by `FULCRUM_CASES` per cent:
/// half of them random, half with few changes of the running thread at random places, which finds
/// what needs one long delay. The seeds are fixed. A deadlock or a panic fails with its order.
pub fn explore(usual: usize, body: impl Fn() + Send + Sync + 'static) {
    let percent = std::env::var("FULCRUM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let half = (usual * percent).div_ceil(200);
    let body = std::sync::Arc::new(body);
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        // Whole passes of a model run on a thread of the scheduler.
        config.stack_size = 1 << 20;
        let body = std::sync::Arc::clone(&body);
        Runner::new(scheduler, config).run(move || body())
    };
    let runs = run(Box::new(RandomScheduler::new_from_seed(1, half)))
        + run(Box::new(PctScheduler::new_from_seed(2, 3, half)));
    assert_eq!(runs, 2 * half);
}
