//! The resource use of steps, against every task of every step priced by itself.

use crate::cases::cases;
use crate::machine::{machine, placed};
use hwprofiles::{DType, Machine, Provenance, Seconds};
use planner::{Action, CostModel, Lane, PhasePrograms, Placement, Program, Task};
use proptest::prelude::*;
use scenarios::{Costs, Formats, Model, Operator, Phase, Step, Sublayer, WeightFormats};
use sim::SimTime;
use sim::serving::{Account, Batch, EngineObserver, ObservedSteps, PrefillChunk, ResourceMeter, ResourceUse};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// Steps of one batch. Each further step has one more token for each decoding sequence.
#[derive(Debug, Clone)]
struct Series {
    chunks: Vec<PrefillChunk>,
    decodes: u64,
    decode_tokens: u64,
    sampled: u64,
    count: u64,
}

impl Series {
    fn observed(&self, begin: u64, count: u64, after: u64, to: &mut impl EngineObserver) {
        let decode_tokens = self.decode_tokens + after * self.decodes;
        let batch =
            Batch { chunks: &self.chunks, decodes: self.decodes, decode_tokens, sampled: self.sampled };
        let (begin, end) = (SimTime::from_picos(begin), SimTime::from_picos(begin + 1000 * count));
        to.steps(&ObservedSteps {
            begin,
            end,
            host: SimTime::from_picos(10 * count),
            count,
            batch,
            free_blocks: 0,
            price_set: 0,
            waiting: 0,
        });
    }

    /// The steps that make up the price of a task in one of the steps.
    fn parts(&self, model: &Model, task: &Task, after: u64) -> Vec<Step> {
        let row =
            |batch: u64, past_tokens: u64| Step { phase: Phase::Decode, batch, new_tokens: 1, past_tokens };
        let past = self.decode_tokens + after * self.decodes - self.decodes;
        let tokens = self.decodes + self.chunks.iter().map(|chunk| chunk.new).sum::<u64>();
        let before_chunks = self.chunks.iter().map(|chunk| chunk.past).sum::<u64>();
        match &task.action {
            Action::Compute { operator: Operator::Attention, .. } => {
                let chunk = |chunk: &PrefillChunk| {
                    let PrefillChunk { new: new_tokens, past: past_tokens } = *chunk;
                    Step { phase: Phase::Prefill, batch: 1, new_tokens, past_tokens }
                };
                let mut steps: Vec<_> = self.chunks.iter().map(chunk).collect();
                if self.decodes > 0 {
                    steps.push(row(self.decodes, past / self.decodes));
                }
                steps
            }
            // A chunk of latent attention expands the vectors of the tokens before it too.
            Action::Compute { operator: Operator::QkvProj, .. }
                if model.latent().is_some() && before_chunks > 0 =>
            {
                let phase = Phase::Prefill;
                vec![Step { phase, batch: 1, new_tokens: tokens, past_tokens: before_chunks }]
            }
            Action::FetchKv { .. } => {
                vec![row(1, past + before_chunks)]
            }
            Action::Compute { operator, .. } if operator.sublayer() != Sublayer::Head => vec![row(tokens, 0)],
            Action::Compute { .. } => vec![row(self.sampled, 0)],
            _ if task.layer.is_none() => vec![row(self.sampled, 0)],
            _ => vec![row(tokens, 0)],
        }
    }
}

fn series() -> impl Strategy<Value = Series> {
    let chunk = (1u64..90, 0u64..200).prop_map(|(new, past)| PrefillChunk { new, past });
    let entering = (prop::collection::vec(chunk, 1..4), 0u64..7, 1u64..80, 0u64..4).prop_map(
        |(chunks, decodes, mean, ended)| {
            let sampled = decodes + ended.min(chunks.len() as u64);
            Series { chunks, decodes, decode_tokens: decodes * mean + decodes / 2, sampled, count: 1 }
        },
    );
    let decoding = (1u64..7, 1u64..80, 0u64..5, 1u64..40).prop_map(|(decodes, mean, more, count)| {
        let decode_tokens = decodes * mean + more.min(decodes - 1);
        Series { chunks: vec![], decodes, decode_tokens, sampled: decodes, count }
    });
    prop_oneof![entering, decoding]
}

/// Prices everything step by step and task by task. Times are those of the devices' tasks without
/// sampling.
fn literal(cost_model: &CostModel<'_>, programs: &PhasePrograms, all: &[Series]) -> ResourceUse {
    let machine = cost_model.machine;
    let mut resource_use = ResourceUse {
        flop: 0,
        memories: vec![0; machine.memories.len()],
        links: vec![0; machine.links.len()],
        busy: vec![Seconds::ZERO; machine.devices.len()],
    };
    let mut add = |program: &Program, series: &Series, after: u64| {
        for task in &program.tasks {
            for (index, step) in series.parts(cost_model.model, task, after).iter().enumerate() {
                let price = cost_model.task_cost(task, step).unwrap();
                resource_use.flop += price.flop.get();
                for load in price.loads.into_iter().flatten() {
                    resource_use.memories[load.memory.0] += u128::from(load.bytes.get());
                }
                if let Some((link, bytes)) = price.carried {
                    resource_use.links[link.0] += u128::from(bytes.get());
                }
                if let Lane::Device(device) = task.lane {
                    // Attention to several chunks is launched once.
                    let again = if index == 0 { Seconds::ZERO } else { price.overhead };
                    resource_use.busy[device.0] += price.alone - again;
                }
            }
        }
    };
    for series in all {
        let program = if series.chunks.is_empty() { &programs.decode } else { &programs.prefill };
        (0..series.count).for_each(|after| add(program, series, after));
    }
    resource_use
}

fn one_by_one(meter: &mut ResourceMeter<'_>, all: &[Series]) {
    let mut begin = 0;
    for series in all {
        for after in 0..series.count {
            series.observed(begin, 1, after, meter);
            begin += 1000;
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn efforts_are_the_sums_of_all_tasks_of_all_steps(
        (model, placement) in placed(2), all in prop::collection::vec(series(), 0..6),
    ) {
        // Nothing limits the bytes of a memory whose bandwidth was measured, so sums are exact.
        let mut machine = machine();
        let measured = Provenance::Measured { date: "2026-11-26".into(), command: "made up".into(), spread: 0.0 };
        machine.memories.iter_mut().for_each(|memory| memory.bandwidth.source = measured.clone());
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
        let literal = literal(&cost_model, &programs, &all);
        let (mut summed, mut single) = (ResourceMeter::new(cost_model, &programs), ResourceMeter::new(cost_model, &programs));
        let mut begin = 0;
        for series in &all {
            series.observed(begin, series.count, 0, &mut summed);
            begin += 1000 * series.count;
        }
        one_by_one(&mut single, &all);
        for meter in [&summed, &single] {
            let resource_use = meter.resource_use().unwrap();
            prop_assert_eq!(resource_use.flop, literal.flop);
            prop_assert_eq!(&resource_use.memories, &literal.memories);
            prop_assert_eq!(&resource_use.links, &literal.links);
        }
        // A device that is not alone is busy as long as its tasks take, and one of them also
        // samples.
        let several = programs.decode.tasks.iter().any(|task| task.lane != programs.decode.tasks[0].lane)
            && programs.prefill.tasks.iter().any(|task| task.lane != programs.prefill.tasks[0].lane);
        if several {
            let busy = single.resource_use().unwrap().busy;
            let more: Vec<_> = busy.iter().zip(&literal.busy).map(|(ours, theirs)| ours.get() - theirs.get()).collect();
            let least = -1e-9 * literal.busy.iter().map(|busy| busy.get()).sum::<f64>();
            prop_assert!(more.iter().all(|&more| more >= least), "{:?}", more);
            prop_assert!(more.iter().filter(|&&more| more > -least).count() <= 2, "{:?}", more);
        }
    }
}

/// A GPU by itself: three decode steps of two sequences.
fn day(machine: &Machine, costs: &Costs) -> (ResourceUse, Account) {
    let model = crate::machine::tiny_model(2);
    let gpu = machine.device_named("gpu").unwrap();
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let programs = PhasePrograms::lower(machine, &model, &placement).unwrap();
    let cost_model = CostModel { machine, model: &model, formats: &FORMATS };
    let mut meter = ResourceMeter::new(cost_model, &programs);
    Series { chunks: vec![], decodes: 2, decode_tokens: 20, sampled: 2, count: 3 }
        .observed(0, 3, 0, &mut meter);
    let resource_use = meter.resource_use().unwrap();
    let duration = Seconds::new(2.0 * resource_use.busy[gpu.0].get());
    let account = Account::new(
        &cost_model,
        &programs,
        costs,
        &resource_use,
        duration,
        sim::serving::EngineCount { machines: 1, per_machine: 1 },
    );
    (resource_use, account)
}

#[test]
fn a_single_device_is_busy_outside_the_hosts_time_and_unknown_numbers_are_absent() {
    let mut machine = machine();
    let (resource_use, account) = day(&machine, &Costs::default());
    assert_eq!(
        resource_use.busy.iter().map(|busy| busy.get()).sum::<f64>(),
        SimTime::from_picos(2970).to_seconds().get()
    );
    assert_eq!(account.utilization["gpu"], 0.5);
    assert_eq!(account.utilization["cpu"], 0.0);
    assert!(account.bytes.values().all(|&bytes| bytes == 0.0), "{account:?}");
    assert!(account.memory_bytes["hbm"] > 0.0 && account.memory_bytes["dram"] == 0.0, "{account:?}");
    assert_eq!((account.energy_j, account.cost), (None, None));
    assert!(account.missing[0].contains("has no power: write"), "{account:?}");

    let watts = |watts: f64| Some(hwprofiles::Sourced::estimated(hwprofiles::Watts::new(watts), "made up"));
    for device in &mut machine.devices {
        (device.power, device.idle_power) = (watts(100.0), watts(20.0));
        device.price = Some(hwprofiles::Sourced::estimated(hwprofiles::Dollars::new(1000.0), "made up"));
    }
    machine.memories.iter_mut().for_each(|memory| memory.price_per_gb = None);
    let (resource_use, account) = day(&machine, &Costs::default());
    // Three devices wait for twice as long as one of them works.
    let busy = resource_use.busy.iter().map(|busy| busy.get()).sum::<f64>();
    let joules = 3.0 * 20.0 * 2.0 * busy + 80.0 * busy;
    assert!((account.energy_j.unwrap() / joules - 1.0).abs() < 1e-12, "{account:?}");
    assert!(account.cost.is_none() && account.missing[0].contains("costs.lifetime"), "{account:?}");

    let costs =
        Costs { lifetime: Some(hwprofiles::Years::new(1.0)), per_kwh: Some(hwprofiles::Dollars::new(3.6)) };
    let account = day(&machine, &costs).1;
    let year = hwprofiles::Years::new(1.0).to_seconds().get();
    let dollars = 3000.0 / year * 2.0 * busy + joules * 1e-6;
    assert!((account.cost.unwrap() / dollars - 1.0).abs() < 1e-12, "{account:?}");
    assert!(account.missing.is_empty());
}

#[test]
fn bytes_that_a_memory_of_assumed_bandwidth_has_no_time_for_are_left_out_of_sums_too() {
    let model = Model::preset("llama-3.1-8b").unwrap();
    for name in ["l40s", "rtx-4090", "h100-sxm"] {
        let machine = hwprofiles::Library::default().machine(name).unwrap();
        let gpu = machine.identical_gpus()[0];
        let memory = machine.device(gpu).memory;
        let programs =
            PhasePrograms::lower(&machine, &model, &Placement::uniform(&model, gpu, memory)).unwrap();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
        let prompt = |new, past| vec![PrefillChunk { new, past }];
        let all = [
            Series { chunks: prompt(700, 0), decodes: 3, decode_tokens: 2_400, sampled: 4, count: 1 },
            Series { chunks: prompt(2_048, 0), decodes: 40, decode_tokens: 44_000, sampled: 40, count: 1 },
            Series { chunks: vec![], decodes: 9, decode_tokens: 9_900, sampled: 9, count: 60 },
            Series { chunks: vec![], decodes: 64, decode_tokens: 70_000, sampled: 64, count: 2 },
        ];
        let literal = literal(&cost_model, &programs, &all).memories[memory.0] as f64;
        let mut meter = ResourceMeter::new(cost_model, &programs);
        all.iter().for_each(|series| series.observed(0, series.count, 0, &mut meter));
        let summed = meter.resource_use().unwrap().memories[memory.0] as f64;
        assert!((summed / literal - 1.0).abs() < 0.005, "{name}: {summed} for {literal}");
    }
}
