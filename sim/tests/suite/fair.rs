//! Laws of max-min fair sharing.

use crate::cases::cases;
use hwprofiles::BytesPerSec;
use proptest::prelude::*;
use sim::{FairShare, Flow, MemoryDraw};

fn flow(rate: f64, draws: &[(usize, f64)]) -> Flow {
    let mut list = [None; 4];
    for (slot, &(pool, per_byte)) in list.iter_mut().zip(draws) {
        *slot = Some(MemoryDraw { pool, per_byte });
    }
    Flow { rate: BytesPerSec::new(rate), draws: list }
}

fn speeds(capacity: &[f64], flows: &[Flow]) -> Vec<f64> {
    let mut speeds = Vec::new();
    FairShare::new(capacity.iter().copied().map(BytesPerSec::new))
        .share(&flows.iter().collect::<Vec<_>>(), &mut speeds);
    speeds
}

fn draws(flow: &Flow) -> impl Iterator<Item = MemoryDraw> + '_ {
    flow.draws.iter().flatten().copied()
}

/// A flow's rate alone: the rate that it wants, limited by each of its pools.
fn peak(capacity: &[f64], flow: &Flow) -> f64 {
    draws(flow).fold(flow.rate.get(), |rate, draw| rate.min(capacity[draw.pool] / draw.per_byte))
}

fn rates(capacity: &[f64], flows: &[Flow]) -> Vec<f64> {
    speeds(capacity, flows).iter().zip(flows).map(|(speed, flow)| speed * peak(capacity, flow)).collect()
}

fn used(pool: usize, flows: &[Flow], rates: &[f64]) -> f64 {
    let through = |(flow, rate): (&Flow, &f64)| {
        draws(flow).filter(|draw| draw.pool == pool).map(|draw| draw.per_byte * rate).sum::<f64>()
    };
    flows.iter().zip(rates).map(through).sum()
}

const POOLS: usize = 4;

fn capacities() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1.0..100.0f64, POOLS)
}

fn flows(most: usize) -> impl Strategy<Value = Vec<Flow>> {
    let pools = prop::sample::subsequence((0..POOLS).collect::<Vec<_>>(), 0..=3);
    let weights = prop::collection::vec(prop_oneof![Just(1.0), Just(2.0), 0.3..3.0f64], 3);
    // Half of the flows want one of two rates, so that there are ties.
    let rate = prop_oneof![Just(10.0), Just(40.0), 0.5..200.0f64];
    let one = (rate, pools, weights)
        .prop_map(|(rate, pools, weights)| flow(rate, &pools.into_iter().zip(weights).collect::<Vec<_>>()));
    prop::collection::vec(one, 1..=most)
}

/// Max-min sharing by its definition. Bisection finds the largest level that all flows can have.
/// Flows that cannot be raised beyond it alone are settled. The rest is repeated.
fn by_bisection(capacity: &[f64], flows: &[Flow]) -> Vec<f64> {
    let feasible =
        |rates: &[f64]| (0..POOLS).all(|pool| used(pool, flows, rates) <= capacity[pool] * (1.0 + 1e-12));
    let peaks: Vec<_> = flows.iter().map(|flow| peak(capacity, flow)).collect();
    let mut settled: Vec<Option<f64>> = vec![None; flows.len()];
    while settled.contains(&None) {
        let at = |level: f64| -> Vec<f64> {
            settled.iter().zip(&peaks).map(|(settled, peak)| settled.unwrap_or(peak.min(level))).collect()
        };
        let (mut low, mut high) = (0.0, 300.0);
        for _ in 0..80 {
            let middle = (low + high) / 2.0;
            *(if feasible(&at(middle)) { &mut low } else { &mut high }) = middle;
        }
        let level = at(low);
        for index in (0..flows.len()).filter(|&index| settled[index].is_none()).collect::<Vec<_>>() {
            let mut raised = level.clone();
            raised[index] += 1e-7;
            if raised[index] > peaks[index] || !feasible(&raised) {
                settled[index] = Some(level[index]);
            }
        }
    }
    settled.into_iter().flatten().collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn no_pool_carries_more_than_it_can_and_nothing_runs_faster_than_alone(
        capacity in capacities(), flows in flows(8),
    ) {
        let rates = rates(&capacity, &flows);
        for (pool, capacity) in capacity.iter().enumerate() {
            prop_assert!(used(pool, &flows, &rates) <= capacity * (1.0 + 1e-9));
        }
        prop_assert!(speeds(&capacity, &flows).iter().all(|&speed| speed > 0.0 && speed <= 1.0));
    }

    #[test]
    fn a_slowed_flow_has_a_full_pool_in_which_no_flow_gets_more(capacity in capacities(), flows in flows(8)) {
        let (speeds, rates) = (speeds(&capacity, &flows), rates(&capacity, &flows));
        for (index, flow) in flows.iter().enumerate().filter(|&(index, _)| speeds[index] < 1.0) {
            let bottleneck = |draw: MemoryDraw| {
                let full = used(draw.pool, &flows, &rates) >= capacity[draw.pool] * (1.0 - 1e-9);
                let through = |other: &Flow| draws(other).any(|other| other.pool == draw.pool);
                let mut others = flows.iter().zip(&rates).filter(|(other, _)| through(other));
                full && others.all(|(_, rate)| *rate <= rates[index] * (1.0 + 1e-9))
            };
            prop_assert!(draws(flow).any(bottleneck), "flow {index} of {flows:?} has {rates:?}");
        }
    }

    #[test]
    fn shares_are_those_of_the_definition_by_bisection(capacity in capacities(), flows in flows(5)) {
        for (fast, slow) in rates(&capacity, &flows).iter().zip(by_bisection(&capacity, &flows)) {
            prop_assert!((fast - slow).abs() < 1e-5, "{fast} and {slow} in {flows:?}");
        }
    }

    #[test]
    fn like_flows_get_alike_in_any_order(capacity in capacities(), flows in flows(6)) {
        let twice: Vec<_> = flows.iter().chain(flows.iter().rev()).copied().collect();
        let speeds = speeds(&capacity, &twice);
        let count = twice.len();
        for index in 0..flows.len() {
            prop_assert_eq!(speeds[index], speeds[count - 1 - index]);
        }
    }

    #[test]
    fn a_new_flow_in_the_only_pool_speeds_no_flow_up(
        capacity in 1.0..100.0f64, wants in prop::collection::vec(0.5..200.0f64, 2..8),
    ) {
        let flows: Vec<_> = wants.iter().map(|&want| flow(want, &[(0, 1.0)])).collect();
        let with = speeds(&[capacity], &flows);
        let without = speeds(&[capacity], &flows[1..]);
        for (with, without) in with[1..].iter().zip(without) {
            prop_assert!(*with <= without * (1.0 + 1e-12));
        }
    }

    #[test]
    fn a_newcomer_never_raises_the_least_among_several_pools(capacity in capacities(), flows in flows(8)) {
        // A flow that is slowed in one pool may help others in another pool, but never the slowest
        // flow.
        let least = |rates: &[f64]| rates.iter().copied().fold(f64::INFINITY, f64::min);
        prop_assume!(flows.len() > 1);
        let with = rates(&capacity, &flows);
        let without = rates(&capacity, &flows[1..]);
        prop_assert!(least(&with[1..]) <= least(&without) * (1.0 + 1e-9));
    }

    #[test]
    fn a_flow_alone_runs_at_full_speed_even_above_the_capacity(
        capacity in capacities(), flows in flows(1), excess in 1.0..10.0f64,
    ) {
        let greedy = Flow { rate: flows[0].rate * excess * 100.0, ..flows[0] };
        prop_assert_eq!(speeds(&capacity, &[greedy]), [1.0]);
        // The same holds beside a flow that does not touch this pool.
        prop_assert_eq!(speeds(&capacity, &[greedy, flow(1.0, &[])]), [1.0, 1.0]);
    }

    #[test]
    fn twice_the_wants_of_twice_the_pools_are_the_same_speeds(capacity in capacities(), flows in flows(8)) {
        let double: Vec<_> = capacity.iter().map(|capacity| capacity * 2.0).collect();
        let faster: Vec<_> = flows.iter().map(|flow| Flow { rate: flow.rate * 2.0, ..*flow }).collect();
        prop_assert_eq!(speeds(&capacity, &flows), speeds(&double, &faster));
    }
}

#[test]
fn a_small_want_is_met_and_the_rest_goes_to_the_large_one() {
    let flows = [flow(10.0, &[(0, 1.0)]), flow(100.0, &[(0, 1.0)])];
    assert_eq!(speeds(&[60.0], &flows), [1.0, 50.0 / 60.0]);
}

#[test]
fn a_copy_within_one_memory_counts_as_its_reader_and_its_writer() {
    // Beside one reader it gets two of three shares, one for each direction.
    let flows = [flow(100.0, &[(0, 2.0)]), flow(100.0, &[(0, 1.0)])];
    assert_eq!(rates(&[60.0], &flows), [20.0, 20.0]);
}

#[test]
fn bandwidth_that_a_flow_leaves_in_one_pool_because_of_another_goes_to_others() {
    let flows = [flow(50.0, &[(0, 1.0), (1, 1.0)]), flow(50.0, &[(1, 1.0)])];
    let [through, local] = rates(&[10.0, 50.0], &flows)[..] else { panic!("two flows have two rates") };
    assert_eq!((through, local), (10.0, 40.0));
}
