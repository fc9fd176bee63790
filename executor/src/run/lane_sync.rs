//! How the lanes of a run wait for each other: for single tasks, and for all between two passes.

use kernels::{Flag, Word};
use planner::TaskId;
use std::sync::atomic::{AtomicU32, Ordering};

/// The flags and gates of a run's lanes. [`Word`] is what they wait on: an atomic number, or in
/// tests one that lets a scheduler choose the lane that goes on.
pub(crate) struct LaneSync<W: Word = AtomicU32> {
    lanes: u32,
    /// By task of the pass. They are cleared between two passes, when no lane waits for one.
    flags: Vec<Flag<W>>,
    /// Before each pass the lanes wait at one of them, in turn.
    gates: [PassGate<W>; 2],
    /// 1 when the run ends early.
    aborted: W,
}

/// A barrier: the lanes wait here for the last one.
struct PassGate<W: Word> {
    missing: W,
    open: Flag<W>,
}

impl<W: Word> PassGate<W> {
    fn new(lanes: u32) -> Self {
        let gate = Self { missing: W::default(), open: Flag::default() };
        gate.missing.store(lanes, Ordering::Relaxed);
        gate
    }
}

impl<W: Word> LaneSync<W> {
    /// For so many lanes and passes of at most `tasks` tasks.
    pub fn new(lanes: usize, tasks: usize) -> Self {
        let lanes = lanes as u32;
        Self {
            lanes,
            flags: (0..tasks).map(|_| Flag::default()).collect(),
            gates: [PassGate::new(lanes), PassGate::new(lanes)],
            aborted: W::default(),
        }
    }

    /// Waits, with `wait`, before pass number `index` until all lanes have finished the pass
    /// before. The last lane to arrive calls `advance`. Returns whether the run goes on.
    pub fn next_pass(&self, index: usize, advance: &dyn Fn(), wait: impl Fn(&Flag<W>)) -> bool {
        let [gate, other] = [index, index + 1].map(|index| &self.gates[index % 2]);
        if gate.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            advance();
            self.flags.iter().for_each(Flag::clear);
            // All lanes are at this gate, so none is left at the other.
            other.missing.store(self.lanes, Ordering::Relaxed);
            other.open.clear();
            gate.open.set();
        }
        wait(&gate.open);
        !self.is_aborted()
    }

    /// The flag of a task of the pass.
    pub fn flag(&self, task: TaskId) -> &Flag<W> {
        &self.flags[task.0 as usize]
    }

    /// Ends the run: no lane waits any longer.
    pub fn abort(&self) {
        self.aborted.store(1, Ordering::Release);
        self.flags.iter().chain(self.gates.iter().map(|gate| &gate.open)).for_each(Flag::set);
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire) != 0
    }
}
