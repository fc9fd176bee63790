//! Lower bounds of time that need no patterns.
//!
//! Where each sublayer reads all that the one before has written, a layer takes at least the sum
//! over its sublayers of the time of the busiest device. Most questions of a sweep end here: the
//! accelerator has room for everything, and nobody computes any part of a sublayer faster than it
//! computes the whole.

use crate::cost::cost_model::CostModel;
use crate::cost::price_list::{PriceList, PricedSublayer, SublayerCost};
use crate::cost::standalone_tasks::compute;
use crate::placement::{Home, IdenticalGpus, Slice, Slices, whole_slice};
use crate::program::{BatchSteps, OperandSource};
use hwprofiles::{DeviceId, Machine, MissingRate};
use rustc_hash::FxHashMap;
use scenarios::{LayerBlocks, LayerKind, Model, Phase, Step, Sublayer};
use smallvec::SmallVec;

/// Weights w of the bound w · chain + (1 − w) · the device's work. Each of them gives a valid
/// bound, and the largest is used.
const CHAIN_PRICES: [f64; 7] = [0.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 1.0];

/// Compares a device that holds and computes everything with all other placements.
#[derive(Debug)]
pub(crate) struct DeviceAlone<'a> {
    cost_model: CostModel<'a>,
    device: DeviceId,
    homes: Vec<Home>,
}

/// The slices of a sublayer and its lead device.
type SublayerPlacement = (Slices, DeviceId);

impl<'a> DeviceAlone<'a> {
    /// `None` where the bounds of this module do not hold: two sublayers of a layer read the same
    /// input (parallel blocks, shared experts), a host issues kernels, or there are identical GPUs.
    pub fn new(cost_model: CostModel<'a>, device: DeviceId) -> Option<Self> {
        let CostModel { machine, model, .. } = cost_model;
        let in_a_row = |(kind, _): (LayerKind, u64)| match kind.blocks {
            LayerBlocks::Dense | LayerBlocks::Mixer | LayerBlocks::Network => true,
            LayerBlocks::Experts | LayerBlocks::ExpertsAlone => true,
            LayerBlocks::Parallel | LayerBlocks::SharedExperts | LayerBlocks::SharedExpertsAlone => false,
        };
        let bounded = model.kinds().all(in_a_row)
            && machine.devices.iter().all(|device| device.issue.is_none())
            && machine.identical_gpus().len() < 2;
        let homes = || Home::all(machine, model, &IdenticalGpus::none());
        bounded.then(|| Self { cost_model, device, homes: homes() })
    }

    /// Seconds by which the chains of all steps of `phase` can be shorter with other placements.
    ///
    /// # Errors
    /// [`MissingRate`] if a rate was not measured.
    pub fn most_gain(&self, batch_steps: &BatchSteps, phase: Phase) -> Result<f64, MissingRate> {
        let groups = batch_steps.kinds(phase);
        let mut total = 0.0;
        for PricedSublayer { kind, sublayer } in PricedSublayer::all(self.cost_model.model) {
            let shape = self.cost_model.of_kind(kind);
            let own = self.cost_model.machine.device(self.device).memory;
            let alone =
                (vec![whole_slice(shape.model, sublayer, own, self.device, self.device)], self.device);
            let mut known: FxHashMap<Step, f64> = FxHashMap::default();
            let mut most = 0.0;
            for way in self.ways(shape.model, sublayer) {
                let mut gains = |[first, last]: [&Step; 2]| {
                    let alone = match known.get(last) {
                        Some(&alone) => alone,
                        None => self.time(shape, sublayer, &alone, phase, last)?,
                    };
                    known.insert(*last, alone);
                    Ok((alone - self.time(shape, sublayer, &way, phase, first)?).max(0.0))
                };
                let mut gain = 0.0;
                for steps in &groups {
                    gain += match sublayer {
                        Sublayer::Attention => summed_gain(steps, &mut gains)?,
                        _ => gains([&steps[0]; 2])? * steps.len() as f64,
                    };
                }
                most = f64::max(most, gain);
            }
            total += most * layers_of(self.cost_model.model, kind) as f64;
        }
        Ok(total)
    }

    /// The ways to place a sublayer, each of those that take equally long once.
    fn ways(&self, shape: &Model, sublayer: Sublayer) -> Vec<SublayerPlacement> {
        let machine = self.cost_model.machine;
        let counts = |home: Home, lead: DeviceId| match home {
            Home::Whole(memory) if memory == machine.device(lead).memory => lead != self.device,
            // What is staged takes as long as what is resident.
            Home::Whole(memory) => machine.reads_in_place(lead, memory),
            Home::Split { .. } => true,
        };
        let leads = |&home: &Home| machine.device_ids().map(move |lead| (home, lead));
        let ways = self.homes.iter().flat_map(leads);
        let ways = ways.filter(|&(home, lead)| counts(home, lead) && home.admits(machine, sublayer, lead));
        ways.filter_map(|(home, lead)| Some((home.slices(machine, shape, sublayer, lead, lead)?, lead)))
            .collect()
    }

    /// The time of the busiest device on the sublayer, this one left out where others take part.
    fn time(
        &self,
        shape: CostModel<'_>,
        sublayer: Sublayer,
        (slices, lead): &SublayerPlacement,
        phase: Phase,
        step: &Step,
    ) -> Result<f64, MissingRate> {
        let is_shared = slices.iter().any(|slice| slice.device(phase) != self.device);
        let mut busy: SmallVec<[(DeviceId, f64); 3]> = SmallVec::new();
        let mut add = |device: DeviceId, time: f64| match busy.iter_mut().find(|known| known.0 == device) {
            Some((_, sum)) => *sum += time,
            None => busy.push((device, time)),
        };
        let source = |slice: &Slice, device: DeviceId| {
            OperandSource::in_place(shape.machine, slice.home, device).unwrap_or(OperandSource::Resident)
        };
        for &operator in sublayer.operators(shape.model) {
            let parts = if operator.is_matmul() { &slices[..] } else { &slices[..1] };
            for slice in parts {
                let device = if operator.is_matmul() { slice.device(phase) } else { *lead };
                if is_shared && device == self.device {
                    continue;
                }
                let reads_home = operator.is_matmul() || sublayer == Sublayer::Attention;
                let source = if reads_home { source(slice, device) } else { OperandSource::Resident };
                let rows = if operator.is_matmul() { slice.rows.clone() } else { 0..0 };
                let task = compute(operator, rows, device, source);
                add(device, shape.task_cost(&task, step)?.alone.get());
            }
        }
        Ok(busy.into_iter().fold(0.0, |most, (_, time)| f64::max(most, time)))
    }
}

/// At most how many seconds another placement gains over all `steps` together. `gain([first,
/// last])` is the device's time in `last` less the other placement's in `first`, or 0. Steps of a
/// longer past take no less, so it bounds the gain of each step between; where it is not 0, the
/// steps are halved.
fn summed_gain<E>(steps: &[Step], gain: &mut impl FnMut([&Step; 2]) -> Result<f64, E>) -> Result<f64, E> {
    let [first, .., last] = steps else {
        return steps.first().map_or(Ok(0.0), |only| gain([only, only]));
    };
    if gain([first, last])? == 0.0 {
        return Ok(0.0);
    }
    let (before, after) = steps.split_at(steps.len() / 2);
    Ok(summed_gain(before, gain)? + summed_gain(after, gain)?)
}

/// A lower bound of the seconds of a phase in several micro-batches, for all placements: of the
/// chain of one micro-batch, and of the work of `device` with all of them.
pub(crate) fn least_overlapped(list: &PriceList<'_>, homes: usize, device: DeviceId) -> f64 {
    let Machine { links, memories, .. } = list.cost_model.machine;
    let lane = links.len() + memories.len() + device.0;
    let chain = |cost: &SublayerCost| -> f64 {
        let groups = cost.stages.iter().zip(&list.kinds);
        groups.map(|(stage, steps)| stage.busiest() * steps.len() as f64).sum()
    };
    let mut least = [0.0; CHAIN_PRICES.len()];
    for (sublayer, PricedSublayer { kind, .. }) in list.sublayers.iter().enumerate() {
        let mut cheapest = [f64::INFINITY; CHAIN_PRICES.len()];
        let leads = |home| list.leads(sublayer, home).filter_map(move |lead| list.get(sublayer, home, lead));
        for cost in (0..homes).flat_map(leads) {
            let chain = chain(cost);
            for (cheapest, price) in cheapest.iter_mut().zip(CHAIN_PRICES) {
                *cheapest = cheapest.min(price * chain + (1.0 - price) * cost.busy[lane]);
            }
        }
        let layers = layers_of(list.cost_model.model, *kind) as f64;
        least.iter_mut().zip(cheapest).for_each(|(sum, cheapest)| *sum += layers * cheapest);
    }
    least.into_iter().fold(0.0, f64::max)
}

/// The number of layers of `kind`; embed and head are once.
fn layers_of(model: &Model, kind: Option<LayerKind>) -> u64 {
    let of_kind = |kind| model.kinds().find(|(other, _)| *other == kind).map_or(0, |(_, layers)| layers);
    kind.map_or(1, of_kind)
}
