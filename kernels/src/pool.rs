//! A team of pinned threads that starts and finishes a piece of work together.

use crate::{Error, Path, affinity, futex};
use hwprofiles::DType;
use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A team of threads, one per core, the caller of [`Pool::run`] being member 0.
///
/// Between pieces of work members spin for about 40 µs and then sleep, so a chain of kernels pays about a
/// microsecond per kernel while an idle team leaves its cores to others.
#[derive(Debug)]
pub struct Pool {
    team: Arc<Team>,
    threads: Vec<JoinHandle<()>>,
    cores: Vec<usize>,
    path: Path,
    /// By format of the weights, where it was measured: so many rows of x, and more, are for tiles.
    crossovers: BTreeMap<DType, usize>,
}

type Work = dyn Fn(usize, usize) + Sync;

#[derive(Debug)]
struct Team {
    /// Which piece of work is current; it changes when there is a new one.
    epoch: AtomicU32,
    epoch_sleepers: AtomicU32,
    /// Members, besides the caller, that have not finished it.
    unfinished: AtomicU32,
    unfinished_sleepers: AtomicU32,
    work: UnsafeCell<Option<*const Work>>,
    stop: AtomicBool,
    running: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `work` is written by the runner only while no member reads it (all are between epochs) and read
// only after the epoch's change is seen; everything else is Sync by itself.
unsafe impl Sync for Team {}
// SAFETY: the pointer in `work` is to a Sync closure that outlives its use (see `Pool::run`).
unsafe impl Send for Team {}

impl Pool {
    /// A team with a member pinned to each of `cores`; the first core is the caller's, who pins itself with
    /// [`Pool::pin_caller`] if it wants to be.
    ///
    /// # Errors
    /// [`Error::NoCores`], [`Error::Pin`] for a core that is not ours, [`Error::Spawn`].
    pub fn new(cores: &[usize]) -> Result<Self, Error> {
        Self::on(cores, Path::best())
    }

    /// As [`Pool::new`], of a path that may not be the best.
    pub(crate) fn on(cores: &[usize], path: Path) -> Result<Self, Error> {
        if cores.is_empty() {
            return Err(Error::NoCores);
        }
        let team = Arc::new(Team {
            epoch: AtomicU32::new(0),
            epoch_sleepers: AtomicU32::new(0),
            unfinished: AtomicU32::new(0),
            unfinished_sleepers: AtomicU32::new(0),
            work: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            running: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut pool =
            Self { team, threads: Vec::new(), cores: cores.to_vec(), path, crossovers: BTreeMap::new() };
        for (member, &core) in cores.iter().enumerate().skip(1) {
            let (sender, pinned) = std::sync::mpsc::channel();
            let (team, of) = (Arc::clone(&pool.team), cores.len());
            let body = move || {
                let result = affinity::pin_current_thread(core);
                let failed = result.is_err();
                // The receiver waits below, so this cannot fail while anybody cares.
                let _ = sender.send(result);
                if !failed {
                    team.serve(member, of);
                }
            };
            let thread = std::thread::Builder::new().name(format!("pool-{member}")).spawn(body);
            pool.threads.push(thread.map_err(|source| Error::Spawn { core, source })?);
            pinned.recv().unwrap_or(Err(Error::NoCores))?;
        }
        Ok(pool)
    }

    /// The same team running another implementation: a test forces the reference, a measurement says which.
    ///
    /// # Panics
    /// Where this CPU cannot run it (see [`Path::supported`]).
    pub fn with_path(mut self, path: Path) -> Self {
        assert!(Path::supported().contains(&path), "this CPU cannot run {path}");
        self.path = path;
        self
    }

    /// The same team, which multiplies by tiles ([`Path::Amx`]) from so many rows of x on, by vectors below, where weights are in
    /// `dtype`: as it was measured. Without, as [`gemm()`](crate::gemm()) counts cycles.
    pub fn with_crossover(mut self, dtype: DType, rows: usize) -> Self {
        self.crossovers.insert(dtype, rows);
        self
    }

    /// What was measured ([`Pool::with_crossover`]).
    pub(crate) fn crossover(&self, dtype: DType) -> Option<usize> {
        self.crossovers.get(&dtype).copied()
    }

    /// Which implementation of the kernels it runs.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Members, the caller included.
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
    /// [`Error::Pin`].
    pub fn pin_caller(&self) -> Result<(), Error> {
        affinity::pin_current_thread(self.cores[0])
    }

    /// Runs `work(member, members)` on every member and returns when all have finished. What the caller
    /// wrote before is visible to all, what they wrote is visible after.
    ///
    /// # Panics
    /// When a member panicked (with its panic), or when the pool is running something already.
    pub fn run(&self, work: impl Fn(usize, usize) + Sync) {
        let of = self.members();
        if of == 1 {
            return work(0, 1);
        }
        let team = &*self.team;
        assert!(!team.running.swap(true, Ordering::Acquire), "a pool runs one piece of work at a time");
        let work: &(dyn Fn(usize, usize) + Sync) = &work;
        // SAFETY: only the lifetime changes. Nobody uses the pointer after `unfinished` reached 0, for which
        // this function waits, also when the caller's own share panics.
        let work: *const Work =
            unsafe { std::mem::transmute::<&(dyn Fn(usize, usize) + Sync), *const Work>(work) };
        // SAFETY: every member is waiting for the next epoch and reads this only after it.
        unsafe { *team.work.get() = Some(work) };
        team.unfinished.store(of as u32 - 1, Ordering::Relaxed);
        let epoch = team.epoch.load(Ordering::Relaxed).wrapping_add(1);
        futex::change(&team.epoch, epoch, &team.epoch_sleepers);
        // SAFETY: the closure is alive in this frame.
        let own = catch_unwind(AssertUnwindSafe(|| unsafe { (*work)(0, of) }));
        loop {
            match team.unfinished.load(Ordering::Acquire) {
                0 => break,
                left => futex::wait_while(&team.unfinished, left, &team.unfinished_sleepers),
            }
        }
        let other = team.panic.lock().map(|mut panic| panic.take()).unwrap_or(None);
        team.running.store(false, Ordering::Release);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        if let Some(panic) = other {
            resume_unwind(panic);
        }
    }

    /// Runs `work(member, item)` for every item of `0..items`. Each member begins with its own equal share, in order and
    /// the same in every call of as many items, so that it walks memory forwards and meets its own caches and its own
    /// NUMA node's memory again; when it is done it takes from the others' shares what they have not begun, so that a
    /// member slowed down by another lane on its core does less. Members finish together.
    pub fn each(&self, items: usize, work: impl Fn(usize, usize) + Sync) {
        let of = self.members();
        if items <= 1 || of == 1 {
            return (0..items).for_each(|item| work(0, item));
        }
        let shares: Vec<Share> =
            (0..of).map(|member| Share::new(items * member / of, items * (member + 1) / of)).collect();
        self.run(|member, _| {
            for share in shares[member..].iter().chain(&shares[..member]) {
                while let Some(item) = share.take() {
                    work(member, item);
                }
            }
        });
    }
}

/// Consecutive items, each taken once. On a cache line of its own, because its owner takes items all the time.
#[repr(align(64))]
struct Share {
    next: AtomicUsize,
    end: usize,
}

impl Share {
    fn new(start: usize, end: usize) -> Self {
        Self { next: AtomicUsize::new(start), end }
    }

    fn take(&self) -> Option<usize> {
        // Beyond the end it counts on, by one per member at most: members look at each share once it is empty.
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&item| item < self.end)
    }
}

impl Team {
    fn serve(&self, member: usize, of: usize) {
        let mut seen = 0;
        loop {
            futex::wait_while(&self.epoch, seen, &self.epoch_sleepers);
            seen = seen.wrapping_add(1);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // SAFETY: the epoch changed, so the runner has written `work` and waits until this member is done.
            let work = unsafe { (*self.work.get()).map(|work| &*work) };
            if let Some(work) = work
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(member, of)))
                && let Ok(mut first) = self.panic.lock()
            {
                first.get_or_insert(panic);
            }
            let before = self.unfinished.fetch_sub(1, Ordering::SeqCst);
            if before == 1 && self.unfinished_sleepers.load(Ordering::SeqCst) > 0 {
                futex::wake_all(&self.unfinished);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team.stop.store(true, Ordering::Release);
        let epoch = self.team.epoch.load(Ordering::Relaxed).wrapping_add(1);
        futex::change(&self.team.epoch, epoch, &self.team.epoch_sleepers);
        for thread in self.threads.drain(..) {
            // A member's panics were caught and handed to the runner.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A pool of `members`, on as many cores as there are.
    fn pool(members: usize) -> Pool {
        let cores = affinity::available_cores();
        let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
        Pool::new(&cores).expect("these cores are ours")
    }

    #[test]
    fn every_member_runs_every_piece_of_work_once() {
        for members in [1, 2, 3, 5] {
            let pool = pool(members);
            let counts: Vec<_> = (0..members).map(|_| AtomicUsize::new(0)).collect();
            for round in 1..300 {
                pool.run(|member, of| {
                    assert_eq!(of, members);
                    counts[member].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
            }
        }
    }

    #[test]
    fn a_team_that_fell_asleep_wakes_for_the_next_piece() {
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
        assert!(matches!(Pool::new(&[first, 1_000_000]), Err(Error::Pin { core: 1_000_000, .. })));
        assert!(matches!(Pool::new(&[]), Err(Error::NoCores)));
    }
}
