//! How the members of a pool begin and finish a task together.

use super::futex::{self, Word};
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

type PoolTask = dyn Fn(usize, usize) + Sync;

/// What the members of a pool share. Member 0 is whoever calls [`Team::run`].
#[derive(Debug)]
pub(crate) struct Team<W: Word = AtomicU32> {
    members: usize,
    /// The number of the current task; it changes when there is a new one.
    epoch: W,
    epoch_sleepers: W,
    /// Members, besides the caller, that have not finished the current task.
    unfinished: W,
    unfinished_sleepers: W,
    work: UnsafeCell<Option<*const PoolTask>>,
    /// 1 when the members shall end.
    dismissed: W,
    /// 1 while a task runs.
    running: W,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the runner writes `work` only while no member reads it, which is between epochs. Members
// read it only after they see the epoch change. All other fields are Sync by themselves.
unsafe impl<W: Word> Sync for Team<W> {}
// SAFETY: `work` points to a Sync closure that outlives its use (see `Team::run`).
unsafe impl<W: Word> Send for Team<W> {}

impl<W: Word> Team<W> {
    /// A team of so many members, the caller of [`Team::run`] included. Each of the others calls
    /// [`Team::serve`] on a thread of its own.
    pub(crate) fn new(members: usize) -> Self {
        Self {
            members,
            epoch: W::default(),
            epoch_sleepers: W::default(),
            unfinished: W::default(),
            unfinished_sleepers: W::default(),
            work: UnsafeCell::new(None),
            dismissed: W::default(),
            running: W::default(),
            panic: Mutex::new(None),
        }
    }

    /// Runs `work(member, members)` on every member and returns when all have finished.
    ///
    /// # Panics
    /// With a member's panic, or when the team is running a task already.
    pub(crate) fn run(&self, work: &(dyn Fn(usize, usize) + Sync)) {
        assert!(self.running.swap(1, Ordering::Acquire) == 0, "a pool runs one piece of work at a time");
        // SAFETY: only the lifetime changes. No member uses the pointer after `unfinished` reached
        // 0. This function waits for that, also when the caller's own share panics.
        let task: *const PoolTask =
            unsafe { std::mem::transmute::<&(dyn Fn(usize, usize) + Sync), *const PoolTask>(work) };
        // SAFETY: every member waits for the next epoch and reads this only after it.
        unsafe { *self.work.get() = Some(task) };
        self.unfinished.store(self.members as u32 - 1, Ordering::Relaxed);
        self.begin_epoch();
        let own = catch_unwind(AssertUnwindSafe(|| work(0, self.members)));
        loop {
            match self.unfinished.load(Ordering::Acquire) {
                0 => break,
                left => futex::wait_while(&self.unfinished, left, &self.unfinished_sleepers),
            }
        }
        let other = self.panic.lock().map(|mut panic| panic.take()).unwrap_or(None);
        self.running.store(0, Ordering::Release);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        if let Some(panic) = other {
            resume_unwind(panic);
        }
    }

    /// Takes part in every task as number `member`, until the team is dismissed.
    pub(crate) fn serve(&self, member: usize) {
        let mut seen = 0;
        loop {
            futex::wait_while(&self.epoch, seen, &self.epoch_sleepers);
            seen = seen.wrapping_add(1);
            if self.dismissed.load(Ordering::Acquire) != 0 {
                return;
            }
            // SAFETY: the epoch changed, so the runner has written `work` and waits for this
            // member.
            let work = unsafe { (*self.work.get()).map(|work| &*work) };
            if let Some(work) = work
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(member, self.members)))
                && let Ok(mut first) = self.panic.lock()
            {
                first.get_or_insert(panic);
            }
            let before = self.unfinished.fetch_sub(1, Ordering::SeqCst);
            if before == 1 && self.unfinished_sleepers.load(Ordering::SeqCst) > 0 {
                self.unfinished.wake_all();
            }
        }
    }

    /// Lets every member return from [`Team::serve`].
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(1, Ordering::Release);
        self.begin_epoch();
    }

    fn begin_epoch(&self) {
        let next = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        futex::change(&self.epoch, next, &self.epoch_sleepers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Disjoint;

    /// Plain memory, so that Miri and ThreadSanitizer see a race where an order is too weak.
    #[test]
    fn what_members_write_the_caller_reads_and_what_it_writes_they_read() {
        let rounds = if cfg!(miri) { 4 } else { 400 };
        let team = Team::<AtomicU32>::new(3);
        std::thread::scope(|scope| {
            for member in 1..3 {
                let team = &team;
                scope.spawn(move || team.serve(member));
            }
            let mut sums = [0; 3];
            for round in 1..=rounds {
                let before = sums[0];
                let shared = Disjoint::new(&mut sums);
                team.run(&|member, _| {
                    // SAFETY: each member takes its own element.
                    let own = unsafe { &mut shared.range(member, 1)[0] };
                    assert_eq!(*own, before);
                    *own += round;
                });
                assert_eq!(sums, [before + round; 3]);
            }
            team.dismiss();
        });
    }
}
