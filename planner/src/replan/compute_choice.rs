//! The choices of devices for decode with given homes, each with a cost that can be scaled by how
//! much slower its devices have become.

use crate::cost::CostModel;
use crate::cost::PriceList;
use crate::error::PlannerError;
use crate::placement::Home;
use crate::placement::{Placement, Slices};
use crate::program::BatchSteps;
use crate::search::LayerClass;
use crate::search::{Patterns, sublayer_costs};
use hwprofiles::{DeviceId, Machine};
use scenarios::{Model, Phase, Sublayer, Workload};

/// Layers that are placed alike: embed and head, or a run of layers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlacedRun {
    /// `None` for embed and head.
    pub kind: Option<scenarios::LayerKind>,
    /// The number of layers; 1 for embed and head.
    pub layers: u64,
    sublayers: Vec<Sublayer>,
    homes: Vec<Home>,
    /// The devices that compute them now.
    now: Vec<DeviceId>,
}

/// One choice of devices for a layer group. Its cost is a row of numbers in the order of
/// [`CostLayout`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ComputeChoice {
    /// The leading device of each sublayer.
    pub leads: Vec<DeviceId>,
    /// The pairs of devices that compute the parts of divided matrices.
    pub pairs: Vec<[usize; 2]>,
    /// Seconds per step: hops and waits; each device's serial work; for each pair the times of both
    /// parts and the least time to read both; then the busy time of each link and of each memory.
    pub cost: Vec<f64>,
}

/// The number of values of each kind in a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CostLayout {
    pub devices: usize,
    pub lanes: usize,
}

impl CostLayout {
    /// The layout of costs on `machine`.
    pub fn new(machine: &Machine) -> Self {
        Self { devices: machine.devices.len(), lanes: machine.links.len() + machine.memories.len() }
    }

    /// The chain of a layer when each device is slower by its factor.
    pub fn chain(&self, pairs: &[[usize; 2]], cost: &[f64], slowdown: impl Fn(usize) -> f64) -> f64 {
        let mut chain = cost[0];
        for device in 0..self.devices {
            chain += cost[1 + device] * slowdown(device);
        }
        for (pair, times) in pairs.iter().zip(cost[1 + self.devices..].chunks_exact(3)) {
            chain += (times[0] * slowdown(pair[0])).max(times[1] * slowdown(pair[1])).max(times[2]);
        }
        chain
    }

    /// The busy time of each lane for a layer.
    pub fn busy<'c>(&self, cost: &'c [f64]) -> &'c [f64] {
        &cost[cost.len() - self.lanes..]
    }
}

impl PlacedRun {
    /// Embed and head, then the runs of `placement`.
    ///
    /// # Errors
    /// [`PlannerError::Divided`] where a matrix is divided in a way that the planner does not use.
    pub fn from_placement(
        machine: &Machine,
        model: &Model,
        placement: &Placement,
    ) -> Result<Vec<Self>, PlannerError> {
        let lot = |kind, layers, parts: Vec<(Sublayer, &Slices)>| -> Result<Self, PlannerError> {
            let shape = model.shape_or_ends(kind);
            let homes = parts.iter().map(|(sublayer, slices)| home(machine, shape, *sublayer, slices));
            Ok(Self {
                kind,
                layers,
                sublayers: parts.iter().map(|(sublayer, _)| *sublayer).collect(),
                homes: homes.collect::<Result<_, _>>()?,
                now: parts.iter().map(|(_, slices)| slices[0].decode).collect(),
            })
        };
        let ends = vec![(Sublayer::Embed, &placement.embed), (Sublayer::Head, &placement.head)];
        let mut lots = vec![lot(None, 1, ends)?];
        for run in placement.runs() {
            lots.push(lot(Some(run.layer.kind), run.count, run.layer.iter().collect())?);
        }
        Ok(lots)
    }
}

/// The choices for each layer group in a decode step of `batch` sequences with `context` tokens
/// each, in the same order for every batch and context.
///
/// # Errors
/// A rate that was not measured.
pub(crate) fn ways(
    cost_model: CostModel<'_>,
    lots: &[PlacedRun],
    batch: u64,
    context: u64,
) -> Result<Vec<Vec<ComputeChoice>>, PlannerError> {
    let mut homes: Vec<Home> = lots.iter().flat_map(|lot| lot.homes.iter().copied()).collect();
    homes.sort_unstable();
    homes.dedup();
    // One prefill step and one decode step; only the latter is used.
    let batch_steps = BatchSteps::new(&Workload::new(batch, context, 2), context);
    let list = |phase| PriceList::new(cost_model, &batch_steps, phase, &homes);
    let prices = [list(Phase::Prefill)?, list(Phase::Decode)?];
    let patterns = Patterns::new(homes, prices, batch, context, false);
    Ok(lots.iter().map(|lot| ways_of(&patterns, lot)).collect())
}

fn ways_of(patterns: &Patterns<'_>, lot: &PlacedRun) -> Vec<ComputeChoice> {
    let list = &patterns.prices[1];
    let sublayers = lot.sublayers.iter().map(|&sublayer| list.index(lot.kind, sublayer)).collect();
    let class = LayerClass { kind: lot.kind, layers: lot.layers, sublayers, residency: vec![] };
    let known = |home: &Home| patterns.homes.iter().position(|other| other == home);
    let homes: Vec<usize> = lot.homes.iter().filter_map(known).collect();
    let mut leads: Vec<_> = class.leads(list, &homes).into_iter().map(|leads| leads.to_vec()).collect();
    if !leads.contains(&lot.now) && sublayer_costs(list, &class, &homes, &lot.now).count() == homes.len() {
        leads.push(lot.now.clone());
    }
    let mut serial_chain = patterns.serial_chain();
    leads.into_iter().filter_map(|leads| way(patterns, &mut serial_chain, &class, &homes, leads)).collect()
}

fn way(
    patterns: &Patterns<'_>,
    serial_chain: &mut crate::cost::SerialChain,
    class: &LayerClass,
    homes: &[usize],
    leads: Vec<DeviceId>,
) -> Option<ComputeChoice> {
    let list = &patterns.prices[1];
    let machine = list.cost_model.machine;
    let form = CostLayout::new(machine);
    let from = if class.kind.is_none() { leads[0] } else { leads[leads.len() - 1] };
    let (chain, hops) = patterns.chain_cost(serial_chain, list, class, homes, &leads, from)?;
    let (mut serial, mut lanes) = (vec![0.0; form.devices], vec![0.0; form.lanes]);
    let (mut pairs, mut divided) = (vec![], vec![]);
    for sublayer_costs in sublayer_costs(list, class, homes, &leads) {
        lanes.iter_mut().zip(&sublayer_costs.busy).for_each(|(sum, busy)| *sum += busy);
        for stage in &sublayer_costs.stages {
            serial[stage.lead.0] += stage.free.iter().sum::<f64>();
            match &stage.parts[..] {
                [first, second] => {
                    pairs.push([first.device.0, second.device.0]);
                    divided.extend([first.time, second.time, stage.floor]);
                }
                parts => parts.iter().for_each(|part| serial[part.device.0] += part.time),
            }
        }
    }
    lanes[machine.links.len()..].iter_mut().zip(&hops).for_each(|(sum, hop)| *sum += hop);
    let mut cost = vec![0.0];
    cost.extend(serial.into_iter().chain(divided).chain(lanes));
    // The rest of the chain belongs to no device: hops, and waiting for another device.
    cost[0] = chain - form.chain(&pairs, &cost, |_| 1.0);
    Some(ComputeChoice { leads, pairs, cost })
}

/// The home whose slices these are.
fn home(machine: &Machine, model: &Model, sublayer: Sublayer, slices: &Slices) -> Result<Home, PlannerError> {
    if let [whole] = &slices[..] {
        return Ok(Home::Whole(whole.home));
    }
    let (lead, other) = match &slices[..] {
        [first, second] => (first.decode, second.decode),
        _ => return Err(PlannerError::Divided { sublayer: sublayer.name() }),
    };
    let gathered = slices[0].prefill == slices[1].prefill;
    let splits = (1..16).map(|sixteenths| Home::Split { lead, other, sixteenths, gathered });
    let mut alike = splits.filter(|home| {
        let same = home.slices(machine, model, sublayer, lead, lead);
        let place = |s: &Slices| s.iter().map(|s| (s.rows.clone(), s.home)).collect::<Vec<_>>();
        same.is_some_and(|same| place(&same) == place(slices))
    });
    alike.next().ok_or(PlannerError::Divided { sublayer: sublayer.name() })
}
