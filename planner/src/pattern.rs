//! Patterns: the ways in which a layer can be placed, with what each costs.
//!
//! Layers are alike, so a plan is a count of layers per pattern. A pattern gives each sublayer a home and each
//! phase its devices. Homes of `qkv` and `out` go together, and so do divisions of `ffn_up` and `ffn_down`; the
//! matrices of one home are computed by one device (some layers streamed and others not balances a link as
//! well as some matrices of each, and with fewer hops). Given the homes the phases are independent, so each is
//! searched alone; what is nowhere better than something else is dropped.

use crate::home::Home;
use crate::placement::{LayerPlacement, Slices};
use crate::price_list::{Needs, PriceList, SUBLAYERS};
use crate::walk::Walk;
use hwprofiles::{Bytes, DeviceId};
use scenarios::{LayerKind, Phase, Sublayer, kv_bytes};

/// The sublayers of a layer, by index.
const LAYER: [usize; 5] = [1, 2, 3, 4, 5];
/// Embed and head, by index.
const ENDS: [usize; 2] = [0, 6];

/// One phase's half of a pattern.
#[derive(Debug, Clone, PartialEq)]
struct Half {
    leads: Vec<DeviceId>,
    cost: Vec<f64>,
    needs: Vec<Needs>,
}

/// A way to place one layer, or a way to place embed and head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    /// Index of each sublayer's home.
    pub homes: Vec<usize>,
    /// The lead of each sublayer in prefill and in decode.
    pub leads: [Vec<DeviceId>; 2],
    /// Bytes in each memory.
    pub bytes: Vec<u64>,
    /// What each device needs once, as bits of items.
    pub items: Vec<u64>,
    /// Seconds per phase: the serial chain, then what each link's lane and each memory's bandwidth is busy.
    pub cost: [Vec<f64>; 2],
}

/// What patterns are made from.
#[derive(Debug)]
pub(crate) struct Patterns<'a> {
    homes: Vec<Home>,
    /// Prefill and decode.
    prices: [PriceList<'a>; 2],
    /// One layer's KV cache at the end.
    kv: Bytes,
}

impl<'a> Patterns<'a> {
    pub fn new(homes: Vec<Home>, prices: [PriceList<'a>; 2], batch: u64, context: u64) -> Self {
        let pricing = prices[0].pricing;
        let kv = kv_bytes(pricing.model, pricing.formats, batch, context);
        Self { homes, prices, kv }
    }

    /// The patterns of a layer.
    pub fn of_layer(&self) -> Vec<Pattern> {
        let all = 0..self.homes.len();
        let (split, whole): (Vec<_>, Vec<_>) = all.clone().partition(|&h| self.homes[h].is_split());
        let both = whole.iter().flat_map(|&up| whole.iter().map(move |&down| (up, down)));
        let ffn: Vec<_> = both.chain(split.iter().map(|&h| (h, h))).collect();
        let mut walk = self.walk();
        let mut patterns = Vec::new();
        for linear in all {
            for &kv in &whole {
                for &(up, down) in &ffn {
                    self.add(&mut walk, &LAYER, &[linear, kv, linear, up, down], &mut patterns);
                }
            }
        }
        patterns
    }

    /// The placements of embed and head.
    pub fn of_ends(&self) -> Vec<Pattern> {
        let mut walk = self.walk();
        let mut patterns = Vec::new();
        for embed in (0..self.homes.len()).filter(|&h| !self.homes[h].is_split()) {
            for head in 0..self.homes.len() {
                self.add(&mut walk, &ENDS, &[embed, head], &mut patterns);
            }
        }
        patterns
    }

    /// The layer that `pattern` places.
    pub fn layer(&self, pattern: &Pattern) -> LayerPlacement {
        let slices = (0..LAYER.len()).map(|index| self.slices(pattern, &LAYER, index));
        LayerPlacement { kind: LayerKind::Dense, sublayers: slices.collect() }
    }

    /// Embed and head as `pattern` places them.
    pub fn ends(&self, pattern: &Pattern) -> [Slices; 2] {
        std::array::from_fn(|index| self.slices(pattern, &ENDS, index))
    }

    /// Whether some sublayer is divided.
    pub fn divides(&self, pattern: &Pattern) -> bool {
        pattern.homes.iter().any(|&home| self.homes[home].is_split())
    }

    /// Whether some sublayer is computed in `phase` by a device that does not own its home.
    pub fn streams(&self, pattern: &Pattern, phase: Phase) -> bool {
        let machine = self.prices[0].pricing.machine;
        pattern.homes.iter().zip(&pattern.leads[phase as usize]).any(|(&home, &lead)| {
            match self.homes[home] {
                Home::Whole(memory) => machine.device(lead).memory != memory,
                Home::Split { .. } => false,
            }
        })
    }

    /// The chain of `phase` through a layer when the residual comes from `from`; infinite where it cannot.
    pub fn chain(&self, walk: &mut Walk, pattern: &Pattern, phase: Phase, from: DeviceId) -> f64 {
        let list = &self.prices[phase as usize];
        let cost = self.cost(walk, list, &LAYER, &pattern.homes, &pattern.leads[phase as usize], from);
        cost.map_or(f64::INFINITY, |cost| cost[0])
    }

    /// An empty walk.
    pub fn walk(&self) -> Walk {
        let pricing = self.prices[0].pricing;
        Walk::new(pricing.machine, pricing.model, pricing.formats)
    }

    fn slices(&self, pattern: &Pattern, sublayers: &[usize], index: usize) -> Slices {
        let pricing = self.prices[0].pricing;
        let [prefill, decode] = pattern.leads.each_ref().map(|leads| leads[index]);
        let home = self.homes[pattern.homes[index]];
        let word = SUBLAYERS[sublayers[index]];
        let slices = home.slices(pricing.machine, pricing.model, word, prefill, decode);
        slices.expect("patterns are made of homes that were priced")
    }

    /// Adds the patterns with these homes: the best halves of both phases, combined.
    fn add(&self, walk: &mut Walk, sublayers: &[usize], homes: &[usize], patterns: &mut Vec<Pattern>) {
        let [prefill, decode] = self.prices.each_ref().map(|list| self.halves(walk, list, sublayers, homes));
        let homed = self.home_bytes(sublayers, homes);
        for p in &prefill {
            for d in &decode {
                let needs: Vec<_> = p.needs.iter().zip(&d.needs).map(|(a, b)| a.and(*b)).collect();
                let mut bytes = homed.clone();
                self.add_vector_bytes(&needs, &mut bytes);
                patterns.push(Pattern {
                    homes: homes.to_vec(),
                    leads: [p.leads.clone(), d.leads.clone()],
                    bytes,
                    items: needs.iter().map(|need| need.items()).collect(),
                    cost: [p.cost.clone(), d.cost.clone()],
                });
            }
        }
    }

    /// The ways to compute these homes in one phase, none worse in everything than another.
    fn halves(
        &self,
        walk: &mut Walk,
        list: &PriceList<'_>,
        sublayers: &[usize],
        homes: &[usize],
    ) -> Vec<Half> {
        let mut halves: Vec<Half> = Vec::new();
        for leads in leads(list, sublayers, homes) {
            // A layer follows one of its own kind; the embedding follows nothing.
            let from = if sublayers == ENDS { leads[0] } else { leads[leads.len() - 1] };
            let Some(cost) = self.cost(walk, list, sublayers, homes, &leads, from) else { continue };
            let mut needs = vec![Needs::default(); self.prices[0].pricing.machine.devices.len()];
            for priced in priced(list, sublayers, homes, &leads) {
                needs.iter_mut().zip(&priced.needs).for_each(|(need, more)| *need = need.and(*more));
            }
            let half = Half { leads, cost, needs };
            if !halves.iter().any(|other| other.beats(&half)) {
                halves.retain(|other| !half.beats(other));
                halves.push(half);
            }
        }
        halves
    }

    /// Seconds over all steps of the phase: chain, links, memories. `None` where bytes cannot move.
    fn cost(
        &self,
        walk: &mut Walk,
        list: &PriceList<'_>,
        sublayers: &[usize],
        homes: &[usize],
        leads: &[DeviceId],
        from: DeviceId,
    ) -> Option<Vec<f64>> {
        let machine = list.pricing.machine;
        let mut cost = vec![0.0; 1 + machine.links.len() + machine.memories.len()];
        for priced in priced(list, sublayers, homes, leads) {
            cost[1..].iter_mut().zip(&priced.busy).for_each(|(sum, busy)| *sum += busy);
        }
        for (index, steps) in list.kinds.iter().enumerate() {
            let times = steps.len() as f64;
            walk.begin(from);
            for ((&sublayer, &lead), priced) in
                sublayers.iter().zip(leads).zip(priced(list, sublayers, homes, leads))
            {
                if SUBLAYERS[sublayer] == Sublayer::Head {
                    // Embed and head are not neighbours: the layers between them bring the residual.
                    cost[0] += times * walk.end().get();
                    walk.begin(lead);
                }
                let rows =
                    if SUBLAYERS[sublayer] == Sublayer::Head { steps[0].batch } else { steps[0].rows() };
                walk.stage(&priced.stages[index], rows).then_some(())?;
                if SUBLAYERS[sublayer] == Sublayer::Head {
                    walk.gather_logits(lead, rows).then_some(())?;
                }
                self.charge_hops(walk, times, &mut cost);
                walk.hopped.fill(0.0);
            }
            cost[0] += times * walk.end().get();
        }
        Some(cost)
    }

    /// Adds what hops load the memories at both ends.
    fn charge_hops(&self, walk: &Walk, times: f64, cost: &mut [f64]) {
        let machine = self.prices[0].pricing.machine;
        let devices = machine.devices.len();
        for (pair, &bytes) in walk.hopped.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
            for device in [pair / devices, pair % devices] {
                let memory = machine.bandwidth_of(machine.devices[device].memory);
                let rate = machine.memory(memory).bandwidth.value.get();
                cost[1 + machine.links.len() + memory.0] += times * bytes / rate;
            }
        }
    }

    /// Bytes of matrices and KV in each memory.
    fn home_bytes(&self, sublayers: &[usize], homes: &[usize]) -> Vec<u64> {
        let pricing = self.prices[0].pricing;
        let mut bytes = vec![0; pricing.machine.memories.len()];
        let tied = pricing.model.tied_embeddings;
        for (&sublayer, &home) in sublayers.iter().zip(homes) {
            let (word, any) = (SUBLAYERS[sublayer], DeviceId(0));
            let slices = self.homes[home].slices(pricing.machine, pricing.model, word, any, any);
            for slice in slices.into_iter().flatten() {
                let shared = tied && word == Sublayer::Head && homes[0] == home;
                bytes[slice.home.0] += match word {
                    Sublayer::Attention => self.kv.get(),
                    _ if shared => 0,
                    _ => word.matrix_bytes(pricing.model, pricing.formats.weights, &slice.rows).get(),
                };
            }
        }
        bytes
    }

    /// Adds the norms and biases that each device holds.
    fn add_vector_bytes(&self, needs: &[Needs], bytes: &mut [u64]) {
        let pricing = self.prices[0].pricing;
        for (device, need) in pricing.machine.devices.iter().zip(needs) {
            let held = need.holds().map(|sublayer| SUBLAYERS[sublayer].vector_bytes(pricing.model).get());
            bytes[device.memory.0] += held.sum::<u64>();
        }
    }
}

impl Half {
    /// Nowhere worse. Of equals the one found first stays.
    fn beats(&self, other: &Half) -> bool {
        self.cost.iter().zip(&other.cost).all(|(a, b)| a <= b)
            && self.needs.iter().zip(&other.needs).all(|(a, b)| a.within(*b))
    }
}

/// Every choice of leads for these homes; matrices of one home have one lead.
fn leads(list: &PriceList<'_>, sublayers: &[usize], homes: &[usize]) -> Vec<Vec<DeviceId>> {
    let mut all = vec![vec![]];
    for (index, (&sublayer, &home)) in sublayers.iter().zip(homes).enumerate() {
        let alike = (0..index)
            .find(|&i| is_layer_matrix(sublayers[i]) && is_layer_matrix(sublayer) && homes[i] == home);
        all = all
            .into_iter()
            .flat_map(|chosen: Vec<DeviceId>| {
                let alike = alike.map(|i| chosen[i]);
                let next = list.leads(sublayer, home).filter(|&lead| alike.is_none_or(|same| lead == same));
                next.map(|lead| [&chosen[..], &[lead]].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    all
}

fn is_layer_matrix(sublayer: usize) -> bool {
    LAYER.contains(&sublayer) && SUBLAYERS[sublayer] != Sublayer::Attention
}

fn priced<'l>(
    list: &'l PriceList<'_>,
    sublayers: &'l [usize],
    homes: &'l [usize],
    leads: &'l [DeviceId],
) -> impl Iterator<Item = &'l crate::price_list::Priced> {
    let placed = sublayers.iter().zip(homes).zip(leads);
    placed.filter_map(|((&sublayer, &home), &lead)| list.get(sublayer, home, lead))
}
