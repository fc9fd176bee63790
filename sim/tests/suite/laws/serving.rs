//! A replica against a reference engine that has an object for every block and visits every
//! sequence in every step.

use crate::cases::cases;
use crate::laws::reference_engine::serve_by_reference;
use proptest::prelude::*;
use sim::SimTime;
use sim::serving::{
    AdmissionPolicy, Batch, EngineObserver, EngineSettings, FrontEnd, HostTimes, KvOffload, KvTransfer,
    Replica, Request, RequestOutcome, Reserve, SequenceBlocks, Series, SeriesBucket, ServedRequest,
    StateSnapshots, StepLine, StepPrices, serve,
};

/// Prices that are linear in everything, with lines over `stretch` tokens.
#[derive(Debug, Clone)]
pub struct Prices {
    pub stretch: u64,
}

impl StepPrices for Prices {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, hwprofiles::MissingRate> {
        let pairs: u64 = batch.chunks.iter().map(|p| p.new * (p.past + p.new)).sum();
        Ok(SimTime::from_picos(
            1000 + 70 * batch.tokens() + 3 * pairs + 5 * batch.decode_tokens + 11 * batch.sampled,
        ))
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, hwprofiles::MissingRate> {
        let from = tokens / self.stretch * self.stretch;
        Ok(StepLine { from, until: from + self.stretch, base: 1000 + 81 * decodes + 5 * from, per_token: 5 })
    }
}

pub fn served(engine: &EngineSettings, prices: Prices, requests: &[Request]) -> Vec<ServedRequest> {
    let mut observed = Observations::default();
    let mut replica = Replica::new(engine.clone(), prices);
    serve(&mut requests.iter().cloned(), &mut replica, &mut observed).unwrap();
    assert_eq!(replica.free_blocks(), engine.num_blocks, "all blocks come back");
    assert_eq!(replica.swapped_blocks(), 0, "and none are left in the swap space");
    observed.served
}

pub fn engines() -> impl Strategy<Value = EngineSettings> {
    let sizes = (1u64..6, 0u64..12, 8u64..60, 1u64..5);
    let slo = (1000u64..40_000, 800u64..5000).prop_map(|(ttft, tpot)| AdmissionPolicy::Slo {
        ttft: SimTime::from_picos(ttft),
        tpot: SimTime::from_picos(tpot),
    });
    let policy = prop_oneof![Just(AdmissionPolicy::Fcfs), Just(AdmissionPolicy::ShortestFirst), slo];
    let reserve = prop_oneof![
        Just(Reserve::Chunk),
        Just(Reserve::Prompt),
        Just(Reserve::Answer),
        Just(Reserve::WholeAnswer)
    ];
    let transfer = || {
        (0u64..500, 0u64..400).prop_map(|(a, b)| KvTransfer {
            start: SimTime::from_picos(a),
            per_block: SimTime::from_picos(b),
        })
    };
    let swap = (1u64..80, transfer(), transfer(), any::<bool>())
        .prop_map(|(blocks, out, back, only_if_faster)| KvOffload { blocks, out, back, only_if_faster });
    let second_level = prop::option::of(swap.clone());
    let swap = prop::option::of(swap);
    let habits = (any::<bool>(), any::<bool>(), any::<bool>(), reserve, policy, swap, second_level, 0u64..3);
    (sizes, habits).prop_map(
        |(
            (seqs, more, num_blocks, block_size),
            (chunked_prefill, prefix_caching, prefill_first, reserve, policy, swap, second_level, host),
        )| {
            EngineSettings {
                max_num_seqs: seqs,
                max_num_batched_tokens: seqs + more,
                max_model_len: 64,
                num_blocks,
                block_size,
                sequence: SequenceBlocks::default(),
                snapshots: StateSnapshots::default(),
                chunked_prefill,
                prefix_caching,
                prefix_tokens: block_size,
                prefilled: false,
                prefill_first,
                reserve,
                policy,
                swap,
                second_level,
                host: HostTimes {
                    per_step: SimTime::from_picos(host * 10),
                    per_sequence: SimTime::from_picos(host),
                },
                front_end: FrontEnd::default(),
            }
        },
    )
}

pub fn requests(named: bool) -> impl Strategy<Value = Vec<Request>> {
    let one = (0u64..8000, 0u64..40, 0u64..30, 0u64..4, 0usize..5);
    prop::collection::vec(one, 1..14).prop_map(move |all| {
        let mut at = 0;
        let request = |(id, (gap, prompt_tokens, output_tokens, family, names)): (
            usize,
            (u64, u64, u64, u64, usize),
        )| {
            at += gap;
            let names = if named { names } else { 0 };
            // Names of a family begin alike.
            let prefix = (0..names as u64).map(|index| family * 100 + index).collect();
            Request { id: id as u64, arrival: SimTime::from_picos(at), prompt_tokens, output_tokens, prefix }
        };
        all.into_iter().enumerate().map(request).collect()
    })
}

pub fn by_id(mut served: Vec<ServedRequest>) -> Vec<ServedRequest> {
    served.sort_by_key(|one| one.id);
    served
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn series_of_steps_are_the_steps_one_by_one(
        engine in engines(), requests in requests(true), stretch in 1u64..400,
    ) {
        let whole = served(&engine, Prices { stretch: 1 << 40 }, &requests);
        prop_assert_eq!(&served(&engine, Prices { stretch }, &requests), &whole);
        prop_assert_eq!(&served(&engine, Prices { stretch: 1 }, &requests), &whole);
    }

    #[test]
    fn a_replica_agrees_with_the_reference_engine(
        engine in engines(), requests in requests(false),
    ) {
        let ours = by_id(served(&engine, Prices { stretch: 50 }, &requests));
        prop_assert_eq!(ours, by_id(serve_by_reference(&engine, &requests, Prices { stretch: 50 })));
    }

    #[test]
    fn prefixes_are_found_as_in_the_reference_engine(
        engine in engines(), requests in requests(true),
    ) {
        let ours = by_id(served(&engine, Prices { stretch: 50 }, &requests));
        prop_assert_eq!(ours, by_id(serve_by_reference(&engine, &requests, Prices { stretch: 50 })));
    }
}

/// Adds up what it observes.
#[derive(Default)]
pub struct Observations {
    gaps: u64,
    /// The sum of all gaps.
    waited: u64,
    time: u64,
    pub served: Vec<ServedRequest>,
    pub ends: usize,
}

impl Observations {
    /// The number of gaps.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}

impl EngineObserver for Observations {
    fn gaps(&mut self, gap: SimTime, times: u64) {
        self.gaps += times;
        self.waited += gap.picos() * times;
    }

    fn steps(&mut self, steps: &sim::serving::ObservedSteps<'_>) {
        assert!(steps.begin.picos() >= self.time, "steps do not overlap");
        self.time = steps.end.picos();
    }

    fn end(&mut self, end: &RequestOutcome) {
        self.ends += 1;
        if let RequestOutcome::Served(one) = end {
            self.served.push(*one);
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn requests_are_conserved_and_every_token_but_the_first_has_a_gap(engine in engines(), requests in requests(true)) {
        let mut observed = Observations::default();
        let mut replica = Replica::new(engine, Prices { stretch: 50 });
        serve(&mut requests.iter().cloned(), &mut replica, &mut observed).unwrap();
        for one in &observed.served {
            let times = [one.arrival, one.scheduled, one.first_token, one.last_token];
            prop_assert!(times.is_sorted() && one.scheduled < one.first_token, "{:?}", one);
        }
        prop_assert_eq!(observed.ends, requests.len());
        prop_assert_eq!(observed.gaps, observed.served.iter().map(|one| one.output_tokens - 1).sum::<u64>());
        // Steps are so short here that no two gaps are reported as one.
        prop_assert_eq!(observed.waited, observed.served.iter().map(|one| (one.last_token - one.first_token).picos()).sum::<u64>());
        prop_assert_eq!((replica.running(), replica.waiting()), (0, 0));
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_series_adds_up_to_the_same_however_long_its_stretches(
        engine in engines(), requests in requests(true), every in 1u64..5000,
    ) {
        let series_of = |every: u64| {
            let mut series = Series::new(SimTime::from_picos(every));
            let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
            serve(&mut requests.iter().cloned(), &mut replica, &mut series).unwrap();
            series
        };
        let sums = |series: &Series| {
            let sum = |value: fn(&SeriesBucket) -> f64| series.buckets().iter().map(value).sum::<f64>();
            let whole = [sum(|s| s.steps), sum(|s| s.prompt_tokens), sum(|s| s.output_tokens)];
            (whole, series.buckets().iter().filter_map(|s| s.least_free_blocks).min())
        };
        // With the finest buckets there are so many that they are joined.
        let (fine, whole) = (series_of(every), series_of(1 << 60));
        prop_assert!(whole.buckets().len() <= 1);
        let ((fine_sums, least), (sums, of_all)) = (sums(&fine), sums(&whole));
        prop_assert!(fine_sums.iter().zip(sums).all(|(a, b)| (a - b).abs() <= 1e-6 * b), "{fine_sums:?} and {sums:?}");
        prop_assert_eq!(least, of_all);
        let mut both = fine.clone();
        both.join(series_of(every * 4));
        prop_assert!(both.bucket_time() >= fine.bucket_time());
        prop_assert!((both.buckets().iter().map(|s| s.steps).sum::<f64>() - 2.0 * sums[0]).abs() <= 1e-6 * sums[0]);
    }
}
