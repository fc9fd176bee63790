//! One run: its steps, what its lanes share, and the trace that their records make.

use crate::engine::Engine;
use crate::error::Error;
use crate::lane::{self, Record};
use crate::sampling::Sampler;
use kernels::Flag;
use planner::{Event, Recorder, StepSpan, TaskId, Trace};
use scenarios::Step;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, RwLock};
use std::time::Instant;

/// What the lanes of a run share.
pub(crate) struct Run<'a> {
    pub engine: &'a Engine,
    pub steps: &'a [Step],
    /// In front of the first step, and behind each.
    pub gates: Vec<Gate>,
    /// The tokens of each sequence so far.
    pub history: RwLock<Vec<Vec<u32>>>,
    /// Every task of every step has its own flag: none is ever cleared, so none can be cleared too early.
    flags: Vec<Flag>,
    /// Each step's first flag.
    first_flag: Vec<usize>,
    sampler: Mutex<Sampler>,
    origin: Instant,
    aborted: AtomicBool,
}

/// Where all lanes wait for the last.
pub(crate) struct Gate {
    missing: AtomicUsize,
    open: Flag,
}

impl Gate {
    fn new(lanes: usize) -> Self {
        Self { missing: AtomicUsize::new(lanes), open: Flag::new() }
    }

    /// Arrives, and waits by `wait` until every lane has come.
    pub fn pass(&self, wait: impl Fn(&Flag)) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.open.set();
        }
        wait(&self.open);
    }
}

impl<'a> Run<'a> {
    pub fn new(engine: &'a Engine, steps: &'a [Step], history: Vec<Vec<u32>>, sampler: Sampler) -> Self {
        let (mut first_flag, mut flags) = (Vec::new(), 0);
        for step in steps {
            first_flag.push(flags);
            flags += engine.programs.of(step.phase).tasks.len();
        }
        let lanes = engine.lanes.len();
        Self {
            engine,
            steps,
            gates: (0..=steps.len()).map(|_| Gate::new(lanes)).collect(),
            history: RwLock::new(history),
            flags: (0..flags).map(|_| Flag::new()).collect(),
            first_flag,
            sampler: Mutex::new(sampler),
            origin: Instant::now(),
            aborted: AtomicBool::new(false),
        }
    }

    /// Runs all steps, one thread per lane, and tells `on_tokens` of every sampled step's tokens, one per sequence.
    pub fn play(&self, mut on_tokens: impl FnMut(&[u32])) -> Vec<Record> {
        let (said, heard) = channel();
        let result = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .engine
                .lanes
                .iter()
                .map(|&lane| {
                    let said = said.clone();
                    scope.spawn(move || {
                        // A lane that fails takes the others with it instead of leaving them waiting.
                        let result = catch_unwind(AssertUnwindSafe(|| lane::work(self, lane, &said)));
                        result.inspect_err(|_| self.abort())
                    })
                })
                .collect();
            drop(said);
            heard.into_iter().for_each(|tokens: Vec<u32>| on_tokens(&tokens));
            threads
                .into_iter()
                .map(|thread| thread.join().and_then(|result| result))
                .collect::<Result<Vec<_>, _>>()
        });
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The flag of a task in step number `step`.
    pub fn flag(&self, step: usize, task: TaskId) -> &Flag {
        &self.flags[self.first_flag[step] + task.0 as usize]
    }

    /// Nanoseconds since the run's origin.
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.flags.iter().chain(self.gates.iter().map(|gate| &gate.open)).for_each(Flag::set);
    }

    /// Appends a token to each sequence where `step` has reached its end, and returns them.
    pub fn sample(&self, step: &Step) -> Option<Vec<u32>> {
        let mut history = self.history.write().expect("no lane has panicked");
        let reached = (step.past_tokens + step.new_tokens) as usize;
        if reached < history.first()?.len() {
            return None;
        }
        let device = self.engine.setup.placement.head[0].device(step.phase);
        let mut sampler = self.sampler.lock().expect("no lane has panicked");
        let (batch, vocab) = (history.len() as u64, self.engine.setup.model.vocab);
        let tokens: Vec<u32> = self.engine.store.logits(device, batch, vocab, |row| sampler.next(row));
        for (sequence, &token) in history.iter_mut().zip(&tokens) {
            sequence.push(token);
        }
        Some(tokens)
    }

    /// The trace of what the lanes recorded. Time 0 is when the last lane was ready for the first step.
    pub fn trace(&self, records: &[Record]) -> Result<Trace, Error> {
        let engine = self.engine;
        let arrived = |gate: usize| records.iter().map(|record| record.arrivals[gate]).max().unwrap_or(0);
        let zero = arrived(0);
        let (mut steps, mut events) = (Vec::new(), Vec::new());
        let mut next = vec![0; records.len()];
        for (index, step) in self.steps.iter().enumerate() {
            steps.push(StepSpan::new(*step, arrived(index) - zero, arrived(index + 1) - zero));
            let program = engine.programs.of(step.phase);
            let mut times = vec![None; program.tasks.len()];
            for ((record, &lane), next) in records.iter().zip(&engine.lanes).zip(&mut next) {
                let tasks = engine.tasks_of(step.phase, lane);
                for (task, interval) in tasks.iter().zip(&record.tasks[*next..]) {
                    times[task.0 as usize] = Some(*interval);
                }
                *next += tasks.len();
            }
            for (task, time) in times.into_iter().enumerate() {
                let time = time.expect("every task of every step has run");
                let price = engine.setup.pricing().price(&program.tasks[task], step)?;
                let (id, start, end) = (TaskId(task as u32), time.start - zero, time.end - zero);
                events.push(Event::of(&engine.setup.machine, program, id, &price, index as u32, start, end));
            }
        }
        Ok(engine.setup.trace(Recorder::Measured, steps, events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::sampling::Sampling;
    use crate::setup::Setup;
    use hwprofiles::{DType, DeviceId, Machine, MemoryId};
    use planner::{Extent, LayerPlacement, Placement, whole};
    use scenarios::{Formats, WeightFormats};
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
        let engine = Engine::new(setup, &checkpoint).expect("it fits");
        // The second step asks for tokens that nobody has given: a mistake that no caller of ours can make.
        let steps = [Step::prefill(1, 4), Step { past_tokens: 4, ..Step::prefill(1, 4) }];
        let sampler = Sampler::new(Sampling::Greedy).expect("greedy");
        let run = Run::new(&engine, &steps, vec![vec![1; 6]], sampler);
        let panic = catch_unwind(AssertUnwindSafe(|| run.play(|_| {}))).expect_err("the panic arrives");
        let message = panic.downcast_ref::<String>().expect("a formatted message");
        assert!(message.contains("index out of bounds"), "{message}");
    }
}
