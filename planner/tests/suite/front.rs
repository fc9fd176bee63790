//! Fronts as text and as CSV.

use hwprofiles::{Dollars, Joules, Ratio, Seconds};
use planner::{Criterion, Front, FrontPoint, PhaseTimes, PointCriteria};

/// Values from seconds to the first token, seconds per further token, joules and dollars per token.
fn taken([ttft, tpot, joules, dollars]: [f64; 4]) -> PointCriteria {
    PointCriteria {
        times: PhaseTimes { ttft: Seconds::new(ttft), tpot: (tpot > 0.0).then_some(Seconds::new(tpot)) },
        energy_per_token: Some(Joules::new(joules)),
        cost_per_token: Some(Dollars::new(dollars)),
    }
}

fn point(placement: &str, simulated: [f64; 4]) -> FrontPoint {
    FrontPoint {
        placement: placement.to_owned(),
        prefill_chunk: 512,
        bound: taken(simulated.map(|value| value / 2.0)),
        simulated: taken(simulated),
        proven: None,
        beaten: false,
    }
}

/// A front with a dominated point and with a label that is longer than a line.
fn sample(criteria: &[Criterion]) -> Front {
    let quick =
        FrontPoint { proven: Ratio::new(0.875), ..point("80 of 80 layers on gpu", [0.25, 0.5, 12.5, 4e-6]) };
    let beaten = FrontPoint {
        beaten: true,
        ..point("48 of 80 layers on gpu, 32 on cpu+gpu", [1.25, 0.0625, 8.0, 2.5e-6])
    };
    let long = "30 of 80 layers on gpu, 25 on cpu+gpu, 15 on cpu, 6 on cpu+gpu+gpu-2, 4 on gpu-2";
    Front {
        criteria: criteria.to_vec(),
        points: vec![quick, beaten, point(long, [2.5, 0.03125, 6.75, 2.25e-6])],
    }
}

fn shown(front: &Front) -> String {
    format!("{front}---\n{}", front.to_csv())
}

#[test]
fn a_front_of_times_looks_like_this() {
    insta::assert_snapshot!(shown(&sample(&[Criterion::Ttft, Criterion::Tpot])));
}

#[test]
fn a_front_of_three_criteria_fits_80_columns_and_says_every_unit() {
    let front = sample(&[Criterion::Tpot, Criterion::Energy, Criterion::Cost]);
    assert!(front.to_string().lines().all(|line| line.chars().count() <= 80));
    insta::assert_snapshot!(shown(&front));
}

#[test]
fn a_front_of_a_single_token_has_no_time_per_token_and_no_remark_where_nothing_is_beaten() {
    let mut front = sample(&[Criterion::Ttft, Criterion::Tpot]);
    front.points.truncate(1);
    front.points[0] = point("a \"quoted\" label", [0.25, 0.0, 1.0, 1e-6]);
    insta::assert_snapshot!(shown(&front));
}
