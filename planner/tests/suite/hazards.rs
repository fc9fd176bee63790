//! Laws of the lowering, checked on programs of random placements: on any schedule that respects
//! lanes and dependencies, every read sees the intended value, and nothing is overwritten before
//! its last read.

use crate::machine::{machine, placed, placements, tiny_model, tiny_parallel};
use hwprofiles::{DType, DeviceId};
use planner::{
    Action, Lane, LayerPlacement, MicroBatch, OperandSource, PhasePrograms, Placement, Program, RunExtent,
    Task, usage,
};
use proptest::prelude::*;
use scenarios::{ActivationBuffer, BlockOrder, Formats, Model, Operator, Phase, Sublayer, WeightFormats};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The smallest unit that is written and read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Column of a buffer on a device, in one micro-batch.
    Column(usize, ActivationBuffer, u64, u64),
    /// A staging slot of a device for weights.
    WeightSlot(usize, usize),
    /// The past or the new tokens of a micro-batch in a staging slot for KV.
    KvSlot(usize, usize, u64, KvPart),
    /// The new tokens of a micro-batch in the home of a layer's cache.
    KvHome(u32, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KvPart {
    Past,
    New,
}

/// The content of a place.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    /// The result of an operator of a layer.
    Of(Option<u32>, Operator),
    /// A device's partial sum of a layer's experts, or of a shared expert.
    Sum(Option<u32>, Operator, usize),
    /// A part of a matrix.
    Matrix(Option<u32>, Sublayer, Range<u64>),
    /// Part of a layer's KV.
    Kv(u32, KvPart),
}

#[derive(Debug, Default)]
struct GridCell {
    value: Option<Value>,
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// Checks a program in the order of issue and remembers all reads and writes.
struct Checker<'a> {
    model: &'a Model,
    program: &'a Program,
    /// For each task, the tasks that precede it on every schedule.
    before: Vec<Vec<bool>>,
    cells: BTreeMap<Place, GridCell>,
    /// The last value of each column of a micro-batch, on whichever device.
    latest: BTreeMap<(ActivationBuffer, u64, u64), Value>,
    /// For each micro-batch, the sums that devices have begun and that are not added yet.
    sums: BTreeMap<u64, Vec<(Operator, usize)>>,
}

impl<'a> Checker<'a> {
    fn new(model: &'a Model, program: &'a Program) -> Self {
        let mut before: Vec<Vec<bool>> = Vec::new();
        let mut last_of_lane: BTreeMap<Lane, usize> = BTreeMap::new();
        for (index, task) in program.tasks.iter().enumerate() {
            let mut mine = vec![false; program.tasks.len()];
            let in_lane = last_of_lane.insert(task.lane, index);
            for earlier in task.after.iter().map(|id| id.0 as usize).chain(in_lane) {
                assert!(earlier < index, "task {index} waits for a later one");
                mine[earlier] = true;
                mine.iter_mut().zip(&before[earlier]).for_each(|(mine, theirs)| *mine |= theirs);
            }
            before.push(mine);
        }
        Self {
            model,
            program,
            before,
            cells: BTreeMap::new(),
            latest: BTreeMap::new(),
            sums: BTreeMap::new(),
        }
    }

    fn read(&mut self, task: usize, place: Place, expected: &Value) {
        let cell = self.cells.entry(place).or_default();
        let what = || format!("task {task} ({}) reads {place:?}", self.program.tasks[task].name());
        assert_eq!(cell.value.as_ref(), Some(expected), "{}", what());
        let writer = cell.writer.expect("what has a value has a writer");
        assert!(self.before[task][writer], "{} while task {writer} may still write it", what());
        cell.readers.push(task);
    }

    fn write(&mut self, task: usize, place: Place, value: Value) {
        let cell = self.cells.entry(place).or_default();
        let what = || format!("task {task} ({}) writes {place:?}", self.program.tasks[task].name());
        for earlier in cell.readers.drain(..).chain(cell.writer).filter(|&earlier| earlier != task) {
            assert!(self.before[task][earlier], "{} while task {earlier} may still use it", what());
        }
        cell.writer = Some(task);
        cell.value = Some(value);
    }

    /// Reads all columns of `buffer` on `device`, which must have the latest version.
    fn read_buffer(&mut self, task: usize, device: usize, buffer: ActivationBuffer, columns: Range<u64>) {
        let part = self.program.tasks[task].micro_batch.index;
        let version = self.latest[&(buffer, part, columns.start)].clone();
        for column in columns {
            assert_eq!(self.latest[&(buffer, part, column)], version, "{buffer:?} is whole when it is read");
            self.read(task, Place::Column(device, buffer, part, column), &version);
        }
    }

    fn walk(&mut self) {
        for (index, task) in self.program.tasks.iter().enumerate() {
            let micro = task.micro_batch.index;
            match (&task.action, task.lane) {
                (Action::Compute { operator, rows, source }, Lane::Device(device)) => {
                    self.compute(index, task, device.0, *operator, rows, *source);
                }
                (Action::FetchWeights { sublayer, rows, device, slot }, _) => {
                    let value = Value::Matrix(task.layer, *sublayer, rows.clone());
                    self.write(index, Place::WeightSlot(device.0, *slot), value);
                }
                (Action::FetchKv { device, slot }, _) => {
                    // The slot is filled as a whole, so the users of its new part must be done too.
                    let layer = task.layer.unwrap();
                    let place = |part| Place::KvSlot(device.0, *slot, micro, part);
                    self.write(index, place(KvPart::Past), Value::Kv(layer, KvPart::Past));
                    let stale = Value::Kv(u32::MAX, KvPart::New);
                    self.write(index, place(KvPart::New), stale);
                }
                (Action::StoreKv { device, slot }, _) => {
                    let layer = task.layer.unwrap();
                    let new = Value::Kv(layer, KvPart::New);
                    self.read(index, Place::KvSlot(device.0, *slot, micro, KvPart::New), &new);
                    self.write(index, Place::KvHome(layer, micro), new);
                }
                (Action::Hop { buffer, columns, from, .. }, Lane::Device(device)) => {
                    for column in columns.clone() {
                        let there = self.cells.get(&Place::Column(from.0, *buffer, micro, column));
                        let value = match there.and_then(|cell| cell.value.clone()) {
                            Some(sum @ Value::Sum(_, _, device)) if device == from.0 => sum,
                            _ => self.latest[&(*buffer, micro, column)].clone(),
                        };
                        self.read(index, Place::Column(from.0, *buffer, micro, column), &value);
                        self.write(index, Place::Column(device.0, *buffer, micro, column), value);
                    }
                }
                (action, lane) => panic!("{action:?} on {lane:?}"),
            }
        }
    }

    fn compute(
        &mut self,
        index: usize,
        task: &Task,
        device: usize,
        operator: Operator,
        rows: &Range<u64>,
        source: OperandSource,
    ) {
        let micro = task.micro_batch.index;
        for &buffer in operator.reads().iter().filter(|&&buffer| buffer != ActivationBuffer::Tokens) {
            let columns = 0..buffer.columns(self.model);
            if operator.adds_partial_sums() && buffer != ActivationBuffer::Residual {
                // Each device's sum once, in the order in which they were begun.
                let (maker, from) = self.sums.get_mut(&micro).unwrap().remove(0);
                let sum = Value::Sum(task.layer, maker, from);
                columns
                    .for_each(|column| self.read(index, Place::Column(device, buffer, micro, column), &sum));
                continue;
            }
            self.read_buffer(index, device, buffer, columns);
        }
        let new = task.layer.map(|layer| Value::Kv(layer, KvPart::New));
        match (operator, source) {
            (Operator::Rotate, OperandSource::Resident | OperandSource::InPlace(_)) => {
                self.write(index, Place::KvHome(task.layer.unwrap(), micro), new.unwrap())
            }
            (Operator::Rotate, OperandSource::Staged(slot)) => {
                self.write(index, Place::KvSlot(device, slot, micro, KvPart::New), new.unwrap());
            }
            (Operator::Attention, OperandSource::Resident | OperandSource::InPlace(_)) => {
                self.read(index, Place::KvHome(task.layer.unwrap(), micro), &new.unwrap());
            }
            (Operator::Attention, OperandSource::Staged(slot)) => {
                let past = Value::Kv(task.layer.unwrap(), KvPart::Past);
                self.read(index, Place::KvSlot(device, slot, micro, KvPart::Past), &past);
                self.read(index, Place::KvSlot(device, slot, micro, KvPart::New), &new.unwrap());
            }
            (_, OperandSource::Staged(slot)) => {
                let matrix = Value::Matrix(task.layer, operator.sublayer(), rows.clone());
                self.read(index, Place::WeightSlot(device, slot), &matrix);
            }
            (_, OperandSource::Resident | OperandSource::InPlace(_)) => {}
        }
        let output = operator.writes();
        let columns = operator.output_columns(self.model, rows);
        if operator.makes_partial_sums() {
            let sums = self.sums.entry(micro).or_default();
            if !sums.contains(&(operator, device)) {
                sums.push((operator, device));
            }
        }
        for column in columns {
            let value = match operator.makes_partial_sums() {
                true => Value::Sum(task.layer, operator, device),
                false => Value::Of(task.layer, operator),
            };
            self.latest.insert((output, micro, column), value.clone());
            self.write(index, Place::Column(device, output, micro, column), value);
        }
    }
}

/// Checks that the program has every operator of the model in order, with the rows of each device,
/// for each micro-batch. Fetches serve all micro-batches.
fn check_work(model: &Model, placement: &Placement, program: &Program) {
    let mut expected = Vec::new();
    for (layer, sublayer, slices) in placement.sublayers() {
        for &operator in sublayer.operators(model) {
            if operator.is_matmul() {
                let part = |slice: &planner::Slice| {
                    (layer, operator, slice.device(program.phase), slice.rows.clone())
                };
                expected.extend(slices.iter().map(part));
                continue;
            }
            let devices: BTreeSet<_> = slices.iter().map(|slice| slice.device(program.phase)).collect();
            let times = if operator.adds_partial_sums() { devices.len() } else { 1 };
            let task = (layer, operator, slices[0].device(program.phase), 0..0);
            expected.extend(std::iter::repeat_n(task, times));
        }
    }
    for part in MicroBatch::all(placement.pipelining.micro_batches) {
        let tasks = program.tasks.iter().filter(|task| task.micro_batch == part);
        let computed: Vec<_> = tasks
            .filter_map(|task| match (&task.action, task.lane) {
                (Action::Compute { operator, rows, .. }, Lane::Device(device)) => {
                    Some((task.layer, *operator, device, rows.clone()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(computed, expected);
    }
    let far = |slice: &&planner::Slice| {
        machine().device(slice.device(program.phase)).memory != slice.home && !slice.rows.is_empty()
    };
    let streamed = placement.sublayers().flat_map(|(.., slices)| slices).filter(far).count();
    let is_fetch = |task: &&Task| matches!(task.action, Action::FetchWeights { .. });
    assert_eq!(program.tasks.iter().filter(is_fetch).count(), streamed);
    assert_eq!(placement.layers.len() as u64, model.layers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(128)))]

    #[test]
    fn every_read_sees_what_it_means_and_nothing_is_overwritten_too_early(
        (model, placement) in placed(3), decode: bool,
    ) {
        let machine = machine();
        let phase = if decode { Phase::Decode } else { Phase::Prefill };
        let program = Program::lower(&machine, &model, &placement, phase).unwrap();
        check_work(&model, &placement, &program);
        let mut checker = Checker::new(&model, &program);
        checker.walk();
        // The logits are complete where they are sampled.
        let head = placement.head[0].device(phase);
        let logits = Value::Of(None, Operator::HeadProj);
        for column in 0..model.vocab {
            for part in 0..placement.pipelining.micro_batches {
                let place = Place::Column(head.0, ActivationBuffer::Logits, part, column);
                prop_assert_eq!(checker.cells[&place].value.as_ref(), Some(&logits));
            }
        }
        // Each layer's new keys and values are in their home.
        for layer in 0..model.layers as u32 {
            let new = Value::Kv(layer, KvPart::New);
            for part in 0..placement.pipelining.micro_batches {
                prop_assert_eq!(checker.cells[&Place::KvHome(layer, part)].value.as_ref(), Some(&new));
            }
        }
    }

    #[test]
    fn a_task_waits_for_few_and_only_for_tasks_of_other_lanes((model, placement) in placed(6)) {
        let machine = machine();
        let program = Program::lower(&machine, &model, &placement, Phase::Decode).unwrap();
        let devices = machine.devices.len();
        for task in &program.tasks {
            prop_assert!(task.after.iter().all(|id| program.tasks[id.0 as usize].lane != task.lane));
            // The number does not grow with the layers: one fetch, one writer, and the hops of each
            // other device.
            prop_assert!(task.after.len() <= 2 * devices, "{} waits for {:?}", task.name(), task.after);
        }
    }

    #[test]
    fn where_everything_is_at_home_nothing_moves(device in 0usize..3) {
        let (machine, model) = (machine(), tiny_model(2));
        let device = hwprofiles::DeviceId(device);
        let placement = Placement::uniform(&model, device, machine.device(device).memory);
        let program = Program::lower(&machine, &model, &placement, Phase::Decode).unwrap();
        let computes = |task: &Task| matches!(task.action, Action::Compute { .. });
        prop_assert!(program.tasks.iter().all(computes));
        prop_assert!(program.tasks.iter().all(|task| task.after.is_empty()));
    }

    #[test]
    fn the_outline_of_a_placement_takes_what_its_layers_do_besides_weights_and_kv(
        placement in placements(&tiny_model(3), &machine()), order in prop::collection::vec(0usize..3, 1..24),
    ) {
        let (machine, model) = (machine(), tiny_model(order.len() as u64));
        let layers = order.iter().map(|&index| placement.layers[index].clone()).collect();
        let all = Placement { layers, ..placement };
        let outline = all.outline();
        let extent = RunExtent { batch: 4, context: 24, chunk: 8, step_tokens: 1 };
        let (kv, activations) = (DType::Bf16, DType::Bf16);
        let formats = Formats { weights: WeightFormats::all(DType::Bf16), kv, activations };
        let needs = |placement: &Placement| {
            let programs = PhasePrograms::lower(&machine, &model, placement).unwrap();
            let used = usage(&machine, &model, &formats, &all, &programs, &extent);
            used.iter().map(|used| (used.activations, used.staging)).collect::<Vec<_>>()
        };
        prop_assert_eq!(needs(&all), needs(&outline));
        // Each of three layers follows each of three, and the outline needs at most one further
        // layer for each pair.
        prop_assert!(outline.layers.len() <= all.layers.len().min(28), "{}", outline.layers.len());
    }
}

/// Whether `task` waits for `other`, directly or through other tasks.
fn waits_for(program: &Program, task: usize, other: usize) -> bool {
    let lane = program.tasks[task].lane;
    let before = (0..task).rev().find(|&earlier| program.tasks[earlier].lane == lane);
    let after = program.tasks[task].after.iter().map(|id| id.0 as usize);
    task == other || after.chain(before).any(|earlier| waits_for(program, earlier, other))
}

#[test]
fn halves_that_read_one_residual_do_not_wait_for_each_other() {
    let machine = machine();
    for block in [BlockOrder::Sequential, BlockOrder::Parallel, BlockOrder::ParallelOneNorm] {
        let model = tiny_parallel(2, block);
        let on = |device| Placement::uniform(&model, DeviceId(device), machine.devices[device].memory);
        let (mut placement, network) = (on(0), on(1));
        for (layer, other) in placement.layers.iter_mut().zip(&network.layers) {
            *layer = LayerPlacement::from_slices(layer.kind, |sublayer| match sublayer {
                Sublayer::FfnUp | Sublayer::FfnDown => other.slices(sublayer).clone(),
                _ => layer.slices(sublayer).clone(),
            });
        }
        let program = Program::lower(&machine, &model, &placement, Phase::Decode).unwrap();
        let computes = |wanted: Operator, layer: u32| {
            let is =
                |task: &Task| matches!(&task.action, Action::Compute { operator, .. } if *operator == wanted);
            program.tasks.iter().position(|task| is(task) && task.layer == Some(layer)).unwrap()
        };
        for layer in 0..2 {
            let down = computes(Operator::DownProj, layer);
            let waits = waits_for(&program, down, computes(Operator::Attention, layer));
            assert_eq!(waits, block == BlockOrder::Sequential, "{block:?}");
        }
        // The next layer waits for both.
        let next = computes(Operator::AttnNorm, 1);
        for sum in [Operator::AttnAdd, Operator::FfnAdd] {
            assert!(waits_for(&program, next, computes(sum, 0)), "{block:?} {sum}");
        }
    }
}
