//! Dual prices of the integer program's relaxation: the value of a second of each row, of a byte of
//! each memory and of a unit of each limit.
//!
//! Let λ_0 = 1 and λ_k ≥ 0 price the limits of the other measures, let μ_m ≥ 0 price the bytes of
//! each memory, and let α_r ≥ 0 divide the price of a second of each phase over its rows, Σ α_r = Σ
//! λ_k · weight_k. Then no solution is better than Σ α_r · time_r + Σ λ_k · add_k + Σ μ_m ·
//! (bytes_m − room_m) − Σ λ_k · limit_k. The best prices maximise the smallest of these values.
//! They are found by cutting planes (Kelley 1960): a linear program over the solutions so far
//! yields prices, and the cheapest solution at these prices is the next cut, until its cost equals
//! the linear program's value within one part in ten thousand. This is the dual of the integer
//! program without integrality.

use crate::error::PlannerError;
use crate::search::integer_program::{
    ColumnGroup, IntegerProgram, MemorySizes, PatternColumn, RowMeasure, RowTimes,
};
use good_lp::{
    Expression, ProblemVariables, Solution, Solver, SolverModel, Variable, constraint, default_solver,
    variable,
};
use smallvec::SmallVec;

/// Most cuts. Any prices yield a valid bound; more cuts only improve it.
const ROUNDS: usize = 32;

/// Relative gap to the best bound at which the cutting planes stop.
const NEAR: f64 = 1e-4;

/// The dual prices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DualPrices {
    /// Price of a second of each row.
    pub rows: Vec<f64>,
    /// Price of a byte of each memory.
    pub memories: Vec<f64>,
    /// Price of a unit of each measure; 1 for the first.
    pub measures: Vec<f64>,
}

/// The pricing problem of column generation: groups of layers whose columns take seconds of rows
/// and bytes of memories, and add to measures.
pub(crate) trait PricingOracle {
    /// The phase of each row.
    fn phases(&self) -> &[usize];
    /// Capacity of each memory.
    fn room(&self) -> &[u64];
    /// The measures. The first one is minimised; every one must keep its limit.
    fn measures(&self) -> &[RowMeasure];
    /// The cheapest column of each group, the first of equal ones.
    fn cheapest_columns(&self, prices: &DualPrices) -> Vec<CheapestColumn>;
}

/// A column for all layers of its group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheapestColumn {
    /// Layers of the group.
    pub layers: u64,
    /// Seconds of one layer, by row.
    pub times: RowTimes,
    /// What one layer adds to each measure.
    pub adds: SmallVec<[f64; 4]>,
    /// Bytes of one layer, by memory.
    pub bytes: MemorySizes,
}

impl DualPrices {
    /// The prices with the best bound.
    pub fn solve(oracle: &impl PricingOracle) -> Result<Self, PlannerError> {
        Self::solve_with(oracle, default_solver)
    }

    /// The prices with the best bound, by another solver of linear programs.
    pub fn solve_with(oracle: &impl PricingOracle, solver: impl Solver + Copy) -> Result<Self, PlannerError> {
        let measures = oracle.measures();
        let of_phase = |phase: usize| oracle.phases().iter().filter(|&&of| of == phase).count() as f64;
        let even = |&phase: &usize| measures[0].weight[phase] / of_phase(phase);
        let mut prices = Self {
            rows: oracle.phases().iter().map(even).collect(),
            memories: vec![0.0; oracle.room().len()],
            measures: (0..measures.len()).map(|k| if k == 0 { 1.0 } else { 0.0 }).collect(),
        };
        let (mut best, mut least, mut most) = (prices.clone(), f64::NEG_INFINITY, f64::INFINITY);
        let mut cuts: Vec<Cut> = Vec::new();
        for _ in 0..ROUNDS {
            let columns = oracle.cheapest_columns(&prices);
            let bound = prices.bound_by(&columns, oracle);
            if bound > least {
                (best, least) = (prices, bound);
            }
            // `most` is the cost of these solutions at the best prices for them: an upper bound of
            // `least`.
            if most.is_finite() && most - least <= most.abs() * NEAR {
                break;
            }
            cuts.push(Cut::from_columns(oracle, &columns));
            (prices, most) = Self::best(oracle, &cuts, solver)?;
        }
        Ok(best)
    }

    /// Cost of a column.
    pub fn cost(&self, choice: &PatternColumn) -> f64 {
        self.sum(&choice.times, &choice.adds, &choice.bytes)
    }

    fn sum(&self, times: &[f64], adds: &[f64], bytes: &[u64]) -> f64 {
        let times = self.rows.iter().zip(times).map(|(price, time)| price * time);
        let adds = self.measures.iter().zip(adds).map(|(price, add)| price * add);
        let bytes = self.memories.iter().zip(bytes).map(|(price, &bytes)| price * bytes as f64);
        times.sum::<f64>() + adds.sum::<f64>() + bytes.sum::<f64>()
    }

    /// Index of the cheapest column of a group, the first of equal ones.
    fn cheapest(&self, group: &ColumnGroup) -> usize {
        let costs = group.choices.iter().map(|choice| self.cost(choice)).enumerate();
        costs.fold((0, f64::INFINITY), |least, next| if next.1 < least.1 { next } else { least }).0
    }

    /// Value of all capacities and limits of `oracle`.
    pub fn room(&self, oracle: &impl PricingOracle) -> f64 {
        let rooms = self.memories.iter().zip(oracle.room()).map(|(price, &room)| price * room as f64);
        let limits = self.measures.iter().zip(oracle.measures()).skip(1);
        let limits = limits.filter(|(price, _)| **price > 0.0).map(|(price, measure)| price * measure.limit);
        rooms.sum::<f64>() + limits.sum::<f64>()
    }

    /// A lower bound of the value of all solutions.
    pub fn bound(&self, oracle: &impl PricingOracle) -> f64 {
        self.bound_by(&oracle.cheapest_columns(self), oracle)
    }

    fn bound_by(&self, columns: &[CheapestColumn], oracle: &impl PricingOracle) -> f64 {
        let cost = |columns: &CheapestColumn| {
            self.sum(&columns.times, &columns.adds, &columns.bytes) * columns.layers as f64
        };
        columns.iter().map(cost).sum::<f64>() - self.room(oracle)
    }

    /// The prices that maximise the cost of the cheapest of the cuts' solutions, and that cost.
    /// Times are in units of the longest and bytes in units of the capacity, so that the solver
    /// sees numbers near 1.
    fn best(
        oracle: &impl PricingOracle,
        cuts: &[Cut],
        solver: impl Solver,
    ) -> Result<(Self, f64), PlannerError> {
        let (phases, room, limits) = (oracle.phases(), oracle.room(), oracle.measures());
        let scale = Scale::from_cuts(limits, cuts);
        let mut variables = ProblemVariables::new();
        let rows: Vec<Variable> = variables.add_vector(variable().min(0.0), phases.len());
        // At this price one layer costs more than the slowest solution. Higher prices change
        // nothing.
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

/// Units that bring the linear program's numbers near 1.
struct Scale {
    /// Unit of times.
    longest: f64,
    /// Unit of the first measure.
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

/// A solution with one column in each group: its times, what it adds to the measures, and the share
/// by which it overfills each memory.
struct Cut {
    layers: u64,
    times: Vec<f64>,
    adds: Vec<f64>,
    over: Vec<f64>,
}

impl Cut {
    fn from_columns(oracle: &impl PricingOracle, solution: &[CheapestColumn]) -> Self {
        let time = |row: usize| solution.iter().map(|one| one.times[row] * one.layers as f64).sum();
        let add = |k: usize| solution.iter().map(|one| one.adds[k] * one.layers as f64).sum();
        let over = |(memory, &room): (usize, &u64)| {
            let bytes: u64 = solution.iter().map(|one| one.bytes[memory] * one.layers).sum();
            (bytes as f64 - room as f64) / room.max(1) as f64
        };
        Self {
            layers: solution.iter().map(|one| one.layers).sum(),
            times: (0..oracle.phases().len()).map(time).collect(),
            adds: (0..oracle.measures().len()).map(add).collect(),
            over: oracle.room().iter().enumerate().map(over).collect(),
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

    fn cheapest_columns(&self, prices: &DualPrices) -> Vec<CheapestColumn> {
        let cheapest = |group: &ColumnGroup| {
            let PatternColumn { times, adds, bytes, .. } = group.choices.get(prices.cheapest(group))?.clone();
            Some(CheapestColumn { layers: group.layers, times, adds, bytes })
        };
        self.groups.iter().filter_map(cheapest).collect()
    }
}

/// Solvers do not detect NaN.
fn finite(value: f64) -> Result<f64, PlannerError> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(PlannerError::Solver { reason: format!("a coefficient is {value}") }),
    }
}
