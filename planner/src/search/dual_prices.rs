//! Shadow prices: what a second of each row, a byte of each memory and a unit of each limit are worth at the relaxed
//! optimum.
//!
//! Let λ_0 = 1 and λ_k ≥ 0 price the limits of the other measures, let μ_m ≥ 0 price the bytes of each memory, and let
//! α_r ≥ 0 share out what a second of each phase costs, Σ α_r = Σ λ_k · weight_k. No solution is better than
//! Σ α_r · time_r + Σ λ_k · add_k + Σ μ_m · (bytes_m − room_m) − Σ λ_k · limit_k. The best prices make the smallest of
//! these as large as possible; they are found by cutting planes (Kelley 1960): a linear program over the solutions
//! seen so far, then the solution that its prices like best, until that costs as much as the program says, but for a
//! part in ten thousand. It is the dual of the integer program without "whole".

use crate::error::PlannerError;
use crate::search::integer_program::{
    ColumnGroup, IntegerProgram, MemorySizes, PatternColumn, RowMeasure, RowTimes,
};
use good_lp::{
    Expression, ProblemVariables, Solution, Solver, SolverModel, Variable, constraint, default_solver,
    variable,
};
use smallvec::SmallVec;

/// Cuts before the prices are taken as they are: any prices bound, the best only bound best.
const ROUNDS: usize = 32;

/// By which share the bound may be below what the best prices could make it.
const NEAR: f64 = 1e-4;

/// The prices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DualPrices {
    /// Of each row's second.
    pub rows: Vec<f64>,
    /// Of each memory's byte.
    pub memories: Vec<f64>,
    /// Of each measure: 1 for the first.
    pub measures: Vec<f64>,
}

/// Something that prices are found for: groups of layers whose choices take seconds of rows and bytes of memories, and
/// add to measures.
pub(crate) trait PricingOracle {
    /// The phase of each row.
    fn phases(&self) -> &[usize];
    /// What each memory holds.
    fn room(&self) -> &[u64];
    /// The first is to be as small as possible, every one within its limit.
    fn measures(&self) -> &[RowMeasure];
    /// The cheapest choice of each group, the first of equals.
    fn liked(&self, prices: &DualPrices) -> Vec<CheapestColumn>;
}

/// A choice for all layers of its group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheapestColumn {
    /// Layers of the group.
    pub layers: u64,
    /// Seconds of a layer by row.
    pub times: RowTimes,
    /// What a layer adds to each measure.
    pub adds: SmallVec<[f64; 4]>,
    /// Bytes of a layer by memory.
    pub bytes: MemorySizes,
}

impl DualPrices {
    /// The prices that bound `offer` best.
    pub fn solve(offer: &impl PricingOracle) -> Result<Self, PlannerError> {
        Self::solve_with(offer, default_solver)
    }

    /// The same by another solver of linear programs.
    pub fn solve_with(offer: &impl PricingOracle, solver: impl Solver + Copy) -> Result<Self, PlannerError> {
        let measures = offer.measures();
        let of_phase = |phase: usize| offer.phases().iter().filter(|&&of| of == phase).count() as f64;
        let even = |&phase: &usize| measures[0].weight[phase] / of_phase(phase);
        let mut prices = Self {
            rows: offer.phases().iter().map(even).collect(),
            memories: vec![0.0; offer.room().len()],
            measures: (0..measures.len()).map(|k| if k == 0 { 1.0 } else { 0.0 }).collect(),
        };
        let (mut best, mut least, mut most) = (prices.clone(), f64::NEG_INFINITY, f64::INFINITY);
        let mut cuts: Vec<Cut> = Vec::new();
        for _ in 0..ROUNDS {
            let liked = offer.liked(&prices);
            let bound = prices.bound_by(&liked, offer);
            if bound > least {
                (best, least) = (prices, bound);
            }
            // What these solutions cost at their best prices is no less than any solutions at theirs.
            if most.is_finite() && most - least <= most.abs() * NEAR {
                break;
            }
            cuts.push(Cut::from_columns(offer, &liked));
            (prices, most) = Self::best(offer, &cuts, solver)?;
        }
        Ok(best)
    }

    /// What a choice costs.
    pub fn cost(&self, choice: &PatternColumn) -> f64 {
        self.sum(&choice.times, &choice.adds, &choice.bytes)
    }

    fn sum(&self, times: &[f64], adds: &[f64], bytes: &[u64]) -> f64 {
        let times = self.rows.iter().zip(times).map(|(price, time)| price * time);
        let adds = self.measures.iter().zip(adds).map(|(price, add)| price * add);
        let bytes = self.memories.iter().zip(bytes).map(|(price, &bytes)| price * bytes as f64);
        times.sum::<f64>() + adds.sum::<f64>() + bytes.sum::<f64>()
    }

    /// The cheapest choice of a group, the first of equals.
    fn cheapest(&self, group: &ColumnGroup) -> usize {
        let costs = group.choices.iter().map(|choice| self.cost(choice)).enumerate();
        costs.fold((0, f64::INFINITY), |least, next| if next.1 < least.1 { next } else { least }).0
    }

    /// What all the room of an offer and all its limits are worth.
    pub fn room(&self, offer: &impl PricingOracle) -> f64 {
        let rooms = self.memories.iter().zip(offer.room()).map(|(price, &room)| price * room as f64);
        let limits = self.measures.iter().zip(offer.measures()).skip(1);
        let limits = limits.filter(|(price, _)| **price > 0.0).map(|(price, measure)| price * measure.limit);
        rooms.sum::<f64>() + limits.sum::<f64>()
    }

    /// No solution of `offer` is better than this.
    pub fn bound(&self, offer: &impl PricingOracle) -> f64 {
        self.bound_by(&offer.liked(self), offer)
    }

    fn bound_by(&self, liked: &[CheapestColumn], offer: &impl PricingOracle) -> f64 {
        let cost =
            |liked: &CheapestColumn| self.sum(&liked.times, &liked.adds, &liked.bytes) * liked.layers as f64;
        liked.iter().map(cost).sum::<f64>() - self.room(offer)
    }

    /// The prices at which the cheapest of the solutions (one choice throughout each group) is dearest, and what it then
    /// costs. Times are in units of the longest and bytes in units of the room, so that the solver sees numbers near 1.
    fn best(
        offer: &impl PricingOracle,
        cuts: &[Cut],
        solver: impl Solver,
    ) -> Result<(Self, f64), PlannerError> {
        let (phases, room, limits) = (offer.phases(), offer.room(), offer.measures());
        let scale = Scale::from_cuts(limits, cuts);
        let mut variables = ProblemVariables::new();
        let rows: Vec<Variable> = variables.add_vector(variable().min(0.0), phases.len());
        // So dear that one layer outweighs the slowest solution: dearer changes nothing.
        let dearest = 4.0 * cuts[0].layers.max(1) as f64;
        let memories: Vec<Variable> = variables.add_vector(variable().min(0.0).max(dearest), room.len());
        let limited = |k: usize| k > 0 && limits[k].limit.is_finite();
        let measures: Vec<Option<Variable>> = (0..limits.len())
            .map(|k| limited(k).then(|| variables.add(variable().min(0.0).max(dearest))))
            .collect();
        let worst = variables.add(variable());
        let mut model = variables.maximise(worst).using(solver);
        for phase in 0..2 {
            let of_phase = rows.iter().zip(phases).filter(|(_, of)| **of == phase);
            let mut sum: Expression = of_phase.map(|(&row, _)| row).sum();
            for (k, measure) in measures.iter().enumerate() {
                if let Some(measure) = measure {
                    sum.add_mul(-limits[k].weight[phase] * scale.longest / scale.limit(limits, k), *measure);
                }
            }
            model = model.with(constraint!(sum == limits[0].weight[phase] * scale.longest / scale.value));
        }
        for cut in cuts {
            let mut cost = Expression::default();
            for (&row, time) in rows.iter().zip(&cut.times) {
                cost.add_mul(finite(time / scale.longest)?, row);
            }
            for (&memory, over) in memories.iter().zip(&cut.over) {
                cost.add_mul(finite(*over)?, memory);
            }
            for (k, measure) in measures.iter().enumerate() {
                if let Some(measure) = measure {
                    cost.add_mul(finite(cut.adds[k] / scale.limit(limits, k) - 1.0)?, *measure);
                }
            }
            cost += finite(cut.adds[0] / scale.value)?;
            model = model.with(constraint!(worst <= cost));
        }
        let solution = model.solve().map_err(|error| PlannerError::Solver { reason: error.to_string() })?;
        let price = |variable: &Variable| solution.value(*variable).max(0.0) * scale.value;
        let of_measure = |(k, measure): (usize, &Option<Variable>)| match measure {
            Some(measure) => price(measure) / scale.limit(limits, k),
            None => {
                if k == 0 {
                    1.0
                } else {
                    0.0
                }
            }
        };
        let per_byte = room.iter().map(|&room| 1.0 / room.max(1) as f64);
        let prices = Self {
            rows: rows.iter().map(|row| price(row) / scale.longest).collect(),
            memories: memories.iter().zip(per_byte).map(|(memory, unit)| price(memory) * unit).collect(),
            measures: measures.iter().enumerate().map(of_measure).collect(),
        };
        Ok((prices, solution.value(worst) * scale.value))
    }
}

/// Units in which the linear program's numbers are near 1.
struct Scale {
    /// Of times.
    longest: f64,
    /// Of the first measure.
    value: f64,
}

impl Scale {
    fn from_cuts(measures: &[RowMeasure], cuts: &[Cut]) -> Self {
        let longest = cuts.iter().flat_map(|cut| &cut.times).fold(f64::MIN_POSITIVE, |a, &b| a.max(b));
        let [prefill, decode] = measures[0].weight;
        let added = cuts.iter().map(|cut| cut.adds[0]).fold(0.0, f64::max);
        Self { longest, value: (longest * prefill.max(decode) + added).max(f64::MIN_POSITIVE) }
    }

    fn limit(&self, measures: &[RowMeasure], measure: usize) -> f64 {
        measures[measure].limit.max(f64::MIN_POSITIVE)
    }
}

/// The times of a solution in which every layer of a group is alike, what it adds to the measures, and by which share
/// of its room it overfills each memory.
struct Cut {
    layers: u64,
    times: Vec<f64>,
    adds: Vec<f64>,
    over: Vec<f64>,
}

impl Cut {
    fn from_columns(offer: &impl PricingOracle, solution: &[CheapestColumn]) -> Self {
        let time = |row: usize| solution.iter().map(|one| one.times[row] * one.layers as f64).sum();
        let add = |k: usize| solution.iter().map(|one| one.adds[k] * one.layers as f64).sum();
        let over = |(memory, &room): (usize, &u64)| {
            let bytes: u64 = solution.iter().map(|one| one.bytes[memory] * one.layers).sum();
            (bytes as f64 - room as f64) / room.max(1) as f64
        };
        Self {
            layers: solution.iter().map(|one| one.layers).sum(),
            times: (0..offer.phases().len()).map(time).collect(),
            adds: (0..offer.measures().len()).map(add).collect(),
            over: offer.room().iter().enumerate().map(over).collect(),
        }
    }
}

impl PricingOracle for IntegerProgram {
    fn phases(&self) -> &[usize] {
        &self.phases
    }

    fn room(&self) -> &[u64] {
        &self.room
    }

    fn measures(&self) -> &[RowMeasure] {
        &self.measures
    }

    fn liked(&self, prices: &DualPrices) -> Vec<CheapestColumn> {
        let cheapest = |group: &ColumnGroup| {
            let PatternColumn { times, adds, bytes, .. } = group.choices.get(prices.cheapest(group))?.clone();
            Some(CheapestColumn { layers: group.layers, times, adds, bytes })
        };
        self.groups.iter().filter_map(cheapest).collect()
    }
}

/// Solvers do not notice NaN.
fn finite(value: f64) -> Result<f64, PlannerError> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(PlannerError::Solver { reason: format!("a coefficient is {value}") }),
    }
}
