//! Lanes at work in thousands of orders: the real store, kernels and programs on threads of a
//! scheduler.

use super::lane::run_lane;
use crate::batch::pass::Pass;
use crate::batch::sampling::{Sampler, Sampling};
use crate::batch::sequence::SlotSequence;
use crate::run::engine::RunEngine;
use crate::run::shared::{BetweenPasses, SharedRun, TaskTimes};
use crate::setup::run_setup::RunSetup;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::random::make_random;
use hwprofiles::{BytesPerSec, DType, DeviceId, Machine, MemoryId, Seconds};
use kernels::Word;
use planner::{LayerPlacement, PhasePrograms, Pipelining, Placement, RunExtent, Slice, whole_slice};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use scenarios::{Formats, Model, Step, Sublayer, WeightFormats};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::Sender;
use std::time::Instant;

#[path = "../../../kernels/tests/schedules/scheduled_word.rs"]
mod scheduled_word;

pub(crate) use scheduled_word::{ScheduledWord, explore};

const EXTENT: RunExtent = RunExtent { batch: 2, context: 12, chunk: 4, step_tokens: 1 };

/// A machine of two devices with a link in each direction that takes no time.
fn machine() -> Machine {
    let text = include_str!("../../../hwprofiles/data/example-loopback.yaml");
    let mut machine = Machine::from_yaml(text, "example-loopback.yaml").expect("the example is right");
    for link in &mut machine.links {
        link.latency.value = Seconds::ZERO;
        link.bandwidth.value = BytesPerSec::new(1e15);
    }
    machine
}

/// Any placement of whole sublayers: any home, any device in each phase, 1 to 3 staging slots, 1 or
/// 2 micro-batches.
fn any_placement(model: &Model, seed: u64) -> Placement {
    let random = RefCell::new(Pcg64Mcg::seed_from_u64(seed));
    let pick = |n: usize| random.borrow_mut().random_range(0..n);
    let slices = |model: &Model, sublayer: Sublayer| -> Vec<Slice> {
        let (home, prefill, decode) = (MemoryId(pick(2)), DeviceId(pick(2)), DeviceId(pick(2)));
        vec![whole_slice(model, sublayer, home, prefill, decode)]
    };
    let layers = (0..model.layers)
        .map(|layer| {
            let place = |sublayer| slices(model.layer(layer), sublayer);
            LayerPlacement::from_slices(model.kind(layer), place)
        })
        .collect();
    let pipelining = Pipelining { slots: 1 + pick(3), micro_batches: 1 + pick(2) as u64 };
    let embed = DeviceId(pick(2));
    let embed = vec![whole_slice(model, Sublayer::Embed, MemoryId(embed.0), embed, embed)];
    Placement { embed, layers, head: slices(model, Sublayer::Head), pipelining }
}

/// A small model with random weights on `placement`, whose programs `edit` has changed. It lives as
/// long as the process, because the scheduler's threads may.
fn edited_engine(
    placement: impl Fn(&Model) -> Placement,
    edit: impl Fn(&mut PhasePrograms),
) -> &'static RunEngine {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("model");
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &folder, 1).expect("written");
    let checkpoint = Checkpoint::open(&folder).expect("it opens");
    let model = checkpoint.model().clone();
    let formats =
        Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 };
    let placement = placement(&model);
    let setup =
        RunSetup { machine: machine(), model, formats, placement, extent: EXTENT, plan: String::new() };
    let mut engine = RunEngine::new(setup, &checkpoint).expect("it fits");
    edit(&mut engine.programs);
    Box::leak(Box::new(engine))
}

/// A small model with random weights on `placement`.
pub(crate) fn engine(placement: impl Fn(&Model) -> Placement) -> &'static RunEngine {
    edited_engine(placement, |_| ())
}

/// As [`SharedRun::play`], on threads of the scheduler.
pub(crate) fn play(run: &SharedRun<'_>, schedule: impl FnMut(&mut BetweenPasses<'_>) -> Option<Pass> + Send) {
    let schedule = Mutex::new(schedule);
    let advance = || run.advance(&mut *schedule.lock().expect("no lane panics"));
    let sync = run.lane_sync::<ScheduledWord>();
    thread::scope(|scope| {
        let (sync, advance) = (&sync, &advance);
        let lanes = 0..run.engine.lanes.len();
        let lanes: Vec<_> =
            lanes.map(|lane| scope.spawn(move || run_lane(run, sync, lane, advance))).collect();
        for lane in lanes {
            lane.join().expect("it catches panics").unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

fn sequences() -> Vec<SlotSequence> {
    let sequence = |slot: u32| {
        let sampler = Sampler::new(Sampling::Greedy).expect("greedy");
        SlotSequence::new((0..5).map(|index| 7 + 31 * slot + 13 * index).collect(), sampler)
    };
    (0..EXTENT.batch as u32).map(sequence).collect()
}

/// The passes of two sequences: a prompt of 5 tokens in two chunks, then two new tokens.
fn passes(engine: &RunEngine) -> impl FnMut() -> Option<Pass> + Send {
    let parts = engine.setup.placement.pipelining.micro_batches;
    let chunk = |new, past| Step { past_tokens: past, ..Step::prefill(EXTENT.batch, new) };
    let mut steps = vec![Step::decode(EXTENT.batch, 5), chunk(1, 4), chunk(4, 0)];
    move || steps.pop().map(|step| Pass::uniform(&step, EXTENT.batch, parts))
}

/// The tokens of each sequence and the bits of the last logits.
fn result(run: SharedRun<'_>) -> (Vec<Vec<u32>>, Vec<u32>) {
    let device = run.engine.setup.placement.head[0].device(scenarios::Phase::Decode);
    let parts = run.engine.setup.placement.pipelining.micro_batches as usize;
    let rows = (0..parts).map(|_| EXTENT.batch as usize / parts);
    let mut bits = vec![];
    let read = run.engine.store.logits(device, rows, run.engine.setup.model.vocab, |logits| {
        bits.extend(logits.iter().map(|logit| logit.to_bits()));
    });
    read.expect("no GPU is there to fail");
    let sequences = run.sequences.into_inner().expect("no lane has panicked");
    (sequences.into_iter().map(|sequence| sequence.tokens).collect(), bits)
}

fn new_run(engine: &'static RunEngine) -> SharedRun<'static> {
    SharedRun::new(engine, sequences(), Instant::now(), TaskTimes::Each)
}

/// The result on the system's threads.
fn real_result(engine: &'static RunEngine) -> (Vec<Vec<u32>>, Vec<u32>) {
    let run = new_run(engine);
    let mut next = passes(engine);
    run.play(|_, _: &Sender<()>| next(), |()| {});
    let result = result(run);
    assert!(result.0.iter().all(|tokens| tokens.len() == 7), "{:?}", result.0);
    result
}

/// Checks that so many orders of the lanes give that result.
fn check_orders(engine: &'static RunEngine, expected: (Vec<Vec<u32>>, Vec<u32>), orders: usize) {
    explore(orders, move || {
        let run = new_run(engine);
        let mut next = passes(engine);
        play(&run, |_| next());
        assert!(run.take_failure().is_none());
        assert_eq!(result(run), expected);
    });
}

#[test]
fn the_order_of_lanes_changes_no_bit_on_any_placement() {
    for seed in 0..8 {
        let engine = engine(|model| any_placement(model, seed));
        check_orders(engine, real_result(engine), 200);
    }
}

#[test]
fn an_order_that_a_missing_dependency_allows_is_found() {
    let placement = |model: &Model| any_placement(model, 1);
    let expected = real_result(engine(placement));
    let broken = edited_engine(placement, |programs| {
        programs.decode.tasks.iter_mut().for_each(|task| task.after.clear());
    });
    let found = catch_unwind(AssertUnwindSafe(|| check_orders(broken, expected, 200)));
    assert!(found.is_err(), "no order went wrong");
}
