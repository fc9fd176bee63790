//! Timelines of a part of a serving day.

use crate::cases::cases;
use crate::laws::serving::{Prices, engines, requests};
use proptest::prelude::*;
use serde_json::Value;
use sim::SimTime;
use sim::serving::{Replica, ServingTimeline, serve};
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn a_window_shows_every_step_and_request_that_overlaps_it_begun_before_it_ends_and_in_order(
        engine in engines(), requests in requests(true), from in 0u64..2000, long in 1u64..5000,
    ) {
        let window = SimTime::from_picos(from * 1000)..SimTime::from_picos((from + long) * 1000);
        let mut picture = ServingTimeline::new(window.clone());
        let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
        serve(&mut requests.iter().cloned(), &mut replica, &mut picture).unwrap();
        let text = ServingTimeline::perfetto(&[picture], "model on machine").unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();

        let seen = |begin: SimTime, end: SimTime| begin < window.end && window.start < end;
        let served = crate::laws::serving::served(&engine, Prices { stretch: 50 }, &requests);
        let wanted = served.iter().filter(|one| seen(one.arrival, one.last_token)).count();
        let mut open: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let (mut at, mut shown) = (0.0, 0);
        for event in events.iter().filter(|event| event["ph"] != "M") {
            let time = event["ts"].as_f64().unwrap();
            prop_assert!(time >= at, "{}", event);
            at = time;
            match event["ph"].as_str().unwrap() {
                "X" => prop_assert!(event["dur"].as_f64().unwrap() >= 0.0 && event["name"].is_string()),
                "C" => prop_assert!(event["args"][event["name"].as_str().unwrap()].is_u64()),
                "b" => {
                    let name = event["name"].as_str().unwrap().to_owned();
                    let stack = open.entry(event["id"].as_u64().unwrap()).or_default();
                    shown += usize::from(stack.is_empty());
                    stack.push(name);
                }
                // The slice that began last ends first.
                "e" => {
                    let last = open.get_mut(&event["id"].as_u64().unwrap()).and_then(Vec::pop);
                    prop_assert_eq!(last.as_deref(), event["name"].as_str());
                }
                other => prop_assert!(false, "{}", other),
            }
        }
        prop_assert_eq!(shown, wanted);
        prop_assert!(open.values().all(Vec::is_empty));
        prop_assert!(events[0]["args"]["name"].as_str().unwrap().contains("model on machine"));
    }
}

#[test]
fn a_crowded_window_is_refused() {
    use sim::serving::{Batch, EngineObserver, ObservedSteps};
    let mut picture = ServingTimeline::new(SimTime::from_picos(0)..SimTime::MAX);
    let batch = Batch { chunks: &[], decodes: 1, decode_tokens: 5, sampled: 1 };
    for at in 0..100_001 {
        let (begin, end) = (SimTime::from_picos(at), SimTime::from_picos(at + 1));
        picture.steps(&ObservedSteps {
            begin,
            end,
            host: SimTime::from_picos(0),
            count: 1,
            batch,
            free_blocks: 3,
            price_set: 0,
            waiting: 0,
        });
    }
    let refusal = ServingTimeline::perfetto(&[picture], "").unwrap_err().to_string();
    assert!(refusal.starts_with("1 steps") && refusal.contains("shorter window"), "{refusal}");
}
