//! Steps of many programs whose tasks recur: each kind of task is priced once for each step.

use crate::step::simulator::{KindTable, Simulator, TaskKind, step_seconds};
use crate::step::steady_state::RepeatedTasks;
use hwprofiles::MissingRate;
use planner::{Action, CostModel, Lane, MicroBatch, Program, StepOverlap, StepProbe, Task};
use rustc_hash::FxHashMap;
use scenarios::{LayerKind, Step};

/// What the price of a task depends on beside the step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TaskKey {
    lane: Lane,
    kind: Option<LayerKind>,
    micro_batch: MicroBatch,
    action: Action,
}

impl TaskKey {
    fn new(task: &Task) -> Self {
        let Task { lane, kind, micro_batch, action, .. } = task;
        let action = action.without_slot();
        Self { lane: *lane, kind: *kind, micro_batch: *micro_batch, action }
    }
}

/// A program with the key of each of its tasks, by index.
pub(crate) struct KeyedProgram {
    pub program: Program,
    keys: Vec<u32>,
    /// Each key once.
    distinct: Vec<u32>,
    repeated: Vec<RepeatedTasks>,
    /// How its steps overlap, if they do.
    pub overlap: Option<StepOverlap>,
}

/// The prices of one step.
#[derive(Default)]
struct PricedStep {
    table: KindTable,
    /// By key, the kind in the table.
    kinds: Vec<Option<u32>>,
}

/// Simulates steps of programs of one cost model.
pub(crate) struct PricedSteps<'a> {
    simulator: Simulator<'a>,
    keys: FxHashMap<TaskKey, u32>,
    /// By key, what it stands for and its first task.
    known: Vec<TaskKey>,
    tasks: Vec<Task>,
    steps: FxHashMap<Step, PricedStep>,
    kind_of_task: Vec<u32>,
}

impl<'a> PricedSteps<'a> {
    pub fn new(cost_model: CostModel<'a>) -> Self {
        Self {
            simulator: Simulator::new(cost_model),
            keys: FxHashMap::default(),
            known: Vec::new(),
            tasks: Vec::new(),
            steps: FxHashMap::default(),
            kind_of_task: Vec::new(),
        }
    }

    pub fn keyed(&mut self, program: Program) -> KeyedProgram {
        let mut keys: Vec<u32> = Vec::with_capacity(program.tasks.len());
        // Most tasks do what the one in the same place of the layer before does.
        let (mut before, mut start) = (0, 0);
        for (index, task) in program.tasks.iter().enumerate() {
            if index > 0 && task.layer != program.tasks[index - 1].layer {
                (before, start) = (start, index);
            }
            let place = before + (index - start);
            let key = TaskKey::new(task);
            let known = keys.get(place).copied().filter(|&known| self.known[known as usize] == key);
            keys.push(known.unwrap_or_else(|| self.key(key, task)));
        }
        let mut used = vec![false; self.tasks.len()];
        keys.iter().for_each(|&key| used[key as usize] = true);
        let distinct = (0..).zip(used).filter_map(|(key, used)| used.then_some(key)).collect();
        let repeated = RepeatedTasks::find(&program, &keys);
        let overlap = StepOverlap::new(&self.simulator.cost_model(), &program);
        KeyedProgram { program, keys, distinct, repeated, overlap }
    }

    fn key(&mut self, key: TaskKey, task: &Task) -> u32 {
        *self.keys.entry(key).or_insert_with_key(|key| {
            self.known.push(key.clone());
            self.tasks.push(task.clone());
            self.tasks.len() as u32 - 1
        })
    }

    /// The prices of `step`, with those of `program` among them.
    fn priced(&mut self, program: &KeyedProgram, step: &Step) -> Result<&mut PricedStep, MissingRate> {
        let cost_model = self.simulator.cost_model();
        let priced = self.steps.entry(*step).or_default();
        priced.kinds.resize(self.tasks.len().max(priced.kinds.len()), None);
        for &key in &program.distinct {
            let kind = &mut priced.kinds[key as usize];
            if kind.is_none() {
                let price = cost_model.task_cost(&self.tasks[key as usize], step)?;
                *kind = Some(priced.table.kinds.len() as u32);
                priced.table.kinds.push(TaskKind::new(cost_model.machine, price));
            }
        }
        Ok(priced)
    }

    /// By key, the time of a task alone.
    fn alone(&mut self, program: &KeyedProgram, step: &Step) -> Result<Vec<f64>, MissingRate> {
        let PricedStep { table, kinds } = self.priced(program, step)?;
        let alone =
            |kind: &Option<u32>| kind.map_or(0.0, |kind| table.kinds[kind as usize].price.alone.get());
        Ok(kinds.iter().map(alone).collect())
    }
}

impl StepProbe for PricedSteps<'_> {
    type Program = KeyedProgram;
    type Error = MissingRate;

    /// The duration, and how long each device is at work where steps overlap.
    fn step(&mut self, program: &KeyedProgram, step: &Step) -> Result<Vec<f64>, MissingRate> {
        self.priced(program, step)?;
        let Self { simulator, steps, kind_of_task, .. } = self;
        let PricedStep { table, kinds } = steps.entry(*step).or_default();
        kind_of_task.clear();
        kind_of_task.extend(program.keys.iter().filter_map(|&key| kinds[key as usize]));
        let duration = simulator.step_of_kinds(&program.program, &program.repeated, kind_of_task, table);
        let tasks = program.program.tasks.iter().zip(&*kind_of_task);
        let alone = tasks.map(|(task, &kind)| (task.lane, table.kinds[kind as usize].price.alone.get()));
        let busy = program.overlap.as_ref().map(|overlap| overlap.busy(alone));
        Ok([vec![step_seconds(duration).get()], busy.unwrap_or_default()].concat())
    }

    /// The sum over the tasks of the difference between their times. Without contention, the
    /// durations of the steps differ by no more than this.
    fn difference(&mut self, program: &KeyedProgram, steps: [&Step; 2]) -> Result<Option<f64>, MissingRate> {
        let [one, other] = [self.alone(program, steps[0])?, self.alone(program, steps[1])?];
        let apart = |&key: &u32| (one[key as usize] - other[key as usize]).abs();
        Ok(Some(program.keys.iter().map(apart).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{DType, Library, Machine};
    use planner::{LayerPlacement, Pipelining, Placement, whole_slice};
    use proptest::prelude::*;
    use scenarios::{Formats, Model, Phase};

    /// A layer whose sublayers are with the host, with the accelerator, or fetched from the host's
    /// memory.
    fn layer(machine: &Machine, model: &Model, picks: &[usize; 8]) -> LayerPlacement {
        let gpu = machine.device_ids().nth(1).unwrap();
        let host = machine.device_ids().next().unwrap();
        let [dram, own] = [host, gpu].map(|device| machine.device(device).memory);
        let mut picks = picks.iter();
        LayerPlacement::from_slices(model.kind(0), |sublayer| {
            let (home, device) = [(dram, host), (own, gpu), (dram, gpu)][*picks.next().unwrap()];
            vec![whole_slice(model, sublayer, home, device, device)]
        })
    }

    /// The duration of a step with and without a search for a steady state, and the share of tasks
    /// that were simulated.
    fn durations(placement: &Placement, step: &Step) -> ([f64; 2], f64) {
        let machine = Library::default().machine("rtx4090-desktop").unwrap();
        let model = Model::preset("llama-3.1-8b").unwrap();
        let bf16 = DType::Bf16;
        let formats = Formats { weights: bf16.into(), kv: bf16, activations: bf16 };
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let mut steps = PricedSteps::new(cost_model);
        let mut program = steps.keyed(Program::lower(&machine, &model, placement, step.phase).unwrap());
        let short = steps.step(&program, step).unwrap()[0];
        let simulated = steps.simulator.simulated() as f64 / program.program.tasks.len() as f64;
        program.repeated.clear();
        ([short, steps.step(&program, step).unwrap()[0]], simulated)
    }

    fn placement(runs: &[(usize, [usize; 8])], again: usize, pipelining: Pipelining) -> Placement {
        let machine = Library::default().machine("rtx4090-desktop").unwrap();
        let model = Model::preset("llama-3.1-8b").unwrap();
        let all = runs.iter().flat_map(|(count, picks)| vec![layer(&machine, &model, picks); *count]);
        let layers: Vec<_> = all.collect();
        let host = machine.device_ids().next().unwrap();
        let uniform = Placement::uniform(&model, host, machine.device(host).memory);
        let layers = (0..again).flat_map(|_| layers.clone()).collect();
        Placement { layers, pipelining, ..uniform }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
        #[test]
        fn a_step_with_skipped_layers_takes_as_long_to_the_nanosecond(
            runs in prop::collection::vec((1usize..20, prop::array::uniform8(0usize..3)), 1..4),
            again in 1usize..6,
            (slots, micro_batches) in (Pipelining::SLOTS, 1u64..3),
            (batch, tokens) in (1u64..5, 1u64..2000),
            phase in prop::sample::select(vec![Phase::Prefill, Phase::Decode]),
        ) {
            let micro_batches = micro_batches.min(batch);
            let placement = placement(&runs, again, Pipelining { slots, micro_batches });
            let step = match phase {
                Phase::Prefill => Step::prefill(batch, tokens),
                Phase::Decode => Step::decode(batch, tokens),
            };
            let ([short, long], _) = durations(&placement, &step);
            prop_assert_eq!(short, long);
        }
    }

    #[test]
    fn of_two_hundred_equal_layers_few_are_simulated() {
        for pick in 0..3 {
            let placement = placement(&[(200, [pick; 8])], 1, Pipelining::default());
            let ([short, long], simulated) = durations(&placement, &Step::decode(1, 512));
            assert_eq!(short, long);
            assert!(simulated < 0.1, "{simulated} of the tasks");
        }
    }
}
