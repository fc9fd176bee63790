//! Shifts during a day, and engines that change their plan.

use crate::cases::cases;
use crate::laws::serving::{Observations, Prices, by_id, engines, requests};
use crate::machine::{machine, placements, tiny_model};
use hwprofiles::{Bytes, DType, DeviceId, MemoryId, Ratio, Seconds};
use planner::{CostModel, PhasePrograms, Placement, RunExtent, moved, usage};
use proptest::prelude::*;
use scenarios::{EngineChoice, Formats, Routing, Shift, ShiftChange, Slo, WeightFormats};
use sim::SimTime;
use sim::Tick;
use sim::serving::{
    Batch, Demand, EngineSettings, FleetController, ForecastTables, MultiPlanPrices, PlanAlternative,
    PlanPrices, Rebalancer, Replica, Request, RequestSource, RequestTotals, Router, ShiftedSource,
    StepPrices, serve_fleet,
};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

fn ratio(value: f64) -> Ratio {
    Ratio::new(value).unwrap()
}

fn seconds(picos: u64) -> Seconds {
    SimTime::from_picos(picos).to_seconds()
}

fn drained(mut source: impl RequestSource) -> Vec<Request> {
    std::iter::from_fn(|| source.next()).collect()
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn at_n_times_the_rate_the_requests_of_n_times_as_long_arrive(
        requests in requests(true), from in 0u64..20_000, lasts in 1u64..20_000, factor in 1u32..6,
    ) {
        let window = Shift {
            from: seconds(from),
            until: Some(seconds(from + lasts)),
            change: ShiftChange::Busier(ratio(factor.into())),
        };
        let all = drained(ShiftedSource::new(requests.iter().cloned(), &[window]));
        prop_assert!(all.is_sorted_by_key(|request| request.arrival));
        let count = |all: &[Request], until: u64| all.iter().filter(|r| r.arrival.picos() < until).count();
        // A picosecond is rounded at each boundary and each request. It stands for `factor`
        // picoseconds without the shift.
        let slack = (requests.len() as u64 + 3) * u64::from(factor);
        let (end, as_if) = (from + lasts, from + lasts * u64::from(factor));
        prop_assert!(count(&all, from) == count(&requests, from));
        prop_assert!(count(&all, end) >= count(&requests, as_if.saturating_sub(slack)));
        prop_assert!(count(&all, end) <= count(&requests, as_if + slack));
        let same = |a: &Request, b: &Request| (a.id, a.prompt_tokens, &a.prefix) == (b.id, b.prompt_tokens, &b.prefix);
        prop_assert!(all.iter().zip(&requests).all(|(a, b)| same(a, b)) && all.len() == requests.len());
    }

    #[test]
    fn prompts_are_longer_for_a_while_and_shifts_that_are_over_change_nothing(
        requests in requests(false), from in 0u64..20_000, factor in 2u32..9,
    ) {
        let change = ShiftChange::Longer(ratio(factor.into()));
        let shift = Shift { from: seconds(from), until: None, change: change.clone() };
        for (after, before) in drained(ShiftedSource::new(requests.iter().cloned(), &[shift])).iter().zip(&requests) {
            let factor = if before.arrival.picos() >= from { u64::from(factor) } else { 1 };
            prop_assert_eq!(after.prompt_tokens, (before.prompt_tokens * factor).max(u64::from(factor > 1)));
        }
        let over = Shift { from: seconds(1 << 50), until: None, change };
        prop_assert_eq!(drained(ShiftedSource::new(requests.iter().cloned(), &[over])), requests);
    }
}

/// Pauses and resizes of engines at given times.
struct Changes(Vec<(u64, u64, u64)>);

impl<P: StepPrices> FleetController<P> for Changes {
    fn due(&self) -> Option<SimTime> {
        self.0.last().map(|(at, ..)| SimTime::from_picos(*at))
    }

    fn act(&mut self, replicas: &mut [Replica<P>]) -> Result<(), hwprofiles::MissingRate> {
        let (at, time, blocks) = self.0.pop().expect("it is due");
        for replica in replicas {
            replica.pause(SimTime::from_picos(at), SimTime::from_picos(time));
            replica.resize(blocks);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn every_request_is_answered_once_through_pauses_and_resizes(
        engine in engines(), requests in requests(true), mut changes in prop::collection::vec((0u64..40_000, 0u64..3000, 1u64..70), 0..6),
    ) {
        changes.sort_by_key(|change| std::cmp::Reverse(change.0));
        let last = changes.first().map(|(.., blocks)| *blocks);
        let mut replicas = [Replica::new(engine.clone(), Prices { stretch: 50 })];
        let mut observed = [Observations::default()];
        let mut router = Router::new(Routing::RoundRobin, 0);
        let mut controller = Changes(changes);
        serve_fleet(&mut requests.iter().cloned(), &mut replicas, &mut router, &mut controller, &mut observed).unwrap();
        let [observed] = observed;
        prop_assert_eq!(observed.ends, requests.len());
        prop_assert_eq!(observed.gaps(), observed.served.iter().map(|one| one.output_tokens - 1).sum::<u64>());
        let served = by_id(observed.served);
        prop_assert!(served.windows(2).all(|pair| pair[0].id < pair[1].id));
        let [replica] = replicas;
        let seen = replica.totals();
        prop_assert_eq!((seen.requests, seen.answers), (served.len() as u64, served.len() as u64));
        // Changes after the last answer were not made.
        if controller.0.is_empty() {
            prop_assert!(replica.free_blocks() >= last.unwrap_or(engine.num_blocks));
        }
        prop_assert_eq!(replica.held_tokens(), 0);
    }

    #[test]
    fn moved_bytes_are_the_differences_of_the_memories_contents(
        (before, after) in (placements(&tiny_model(4), &machine()), placements(&tiny_model(4), &machine())),
        tokens in 1u64..100,
    ) {
        let (machine, model) = (machine(), tiny_model(4));
        let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
        let moves = moved(cost_model, &before, &after, tokens);
        let extent = RunExtent { batch: 1, context: tokens, chunk: 1, step_tokens: 1 };
        let held = |placement: &Placement| -> Vec<u64> {
            let bare = without_vectors(placement);
            let programs = PhasePrograms::lower(&machine, &model, &bare).unwrap();
            let used = usage(&machine, &model, &FORMATS, &bare, &programs, &extent);
            used.iter().map(|used| (used.weights + used.kv).get()).collect()
        };
        for (memory, (before, after)) in held(&before).into_iter().zip(held(&after)).enumerate() {
            let sum = |counts: &dyn Fn(&(MemoryId, MemoryId)) -> bool| -> Bytes {
                moves.iter().filter(|(way, _)| counts(way)).map(|(_, bytes)| *bytes).sum()
            };
            let (into, out) = (sum(&|way| way.1.0 == memory), sum(&|way| way.0.0 == memory));
            prop_assert_eq!(before + into.get(), after + out.get());
        }
        prop_assert!(moved(cost_model, &before, &before, tokens).is_empty());
        let back = moved(cost_model, &after, &before, tokens);
        prop_assert!(back.iter().all(|((from, to), bytes)| moves.get(&(*to, *from)) == Some(bytes)));
    }
}

/// The same homes with one computing device: small vectors are then always in the same memory.
fn without_vectors(placement: &Placement) -> Placement {
    let mut placement = placement.clone();
    let layers = placement.layers.iter_mut().flat_map(|layer| layer.sublayers.iter_mut());
    for slice in layers.flatten().chain(&mut placement.embed).chain(&mut placement.head) {
        (slice.prefill, slice.decode) = (DeviceId(0), DeviceId(0));
    }
    placement
}

fn engine(blocks: u64) -> EngineSettings {
    EngineSettings { max_num_seqs: 16, ..EngineSettings::from_choice(&EngineChoice::default(), blocks, 4096) }
}

fn demand(rate: u64, prompt: u64, output: u64) -> Demand {
    let mut demand = Demand::expected(prompt as f64, output as f64);
    let seen = RequestTotals {
        requests: rate,
        prompt_tokens: rate * prompt,
        answers: rate,
        output_tokens: rate * output,
    };
    demand.observe(SimTime::rounding_up(Seconds::new(1.0), Tick::Picosecond), seen, 0, 1);
    demand
}

#[test]
fn a_forecast_matches_the_step_times_and_a_slow_device_makes_it_no_faster() {
    let (machine, model) = (machine(), tiny_model(4));
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let placement = Placement::uniform(&model, DeviceId(1), machine.device(DeviceId(1)).memory);
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let forecasts = ForecastTables::new(cost_model, &programs, &engine(1000), 1024).unwrap();
    // Requests are so rare that each one is alone.
    let forecast_with = |slowdown: &[Ratio]| {
        let few = demand(1, 64, 128);
        let mut rare = few;
        (0..400).for_each(|second| {
            rare.observe(
                SimTime::rounding_up(Seconds::new(second as f64 + 2.0), Tick::Picosecond),
                seen_of(&few),
                0,
                1,
            )
        });
        forecasts.forecast(&rare, 1000, slowdown)
    };
    let forecast = forecast_with(&[]);
    let mut prices = PlanPrices::new(cost_model, &programs);
    let alone = prices.decode(1, 128).unwrap().at(128).to_seconds().get();
    assert!((forecast.tpot.get() / alone - 1.0).abs() < 0.05, "{forecast:?} and {alone}");
    let chunks = [sim::serving::PrefillChunk { new: 64, past: 0 }];
    let batch = Batch { chunks: &chunks, decodes: 0, decode_tokens: 0, sampled: 1 };
    let prefill = prices.step(&batch).unwrap().to_seconds().get();
    assert!((prefill..prefill + 1.2 * alone).contains(&forecast.ttft.get()), "{forecast:?} and {prefill}");
    let slow = forecast_with(&[Ratio::ONE, ratio(2.0)]);
    assert!((slow.tpot.get() / forecast.tpot.get() - 2.0).abs() < 0.02, "{slow:?} and {forecast:?}");
    assert_eq!(forecast_with(&[ratio(3.0)]), forecast, "a device that does nothing");
}

fn seen_of(_: &Demand) -> RequestTotals {
    RequestTotals { requests: 1, prompt_tokens: 64, answers: 1, output_tokens: 128 }
}

#[test]
fn engines_leave_a_device_that_has_become_slow_and_stay_where_nothing_is_gained() {
    let (machine, model) = (machine(), tiny_model(4));
    let mut slow = machine.clone();
    slow.devices[0] = slow.devices[0].slower(ratio(1000.0));
    let pricings = [&machine, &slow].map(|machine| CostModel { machine, model: &model, formats: &FORMATS });
    let on =
        |device: usize| Placement::uniform(&model, DeviceId(device), machine.device(DeviceId(device)).memory);
    // Such a small model is faster on the host.
    let placements = [on(0), on(1)];
    let programs = [0, 1].map(|plan| PhasePrograms::lower(&machine, &model, &placements[plan]).unwrap());
    let alternatives: Vec<_> = placements
        .iter()
        .zip(&programs)
        .map(|(placement, programs)| PlanAlternative {
            placement: placement.clone(),
            blocks: 1000,
            forecasts: ForecastTables::new(pricings[0], programs, &engine(1000), 1024).unwrap(),
        })
        .collect();
    let slow_from = SimTime::rounding_up(Seconds::new(100.0), Tick::Picosecond);
    let clock = || Seconds::ZERO;
    let day = |states: &[(SimTime, usize)], rebalances: bool| {
        let mut rebalancer = Rebalancer::new(
            pricings[0],
            &alternatives,
            0,
            states,
            Slo::default(),
            Demand::expected(64.0, 16.0),
            rebalances.then_some(&clock),
        );
        let mut replicas = [Replica::new(engine(1000), MultiPlanPrices::new(&programs, &pricings, 0))];
        let mut observed = [Observations::default()];
        let request = |id: u64| {
            let arrival = SimTime::rounding_up(Seconds::new(id as f64), Tick::Picosecond);
            Request { id, arrival, prompt_tokens: 64, output_tokens: 16, prefix: vec![] }
        };
        let mut router = Router::new(Routing::RoundRobin, 0);
        serve_fleet(&mut (0..200).map(request), &mut replicas, &mut router, &mut rebalancer, &mut observed)
            .unwrap();
        let [observed] = observed;
        let time: u64 = observed.served.iter().map(|one| one.e2el().picos()).sum();
        (time, observed.served.len(), rebalancer.record().moves.clone())
    };
    let (quiet, served, moves) = day(&[], true);
    assert_eq!((served, &moves[..]), (200, &[][..]));
    assert_eq!(quiet, day(&[], false).0);
    let (with, served, moves) = day(&[(slow_from, 1)], true);
    let plans: Vec<_> = moves.iter().map(|one| one.plans).collect();
    assert_eq!((served, plans), (200, vec![[0, 1]]));
    assert!(moves[0].at > slow_from && moves[0].bytes > Bytes::ZERO);
    let without = day(&[(slow_from, 1)], false).0;
    assert!(quiet < with && with < without / 4, "{quiet} < {with} < {without}");
}
