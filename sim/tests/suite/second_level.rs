//! The second level of the prefix cache on a real machine: the time to the first token, and the
//! hits in a recorded hour.

use hwprofiles::{Bytes, BytesPerSec, DType, Library, Machine};
use planner::{CostModel, PhasePrograms, Placement};
use scenarios::{EngineChoice, EngineProfile, Formats, Model, RequestTrace, Slo, SwapChoice, WeightFormats};
use sim::SimTime;
use sim::Tick;
use sim::serving::{
    EngineObserver, EngineSettings, KvOffload, KvOffloadError, PlanPrices, Replica, Request, ServedRequest,
    Summary, SummaryCollector, kv_blocks, serve,
};

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// Tokens of a name.
const NAME: u64 = 512;

fn choice(to: &str, space: Bytes) -> SwapChoice {
    SwapChoice { to: to.to_owned(), space, only_if_faster: true }
}

/// LIA's SPR-H100 with two CXL expanders.
fn machine() -> Machine {
    Library::default().machine("spr-h100-cxl").unwrap()
}

/// Calls `test` with Llama-3.1-8B on the machine's GPU, and vLLM's engine with all the blocks that
/// fit there.
fn placed<T>(machine: &Machine, test: impl FnOnce(CostModel<'_>, &Placement, EngineSettings) -> T) -> T {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let gpu = machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap();
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let cost_model = CostModel { machine, model: &model, formats: &BF16 };
    let blocks = kv_blocks(cost_model, &placement, 16, 8192, 0.9).unwrap();
    let engine = EngineChoice { profile: EngineProfile::shipped("vllm").unwrap(), ..EngineChoice::default() };
    let engine = EngineSettings::from_choice(&engine, blocks, model.max_positions);
    test(cost_model, &placement, engine)
}

fn level(
    machine: &Machine,
    choice: &SwapChoice,
    swap: Option<&SwapChoice>,
) -> Result<KvOffload, KvOffloadError> {
    placed(machine, |cost_model, placement, engine| engine.prefix_level(choice, swap, cost_model, placement))
}

#[test]
fn a_second_level_that_cannot_be_is_refused() {
    let mut machine = machine();
    let space = Bytes::new(1 << 36);
    let refused = |machine: &Machine, to: &str, space: Bytes, swap: Option<&SwapChoice>| {
        level(machine, &choice(to, space), swap).unwrap_err().to_string()
    };
    let unknown = refused(&machine, "tape", space, None);
    assert!(unknown.contains("engine.prefix_cache.to") && unknown.contains("cxl"), "{unknown}");
    // A name takes 64 MB.
    for bytes in [1 << 25, 1 << 60] {
        let size = refused(&machine, "cxl", Bytes::new(bytes), None);
        assert!(size.contains("engine.prefix_cache.space") && size.contains("one name"), "{size}");
    }
    // The swap space is taken already: of 256 GB, three quarters and a half.
    let swap = choice("cxl", space * 3);
    assert!(level(&machine, &choice("cxl", space * 2), None).is_ok());
    assert!(level(&machine, &choice("cxl", space * 2), Some(&choice("dram", space))).is_ok());
    assert!(refused(&machine, "cxl", space * 2, Some(&swap)).contains("engine.prefix_cache.space"));
    for link in &mut machine.links {
        link.bandwidth.value = BytesPerSec::ZERO;
    }
    let dead = refused(&machine, "cxl", space, None);
    assert!(dead.contains("no link from memory 'hbm' to memory 'cxl'"), "{dead}");
}

/// Serves requests on an engine with that second level, and with `num_blocks` blocks if given.
fn day(
    machine: &Machine,
    second_level: Option<KvOffload>,
    num_blocks: Option<u64>,
    requests: &[Request],
    observer: &mut impl EngineObserver,
) {
    placed(machine, |cost_model, placement, engine| {
        let programs = PhasePrograms::lower(machine, cost_model.model, placement).unwrap();
        let num_blocks = num_blocks.unwrap_or(engine.num_blocks);
        let engine = EngineSettings { num_blocks, second_level, ..engine };
        let mut replica = Replica::new(engine, PlanPrices::new(cost_model, &programs));
        serve(&mut requests.iter().cloned(), &mut replica, observer).unwrap();
    });
}

#[derive(Default)]
struct All(Vec<ServedRequest>);

impl EngineObserver for All {
    fn end(&mut self, end: &sim::serving::RequestOutcome) {
        if let sim::serving::RequestOutcome::Served(served) = end {
            self.0.push(*served);
        }
    }
}

/// A document of `document` tokens and a question of 256 tokens are sent twice. If `overwritten`,
/// another document between them overwrites the first in the KV cache. Returns the second answer.
fn repeated_document(
    machine: &Machine,
    second_level: Option<KvOffload>,
    document: u64,
    overwritten: bool,
) -> ServedRequest {
    let prompt_tokens = document + 256;
    let request = |id: u64, prefix: Vec<u64>| Request {
        id,
        arrival: SimTime::from_picos(id << 46),
        prompt_tokens,
        output_tokens: 1,
        prefix,
    };
    let known: Vec<u64> = (0..document / NAME).collect();
    let other = if overwritten { vec![] } else { known.clone() };
    let requests = [request(0, known.clone()), request(1, other), request(2, known)];
    let mut all = All::default();
    day(machine, second_level, Some(prompt_tokens.div_ceil(16)), &requests, &mut all);
    all.0[2]
}

#[test]
fn a_known_document_comes_sooner_from_cxl_than_from_computing_it_again() {
    let machine = machine();
    println!(
        "document of tokens: computed again, from CXL, from DRAM, in the KV cache; ms to the first token"
    );
    for document in [2, 4, 8, 16, 32, 64, 120].map(|names| names << 10) {
        let space = Bytes::new(1 << 37);
        let ttft = |to: Option<&str>, overwritten| {
            let second = to.map(|to| level(&machine, &choice(to, space), None).unwrap());
            let served = repeated_document(&machine, second, document, overwritten);
            assert_eq!(served.fetched_tokens, if to.is_some() { document } else { 0 });
            assert_eq!(served.cached_tokens, if overwritten { 0 } else { document });
            served.ttft().to_seconds()
        };
        let [again, cxl, dram, there] =
            [ttft(None, true), ttft(Some("cxl"), true), ttft(Some("dram"), true), ttft(None, false)];
        assert!(there < dram && dram < cxl && cxl < again, "{there}, {dram}, {cxl}, {again}");
        let [again, cxl, dram, there] = [again, cxl, dram, there].map(|time| time.get() * 1e3);
        println!(
            "{document:>7}: {again:8.1} {cxl:8.1} {dram:8.1} {there:8.1}, {:.1} times sooner",
            again / cxl
        );
    }
}

#[test]
fn over_a_slow_link_it_is_computed_again() {
    let machine = machine();
    let second = level(&machine, &choice("cxl", Bytes::new(1 << 36)), None).unwrap();
    let mut back = second.back;
    back.per_block = SimTime::from_picos(back.per_block.picos() * 100);
    let slow = repeated_document(&machine, Some(KvOffload { back, ..second }), 8192, true);
    assert_eq!(slow.fetched_tokens, 0);
    assert_eq!(slow.ttft(), repeated_document(&machine, None, 8192, true).ttft());
}

/// The requests of a conversation service, spread over four times the recorded time, which one GPU
/// can serve.
fn recorded() -> Vec<Request> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/traces/mooncake_conversation.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let trace = RequestTrace::new(text.as_bytes(), path).unwrap().map(Result::unwrap);
    let request = |(id, row): (usize, scenarios::RecordedRequest)| Request {
        id: id as u64,
        arrival: SimTime::rounding_up(row.at * 4.0, Tick::Picosecond),
        prompt_tokens: row.prompt_tokens,
        output_tokens: row.output_tokens,
        prefix: row.prefix,
    };
    trace.enumerate().map(request).collect()
}

#[test]
fn a_larger_second_level_finds_more_of_a_recorded_conversation() {
    let machine = machine();
    let requests = recorded();
    let largest = level(&machine, &choice("cxl", Bytes::new(1 << 37)), None).unwrap();
    let whole = |space: Option<KvOffload>| -> Summary {
        let mut tally = SummaryCollector::new(Slo::default());
        day(&machine, space, None, &requests, &mut tally);
        tally.summary(0, 0)
    };
    // 128 GiB, and the size of more expanders of that speed: 1.4 TB has room for everything.
    let spaces = [1, 2, 4, 8, 16].map(|times| Some(KvOffload { blocks: largest.blocks * times, ..largest }));
    let mut before = 0.0;
    for space in std::iter::once(None).chain(spaces) {
        let day = whole(space);
        let found = day.cached_share + day.fetched_share;
        println!(
            "{} blocks: {:.1} % in the KV cache, {:.1} % fetched, {} written, {} overwritten; TTFT {:.2} s, p90 {:.2} s",
            space.map_or(0, |space| space.blocks),
            day.cached_share * 100.0,
            day.fetched_share * 100.0,
            day.stored_blocks,
            day.evicted_blocks,
            day.ttft_s.mean,
            day.ttft_s.p90,
        );
        assert_eq!(day.requests.completed, 1000);
        assert!(found >= before, "{found} and {before}");
        before = found;
    }
    assert!(before > 0.1);
}
