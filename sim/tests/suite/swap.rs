//! The swap space of a real machine: the time of a block, and the value of swapping when blocks are
//! short.

use hwprofiles::{Bytes, BytesPerSec, DType, Library, Machine};
use planner::{CostModel, PhasePrograms, Placement};
use scenarios::{EngineChoice, EngineProfile, Formats, Length, Model, Slo, SwapChoice, WeightFormats};
use sim::SimTime;
use sim::Tick;
use sim::serving::{
    EngineSettings, GeneratedRequests, KvOffload, KvOffloadError, PlanPrices, Replica, Summary,
    SummaryCollector, serve,
};

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

const BLOCK: u64 = 16;

fn choice(to: &str, space: Bytes, only_if_faster: bool) -> SwapChoice {
    SwapChoice { to: to.to_owned(), space, only_if_faster }
}

/// Calls `test` with Llama-3.1-8B on the machine's GPU.
fn placed<T>(machine: &Machine, test: impl FnOnce(CostModel<'_>, &Placement) -> T) -> T {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let gpu = machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap();
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    test(CostModel { machine, model: &model, formats: &BF16 }, &placement)
}

fn swap_of(machine: &Machine, choice: &SwapChoice) -> Result<KvOffload, KvOffloadError> {
    placed(machine, |cost_model, placement| {
        KvOffload::new_swap_space(choice, cost_model, placement, BLOCK, 8192)
    })
}

#[test]
fn a_block_takes_its_bytes_over_the_links_rate() {
    let machine = Library::default().machine("h100-sxm").unwrap();
    let space = Bytes::new(1 << 34);
    let swap = swap_of(&machine, &choice("dram", space, false)).unwrap();
    // Keys and values of 8 heads of 128 numbers in 32 layers.
    let bytes = Bytes::new(BLOCK * 2 * 8 * 128 * 2 * 32);
    assert_eq!(swap.blocks, space.get() / bytes.get());
    let [hbm, dram] = ["hbm", "dram"].map(|name| machine.memory_named(name).unwrap());
    for (transfer, from, to) in [(swap.out, hbm, dram), (swap.back, dram, hbm)] {
        let link = machine.link(machine.link_between(from, to).unwrap());
        assert_eq!(transfer.start, SimTime::rounding_up(link.latency.value, Tick::Picosecond));
        assert_eq!(transfer.per_block, SimTime::rounding_up(bytes / link.bandwidth.value, Tick::Picosecond));
    }
}

#[test]
fn a_swap_space_that_cannot_be_is_refused() {
    let mut machine = Library::default().machine("h100-sxm").unwrap();
    let refused = |machine: &Machine, to: &str, bytes: u64| {
        swap_of(machine, &choice(to, Bytes::new(bytes), false)).unwrap_err().to_string()
    };
    let unknown = refused(&machine, "tape", 1 << 34);
    assert!(unknown.contains("engine.swap_to") && unknown.contains("dram"), "{unknown}");
    for bytes in [1, 1 << 60] {
        assert!(refused(&machine, "dram", bytes).contains("engine.swap_space"));
    }
    for link in &mut machine.links {
        link.bandwidth.value = BytesPerSec::ZERO;
    }
    let dead = refused(&machine, "dram", 1 << 34);
    assert!(dead.contains("no link from memory 'hbm' to memory 'dram'"), "{dead}");
}

/// A closed loop of 64 users on an engine with `num_blocks` blocks.
fn day(machine: &Machine, num_blocks: u64, prefix_caching: bool, swap: Option<SwapChoice>) -> Summary {
    placed(machine, |cost_model, placement| {
        let programs = PhasePrograms::lower(machine, cost_model.model, placement).unwrap();
        let engine = EngineChoice {
            profile: EngineProfile::shipped("vllm").unwrap(),
            prefix_caching: Some(prefix_caching),
            ..EngineChoice::default()
        };
        let engine = EngineSettings::from_choice(&engine, num_blocks, cost_model.model.max_positions);
        let swap =
            swap.map(|swap| KvOffload::new_swap_space(&swap, cost_model, placement, BLOCK, 8192).unwrap());
        let mut replica =
            Replica::new(EngineSettings { swap, ..engine }, PlanPrices::new(cost_model, &programs));
        let mut tally = SummaryCollector::new(Slo::default());
        let length = |mean| Length::LogNormal { mean, cv: 1.0 };
        let mut requests = GeneratedRequests::closed(64, 600, length(600.0), length(600.0), 1);
        serve(&mut requests, &mut replica, &mut tally).unwrap();
        tally.summary(0, 0)
    })
}

#[test]
fn swapping_pays_where_the_link_is_faster_than_computing_again() {
    let space = Bytes::new(1 << 34);
    for name in ["h100-sxm", "rtx4090-desktop"] {
        let machine = Library::default().machine(name).unwrap();
        println!("{name}");
        for (num_blocks, caching) in [(1000, true), (1000, false), (2000, true), (2000, false)] {
            let ways = [None, Some(false), Some(true)].map(|faster| {
                day(&machine, num_blocks, caching, faster.map(|only| choice("dram", space, only)))
            });
            let [again, swap, cheaper] = ways.each_ref().map(|day| day.output_tokens_per_s);
            assert!(swap > again && cheaper == swap, "{name}: {again}, {swap}, {cheaper}");
            let found = if caching { "found again" } else { "not found" };
            println!("  {num_blocks} blocks, {found}: {again:.0}, {swap:.0}, {cheaper:.0} tokens/s");
            for (way, day) in ["recompute", "swap", "cheaper"].iter().zip(&ways) {
                println!(
                    "    {way}: {} sent back, {} blocks out, {} back, TPOT p99 {:.1} ms",
                    day.preemptions,
                    day.swapped_out_blocks,
                    day.swapped_in_blocks,
                    day.tpot_s.p99 * 1e3
                );
            }
        }
    }
}

#[test]
fn over_a_slow_link_blocks_are_swapped_only_if_that_is_faster() {
    let mut machine = Library::default().machine("h100-sxm").unwrap();
    for link in &mut machine.links {
        link.bandwidth.value = link.bandwidth.value / 100.0;
    }
    let way = |faster: Option<bool>| {
        let swap = faster.map(|only| choice("dram", Bytes::new(1 << 34), only));
        day(&machine, 2000, false, swap).output_tokens_per_s
    };
    let [again, swap, cheaper] = [way(None), way(Some(false)), way(Some(true))];
    assert!(swap < again * 0.95, "{swap} and {again}");
    assert!(cheaper >= again * 0.999, "{cheaper} and {again}");
}
