//! Laws of fronts, on instances small enough to enumerate every solution.

use super::tradeoff::{Solver, Tradeoff};
use crate::fixture::{Spec, formats, model};
use crate::search::Restriction;
use crate::search::laws::{each_solution, goal, pick, space, specs};
use crate::search::{Measure, PatternGroup, PatternProgram, PatternSolution, SearchBudget};
use proptest::prelude::*;

/// The least difference that decides a tie.
const TIE: f64 = 1e-9;
/// Values that differ by a smaller share count as equal.
const SAME: f64 = 1e-6;

/// A smaller loss is rounding.
const ROUNDED: f64 = 1e-12;
/// A larger gain is seen in spite of rounding, however little it counts in a tie.
const BETTER: f64 = 1e-5;

/// Whether `one` is nowhere worse than `other`, not even slightly, and somewhere better.
fn beats(one: &[f64], other: &[f64]) -> bool {
    let pairs = || one.iter().zip(other);
    pairs().all(|(a, b)| *a <= b * (1.0 + ROUNDED)) && pairs().any(|(a, b)| *a < b * (1.0 - BETTER))
}

/// The criteria of each solution that fits and keeps the limits.
fn all_values(problem: &PatternProgram<'_>, criteria: &[Measure], limits: &[Measure]) -> Vec<Vec<f64>> {
    let mut all = Vec::new();
    each_solution(&problem.groups, &mut Vec::new(), &mut |kinds| {
        let solution = PatternSolution { kinds: kinds.clone(), value: 0.0 };
        let used = problem.used(&solution);
        let fits = used.iter().zip(&problem.capacity).all(|(used, capacity)| used <= capacity);
        if fits && limits.iter().all(|limit| solution.measured(limit) <= limit.limit) {
            all.push(criteria.iter().map(|criterion| solution.measured(criterion)).collect());
        }
    });
    all
}

/// Time to the first token, time per token, energy.
fn measures(watts: [f64; 2]) -> [Measure; 3] {
    let of = |weight, watts: [f64; 2]| {
        let busy = [watts.to_vec(), watts.map(|watts| watts * 31.0).to_vec()];
        Measure { weight, busy, limit: f64::INFINITY }
    };
    [of([1.0, 0.0], [0.0; 2]), of([0.0, 1.0], [0.0; 2]), of([0.0; 2], watts)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(96)) })]
    #[test]
    fn a_front_is_the_set_of_undominated_solutions_and_keeps_its_limits(
        spec in specs(), layers in 4u64..6, batch in 1u64..5, share in 0.0..1.2f64,
        some in prop::collection::vec(any::<prop::sample::Index>(), 2..6),
        few in prop::collection::vec(any::<prop::sample::Index>(), 1..3),
        watts in (1.0..500.0f64, 1.0..500.0f64), left_out in 0usize..4, limit in prop::option::of(0.8..3.0f64),
    ) {
        let (model, formats) = (model(layers, 256), formats());
        let machine = Spec { cxl: Some(1 << 40), ..spec }.machine(&model);
        let space = space(&machine, &model, &formats, batch);
        let mut problem = space.problem(Restriction::NONE, &goal(&machine, batch), &space.capacity(), SearchBudget::EXACT);
        pick(&mut problem, &few, &some);
        let most = |kind: &PatternGroup| kind.patterns.iter().map(|p| p.bytes[1]).max().unwrap() * kind.layers;
        let everything: u64 = problem.groups.iter().map(most).sum();
        problem.capacity[1] = (everything as f64 * share) as u64 + 1_000_000;
        let measures = measures([watts.0, watts.1]);
        // Three criteria, or two of them.
        let kept = measures.iter().enumerate().filter(|(index, _)| *index != left_out);
        let criteria: Vec<Measure> = kept.map(|(_, measure)| measure.clone()).collect();
        let free = all_values(&problem, &measures[1..2], &[]);
        let least = free.iter().map(|values| values[0]).fold(f64::INFINITY, f64::min);
        let limits: Vec<_> =
            limit.into_iter().map(|share| Measure { limit: least * share, ..measures[1].clone() }).collect();
        let all = all_values(&problem, &criteria, &limits);
        let solver: Box<Solver<'_>> =
            Box::new(|measures| PatternProgram { measures, ..problem.clone() }.solve());
        let Some(tradeoff) = Tradeoff::new(vec![solver], criteria, limits, TIE).unwrap() else {
            prop_assert!(all.is_empty());
            return Ok(());
        };
        let front = tradeoff.front(usize::MAX).unwrap();
        for point in &front {
            let same = |a: &f64, b: &f64| (a - b).abs() <= SAME * b;
            let is_point = |values: &Vec<f64>| values.iter().zip(&point.values).all(|(a, b)| same(a, b));
            prop_assert!(all.iter().any(is_point), "{point:?}");
            prop_assert!(!all.iter().any(|values| beats(values, &point.values)), "{point:?}");
            let keeps = |limit: &Measure| point.solution.measured(limit) <= limit.limit;
            prop_assert!(tradeoff.limits.iter().all(keeps));
        }
        for values in &all {
            let covers = |point: &[f64]| point.iter().zip(values).all(|(a, b)| *a <= b * (1.0 + SAME));
            prop_assert!(front.iter().any(|point| covers(&point.values)), "{values:?}");
        }
        // Fewer points: both ends, and only points of the front.
        let coarse = tradeoff.front(4).unwrap();
        let is_of_front = |values: &[f64]| !front.iter().any(|other| beats(&other.values, values));
        prop_assert!(coarse.iter().all(|point| is_of_front(&point.values)));
        if tradeoff.criteria.len() == 2 {
            prop_assert!(coarse.len() <= 5 && coarse.len() >= front.len().min(2), "{}", coarse.len());
        }
    }
}
