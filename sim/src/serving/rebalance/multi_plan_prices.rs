//! Step prices of several plans on a machine in several states.

use crate::clock::SimTime;
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::prices::plan_prices::PlanPrices;
use crate::serving::prices::step_line::StepLine;
use hwprofiles::{DeviceId, MissingRate, Seconds};
use planner::{CostModel, PhasePrograms};

/// Prices of engines that follow one plan of several, on a machine in one of several states.
pub trait SwitchablePrices: StepPrices {
    /// Switches to the steps of plan `plan`.
    fn switch_plan(&mut self, plan: usize);

    /// Puts the machine into state `state`.
    fn enter_state(&mut self, state: usize);

    /// How long the last step kept each device busy.
    ///
    /// # Errors
    /// A rate that was not measured.
    fn device_times(&mut self) -> Result<Vec<DeviceTimes>, MissingRate>;
}

/// How long a step kept a device busy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceTimes {
    /// The device.
    pub device: DeviceId,
    /// In the state that the plan was made for.
    pub planned: Seconds,
    /// In the present state.
    pub measured: Seconds,
}

/// The prices of the plan that the engine follows, in the state that the machine is in.
#[derive(Debug)]
pub struct MultiPlanPrices<'a> {
    /// By plan, then by state. The plans were made for the first state.
    prices: Vec<PlanPrices<'a>>,
    states: usize,
    plan: usize,
    state: usize,
    /// The last batch: its chunks, and its sums if there was a batch.
    chunks: Vec<PrefillChunk>,
    sums: Option<BatchSums>,
}

/// The sums of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchSums {
    decodes: u64,
    decode_tokens: u64,
    sampled: u64,
}

impl<'a> MultiPlanPrices<'a> {
    /// The prices of each of `programs` with each of `states`, which differ in the speeds of
    /// devices. Begins with plan `plan` in the first state.
    pub fn new(programs: &'a [PhasePrograms], states: &[CostModel<'a>], plan: usize) -> Self {
        let in_all_states =
            |programs| states.iter().map(move |&cost_model| PlanPrices::new(cost_model, programs));
        let prices = programs.iter().flat_map(in_all_states).collect();
        Self { prices, states: states.len(), plan, state: 0, chunks: Vec::new(), sums: None }
    }

    fn present(&mut self) -> &mut PlanPrices<'a> {
        let price_set = self.price_set();
        &mut self.prices[price_set]
    }
}

impl StepPrices for MultiPlanPrices<'_> {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, MissingRate> {
        let Batch { chunks, decodes, decode_tokens, sampled } = *batch;
        self.chunks.clear();
        self.chunks.extend_from_slice(chunks);
        self.sums = Some(BatchSums { decodes, decode_tokens, sampled });
        self.present().step(batch)
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate> {
        self.chunks.clear();
        self.sums = Some(BatchSums { decodes, decode_tokens: tokens, sampled: decodes });
        self.present().decode(decodes, tokens)
    }

    fn price_set(&self) -> usize {
        self.plan * self.states + self.state
    }
}

impl SwitchablePrices for MultiPlanPrices<'_> {
    fn switch_plan(&mut self, plan: usize) {
        (self.plan, self.sums) = (plan, None);
    }

    fn enter_state(&mut self, state: usize) {
        if state != self.state {
            (self.state, self.sums) = (state, None);
        }
    }

    fn device_times(&mut self) -> Result<Vec<DeviceTimes>, MissingRate> {
        let Some(BatchSums { decodes, decode_tokens, sampled }) = self.sums.take() else {
            return Ok(Vec::new());
        };
        let batch = Batch { chunks: &self.chunks, decodes, decode_tokens, sampled };
        let first = self.plan * self.states;
        let planned = self.prices[first].device_times(&batch)?;
        let measured = self.prices[first + self.state].device_times(&batch)?;
        let both = planned.into_iter().zip(measured).enumerate();
        Ok(both
            .map(|(device, (planned, measured))| DeviceTimes { device: DeviceId(device), planned, measured })
            .collect())
    }
}
