//! Laws of every run, on any placement.

use crate::cases::cases;
use crate::rig;
use executor::{ExecutorError, RunSetup, Sampling, Session, modelled};
use hwprofiles::{Bytes, DType, Seconds};
use planner::{
    Action, CostModel, Lane, PhasePrograms, PhaseTimes, Placement, Problem, Recorder, RunExtent, Trace,
};
use proptest::prelude::*;
use scenarios::{
    Costs, Formats, Model, Objective, Phase, Requirements, Slo, Sublayer, WeightClass, WeightFormats,
    Workload,
};

pub const EXTENT: RunExtent = RunExtent { batch: 2, context: 40, chunk: 11, step_tokens: 1 };

fn prompts(model: &Model, batch: usize, tokens: usize) -> Vec<Vec<u32>> {
    let token =
        |sequence: usize, index: usize| ((sequence * 131 + index * 37 + 5) % model.vocab as usize) as u32;
    (0..batch).map(|sequence| (0..tokens).map(|index| token(sequence, index)).collect()).collect()
}

pub fn generate(session: &mut Session, batch: usize, prompt: usize, output: u64) -> (Vec<Vec<u32>>, Trace) {
    let prompts = prompts(&session.setup().model, batch, prompt);
    let generation = session.generate(&prompts, output, Sampling::Greedy, |_| {}).expect("a valid prompt");
    (generation.tokens, generation.trace)
}

/// Every task ran once, in its lane's order, after all of its dependencies, and inside its step.
fn check_order(session: &Session, trace: &Trace) {
    let setup = session.setup();
    let programs = PhasePrograms::lower(&setup.machine, &setup.model, &setup.placement).expect("it ran");
    let mut events = trace.events.iter();
    let mut previous_end = 0;
    for (index, span) in trace.steps.iter().enumerate() {
        let program = programs.program(span.step.phase);
        let events: Vec<_> = events.by_ref().take(program.tasks.len()).collect();
        assert_eq!(span.start_ns, previous_end, "steps follow each other without a gap");
        let mut lane_end = std::collections::BTreeMap::<Lane, u64>::new();
        for (task, event) in events.iter().enumerate() {
            assert_eq!((event.step, event.task), (index as u32, task as u32));
            assert!(span.start_ns <= event.start_ns && event.start_ns <= event.end_ns, "{event:?}");
            assert!(event.end_ns <= span.end_ns, "{event:?} in {span:?}");
            let task = &program.tasks[task];
            for earlier in &task.after {
                assert!(events[earlier.0 as usize].end_ns <= event.start_ns, "{event:?} starts too early");
            }
            let lane_end = lane_end.entry(task.lane).or_insert(0);
            assert!(*lane_end <= event.start_ns, "{event:?} overtakes in its lane");
            *lane_end = event.end_ns;
        }
        previous_end = span.end_ns;
    }
    assert!(events.next().is_none());
}

proptest! {
    #![proptest_config(cases(24))]

    /// The two central laws, on any placement: the allocated bytes of every memory are those that
    /// the planner counts, and the placement changes no bit of the result.
    #[test]
    fn any_placement_takes_the_planned_bytes_and_gives_the_same_bits(
        seed in any::<u64>(),
        name in prop::sample::select([&rig::GOLDEN[..], &rig::MIXERS].concat()),
        weights in prop::sample::select(vec![DType::F32, DType::Bf16, DType::Fp8, DType::Int8, DType::Int4]),
        ffn in prop::sample::select(vec![DType::Bf16, DType::Fp8, DType::Int8, DType::Int4]),
        kv in prop::sample::select(vec![DType::F32, DType::Bf16, DType::Int8, DType::Int2]),
        (batch, prompt, output) in (1usize..=rig::BATCH, 1usize..24, 1u64..6),
    ) {
        let extent = RunExtent { batch: rig::BATCH as u64, ..EXTENT };
        let checkpoint = rig::checkpoint(name);
        let model = checkpoint.model();
        let weights = WeightFormats::all(weights).with(WeightClass::Ffn, ffn);
        let formats = Formats { weights, kv, ..rig::F32 };
        let placement = rig::random(model, seed);
        // Kernels sum in an order that depends on the number of rows, so both runs have the same
        // micro-batches.
        let micro_batches = placement.pipelining.micro_batches;
        let plain = rig::divided(rig::on(model, rig::CPU), micro_batches);
        let mut plain = rig::session(&checkpoint, plain, formats, extent);
        let mut session = rig::session(&checkpoint, placement, formats, extent);

        let setup = session.setup();
        let programs = PhasePrograms::lower(&setup.machine, model, &setup.placement).expect("it lowers");
        let usage = planner::usage(&setup.machine, model, &formats, &setup.placement, &programs, &extent);
        let planned: Vec<Bytes> = usage.iter().map(planner::MemoryUsage::total).collect();
        prop_assert_eq!(session.memory_used(), planned.clone());

        let (expected, _) = generate(&mut plain, batch, prompt, output);
        let (tokens, trace) = generate(&mut session, batch, prompt, output);
        prop_assert_eq!(tokens, expected);
        prop_assert!(session.logits().expect("they are read") == plain.logits().expect("they are read"), "logits differ in some bit");
        prop_assert_eq!(session.memory_used(), planned, "a run allocates nothing more");
        check_order(&session, &trace);
    }
}

#[test]
fn the_same_run_twice_gives_the_same_bits() {
    let checkpoint = rig::checkpoint("llama_gqa");
    let placement = rig::split(checkpoint.model());
    let mut session = rig::session(&checkpoint, placement, rig::formats(DType::Bf16, DType::Bf16), EXTENT);
    let first = generate(&mut session, 2, 13, 12).0;
    let logits = session.logits().expect("they are read");
    // Another run in between leaves no state behind.
    generate(&mut session, 1, 30, 3);
    assert_eq!(generate(&mut session, 2, 13, 12).0, first);
    assert_eq!(session.logits().expect("they are read"), logits);
}

#[test]
fn tokens_are_told_as_they_are_sampled_and_a_seed_repeats_them() {
    let checkpoint = rig::checkpoint("opt");
    let mut session = rig::session(&checkpoint, rig::on(checkpoint.model(), rig::CPU), rig::F32, EXTENT);
    let prompts = prompts(checkpoint.model(), 2, 5);
    let mut run = |seed| {
        let sampling = Sampling::Random { temperature: 1.5, top_k: Some(50), top_p: Some(0.9), seed };
        let mut received = vec![vec![]; 2];
        let generation = session.generate(&prompts, 9, sampling, |tokens| {
            received
                .iter_mut()
                .zip(tokens)
                .for_each(|(received, &token): (&mut Vec<u32>, _)| received.push(token));
        });
        let tokens = generation.expect("valid").tokens;
        assert_eq!(received, tokens);
        assert!(tokens.iter().all(|tokens| tokens.len() == 9));
        tokens
    };
    let first = run(1);
    assert_eq!(run(1), first);
    assert_ne!(run(2), first, "tokens of one seed in 384^18 are those of another");
}

/// A setup with links so slow that fetches take longer than computing.
fn overlap_setup(model: &Model) -> RunSetup {
    let mut setup = rig::setup(model, rig::streamed(model), rig::F32, EXTENT);
    for link in &mut setup.machine.links {
        link.bandwidth.value = hwprofiles::BytesPerSec::new(2e7);
    }
    setup
}

#[test]
fn a_streamed_run_fetches_the_next_weights_while_it_computes() {
    let checkpoint = rig::checkpoint("mistral_sharded");
    let setup = overlap_setup(checkpoint.model());
    let mut session = Session::new(setup, &checkpoint).expect("it fits");
    let (_, trace) = generate(&mut session, 2, 20, 4);
    check_order(&session, &trace);
    let tasks =
        |fetch: bool| trace.events.iter().filter(move |event| event.name.starts_with("fetch ") == fetch);
    let overlapping = tasks(true)
        .filter(|fetch| tasks(false).any(|task| task.start_ns < fetch.end_ns && fetch.start_ns < task.end_ns))
        .count();
    // Without prefetching no fetch would overlap. On an idle machine nearly all of them do. Beside
    // other tests on the same cores, the computing lane may be so late that both slots are full
    // before it starts.
    assert!(overlapping > 0, "no fetch overlaps with computing");
    // No fetch is faster than its link.
    for fetch in tasks(true) {
        let least = fetch.bytes / hwprofiles::BytesPerSec::new(2e7);
        assert!(Seconds::from_nanos(fetch.end_ns - fetch.start_ns).get() >= least.get() * 0.999, "{fetch:?}");
    }
}

#[test]
fn lanes_that_share_one_core_finish() {
    let checkpoint = rig::checkpoint("llama_gqa");
    let expected = {
        let mut plain = rig::session(&checkpoint, rig::on(checkpoint.model(), rig::CPU), rig::F32, EXTENT);
        generate(&mut plain, 2, 9, 5).0
    };
    // The second case names cores that no machine has: the run uses the available cores instead.
    for cores in [vec![0, 0, 0], vec![4000, 4001]] {
        for placement in [rig::split(checkpoint.model()), rig::streamed(checkpoint.model())] {
            let mut setup = rig::setup(checkpoint.model(), placement, rig::F32, EXTENT);
            for device in &mut setup.machine.devices {
                device.cores = cores.clone();
            }
            let mut session = Session::new(setup, &checkpoint).expect("it fits");
            assert_eq!(generate(&mut session, 2, 9, 5).0, expected, "cores {cores:?}");
        }
    }
}

#[test]
fn a_memory_one_byte_too_small_refuses_the_plan() {
    let checkpoint = rig::checkpoint("qwen2");
    let placement = rig::mixed(checkpoint.model());
    let used = rig::session(&checkpoint, placement.clone(), rig::F32, EXTENT).memory_used();
    for (memory, &used) in used.iter().enumerate() {
        let mut setup = rig::setup(checkpoint.model(), placement.clone(), rig::F32, EXTENT);
        setup.machine.memories[memory].capacity.value = used;
        Session::new(setup.clone(), &checkpoint).expect("exactly enough");
        setup.machine.memories[memory].capacity.value = used.saturating_sub(Bytes::new(1));
        let name = setup.machine.memories[memory].name.clone();
        let error = Session::new(setup, &checkpoint).err().expect("one byte is missing").to_string();
        assert!(error.contains(&format!("memory '{name}' is full")), "{error}");
    }
}

#[test]
fn setups_and_prompts_that_cannot_run_are_refused_with_what_would_be_right() {
    let checkpoint = rig::checkpoint("llama_gqa");
    let model = checkpoint.model();
    let good = rig::setup(model, rig::split(model), rig::F32, EXTENT);
    let refused = |change: &dyn Fn(&mut RunSetup)| {
        let mut setup = good.clone();
        change(&mut setup);
        Session::new(setup, &checkpoint).err().expect("it cannot run").to_string()
    };
    let expect = |message: String, words: &[&str]| {
        assert!(words.iter().all(|word| message.contains(word)), "{message:?} lacks one of {words:?}");
    };
    expect(
        refused(&|s| s.formats.weights = DType::F16.into()),
        &["formats.weights", "f16", "bf16, fp8, fp8_block, int8"],
    );
    expect(refused(&|s| s.formats.kv = DType::Int4), &["formats.kv", "int4", "f32, bf16, int8, int2"]);
    expect(refused(&|s| s.extent.batch = 0), &["extent.batch", "at least 1"]);
    expect(refused(&|s| s.placement.pipelining.slots = 17), &["pipelining.slots", "17", "from 1 to 16"]);
    expect(
        refused(&|s| s.placement.pipelining.micro_batches = 3),
        &["micro_batches", "3", "the 2 sequences"],
    );
    expect(refused(&|s| s.extent.context = 129), &["extent.context", "129", "128 positions"]);
    expect(refused(&|s| s.model.vocab += 1), &["checkpoint", "'llama_gqa'", "has vocab_size 385, not 384"]);
    expect(refused(&|s| s.placement.layers.truncate(1)), &["placement.layers", "the model has 2"]);
    expect(refused(&|s| s.placement.head[0].rows.end -= 1), &["head", "multiples of 32"]);
    expect(refused(&|s| s.placement.head.truncate(1)), &["head", "all 384"]);
    expect(
        refused(&|s| s.placement.embed[0].home = rig::LOOPBACK_MEMORY),
        &["embed", "loopback-memory", "reads it"],
    );
    expect(refused(&|s| s.placement.embed[0].decode.0 = 7), &["embed", "example-loopback", "fewer"]);
    expect(
        refused(&|s| s.machine.devices[0].kind = hwprofiles::DeviceKind::Gpu),
        &["a GPU computes", "bf16, int8, int4"],
    );
    expect(refused(&|s| s.machine.devices[1].cores.clear()), &["loopback", "core"]);
    expect(refused(&|s| s.machine.links.clear()), &["no link"]);
    expect(refused(&|s| s.machine.devices[1].gemm.clear()), &["loopback", "gemm", "fulcrum bench"]);

    let mut session = Session::new(good.clone(), &checkpoint).expect("it fits");
    let mut refused = |prompts: &[Vec<u32>], output| {
        let error = session.generate(prompts, output, Sampling::Greedy, |_| {}).expect_err("it cannot run");
        assert!(matches!(error, ExecutorError::Refused { .. }));
        error.to_string()
    };
    expect(refused(&[], 1), &["prompts", "empty"]);
    expect(refused(&[vec![]], 1), &["prompts", "empty"]);
    expect(refused(&[vec![1, 2], vec![1]], 1), &["1 tokens", "2 tokens"]);
    expect(refused(&[vec![1], vec![1], vec![1]], 1), &["3 sequences", "at most the 2"]);
    expect(refused(&[vec![1]], 0), &["output_tokens", "at least 1"]);
    expect(refused(&[vec![1; 20]], 22), &["42", "at most the 41"]);
    expect(refused(&[vec![384]], 1), &["token 384", "below 384"]);
    session.generate(&[vec![1; 20]], 21, Sampling::Greedy, |_| {}).expect("the last token needs no room");
}

#[test]
fn a_plan_runs_for_the_model_and_machine_it_was_made_for_and_no_other() {
    let checkpoint = rig::checkpoint("qwen2");
    let (machine, model) = (rig::machine(), checkpoint.model().clone());
    let workload = Workload { batch: 2, prompt_tokens: 20, output_tokens: 5, speculation: None };
    let cost_model = CostModel { machine: &machine, model: &model, formats: &rig::F32 };
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let question =
        Problem { cost_model, draft: None, requirements: Requirements { workload, objective, slo, costs } };
    // The score does not matter here.
    let score = |_: &Placement, _: u64| Ok(PhaseTimes { ttft: Seconds::new(1.0), tpot: None });
    let placement = rig::split(&model);
    let plan = planner::evaluate(&question, "given", placement.clone(), 16, &score).expect("it fits");
    let setup = RunSetup::from_plan(machine.clone(), model.clone(), &plan).expect("its own plan");
    assert_eq!(setup.placement, placement);
    let mut session = Session::new(setup, &checkpoint).expect("it fits");
    let planned: Vec<Bytes> =
        machine.memories.iter().map(|memory| plan.memory[&memory.name].total()).collect();
    assert_eq!(session.memory_used(), planned);
    let (_, trace) = generate(&mut session, 2, 20, 5);
    assert_eq!((trace.plan, trace.recorder), (plan.fingerprint(), Recorder::Measured));

    let other = RunSetup::from_plan(machine.clone(), rig::checkpoint("qwen3").model().clone(), &plan);
    let error = other.expect_err("another model").to_string();
    assert!(error.contains("model") && error.contains("qwen3"), "{error}");
    let mut other = machine;
    other.devices[0].cores.push(1);
    let error = RunSetup::from_plan(other, model, &plan).expect_err("another machine").to_string();
    assert!(error.contains("machine"), "{error}");
}

/// Where one device does everything alone, tasks never compete for bandwidth.
#[test]
fn modelled_time_is_the_simulators_where_nothing_is_shared() {
    let model = Model::preset("fulcrum-250m").expect("a preset");
    let extent = RunExtent { batch: 4, context: 700, chunk: 256, step_tokens: 1 };
    let steps = planner::steps(&Workload::new(4, 600, 20), 256);
    for device in [rig::CPU, rig::LOOPBACK] {
        let setup =
            rig::setup(&model, rig::on(&model, device), rig::formats(DType::Bf16, DType::Bf16), extent);
        let trace = modelled(&setup, &steps).expect("it models");
        assert_eq!(trace.recorder, Recorder::Modelled);
        compare_with_simulator(&setup, &trace, true);
    }
    // Devices that take turns: each fetches what the other has computed, and nothing overlaps.
    let turns = rig::mixed(&model);
    let setup = rig::setup(&model, turns, rig::formats(DType::Bf16, DType::Bf16), extent);
    compare_with_simulator(&setup, &modelled(&setup, &steps).expect("it models"), true);
    // With everything streamed, tasks compete, and the simulator cannot be faster.
    let setup = rig::setup(&model, rig::streamed(&model), rig::formats(DType::Bf16, DType::Bf16), extent);
    compare_with_simulator(&setup, &modelled(&setup, &steps).expect("it models"), false);
}

fn compare_with_simulator(setup: &RunSetup, trace: &Trace, equal: bool) {
    let cost_model = CostModel { machine: &setup.machine, model: &setup.model, formats: &setup.formats };
    let programs = PhasePrograms::lower(&setup.machine, &setup.model, &setup.placement).expect("it lowers");
    let mut simulator = sim::Simulator::new(cost_model);
    let mut events = trace.events.iter();
    for span in &trace.steps {
        let program = programs.program(span.step.phase);
        let outcome = simulator.step(program, &span.step).expect("priced");
        let duration = span.end_ns - span.start_ns;
        if !equal {
            assert!(outcome.duration.nanos() >= duration, "{:?}", span.step);
            events.by_ref().take(program.tasks.len()).for_each(drop);
            continue;
        }
        assert_eq!(outcome.duration.nanos(), duration, "{:?}", span.step);
        for (simulated, event) in outcome.spans.iter().zip(events.by_ref()) {
            let ours = (event.start_ns - span.start_ns, event.end_ns - span.start_ns);
            assert_eq!((simulated.start.nanos(), simulated.end.nanos()), ours, "{event:?}");
        }
    }
}

#[test]
fn a_modelled_run_honours_dependencies_too_and_repeats_itself() {
    let model = Model::preset("fulcrum-tiny").expect("a preset");
    let setup = rig::setup(&model, rig::split(&model), rig::F32, EXTENT);
    let steps = planner::steps(&Workload::new(2, 20, 3), 11);
    let trace = modelled(&setup, &steps).expect("it models");
    assert_eq!(trace, modelled(&setup, &steps).expect("it models"));
    let programs = PhasePrograms::lower(&setup.machine, &model, &setup.placement).expect("it lowers");
    let step = trace.steps.iter().position(|span| span.step.phase == Phase::Decode).expect("a decode step");
    let events: Vec<_> = trace.events.iter().filter(|event| event.step == step as u32).collect();
    for (task, event) in programs.decode.tasks.iter().zip(&events) {
        assert!(task.after.iter().all(|earlier| events[earlier.0 as usize].end_ns <= event.start_ns));
        if let Action::Compute { operator, .. } = task.action {
            assert!(operator.sublayer() != Sublayer::Embed || event.layer.is_none());
        }
    }
}
