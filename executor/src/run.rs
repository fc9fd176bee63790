//! One run: passes one after the other, and what its lanes share.

use crate::engine::Engine;
use crate::lane::{self, Record};
use crate::pass::Pass;
use crate::sequence::Sequence;
use kernels::Flag;
use planner::TaskId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Instant;

/// A lane that panics ends the run before anybody meets its poisoned lock.
const POISONED: &str = "no lane has panicked";

/// What the lanes of a run share.
pub(crate) struct Run<'a> {
    pub engine: &'a Engine,
    /// By slot.
    pub sequences: RwLock<Vec<Sequence>>,
    /// What is computed next, or now; nothing at the end.
    pass: Mutex<Option<Arc<Pass>>>,
    /// What the last pass sampled, by slot.
    sampled: Mutex<Vec<(usize, u32)>>,
    /// Of each task of the pass. They are cleared between two passes, when nobody can be waiting for one.
    flags: Vec<Flag>,
    /// In front of every pass stands one of them, in turn.
    gates: [Gate; 2],
    /// By lane: what it recorded of the last pass.
    records: Vec<Mutex<Record>>,
    /// Whether times of each task are wanted, and not only of each pass.
    pub tasks: bool,
    origin: Instant,
    aborted: AtomicBool,
    /// What ended it, if a device did.
    failure: Mutex<Option<kernels::Error>>,
}

/// Where all lanes wait for the last.
struct Gate {
    missing: AtomicUsize,
    open: Flag,
}

impl Gate {
    fn new(lanes: usize) -> Self {
        Self { missing: AtomicUsize::new(lanes), open: Flag::new() }
    }
}

/// The moment between two passes, in which no lane is at work.
pub(crate) struct Moment<'m> {
    /// When the last lane was done with the last pass, or ready for the first, in nanoseconds since the run's origin.
    pub now: u64,
    /// By lane: what it recorded of the last pass; nothing in front of the first.
    pub records: Vec<MutexGuard<'m, Record>>,
    /// By slot.
    pub sequences: &'m mut [Sequence],
    /// The tokens that the last pass has appended, by slot.
    pub sampled: &'m [(usize, u32)],
}

impl<'a> Run<'a> {
    /// A run of `sequences`, one for each slot, whose clock begins at `origin`; times of `tasks` are wanted or not.
    pub fn new(engine: &'a Engine, sequences: Vec<Sequence>, origin: Instant, tasks: bool) -> Self {
        let lanes = engine.lanes.len();
        let most = engine.programs.prefill.tasks.len().max(engine.programs.decode.tasks.len());
        Self {
            engine,
            sequences: RwLock::new(sequences),
            pass: Mutex::new(None),
            sampled: Mutex::new(Vec::new()),
            flags: (0..most).map(|_| Flag::new()).collect(),
            gates: [Gate::new(lanes), Gate::new(lanes)],
            records: engine.lanes.iter().map(|_| Mutex::default()).collect(),
            tasks,
            origin,
            aborted: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Runs the passes that `conduct` gives until it gives none, one thread per lane. It is asked between passes, by the
    /// thread of the lane that is done last; what it says is told to `on` on the caller's thread.
    pub fn play<T: Send>(
        &self,
        mut conduct: impl FnMut(&mut Moment<'_>, &Sender<T>) -> Option<Pass> + Send,
        on: impl FnMut(T),
    ) {
        let (said, heard) = channel();
        let conductor = Mutex::new(move |moment: &mut Moment<'_>| conduct(moment, &said));
        // It is dropped with the last lane, and with it the sender that ends the listening.
        let between = Arc::new(move || self.turn(&mut *conductor.lock().expect(POISONED)));
        let result = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.engine.lanes.len())
                .map(|lane| {
                    let between = Arc::clone(&between);
                    scope.spawn(move || {
                        // A lane that fails takes the others with it instead of leaving them waiting.
                        let result = catch_unwind(AssertUnwindSafe(|| lane::work(self, lane, &*between)));
                        result.inspect_err(|_| self.abort())
                    })
                })
                .collect();
            drop(between);
            heard.into_iter().for_each(on);
            threads.into_iter().try_for_each(|thread| thread.join().and_then(|result| result))
        });
        result.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Asks for the next pass. No lane is at work.
    fn turn(&self, conduct: &mut impl FnMut(&mut Moment<'_>) -> Option<Pass>) {
        let mut sampled = self.sampled.lock().expect(POISONED);
        let mut sequences = self.sequences.write().expect(POISONED);
        let records: Vec<_> = self.records.iter().map(|record| record.lock().expect(POISONED)).collect();
        let now = records.iter().map(|record| record.arrived).max().unwrap_or(0);
        let mut moment = Moment { now, records, sequences: &mut sequences, sampled: &sampled };
        let pass = conduct(&mut moment);
        moment.records.iter_mut().for_each(|record| record.tasks.clear());
        drop(moment);
        sampled.clear();
        self.flags.iter().for_each(Flag::clear);
        *self.pass.lock().expect(POISONED) = pass.map(Arc::new);
    }

    /// Waits, by `wait`, in front of pass number `index` for all lanes to be done with the one before; the last to come
    /// does what is to be done `between`. What is to be computed then; nothing at the end.
    pub fn next(&self, index: usize, between: &dyn Fn(), wait: impl Fn(&Flag)) -> Option<Arc<Pass>> {
        let [gate, other] = [index, index + 1].map(|index| &self.gates[index % 2]);
        if gate.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            between();
            // All have come here, so nobody is left at the other.
            other.missing.store(self.engine.lanes.len(), Ordering::Relaxed);
            other.open.clear();
            gate.open.set();
        }
        wait(&gate.open);
        if self.is_aborted() {
            return None;
        }
        self.pass.lock().expect(POISONED).clone()
    }

    /// What lane number `lane` writes down of a pass.
    pub fn record(&self, lane: usize) -> MutexGuard<'_, Record> {
        self.records[lane].lock().expect(POISONED)
    }

    /// The flag of a task of the pass.
    pub fn flag(&self, task: TaskId) -> &Flag {
        &self.flags[task.0 as usize]
    }

    /// Nanoseconds since the run's origin.
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Ends the run: a device has refused. Of several errors the first is kept.
    pub fn fail(&self, error: kernels::Error) {
        self.failure.lock().expect(POISONED).get_or_insert(error);
        self.abort();
    }

    /// What a device refused, if one did; told once.
    pub fn failure(&self) -> Option<kernels::Error> {
        self.failure.lock().expect(POISONED).take()
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.flags.iter().chain(self.gates.iter().map(|gate| &gate.open)).for_each(Flag::set);
    }

    /// Appends a token to each sampled sequence that has none behind what `pass` has computed: of `tokens`, which are those
    /// of the rows of logits.
    pub fn append(&self, pass: &Pass, tokens: impl Iterator<Item = u32>) {
        let mut sequences = self.sequences.write().expect(POISONED);
        let mut sampled = self.sampled.lock().expect(POISONED);
        for ((slot, reached), token) in pass.sampled().zip(tokens) {
            let tokens = &mut sequences[slot].tokens;
            if reached == tokens.len() {
                tokens.push(token);
                sampled.push((slot, token));
            }
        }
    }

    /// The same of tokens that are chosen now, by the logits that the host has.
    pub fn sample(&self, pass: &Pass) -> Result<(), kernels::Error> {
        let device = self.engine.setup.placement.head[0].device(pass.phase);
        let rows = pass.parts.iter().map(|part| part.ends.len());
        let mut sequences = self.sequences.write().expect(POISONED);
        let mut ends = pass.sampled();
        let tokens = self.engine.store.logits(device, rows, self.engine.setup.model.vocab, |row| {
            let (slot, reached) = ends.next().expect("a row for each");
            let Sequence { tokens, sampler } = &mut sequences[slot];
            if reached == tokens.len() { sampler.next(row) } else { 0 }
        })?;
        drop(sequences);
        self.append(pass, tokens.into_iter());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::sampling::Sampler;
    use crate::sampling::Sampling;
    use crate::setup::Setup;
    use hwprofiles::{DType, DeviceId, Machine, MemoryId};
    use planner::{Extent, LayerPlacement, Placement, whole};
    use scenarios::{Formats, Step, WeightFormats};
    use std::path::Path;

    #[test]
    fn a_lane_that_panics_ends_the_run_with_its_panic() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_gqa");
        let checkpoint = Checkpoint::open(&folder).expect("a golden model");
        let model = checkpoint.model().clone();
        let text = include_str!("../../hwprofiles/data/example-loopback.yaml");
        let machine = Machine::from_yaml(text, "example-loopback.yaml").expect("the example is right");
        // Three lanes wait for each other: the CPU embeds, a link streams to the other device.
        let far = |sublayer| vec![whole(&model, sublayer, MemoryId(0), DeviceId(1), DeviceId(1))];
        let layer = LayerPlacement::of(model.kind(0), far);
        let layers = vec![layer; model.layers as usize];
        let placement = Placement { layers, ..Placement::uniform(&model, DeviceId(0), MemoryId(0)) };
        let formats =
            Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 };
        let extent = Extent { batch: 1, context: 16, chunk: 4, step_tokens: 1 };
        let setup = Setup { machine, model, formats, placement, extent, plan: String::new() };
        // A panic leaves locks that nobody may use again.
        let engine = || Engine::new(setup.clone(), &checkpoint).expect("it fits");
        // The second pass asks for tokens that nobody has given: a mistake that no caller of ours can make.
        let mut steps = [Step::prefill(1, 4), Step { past_tokens: 4, ..Step::prefill(1, 4) }].into_iter();
        let sequence = || {
            let sampler = Sampler::new(Sampling::Greedy).expect("greedy");
            vec![Sequence { tokens: vec![1; 6], sampler }]
        };
        let first = engine();
        let run = Run::new(&first, sequence(), Instant::now(), true);
        let mut next = || steps.next().map(|step| Pass::uniform(&step, 1, 1));
        let played = catch_unwind(AssertUnwindSafe(|| run.play(|_, _: &Sender<()>| next(), |()| {})));
        let panic = played.expect_err("the panic arrives");
        let message = panic.downcast_ref::<String>().expect("a formatted message");
        assert!(message.contains("index out of bounds"), "{message}");
        // So does one of whoever says what is computed.
        let second = engine();
        let run = Run::new(&second, sequence(), Instant::now(), true);
        let lost = |_: &mut Moment<'_>, _: &Sender<()>| panic!("lost the score");
        let panic = catch_unwind(AssertUnwindSafe(|| run.play(lost, |()| {}))).expect_err("it arrives");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"lost the score"));
    }
}
