//! Traces in the Chrome trace-event format.

use crate::cases::cases;
use crate::machine::{machine, placed};
use hwprofiles::DType;
use planner::{CostModel, PhasePrograms, steps};
use proptest::prelude::*;
use scenarios::{Formats, WeightFormats, Workload};
use serde_json::Value;
use sim::{BatchRun, perfetto};
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn the_picture_is_json_with_each_step_and_event_once_and_a_track_per_lane(
        (model, placement) in placed(2),
    ) {
        let machine = machine();
        let formats = Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let steps = steps(&Workload::new(1, 20, 3), 16);
        let trace = BatchRun::new(cost_model, &programs, &steps).trace("plan").unwrap();

        let picture: Value = serde_json::from_str(&perfetto(&[&trace, &trace])).unwrap();
        let events = picture["traceEvents"].as_array().unwrap();
        for process in [1, 2] {
            let events_of = |kind: &str| -> Vec<&Value> {
                events.iter().filter(|event| event["pid"] == process && event["ph"] == kind).collect()
            };
            let drawn = events_of("X");
            prop_assert_eq!(drawn.len(), trace.steps.len() + trace.events.len());
            // Track 0 has the steps. The others are named after their lanes.
            let names: Vec<_> = events_of("M").iter().filter(|m| m["name"] == "thread_name").map(|m| m["args"]["name"].as_str().unwrap()).collect();
            let lanes: BTreeSet<_> = trace.events.iter().map(|event| event.lane.as_str()).collect();
            prop_assert_eq!(names[0], "steps");
            prop_assert_eq!(names[1..].iter().copied().collect::<BTreeSet<_>>(), lanes.clone());
            prop_assert_eq!(names.len(), lanes.len() + 1);
            let track_name = |event: &Value| {
                let named = |m: &&&Value| m["name"] == "thread_name" && m["tid"] == event["tid"];
                events_of("M").iter().find(named).map(|m| m["args"]["name"].as_str().unwrap().to_owned())
            };
            for (drawn, event) in drawn[trace.steps.len()..].iter().zip(&trace.events) {
                prop_assert_eq!(track_name(drawn), Some(event.lane.clone()));
                prop_assert_eq!(drawn["name"].as_str().unwrap(), &event.name);
                let nanos = |key: &str| (drawn[key].as_f64().unwrap() * 1000.0).round() as u64;
                prop_assert_eq!((nanos("ts"), nanos("dur")), (event.start_ns, event.end_ns - event.start_ns));
                prop_assert_eq!(drawn["args"]["layer"].as_u64(), event.layer.map(u64::from));
                prop_assert_eq!(drawn["args"]["bytes"].as_str().unwrap().parse(), Ok(event.bytes));
                prop_assert_eq!(drawn["args"]["flop"].as_str().unwrap().parse(), Ok(event.flop));
            }
        }
    }
}
