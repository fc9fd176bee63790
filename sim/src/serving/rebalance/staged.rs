//! Step prices of several plans on a machine in several states.

use super::Following;
use crate::serving::batch::{Batch, Piece, StepPrices};
use crate::serving::line::Line;
use crate::serving::picos::Picos;
use crate::serving::plan_prices::PlanPrices;
use hwprofiles::{DeviceId, Missing, Seconds};
use planner::{Pricing, Programs};

/// The prices of the plan that is followed, in the state that the machine is in.
#[derive(Debug)]
pub struct Staged<'a> {
    /// By plan; states turn fastest, the first is the one that plans were made for.
    prices: Vec<PlanPrices<'a>>,
    states: usize,
    plan: usize,
    state: usize,
    /// The last batch: its chunks, decodes, tokens and sampled sequences, if any.
    pieces: Vec<Piece>,
    sums: Option<[u64; 3]>,
}

impl<'a> Staged<'a> {
    /// Those of every one of `programs` by every one of `states`, which differ in how fast devices are. Begins with plan
    /// `follows` in the first state.
    pub fn new(programs: &'a [Programs], states: &[Pricing<'a>], follows: usize) -> Self {
        let of = |programs| states.iter().map(move |&pricing| PlanPrices::new(pricing, programs));
        let prices = programs.iter().flat_map(of).collect();
        Self { prices, states: states.len(), plan: follows, state: 0, pieces: Vec::new(), sums: None }
    }

    fn now(&mut self) -> &mut PlanPrices<'a> {
        let course = self.course();
        &mut self.prices[course]
    }
}

impl StepPrices for Staged<'_> {
    fn step(&mut self, batch: &Batch<'_>) -> Result<Picos, Missing> {
        self.pieces.clear();
        self.pieces.extend_from_slice(batch.pieces);
        self.sums = Some([batch.decodes, batch.decode_tokens, batch.sampled]);
        self.now().step(batch)
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<Line, Missing> {
        self.pieces.clear();
        self.sums = Some([decodes, tokens, decodes]);
        self.now().decode(decodes, tokens)
    }

    fn course(&self) -> usize {
        self.plan * self.states + self.state
    }
}

impl Following for Staged<'_> {
    fn follow(&mut self, plan: usize) {
        (self.plan, self.sums) = (plan, None);
    }

    fn enter(&mut self, state: usize) {
        if state != self.state {
            (self.state, self.sums) = (state, None);
        }
    }

    fn busy(&mut self) -> Result<Vec<(DeviceId, Seconds, Seconds)>, Missing> {
        let Some([decodes, decode_tokens, sampled]) = self.sums.take() else { return Ok(Vec::new()) };
        let batch = Batch { pieces: &self.pieces, decodes, decode_tokens, sampled };
        let first = self.plan * self.states;
        let planned = self.prices[first].busy(&batch)?;
        let measured = self.prices[first + self.state].busy(&batch)?;
        let both = planned.into_iter().zip(measured).enumerate();
        Ok(both.map(|(device, (planned, measured))| (DeviceId(device), planned, measured)).collect())
    }
}
