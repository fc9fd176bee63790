//! Shadow prices: what a second of each row and a byte of each memory are worth at the relaxed optimum.
//!
//! For any prices α_r ≥ 0 of the rows, those of a phase adding up to its weight, and μ_m ≥ 0 of the memories, no
//! solution is better than Σ α_r · time_r + Σ μ_m · (bytes_m − room_m). The best prices make the smallest of these
//! as large as possible; they are found by cutting planes (Kelley 1960): a linear program over the solutions seen
//! so far, then the solution that its prices like best, until there is no new one. It is the dual of the integer
//! program without "whole".

use crate::error::PlannerError;
use crate::table::{Choice, Table};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, default_solver, variable,
};

/// Cuts before the prices are taken as they are: any prices bound, the best only bound best.
const ROUNDS: usize = 24;

/// The price of each row's second and of each memory's byte.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prices {
    pub rows: Vec<f64>,
    pub memories: Vec<f64>,
}

impl Prices {
    /// The prices that bound `table` best.
    pub fn of(table: &Table) -> Result<Self, PlannerError> {
        let of_phase = |phase: usize| table.phases.iter().filter(|&&of| of == phase).count() as f64;
        let even = |&phase: &usize| table.weight[phase] / of_phase(phase);
        let rows = table.phases.iter().map(even).collect();
        let mut prices = Self { rows, memories: vec![0.0; table.room.len()] };
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for _ in 0..ROUNDS {
            let liked = (prices.cheapest(&table.patterns).0, prices.cheapest(&table.ends).0);
            if seen.contains(&liked) {
                break;
            }
            seen.push(liked);
            prices = Self::best(table, &seen)?;
        }
        Ok(prices)
    }

    /// What a choice costs.
    pub fn cost(&self, choice: &Choice) -> f64 {
        let times = self.rows.iter().zip(&choice.times).map(|(price, time)| price * time);
        let bytes = self.memories.iter().zip(&choice.bytes).map(|(price, &bytes)| price * bytes as f64);
        times.sum::<f64>() + bytes.sum::<f64>()
    }

    /// The cheapest choice, the first of equals, and its cost.
    pub fn cheapest(&self, choices: &[Choice]) -> (usize, f64) {
        let costs = choices.iter().map(|choice| self.cost(choice)).enumerate();
        costs.fold((0, f64::INFINITY), |least, next| if next.1 < least.1 { next } else { least })
    }

    /// What all the room of a table is worth.
    pub fn room(&self, table: &Table) -> f64 {
        self.memories.iter().zip(&table.room).map(|(price, &room)| price * room as f64).sum()
    }

    /// No solution of `table` is better than this.
    pub fn bound(&self, table: &Table) -> f64 {
        let layer = self.cheapest(&table.patterns).1 * table.layers as f64;
        layer + self.cheapest(&table.ends).1 - self.room(table)
    }

    /// The prices at which the cheapest of the solutions (one pattern throughout, one end) is dearest. Times are in
    /// units of the longest and bytes in units of the room, so that the solver sees numbers near 1.
    fn best(table: &Table, solutions: &[(usize, usize)]) -> Result<Self, PlannerError> {
        let cuts: Vec<Cut> = solutions.iter().map(|&solution| Cut::of(table, solution)).collect();
        let longest = cuts.iter().flat_map(|cut| &cut.times).fold(f64::MIN_POSITIVE, |a, &b| a.max(b));
        let heaviest = table.weight[0].max(table.weight[1]);
        let mut variables = ProblemVariables::new();
        let rows: Vec<Variable> = variables.add_vector(variable().min(0.0), table.phases.len());
        // A memory so dear that one layer in it outweighs the slowest solution: dearer changes nothing.
        let dearest = 4.0 * table.layers.max(1) as f64;
        let memories: Vec<Variable> =
            variables.add_vector(variable().min(0.0).max(dearest), table.room.len());
        let worst = variables.add(variable());
        let mut model = variables.maximise(worst).using(default_solver);
        for phase in 0..2 {
            let of_phase = rows.iter().zip(&table.phases).filter(|(_, of)| **of == phase);
            let sum: Expression = of_phase.map(|(&row, _)| row).sum();
            model = model.with(constraint!(sum == table.weight[phase] / heaviest));
        }
        for cut in &cuts {
            let mut cost = Expression::default();
            for (&row, time) in rows.iter().zip(&cut.times) {
                cost.add_mul(finite(time / longest)?, row);
            }
            for (&memory, over) in memories.iter().zip(&cut.over) {
                cost.add_mul(finite(*over)?, memory);
            }
            model = model.with(constraint!(worst <= cost));
        }
        let solution = model.solve().map_err(|error| PlannerError::Solver { reason: error.to_string() })?;
        let price = |variable: &Variable| solution.value(*variable).max(0.0) * heaviest;
        let per_byte = table.room.iter().map(|&room| longest / room.max(1) as f64);
        Ok(Self {
            rows: rows.iter().map(price).collect(),
            memories: memories.iter().zip(per_byte).map(|(memory, unit)| price(memory) * unit).collect(),
        })
    }
}

/// The times of a solution in which every layer is alike, and by which share of its room it overfills each memory.
struct Cut {
    times: Vec<f64>,
    over: Vec<f64>,
}

impl Cut {
    fn of(table: &Table, (pattern, end): (usize, usize)) -> Self {
        let (pattern, end) = (&table.patterns[pattern], &table.ends[end]);
        let times = pattern.times.iter().zip(&end.times).map(|(p, e)| p * table.layers as f64 + e);
        let over = |(memory, &room): (usize, &u64)| {
            let bytes = pattern.bytes[memory] * table.layers + end.bytes[memory];
            (bytes as f64 - room as f64) / room.max(1) as f64
        };
        Self { times: times.collect(), over: table.room.iter().enumerate().map(over).collect() }
    }
}

/// Solvers do not notice NaN.
fn finite(value: f64) -> Result<f64, PlannerError> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(PlannerError::Solver { reason: format!("a coefficient is {value}") }),
    }
}
