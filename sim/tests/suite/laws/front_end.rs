//! Laws of what stands between an engine and its clients.

use crate::cases::cases;
use crate::laws::queueing::{Prices, engine, poisson};
use crate::laws::serving::{Prices as LinearPrices, engines, requests, served};
use proptest::prelude::*;
use scenarios::Length;
use sim::SimTime;
use sim::serving::{
    EngineObserver, EngineSettings, FrontEnd, GeneratedRequests, Replica, Request, RequestOutcome,
    RequestSource, ServedRequest, StationTimes, serve,
};

struct Served(Vec<ServedRequest>);

impl EngineObserver for Served {
    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(one) = end {
            self.0.push(*one);
        }
    }
}

fn day(front_end: FrontEnd, prices: Prices, source: &mut impl RequestSource) -> Vec<ServedRequest> {
    let engine = EngineSettings { front_end, ..engine(64) };
    let mut all = Served(vec![]);
    serve(source, &mut Replica::new(engine, prices), &mut all).unwrap();
    all.0
}

fn picos(picos: u64) -> SimTime {
    SimTime::from_picos(picos)
}

fn one(output_tokens: u64) -> impl Iterator<Item = Request> {
    let prefix = vec![];
    std::iter::once(Request { id: 0, arrival: picos(500), prompt_tokens: 10, output_tokens, prefix })
}

const STEP: Prices = Prices { step: 1000, token: 0 };

#[test]
fn a_request_waits_for_its_tokens_and_its_client_for_the_first_that_are_sent_together() {
    let station = |per_request, per_token| StationTimes {
        per_request: picos(per_request),
        per_token: picos(per_token),
    };
    let plain = FrontEnd::default();
    let times = |front_end, output| {
        let all = day(front_end, STEP, &mut one(output));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].arrival, picos(500), "the client's own arrival");
        [all[0].ttft().picos(), all[0].e2el().picos()]
    };
    assert_eq!(times(plain, 8), [1000, 8000]);
    assert_eq!(times(FrontEnd { tokeniser: station(300, 7), ..plain }, 8), [1370, 8370]);
    assert_eq!(times(FrontEnd { per_request: picos(40), ..plain }, 8), [1040, 8040]);
    assert_eq!(times(FrontEnd { stream_interval: 5, ..plain }, 8), [5000, 8000]);
    assert_eq!(times(FrontEnd { stream_interval: 9, ..plain }, 8), [8000, 8000]);
    assert_eq!(times(FrontEnd { detokeniser: station(0, 200), ..plain }, 8), [1200, 8200]);
    // Text is made more slowly than tokens: the eighth token waits for all others.
    assert_eq!(times(FrontEnd { detokeniser: station(0, 1500), ..plain }, 8), [2500, 1000 + 8 * 1500]);
}

#[test]
fn prompts_that_wait_together_leave_the_tokeniser_together() {
    let tokeniser = StationTimes { per_request: picos(0), per_token: picos(10) };
    let front_end = FrontEnd { tokeniser, batch: 2, batch_wait: picos(5), ..FrontEnd::default() };
    let request = |(id, arrival): (u64, u64)| {
        let prefix = vec![];
        Request { id, arrival: picos(arrival), prompt_tokens: 10, output_tokens: 1, prefix }
    };
    let mut source = [(0, 0), (1, 3), (2, 4), (3, 500)].into_iter().map(request);
    let mut all = day(front_end, STEP, &mut source);
    all.sort_by_key(|one| one.id);
    // Two begin at 5 and take 100 each; the third begins behind them, the fourth after its wait.
    let scheduled: Vec<_> = all.iter().map(|one| one.scheduled.picos()).collect();
    assert_eq!(scheduled, [205, 205, 1205, 1205], "{all:?}");
    let alone = day(FrontEnd { batch: 1, ..front_end }, STEP, &mut [(0, 0), (1, 3)].into_iter().map(request));
    assert_eq!(alone.iter().map(|one| one.scheduled.picos()).collect::<Vec<_>>(), [100, 1100]);
}

#[test]
fn a_tokeniser_with_an_engine_that_takes_no_time_waits_as_m_d_1() {
    let (service, load) = (1e6, 0.7);
    let tokeniser = StationTimes { per_request: picos(600_000), per_token: picos(40_000) };
    let all = day(
        FrontEnd { tokeniser, ..FrontEnd::default() },
        Prices { step: 1, token: 0 },
        &mut poisson(200_000, service / load, |_| (10, 1)),
    );
    let mean = all.iter().map(|one| one.ttft().picos() as f64).sum::<f64>() / all.len() as f64;
    let theory = service + load * service / (2.0 * (1.0 - load));
    assert!((mean / theory - 1.0).abs() < 0.03, "{mean} for {theory}");
}

#[test]
fn users_get_no_more_text_than_the_detokeniser_makes() {
    let users = 8;
    let rate = |per_token: u64| {
        let detokeniser = StationTimes { per_request: SimTime::ZERO, per_token: picos(per_token) };
        let (prompt, output) = (Length::Fixed(10), Length::Uniform { from: 60, to: 100 });
        let mut source = GeneratedRequests::closed(users, 800, prompt, output, 3);
        let all = day(FrontEnd { detokeniser, ..FrontEnd::default() }, STEP, &mut source);
        let end = all.iter().map(|one| one.last_token.picos()).max().unwrap();
        all.iter().map(|one| one.output_tokens).sum::<u64>() as f64 / end as f64
    };
    let free = rate(0);
    for per_token in [1, 60, 120] {
        assert!((rate(per_token) / free - 1.0).abs() < 0.05, "{per_token}: the engine is slower");
    }
    for per_token in [250, 500, 2000] {
        let share = rate(per_token) * per_token as f64;
        assert!((0.93..=1.0).contains(&share), "{per_token}: {share} of what it makes");
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn tokens_that_are_sent_together_change_the_first_one_alone(
        engine in engines(), requests in requests(true), together in 2u64..40,
    ) {
        let by_interval = |stream_interval| {
            let front_end = FrontEnd { stream_interval, ..FrontEnd::default() };
            let engine = EngineSettings { front_end, ..engine.clone() };
            served(&engine, LinearPrices { stretch: 50 }, &requests)
        };
        let (plain, grouped) = (by_interval(1), by_interval(together));
        for (one, other) in plain.iter().zip(&grouped) {
            prop_assert_eq!(ServedRequest { first_token: one.first_token, ..*other }, *one);
            prop_assert!(other.first_token >= one.first_token && other.first_token <= other.last_token);
            if one.output_tokens <= together {
                prop_assert_eq!(other.first_token, other.last_token);
            }
        }
    }
}
