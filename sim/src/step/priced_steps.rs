//! Steps of many programs whose tasks recur: each kind of task is priced once for each step.

use crate::step::simulator::{KindTable, Simulator, TaskKind, step_seconds};
use hwprofiles::MissingRate;
use planner::{Action, CostModel, Lane, MicroBatch, OperandSource, Program, StepProbe, Task};
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
    /// Which slot a task uses does not change its price.
    fn new(task: &Task) -> Self {
        let mut action = task.action.clone();
        match &mut action {
            Action::Compute { source: OperandSource::Staged(slot), .. }
            | Action::FetchWeights { slot, .. }
            | Action::FetchKv { slot, .. }
            | Action::StoreKv { slot, .. } => *slot = 0,
            _ => {}
        }
        Self { lane: task.lane, kind: task.kind, micro_batch: task.micro_batch, action }
    }
}

/// A program with the key of each of its tasks, by index.
pub(crate) struct KeyedProgram {
    pub program: Program,
    keys: Vec<u32>,
    /// Each key once.
    distinct: Vec<u32>,
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
    /// By key, its first task.
    tasks: Vec<Task>,
    steps: FxHashMap<Step, PricedStep>,
    kind_of_task: Vec<u32>,
}

impl<'a> PricedSteps<'a> {
    pub fn new(cost_model: CostModel<'a>) -> Self {
        Self {
            simulator: Simulator::new(cost_model),
            keys: FxHashMap::default(),
            tasks: Vec::new(),
            steps: FxHashMap::default(),
            kind_of_task: Vec::new(),
        }
    }

    pub fn keyed(&mut self, program: Program) -> KeyedProgram {
        let key = |task: &Task| {
            *self.keys.entry(TaskKey::new(task)).or_insert_with(|| {
                self.tasks.push(task.clone());
                self.tasks.len() as u32 - 1
            })
        };
        let keys: Vec<u32> = program.tasks.iter().map(key).collect();
        let mut distinct = keys.clone();
        distinct.sort_unstable();
        distinct.dedup();
        KeyedProgram { program, keys, distinct }
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

    fn step(&mut self, program: &KeyedProgram, step: &Step) -> Result<Vec<f64>, MissingRate> {
        self.priced(program, step)?;
        let Self { simulator, steps, kind_of_task, .. } = self;
        let PricedStep { table, kinds } = steps.entry(*step).or_default();
        kind_of_task.clear();
        kind_of_task.extend(program.keys.iter().filter_map(|&key| kinds[key as usize]));
        let duration = simulator.step_of_kinds(&program.program, kind_of_task, table);
        Ok(vec![step_seconds(duration).get()])
    }

    /// The sum over the tasks of the difference between their times. Without contention, the
    /// durations of the steps differ by no more than this.
    fn difference(&mut self, program: &KeyedProgram, steps: [&Step; 2]) -> Result<Option<f64>, MissingRate> {
        let [one, other] = [self.alone(program, steps[0])?, self.alone(program, steps[1])?];
        let apart = |&key: &u32| (one[key as usize] - other[key as usize]).abs();
        Ok(Some(program.keys.iter().map(apart).sum()))
    }
}
