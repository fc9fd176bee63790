//! The experts that tokens go to, drawn at random.

use hwprofiles::MissingRate;
use planner::{Action, CostModel, Program, Task, TaskCost};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use scenarios::{ExpertTraffic, Experts, Operator, Step};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many tokens each expert of a layer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertLoads(Vec<u64>);

impl ExpertLoads {
    /// Draws the experts of `tokens` tokens.
    ///
    /// This is systematic sampling (Madow 1949). The experts lie side by side in a random order,
    /// each as long as its chance. A token drops a comb with teeth 1 apart on them and goes to the
    /// experts that the teeth hit. It hits none twice, since no chance is above 1, and it hits each
    /// with exactly its chance. So the mean over many draws is [`Experts::traffic`]. Drawing
    /// without replacement by weights would favour the rare experts.
    pub fn draw(experts: &Experts, tokens: u64, random: &mut impl Rng) -> Self {
        let mut order: Vec<u64> = (0..experts.count).collect();
        order.shuffle(random);
        let mut sum = 0.0;
        let ends = order.iter().map(|&expert| {
            sum += experts.chance(expert);
            sum
        });
        let ends: Vec<f64> = ends.collect();
        let mut loads = vec![0; order.len()];
        for _ in 0..tokens {
            let first: f64 = random.random();
            let mut from = 0;
            for tooth in 0..experts.per_token {
                let at = ends.partition_point(|&end| end <= first + tooth as f64);
                // Because sums are rounded, a tooth may miss the last expert or hit the previous
                // one again.
                let left = (experts.per_token - tooth) as usize;
                let hit = at.clamp(from, order.len() - left);
                loads[order[hit] as usize] += 1;
                from = hit + 1;
            }
        }
        Self(loads)
    }

    /// Tokens of each expert.
    pub fn loads(&self) -> &[u64] {
        &self.0
    }

    /// The traffic of the experts in `range`.
    pub fn traffic(&self, range: &Range<u64>) -> ExpertTraffic {
        let end = |expert: u64| expert.min(self.0.len() as u64) as usize;
        let loads = &self.0[end(range.start)..end(range.end)];
        let touched = loads.iter().filter(|&&tokens| tokens > 0).count();
        ExpertTraffic { pairs: loads.iter().sum::<u64>() as f64, touched: touched as f64 }
    }
}

/// Whether a task computes experts.
pub(crate) fn is_routed(task: &Task) -> bool {
    matches!(task.action, Action::Compute { operator: Operator::Experts, .. })
}

/// The experts of one step's tokens, by layer and micro-batch. All parts of a divided layer see the
/// same.
pub(crate) struct StepExpertLoads(BTreeMap<(Option<u32>, u64), ExpertLoads>);

impl StepExpertLoads {
    pub fn draw(experts: &Experts, program: &Program, step: &Step, random: &mut impl Rng) -> Self {
        let mut drawn = BTreeMap::new();
        for task in program.tasks.iter().filter(|task| is_routed(task)) {
            let tokens = task.micro_batch.step(step).rows();
            let key = (task.layer, task.micro_batch.index);
            drawn.entry(key).or_insert_with(|| ExpertLoads::draw(experts, tokens, random));
        }
        Self(drawn)
    }

    pub fn price(
        &self,
        cost_model: &CostModel<'_>,
        task: &Task,
        step: &Step,
    ) -> Result<TaskCost, MissingRate> {
        let loads = self.0.get(&(task.layer, task.micro_batch.index));
        let traffic = match (&task.action, loads) {
            (Action::Compute { operator: Operator::Experts, rows, .. }, Some(loads)) => {
                Some(loads.traffic(rows))
            }
            _ => None,
        };
        cost_model.routed_task_cost(task, step, traffic)
    }
}
