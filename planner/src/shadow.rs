//! Shadow prices: what a second of each row, a byte of each memory and a unit of each limit are worth at the relaxed
//! optimum.
//!
//! Let λ_0 = 1 and λ_k ≥ 0 price the limits of the other measures, let μ_m ≥ 0 price the bytes of each memory, and let
//! α_r ≥ 0 share out what a second of each phase costs, Σ α_r = Σ λ_k · weight_k. No solution is better than
//! Σ α_r · time_r + Σ λ_k · add_k + Σ μ_m · (bytes_m − room_m) − Σ λ_k · limit_k. The best prices make the smallest of
//! these as large as possible; they are found by cutting planes (Kelley 1960): a linear program over the solutions
//! seen so far, then the solution that its prices like best, until there is no new one. It is the dual of the integer
//! program without "whole".

use crate::error::PlannerError;
use crate::table::{Choice, Group, Table};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, default_solver, variable,
};

/// Cuts before the prices are taken as they are: any prices bound, the best only bound best.
const ROUNDS: usize = 32;

/// The prices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prices {
    /// Of each row's second.
    pub rows: Vec<f64>,
    /// Of each memory's byte.
    pub memories: Vec<f64>,
    /// Of each measure: 1 for the first.
    pub measures: Vec<f64>,
}

impl Prices {
    /// The prices that bound `table` best.
    pub fn of(table: &Table) -> Result<Self, PlannerError> {
        let of_phase = |phase: usize| table.phases.iter().filter(|&&of| of == phase).count() as f64;
        let even = |&phase: &usize| table.measures[0].weight[phase] / of_phase(phase);
        let mut prices = Self {
            rows: table.phases.iter().map(even).collect(),
            memories: vec![0.0; table.room.len()],
            measures: (0..table.measures.len()).map(|k| if k == 0 { 1.0 } else { 0.0 }).collect(),
        };
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for _ in 0..ROUNDS {
            let liked = table.groups.iter().map(|group| prices.cheapest(group).0).collect();
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
        let adds = self.measures.iter().zip(&choice.adds).map(|(price, add)| price * add);
        let bytes = self.memories.iter().zip(&choice.bytes).map(|(price, &bytes)| price * bytes as f64);
        times.sum::<f64>() + adds.sum::<f64>() + bytes.sum::<f64>()
    }

    /// The cheapest choice of a group, the first of equals, and its cost.
    pub fn cheapest(&self, group: &Group) -> (usize, f64) {
        let costs = group.choices.iter().map(|choice| self.cost(choice)).enumerate();
        costs.fold((0, f64::INFINITY), |least, next| if next.1 < least.1 { next } else { least })
    }

    /// What all the room of a table and all its limits are worth.
    pub fn room(&self, table: &Table) -> f64 {
        let rooms = self.memories.iter().zip(&table.room).map(|(price, &room)| price * room as f64);
        let limits = self.measures.iter().zip(&table.measures).skip(1);
        let limits = limits.filter(|(price, _)| **price > 0.0).map(|(price, measure)| price * measure.limit);
        rooms.sum::<f64>() + limits.sum::<f64>()
    }

    /// No solution of `table` is better than this.
    pub fn bound(&self, table: &Table) -> f64 {
        let groups = table.groups.iter().map(|group| self.cheapest(group).1 * group.layers as f64);
        groups.sum::<f64>() - self.room(table)
    }

    /// `table` with the `most` cheapest choices of each group, and the lightest in each memory.
    pub fn nearest(&self, table: &Table, most: usize) -> Table {
        table.kept(|group| {
            let mut order: Vec<(f64, usize)> =
                group.choices.iter().map(|choice| self.cost(choice)).zip(0..).collect();
            if order.len() > most {
                order.select_nth_unstable_by(most, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            }
            let mut kept: Vec<usize> = order.iter().take(most).map(|(_, index)| *index).collect();
            let light =
                |memory: usize| (0..group.choices.len()).min_by_key(|&i| group.choices[i].bytes[memory]);
            kept.extend((0..table.room.len()).filter_map(light));
            kept.sort_unstable();
            kept.dedup();
            kept
        })
    }

    /// `table` with the choices that cost at most `gap` more than the cheapest of their group.
    pub fn within(&self, table: &Table, gap: f64) -> Table {
        table.kept(|group| {
            let least = self.cheapest(group).1;
            let near = |index: &usize| self.cost(&group.choices[*index]) - least <= gap;
            (0..group.choices.len()).filter(near).collect()
        })
    }

    /// The prices at which the cheapest of the solutions (one choice throughout each group) is dearest. Times are in
    /// units of the longest and bytes in units of the room, so that the solver sees numbers near 1.
    fn best(table: &Table, solutions: &[Vec<usize>]) -> Result<Self, PlannerError> {
        let cuts: Vec<Cut> = solutions.iter().map(|solution| Cut::of(table, solution)).collect();
        let scale = Scale::of(table, &cuts);
        let mut variables = ProblemVariables::new();
        let rows: Vec<Variable> = variables.add_vector(variable().min(0.0), table.phases.len());
        // So dear that one layer outweighs the slowest solution: dearer changes nothing.
        let dearest = 4.0 * table.groups.iter().map(|group| group.layers).sum::<u64>().max(1) as f64;
        let memories: Vec<Variable> =
            variables.add_vector(variable().min(0.0).max(dearest), table.room.len());
        let limited = |k: usize| k > 0 && table.measures[k].limit.is_finite();
        let measures: Vec<Option<Variable>> = (0..table.measures.len())
            .map(|k| limited(k).then(|| variables.add(variable().min(0.0).max(dearest))))
            .collect();
        let worst = variables.add(variable());
        let mut model = variables.maximise(worst).using(default_solver);
        for phase in 0..2 {
            let of_phase = rows.iter().zip(&table.phases).filter(|(_, of)| **of == phase);
            let mut sum: Expression = of_phase.map(|(&row, _)| row).sum();
            for (k, measure) in measures.iter().enumerate() {
                if let Some(measure) = measure {
                    sum.add_mul(
                        -table.measures[k].weight[phase] * scale.longest / scale.limit(table, k),
                        *measure,
                    );
                }
            }
            model =
                model.with(constraint!(sum == table.measures[0].weight[phase] * scale.longest / scale.value));
        }
        for cut in &cuts {
            let mut cost = Expression::default();
            for (&row, time) in rows.iter().zip(&cut.times) {
                cost.add_mul(finite(time / scale.longest)?, row);
            }
            for (&memory, over) in memories.iter().zip(&cut.over) {
                cost.add_mul(finite(*over)?, memory);
            }
            for (k, measure) in measures.iter().enumerate() {
                if let Some(measure) = measure {
                    cost.add_mul(finite(cut.adds[k] / scale.limit(table, k) - 1.0)?, *measure);
                }
            }
            cost += finite(cut.adds[0] / scale.value)?;
            model = model.with(constraint!(worst <= cost));
        }
        let solution = model.solve().map_err(|error| PlannerError::Solver { reason: error.to_string() })?;
        let price = |variable: &Variable| solution.value(*variable).max(0.0) * scale.value;
        let of_measure = |(k, measure): (usize, &Option<Variable>)| match measure {
            Some(measure) => price(measure) / scale.limit(table, k),
            None => {
                if k == 0 {
                    1.0
                } else {
                    0.0
                }
            }
        };
        let per_byte = table.room.iter().map(|&room| 1.0 / room.max(1) as f64);
        Ok(Self {
            rows: rows.iter().map(|row| price(row) / scale.longest).collect(),
            memories: memories.iter().zip(per_byte).map(|(memory, unit)| price(memory) * unit).collect(),
            measures: measures.iter().enumerate().map(of_measure).collect(),
        })
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
    fn of(table: &Table, cuts: &[Cut]) -> Self {
        let longest = cuts.iter().flat_map(|cut| &cut.times).fold(f64::MIN_POSITIVE, |a, &b| a.max(b));
        let [prefill, decode] = table.measures[0].weight;
        let added = cuts.iter().map(|cut| cut.adds[0]).fold(0.0, f64::max);
        Self { longest, value: (longest * prefill.max(decode) + added).max(f64::MIN_POSITIVE) }
    }

    fn limit(&self, table: &Table, measure: usize) -> f64 {
        table.measures[measure].limit.max(f64::MIN_POSITIVE)
    }
}

/// The times of a solution in which every layer of a group is alike, what it adds to the measures, and by which share
/// of its room it overfills each memory.
struct Cut {
    times: Vec<f64>,
    adds: Vec<f64>,
    over: Vec<f64>,
}

impl Cut {
    fn of(table: &Table, solution: &[usize]) -> Self {
        let chosen =
            || table.groups.iter().zip(solution).map(|(group, &c)| (group.layers, &group.choices[c]));
        let time = |row: usize| chosen().map(|(layers, choice)| choice.times[row] * layers as f64).sum();
        let add = |k: usize| chosen().map(|(layers, choice)| choice.adds[k] * layers as f64).sum();
        let over = |(memory, &room): (usize, &u64)| {
            let bytes: u64 = chosen().map(|(layers, choice)| choice.bytes[memory] * layers).sum();
            (bytes as f64 - room as f64) / room.max(1) as f64
        };
        Self {
            times: (0..table.phases.len()).map(time).collect(),
            adds: (0..table.measures.len()).map(add).collect(),
            over: table.room.iter().enumerate().map(over).collect(),
        }
    }
}

/// Solvers do not notice NaN.
fn finite(value: f64) -> Result<f64, PlannerError> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(PlannerError::Solver { reason: format!("a coefficient is {value}") }),
    }
}
