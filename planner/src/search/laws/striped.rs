//! Laws of machines with a memory that is striped over two others.

use super::{brute_force, goal, pick, space, specs, workload};
use crate::cost::CostModel;
use crate::fixture::{Spec, formats, model};
use crate::memory::{MemoryUsage, usage};
use crate::placement::{Placement, Slices};
use crate::program::{Action, BatchSteps, Lane, MicroBatch, PhasePrograms, Task, TaskIds, prefill_chunk};
use crate::search::column_pool::Restriction;
use crate::search::pattern::PatternGroup;
use crate::search::pattern_program::{SearchBudget, SolveResult};
use hwprofiles::{Bytes, DeviceId, Machine, MemoryId};
use proptest::prelude::*;
use scenarios::{Model, Sublayer};

const DRAM: MemoryId = MemoryId(0);
const HBM: MemoryId = MemoryId(1);
const CXL: MemoryId = MemoryId(2);
const STRIPED: MemoryId = MemoryId(3);

fn striped(spec: Spec, pages: [u64; 2]) -> Spec {
    Spec { cxl: Some(1 << 40), stripes: Some(pages), loopback: false, ..spec }
}

/// Everything is computed by the host, with weights and KV caches in `home`.
fn at_home(model: &Model, home: MemoryId) -> Placement {
    let cpu = DeviceId(0);
    Placement { embed: Placement::uniform(model, cpu, DRAM).embed, ..Placement::uniform(model, cpu, home) }
}

fn used(machine: &Machine, model: &Model, batch: u64, placement: &Placement) -> Vec<MemoryUsage> {
    let programs = PhasePrograms::lower(machine, model, placement).unwrap();
    let extent = BatchSteps::new(&workload(batch), prefill_chunk(&workload(batch))).extent;
    usage(machine, model, &formats(), placement, &programs, &extent)
}

proptest! {
    #[test]
    fn what_is_striped_takes_of_each_memory_its_share_of_the_pages(
        layers in 1u64..5, batch in 1u64..9, pages in [1u64..256, 1u64..256],
    ) {
        let model = model(layers, 256);
        let machine = striped(Spec::gpu(900_000_000), pages).machine(&model);
        let [alone, both] = [DRAM, STRIPED].map(|home| used(&machine, &model, batch, &at_home(&model, home)));
        prop_assert_eq!(both[STRIPED.0], MemoryUsage::default());
        for of in [|u: &MemoryUsage| u.weights.get(), |u: &MemoryUsage| u.kv.get()] {
            // Each matrix and cache is divided exactly to the byte.
            prop_assert_eq!(of(&both[DRAM.0]) + of(&both[CXL.0]), of(&alone[DRAM.0]));
            let moved: f64 = at_home(&model, STRIPED).sublayers().map(|(_, sublayer, slices)| {
                if sublayer == Sublayer::Embed { 0.0 } else { kept(&machine, &model, batch, sublayer, slices, of) }
            }).sum();
            let share = moved * pages[1] as f64 / (pages[0] + pages[1]) as f64;
            prop_assert!((of(&both[CXL.0]) as f64 - share).abs() <= 1.0 + 6.0 * layers as f64);
        }
    }

    #[test]
    fn a_stream_over_stripes_loads_each_memory_by_its_share(
        pages in [1u64..256, 1u64..256], host in any::<bool>(),
    ) {
        let model = model(1, 256);
        let machine = striped(Spec::gpu(900_000_000), pages).machine(&model);
        let formats = formats();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let (sublayer, step) = (Sublayer::FfnUp, BatchSteps::new(&workload(1), 96).decode);
        let rows = 0..sublayer.matrix(&model).unwrap().0;
        let bytes = sublayer.matrix_bytes(&model, formats.weights, &rows);
        let (lane, action) = if host {
            let (operator, source) = (scenarios::Operator::UpProj, crate::OperandSource::InPlace(STRIPED));
            (Lane::Device(DeviceId(0)), Action::Compute { operator, rows, source })
        } else {
            let link = machine.link_between(STRIPED, HBM).unwrap();
            (Lane::Link(link), Action::FetchWeights { sublayer, rows, device: DeviceId(1), slot: 0 })
        };
        let task = Task { lane, layer: Some(0), kind: None, micro_batch: MicroBatch::WHOLE, action, after: TaskIds::new() };
        let price = cost_model.task_cost(&task, &step).unwrap();
        let load = |memory| price.loads.into_iter().flatten().find(|l| l.memory == memory).map_or(Bytes::ZERO, |l| l.bytes);
        let share = bytes.as_f64() * pages[1] as f64 / (pages[0] + pages[1]) as f64;
        prop_assert!((load(CXL).as_f64() - share).abs() <= 1.0);
        prop_assert_eq!(load(STRIPED), Bytes::ZERO);
        if host {
            // Activations are in the host's own memory, and count too.
            prop_assert!(load(DRAM) + load(CXL) > bytes);
            prop_assert_eq!(price.moved(), load(DRAM) + load(CXL));
        } else {
            prop_assert_eq!((load(DRAM) + load(CXL), load(HBM), price.moved()), (bytes, bytes, bytes));
        }
        // No memory is read faster than its bandwidth.
        for load in price.loads.into_iter().flatten() {
            prop_assert!(price.alone >= load.bytes / machine.memory(load.memory).bandwidth.value);
        }
    }

    #[test]
    fn the_programs_bytes_are_those_of_the_placement_with_stripes_too(
        spec in specs(), batch in 1u64..9, pages in [1u64..9, 1u64..9], cxl in 1u64..20_000_000,
    ) {
        let model = model(3, 256);
        let spec = Spec { cxl: Some(cxl), capacity: [20_000_000, spec.capacity[1]], ..striped(spec, pages) };
        let machine = spec.machine(&model);
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let goal = goal(&machine, batch);
        let problem = space.problem(Restriction::NONE, &goal, &space.capacity(), SearchBudget::PLAN);
        if let Some(solution) = problem.solve().unwrap().solution {
            let placement = space.placement(&solution, &goal);
            let exact = used(&machine, &model, batch, &placement);
            let exact: Vec<_> = exact.iter().map(|used| used.total().get()).collect();
            prop_assert_eq!(&exact, &problem.used(&solution));
            prop_assert!(exact.iter().zip(&problem.capacity).all(|(used, capacity)| used <= capacity));
        }
    }

    #[test]
    fn with_stripes_the_search_finds_what_brute_force_finds(
        spec in specs(), layers in 2u64..5, batch in 1u64..5, pages in [1u64..9, 1u64..9],
        some in prop::collection::vec(any::<prop::sample::Index>(), 2..8),
        few in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        shares in [0.0..1.2f64, 0.0..1.2f64, 0.0..1.2f64],
    ) {
        let model = model(layers, 256);
        let machine = striped(spec, pages).machine(&model);
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let mut problem = space.problem(Restriction::NONE, &goal(&machine, batch), &space.capacity(), SearchBudget::EXACT);
        pick(&mut problem, &few, &some);
        for (memory, share) in shares.into_iter().enumerate() {
            let most = |kind: &PatternGroup| kind.patterns.iter().map(|p| p.bytes[memory]).max().unwrap() * kind.layers;
            let everything: u64 = problem.groups.iter().map(most).sum();
            problem.capacity[memory] = (everything as f64 * share) as u64 + 2_000_000;
        }
        let SolveResult { solution, bound } = problem.solve().unwrap();
        match (&solution, brute_force(&problem)) {
            (None, None) => {}
            (Some(found), Some(best)) => {
                prop_assert!((found.value - best).abs() <= 1e-9 * best, "{} and {best}", found.value);
                prop_assert!(bound <= best * (1.0 + 1e-9));
            }
            (found, best) => prop_assert!(false, "{found:?} and {best:?}"),
        }
    }
}

/// Bytes of the sublayer's matrix or KV cache.
fn kept(
    machine: &Machine,
    model: &Model,
    batch: u64,
    sublayer: Sublayer,
    slices: &Slices,
    of: fn(&MemoryUsage) -> u64,
) -> f64 {
    let extent = BatchSteps::new(&workload(batch), prefill_chunk(&workload(batch))).extent;
    let shared = crate::placement::ModelShare::in_memory(machine, model, DRAM);
    let kept = match sublayer {
        Sublayer::Attention => {
            MemoryUsage { kv: shared.kv_bytes(&formats(), batch, extent.context), ..MemoryUsage::default() }
        }
        _ => {
            let bytes = slices.iter().map(|slice| shared.matrix_bytes(sublayer, &formats(), &slice.rows));
            MemoryUsage { weights: bytes.sum(), ..MemoryUsage::default() }
        }
    };
    of(&kept) as f64
}
