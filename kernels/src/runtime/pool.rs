//! A team of pinned threads that starts and finishes a task together.
//!
//! `Pool::new` is in `cpu::path_check`, because it picks the path by running products.

use super::affinity;
use super::error::KernelError;
use super::path::Path;
use super::team::Team;
use hwprofiles::DType;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A team of threads, one per core. The caller of [`Pool::run`] is member 0.
///
/// Between tasks the members spin for about 500 µs and then sleep. So a chain of kernels pays about
/// a microsecond per kernel, and an idle team leaves its cores to others.
#[derive(Debug)]
pub struct Pool {
    team: Arc<Team>,
    threads: Vec<JoinHandle<()>>,
    cores: Vec<usize>,
    path: Path,
    /// For each weight format where it was measured: the number of rows of x from which on tiles
    /// are faster than vectors.
    crossovers: BTreeMap<DType, usize>,
}

impl Pool {
    /// As [`Pool::new`], with the path given.
    pub(crate) fn on_path(cores: &[usize], path: Path) -> Result<Self, KernelError> {
        if cores.is_empty() {
            return Err(KernelError::NoCores);
        }
        let team = Arc::new(Team::new(cores.len()));
        let mut pool =
            Self { team, threads: Vec::new(), cores: cores.to_vec(), path, crossovers: BTreeMap::new() };
        for (member, &core) in cores.iter().enumerate().skip(1) {
            let (sender, pinned) = std::sync::mpsc::channel();
            let team = Arc::clone(&pool.team);
            let body = move || {
                let result = affinity::pin_current_thread(core);
                let failed = result.is_err();
                // The receiver waits below, so sending fails only when the pool was given up.
                let _ = sender.send(result);
                if !failed {
                    team.serve(member);
                }
            };
            let thread = std::thread::Builder::new().name(format!("pool-{member}")).spawn(body);
            pool.threads.push(thread.map_err(|source| KernelError::Spawn { core, source })?);
            pinned.recv().unwrap_or(Err(KernelError::NoCores))?;
        }
        Ok(pool)
    }

    /// The same team on another path: for tests and measurements.
    ///
    /// # Panics
    /// Where this CPU cannot run it (see [`Path::supported`]).
    pub fn with_path(mut self, path: Path) -> Self {
        assert!(Path::supported().contains(&path), "this CPU cannot run {path}");
        self.path = path;
        self
    }

    /// The same team with a measured crossover for weights in `dtype`: products of `rows` rows of x
    /// or more use tiles ([`Path::Amx`]), products of fewer rows use vectors. Without it,
    /// [`gemm()`](crate::gemm()) estimates the crossover from cycles.
    pub fn with_crossover(mut self, dtype: DType, rows: usize) -> Self {
        self.crossovers.insert(dtype, rows);
        self
    }

    /// The measured crossover ([`Pool::with_crossover`]).
    pub(crate) fn crossover(&self, dtype: DType) -> Option<usize> {
        self.crossovers.get(&dtype).copied()
    }

    /// The path that its kernels run.
    pub fn path(&self) -> Path {
        self.path
    }

    /// The number of members, the caller included.
    pub fn members(&self) -> usize {
        self.cores.len()
    }

    /// The cores, the caller's first.
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// Binds the calling thread to the pool's first core.
    ///
    /// # Errors
    /// [`KernelError::Pin`].
    pub fn pin_caller(&self) -> Result<(), KernelError> {
        affinity::pin_current_thread(self.cores[0])
    }

    /// Runs `work(member, members)` on every member and returns when all have finished. The members
    /// see what the caller wrote before; the caller sees what they wrote.
    ///
    /// # Panics
    /// With a member's panic, or when the pool is running a task already.
    pub fn run(&self, work: impl Fn(usize, usize) + Sync) {
        if self.members() == 1 {
            return work(0, 1);
        }
        self.team.run(&work);
    }

    /// Runs `work(member, item)` for every item of `0..items`.
    ///
    /// Each member begins with an equal share of its own and goes through it in order. Calls with
    /// the same number of items give a member the same share, so that it finds the data in its
    /// caches and on its NUMA node. A member that has finished its share takes items that others
    /// have not begun, so that a member whose core is busy with other work does less.
    pub fn each(&self, items: usize, work: impl Fn(usize, usize) + Sync) {
        let members = self.members();
        if items <= 1 || members == 1 {
            return (0..items).for_each(|item| work(0, item));
        }
        let shares: Vec<WorkShare> = (0..members)
            .map(|member| WorkShare::new(items * member / members, items * (member + 1) / members))
            .collect();
        self.run(|member, _| {
            for share in shares[member..].iter().chain(&shares[..member]) {
                while let Some(item) = share.take() {
                    work(member, item);
                }
            }
        });
    }
}

/// Consecutive items, each taken once. It has a cache line of its own, because its owner takes
/// items all the time.
#[repr(align(64))]
struct WorkShare {
    next: AtomicUsize,
    end: usize,
}

impl WorkShare {
    fn new(start: usize, end: usize) -> Self {
        Self { next: AtomicUsize::new(start), end }
    }

    fn take(&self) -> Option<usize> {
        // `next` may pass the end by one for each member, because every member looks once at each
        // empty share.
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&item| item < self.end)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team.dismiss();
        for thread in self.threads.drain(..) {
            // Panics of a member were caught and given to the runner.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::futex;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// A pool of `members` threads, which share cores where there are fewer.
    fn pool(members: usize) -> Pool {
        let cores = affinity::available_cores();
        let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
        Pool::new(&cores).expect("these cores are ours")
    }

    #[test]
    fn every_member_runs_every_task_once() {
        for members in [1, 2, 3, 5] {
            let pool = pool(members);
            let counts: Vec<_> = (0..members).map(|_| AtomicUsize::new(0)).collect();
            for round in 1..300 {
                pool.run(|member, count| {
                    assert_eq!(count, members);
                    counts[member].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
            }
        }
    }

    #[test]
    fn a_team_that_fell_asleep_wakes_for_the_next_task() {
        let pool = pool(3);
        for _ in 0..5 {
            std::thread::sleep(20 * futex::SPIN);
            let count = AtomicUsize::new(0);
            pool.run(|member, _| {
                std::thread::sleep(Duration::from_micros(200 * member as u64));
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 3);
        }
    }

    #[test]
    fn each_item_is_done_exactly_once() {
        for (members, items) in [(1, 7), (2, 0), (2, 1), (3, 2), (2, 1000)] {
            let counts: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
            pool(members).each(items, |_, item| {
                counts[item].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_members_panic_reaches_the_caller_and_the_pool_still_works() {
        let pool = pool(2);
        for guilty in [0, 1] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(|member, _| assert!(member != guilty, "member {member} fails"));
            }));
            let panic = result.expect_err("the panic propagates");
            let text = panic.downcast_ref::<String>().expect("a formatted message");
            assert!(text.contains(&format!("member {guilty} fails")), "{text}");
        }
        let count = AtomicUsize::new(0);
        pool.run(|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 2);
    }

    #[test]
    fn a_pool_on_an_absent_core_is_refused() {
        let first = affinity::available_cores()[0];
        assert!(matches!(Pool::new(&[first, 1_000_000]), Err(KernelError::Pin { core: 1_000_000, .. })));
        assert!(matches!(Pool::new(&[]), Err(KernelError::NoCores)));
    }
}
