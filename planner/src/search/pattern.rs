//! Patterns: the ways to place a layer, with their costs.
//!
//! Layers of a kind are equal, so a solution is a number of layers for each pattern. A pattern has
//! a home for each sublayer and a lead device for each sublayer and phase. Some choices go together
//! to keep their number small: the homes of `qkv`, `out`, `router` and `shared_expert` are equal
//! (the latter two undivided); `ffn_up` and `ffn_down` are divided in the same way; matrices with
//! the same home, except experts, have the same lead. (Streaming some layers and not others
//! balances a link as well as streaming some matrices of each layer, with fewer hops.) For given
//! homes the phases are searched separately and dominated choices are dropped. The column pool
//! writes patterns out only if the solver may use them.

use crate::cost::{DeviceNeeds, PriceList, PricedSublayer, SerialChain, SublayerCost};
use crate::memory::shared_cache_bytes;
use crate::placement::{Home, LayerPlacement, ModelShare, Slices, mixes_stripes};
use crate::program::RunExtent;
use crate::search::layer_class::{LayerClass, LayerResidency, PatternId, PhaseChoice};
use hwprofiles::{Bytes, DeviceId, DeviceKind};
use rustc_hash::FxHashMap;
use scenarios::{LayerBlocks, LayerKind, Phase, Sublayer};
use smallvec::SmallVec;
use std::sync::Arc;

/// One way to place a layer, or to place embed and head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    /// Index of each sublayer's home.
    pub homes: Vec<usize>,
    /// The lead of each sublayer, in prefill and in decode.
    pub leads: [Vec<DeviceId>; 2],
    /// Bytes in each memory.
    pub bytes: Vec<u64>,
    /// The items of each device, as bits.
    pub items: Vec<u128>,
    /// Seconds by phase: the serial chain of a micro-batch; each link's lane; each memory's
    /// bandwidth; with several micro-batches, each device; with an issue time, the host of each
    /// device.
    pub cost: [Vec<f64>; 2],
    /// Seconds by phase that each device computes.
    pub work: [Vec<f64>; 2],
}

/// A number of equal layers, and the patterns that they may follow.
#[derive(Debug, Clone)]
pub(crate) struct PatternGroup {
    pub layers: u64,
    pub patterns: Vec<Arc<Pattern>>,
}

/// The items that devices need once, by bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneTimeItems<'s> {
    /// Bytes of each device's items, by bit.
    pub bytes: &'s [Vec<Bytes>],
    /// Index of each device's own memory.
    pub own: &'s [usize],
}

/// Creates patterns from homes and price lists.
#[derive(Debug)]
pub(crate) struct Patterns<'a> {
    pub homes: Vec<Home>,
    /// The price lists of prefill and decode.
    pub prices: [PriceList<'a>; 2],
    /// Sequences and tokens at the end of the run.
    extent: (u64, u64),
    /// The model as each memory holds it.
    within: Vec<ModelShare<'a>>,
    /// By sublayer of the price list and by home, the bytes in each memory.
    kept: Vec<Vec<Vec<u64>>>,
    /// Whether to keep choices that are slower but let devices work less.
    frugal: bool,
}

/// Serial chains by the devices that compute them, with the seconds of memory bandwidth of their
/// hops. Homes do not change either.
pub(crate) type ChainCache = FxHashMap<SmallVec<[u16; 8]>, Option<(f64, Vec<f64>)>>;

impl<'a> Patterns<'a> {
    pub fn new(homes: Vec<Home>, prices: [PriceList<'a>; 2], batch: u64, context: u64, frugal: bool) -> Self {
        let cost_model = prices[0].cost_model;
        let within = |memory| ModelShare::in_memory(cost_model.machine, cost_model.model, memory);
        let within: Vec<_> = cost_model.machine.memory_ids().map(within).collect();
        let kept = vec![];
        let mut patterns = Self { homes, prices, extent: (batch, context), within, kept, frugal };
        let of_sublayer = |sublayer| -> Vec<Vec<u64>> {
            patterns.homes.iter().map(|&home| patterns.kept(sublayer, home)).collect()
        };
        patterns.kept = (0..patterns.prices[0].sublayers.len()).map(of_sublayer).collect();
        patterns
    }

    /// The classes of layers with all residencies: embed and head, then each kind of layer in the
    /// model's order.
    pub fn classes(&self) -> Vec<LayerClass> {
        let model = self.prices[0].cost_model.model;
        let class = |kind, layers, sublayers: &[Sublayer]| {
            let sublayers = sublayers.iter().map(|&s| self.prices[0].index(kind, s)).collect();
            let mut class = LayerClass { kind, layers, sublayers, residency: vec![] };
            self.fill(&mut class);
            class
        };
        let kinds = model.kinds().map(|(kind, layers)| class(Some(kind), layers, kind.sublayers()));
        let ends = class(None, 1, &[Sublayer::Embed, Sublayer::Head]);
        std::iter::once(ends).chain(kinds).collect()
    }

    fn fill(&self, class: &mut LayerClass) {
        let homes = self.homes_of(class.kind);
        let ways = |phase: usize| {
            let (mut serial_chain, mut chain_cost) = (self.serial_chain(), ChainCache::default());
            let list = &self.prices[phase];
            let choices = homes
                .iter()
                .map(|homes| self.choices(&mut serial_chain, &mut chain_cost, list, class, homes));
            choices.collect::<Vec<_>>()
        };
        let (prefill, decode) = rayon::join(|| ways(0), || ways(1));
        let both = prefill.into_iter().zip(decode).zip(homes);
        let residency =
            both.filter_map(|((prefill, decode), homes)| self.with(class, homes, [prefill, decode]));
        class.residency = residency.collect();
    }

    /// Every choice of homes for the sublayers of a kind.
    fn homes_of(&self, kind: Option<LayerKind>) -> Vec<Vec<usize>> {
        let all = 0..self.homes.len();
        let (split, whole): (Vec<_>, Vec<_>) = all.clone().partition(|&h| self.homes[h].is_split());
        let pairs = |first: &[usize], second: &[usize]| -> Vec<(usize, usize)> {
            first.iter().flat_map(|&a| second.iter().map(move |&b| (a, b))).collect()
        };
        let every: Vec<usize> = all.collect();
        let attention = pairs(&every, &whole);
        let Some(kind) = kind else {
            return pairs(&whole, &every).into_iter().map(|(embed, head)| vec![embed, head]).collect();
        };
        let network = || {
            // Up and down projections have different homes only if one of them is with an
            // accelerator.
            let mut network = pairs(&whole, &whole);
            let near = |home| self.is_accelerators(home);
            network.retain(|&(up, down)| up == down || near(up) || near(down));
            network.extend(split.iter().map(|&home| (home, home)));
            network
        };
        match kind.blocks {
            LayerBlocks::Mixer => {
                let homes = attention.into_iter().map(|(linear, kv)| vec![linear, kv, linear]);
                homes.filter(|homes| !self.mixes(homes, Some(1))).collect()
            }
            LayerBlocks::Network => network().into_iter().map(|(up, down)| vec![up, down]).collect(),
            LayerBlocks::Dense | LayerBlocks::Parallel => {
                let ffn = network();
                let both = attention.iter().flat_map(|a| ffn.iter().map(move |f| (a, f)));
                let homes = both.map(|(&(linear, kv), &(up, down))| match kind.blocks {
                    LayerBlocks::Parallel => vec![linear, kv, up, down, linear],
                    _ => vec![linear, kv, linear, up, down],
                });
                homes.filter(|homes| !self.mixes(homes, Some(1))).collect()
            }
            LayerBlocks::ExpertsAlone | LayerBlocks::SharedExpertsAlone => {
                let both = whole.iter().flat_map(|&linear| every.iter().map(move |&e| (linear, e)));
                let homes = both.map(|(linear, experts)| {
                    let home_of = |&sublayer: &Sublayer| match sublayer {
                        Sublayer::Experts => experts,
                        _ => linear,
                    };
                    kind.sublayers().iter().map(home_of).collect::<Vec<_>>()
                });
                homes.filter(|homes| !self.mixes(homes, None)).collect()
            }
            LayerBlocks::Experts | LayerBlocks::SharedExperts => {
                let both = attention.iter().flat_map(|a| every.iter().map(move |&experts| (a, experts)));
                both.map(|(&(linear, kv), experts)| {
                    let undivided = self.undivided(linear);
                    let home_of = |sublayer: &Sublayer| match sublayer {
                        Sublayer::Attention => kv,
                        Sublayer::Experts => experts,
                        Sublayer::Router | Sublayer::SharedExpert => undivided,
                        _ => linear,
                    };
                    kind.sublayers().iter().map(home_of).collect::<Vec<_>>()
                })
                .filter(|homes| !self.mixes(homes, Some(1)))
                .collect()
            }
        }
    }

    /// Whether the homes of a layer, with the KV cache's at index `kv`, mix striped and single
    /// memories; see [`mixes_stripes`]. A layer without a cache mixes them as if it were with the
    /// first matrix.
    pub fn mixes(&self, homes: &[usize], kv: Option<usize>) -> bool {
        let machine = self.prices[0].cost_model.machine;
        let weights = (0..homes.len()).filter(|&at| Some(at) != kv).map(|at| self.homes[homes[at]]);
        mixes_stripes(machine, weights, self.homes[homes[kv.unwrap_or(0)]])
    }

    /// Whether the home is the own memory of a device that is not a CPU.
    fn is_accelerators(&self, home: usize) -> bool {
        let devices = &self.prices[0].cost_model.machine.devices;
        let own = |memory| devices.iter().any(|d| d.memory == memory && d.kind != DeviceKind::Cpu);
        matches!(self.homes[home], Home::Whole(memory) if own(memory))
    }

    /// The home itself, or the memory of the lead device if the home is divided: for matrices that
    /// are too small to divide.
    fn undivided(&self, home: usize) -> usize {
        let machine = self.prices[0].cost_model.machine;
        let lead = match self.homes[home] {
            Home::Whole(_) => return home,
            Home::Split { lead, .. } => Home::Whole(machine.device(lead).memory),
        };
        self.homes.iter().position(|&home| home == lead).expect("every memory is a home")
    }

    /// The layer that `pattern` of `class` places.
    pub fn layer(&self, class: &LayerClass, pattern: &Pattern) -> LayerPlacement {
        let slices = (0..class.sublayers.len()).map(|index| self.slices(class, pattern, index));
        LayerPlacement { kind: class.kind.expect("embed and head are no layer"), sublayers: slices.collect() }
    }

    /// Embed and head as `pattern` of `class` places them.
    pub fn ends(&self, class: &LayerClass, pattern: &Pattern) -> [Slices; 2] {
        std::array::from_fn(|index| self.slices(class, pattern, index))
    }

    /// Whether one of the homes is divided.
    pub fn divides(&self, homes: &[usize]) -> bool {
        homes.iter().any(|&home| self.homes[home].is_split())
    }

    /// Whether one of `leads` must stream from its home in `phase`.
    pub fn streams(&self, homes: &[usize], leads: &[DeviceId], phase: Phase) -> bool {
        let machine = self.prices[0].cost_model.machine;
        homes.iter().zip(leads).any(|(&home, &lead)| self.homes[home].is_streamed(machine, lead, phase))
    }

    /// The chain of `phase` through a layer if the residual comes from `from`; infinite if bytes
    /// cannot move.
    pub fn chain(
        &self,
        serial_chain: &mut SerialChain,
        class: &LayerClass,
        pattern: &Pattern,
        phase: Phase,
        from: DeviceId,
    ) -> f64 {
        let list = &self.prices[phase as usize];
        let chain_cost =
            self.chain_cost(serial_chain, list, class, &pattern.homes, &pattern.leads[phase as usize], from);
        chain_cost.map_or(f64::INFINITY, |(chain, _)| chain)
    }

    /// An empty serial chain.
    pub fn serial_chain(&self) -> SerialChain {
        let cost_model = self.prices[0].cost_model;
        SerialChain::new(cost_model.machine, cost_model.model, cost_model.formats)
    }

    fn slices(&self, class: &LayerClass, pattern: &Pattern, index: usize) -> Slices {
        let cost_model = self.prices[0].cost_model;
        let [prefill, decode] = pattern.leads.each_ref().map(|leads| leads[index]);
        let home = self.homes[pattern.homes[index]];
        let PricedSublayer { kind, sublayer } = self.prices[0].sublayers[class.sublayers[index]];
        let shape = cost_model.model.shape_or_ends(kind);
        let slices = home.slices(cost_model.machine, shape, sublayer, prefill, decode);
        slices.expect("patterns are made of homes that were priced")
    }

    /// These homes with the undominated choices for both phases. `None` if a phase has none.
    pub fn residency(
        &self,
        serial_chain: &mut SerialChain,
        chain_cost: &mut [ChainCache; 2],
        homes: Vec<usize>,
        class: &LayerClass,
    ) -> Option<LayerResidency> {
        let [first, second] = chain_cost;
        let prefill = self.choices(serial_chain, first, &self.prices[0], class, &homes);
        let decode = self.choices(serial_chain, second, &self.prices[1], class, &homes);
        self.with(class, homes, [prefill, decode])
    }

    fn with(
        &self,
        class: &LayerClass,
        homes: Vec<usize>,
        choices: [Vec<PhaseChoice>; 2],
    ) -> Option<LayerResidency> {
        let bytes = self.home_bytes(class, &homes);
        choices.iter().all(|choices| !choices.is_empty()).then_some(LayerResidency { homes, bytes, choices })
    }

    /// The pattern of `class` with this id.
    pub fn pattern(&self, class: &LayerClass, pattern_id: PatternId) -> Arc<Pattern> {
        let residency = &class.residency[pattern_id.residency];
        let [prefill, decode] = [0, 1].map(|phase| &residency.choices[phase][pattern_id.choices[phase]]);
        let needs: Vec<_> = prefill.needs.iter().zip(&decode.needs).map(|(a, b)| a.union(*b)).collect();
        let mut bytes = residency.bytes.clone();
        self.add_vector_bytes(class, &needs, &mut bytes);
        Arc::new(Pattern {
            homes: residency.homes.clone(),
            leads: [prefill.leads.clone(), decode.leads.clone()],
            bytes,
            items: needs.iter().map(|need| need.items()).collect(),
            cost: [prefill.cost.clone(), decode.cost.clone()],
            work: [prefill.work.clone(), decode.work.clone()],
        })
    }

    /// The undominated choices of one phase for these homes.
    fn choices(
        &self,
        serial_chain: &mut SerialChain,
        chain_cost: &mut ChainCache,
        list: &PriceList<'_>,
        class: &LayerClass,
        homes: &[usize],
    ) -> Vec<PhaseChoice> {
        let machine = list.cost_model.machine;
        let (links, memories) = (machine.links.len(), machine.memories.len());
        let mut choices: Vec<PhaseChoice> = Vec::new();
        let mut busy = vec![0.0; 1 + links + memories + 2 * machine.devices.len()];
        // Most choices are dominated, so one is filled again and again and copied if it is kept.
        let mut next = PhaseChoice { leads: vec![], cost: vec![], work: vec![], needs: vec![] };
        for leads in class.leads(list, homes) {
            // A layer follows one of its own kind; the embedding follows nothing.
            let from = if class.kind.is_none() { leads[0] } else { leads[leads.len() - 1] };
            let number = |(&home, lead): (&usize, &DeviceId)| match self.homes[home] {
                Home::Whole(memory) if machine.device(*lead).reads.contains(&memory) => {
                    machine.devices.len() + self.homes.len() * (1 + lead.0) + home
                }
                Home::Whole(_) => lead.0,
                Home::Split { .. } => machine.devices.len() + home,
            };
            let key = homes.iter().zip(&leads).map(|placed| number(placed) as u16);
            let chain = chain_cost
                .entry(key.collect())
                .or_insert_with(|| self.chain_cost(serial_chain, list, class, homes, &leads, from));
            let Some((chain, hops)) = chain else { continue };
            // The chain, then links and memories, then the work and the host of each device.
            busy.fill(0.0);
            busy[0] = *chain;
            busy[1 + links..1 + links + memories].copy_from_slice(hops);
            next.needs.clear();
            next.needs.resize(machine.devices.len(), DeviceNeeds::default());
            for sublayer_costs in sublayer_costs(list, class, homes, &leads) {
                busy[1..].iter_mut().zip(&sublayer_costs.busy).for_each(|(sum, busy)| *sum += busy);
                let needs = next.needs.iter_mut().zip(&sublayer_costs.needs);
                needs.for_each(|(need, more)| *need = need.union(*more));
            }
            let (shared, work) = busy.split_at(1 + links + memories);
            let (work, issued) = work.split_at(machine.devices.len());
            next.work.clear();
            next.work.extend(work);
            next.cost.clear();
            next.cost.extend(shared);
            if list.micro_batches > 1 {
                // The chain of one micro-batch does not show how long a device works for all of
                // them.
                next.cost.extend(work);
            }
            if machine.devices.iter().any(|device| device.issue.is_some()) {
                next.cost.extend(issued);
            }
            if !choices.iter().any(|other| other.beats(&next, self.frugal)) {
                choices.retain(|other| !next.beats(other, self.frugal));
                next.leads.clear();
                next.leads.extend(leads);
                choices.push(next.clone());
            }
        }
        choices
    }

    /// Seconds of the chain over all steps of the phase, and the seconds of memory bandwidth of its
    /// hops. `None` if bytes cannot move.
    pub fn chain_cost(
        &self,
        serial_chain: &mut SerialChain,
        list: &PriceList<'_>,
        class: &LayerClass,
        homes: &[usize],
        leads: &[DeviceId],
        from: DeviceId,
    ) -> Option<(f64, Vec<f64>)> {
        let (mut chain, mut hops) = (0.0, vec![0.0; list.cost_model.machine.memories.len()]);
        for (index, steps) in list.kinds.iter().enumerate() {
            let times = steps.len() as f64;
            serial_chain.begin(from);
            let stages = class.sublayers.iter().zip(leads).zip(sublayer_costs(list, class, homes, leads));
            for ((&sublayer, &lead), sublayer_costs) in stages {
                let is_head = list.sublayers[sublayer].sublayer == Sublayer::Head;
                if is_head {
                    // Embed and head are not neighbours: the layers between them bring the
                    // residual.
                    chain += times * serial_chain.end().get();
                    serial_chain.begin(lead);
                }
                let rows = if is_head { steps[0].batch } else { steps[0].rows() };
                serial_chain.stage(&sublayer_costs.stages[index], rows).then_some(())?;
                if is_head {
                    serial_chain.gather_logits(lead, rows).then_some(())?;
                }
                self.charge_hops(serial_chain, times * list.micro_batches as f64, &mut hops);
                serial_chain.hopped.fill(0.0);
            }
            chain += times * serial_chain.end().get();
        }
        Some((chain, hops))
    }

    /// Adds the seconds of bandwidth of hops at the memories of both ends.
    fn charge_hops(&self, serial_chain: &SerialChain, times: f64, hops: &mut [f64]) {
        let machine = self.prices[0].cost_model.machine;
        let devices = machine.devices.len();
        for (pair, &bytes) in serial_chain.hopped.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
            for device in [pair / devices, pair % devices] {
                let memory = machine.bandwidth_owner(machine.devices[device].memory);
                let rate = machine.memory(memory).bandwidth.value.get();
                hops[memory.0] += times * bytes / rate;
            }
        }
    }

    /// Bytes of matrices and KV in each memory.
    fn home_bytes(&self, class: &LayerClass, homes: &[usize]) -> Vec<u64> {
        let mut bytes = vec![0; self.within.len()];
        let tied = self.prices[0].cost_model.model.tied_embeddings;
        for (&sublayer, &home) in class.sublayers.iter().zip(homes) {
            let is_head = self.prices[0].sublayers[sublayer].sublayer == Sublayer::Head;
            if !(tied && is_head && homes[0] == home) {
                bytes.iter_mut().zip(&self.kept[sublayer][home]).for_each(|(sum, kept)| *sum += kept);
            }
        }
        bytes
    }

    /// Bytes in each memory of a sublayer's matrix, or of its KV, in `home`.
    fn kept(&self, sublayer: usize, home: Home) -> Vec<u64> {
        let cost_model = self.prices[0].cost_model;
        let mut bytes = vec![0; cost_model.machine.memories.len()];
        let (batch, context) = self.extent;
        let extent = RunExtent { batch, context, ..self.prices[0].extent };
        let PricedSublayer { kind, sublayer } = self.prices[0].sublayers[sublayer];
        let (any, shape) = (DeviceId(0), cost_model.model.shape_or_ends(kind));
        let slices = home.slices(cost_model.machine, shape, sublayer, any, any);
        for slice in slices.into_iter().flatten() {
            let within = self.within[slice.home.0].of_kind(kind);
            let kept = match sublayer {
                Sublayer::Attention => shared_cache_bytes(&within, cost_model.formats, &extent),
                _ => within.matrix_bytes(sublayer, cost_model.formats, &slice.rows),
            };
            let kept = cost_model.machine.bytes_by_memory(slice.home, kept);
            kept.for_each(|(memory, part)| bytes[memory.0] += part.get());
        }
        bytes
    }

    /// Adds the norms and biases of a layer of `class` that each device holds.
    fn add_vector_bytes(&self, class: &LayerClass, needs: &[DeviceNeeds], bytes: &mut [u64]) {
        let list = &self.prices[0];
        for (device, need) in list.cost_model.machine.devices.iter().zip(needs) {
            let within = &self.within[device.memory.0];
            let sublayers = class.sublayers.iter().map(|&index| list.sublayers[index]);
            let held = sublayers.filter(|it| need.holds(it.sublayer));
            let vectors = held.map(|it| within.of_kind(it.kind).vector_bytes(it.sublayer).get());
            bytes[device.memory.0] += vectors.sum::<u64>();
        }
    }

    /// Bytes of the norms and biases of one layer in `memory`.
    pub fn all_vector_bytes(&self, class: &LayerClass, memory: usize) -> u64 {
        let list = &self.prices[0];
        let bytes = |&index: &usize| {
            let PricedSublayer { kind, sublayer } = list.sublayers[index];
            self.within[memory].of_kind(kind).vector_bytes(sublayer).get()
        };
        class.sublayers.iter().map(bytes).sum::<u64>()
    }
}

pub(crate) fn sublayer_costs<'l>(
    list: &'l PriceList<'_>,
    class: &'l LayerClass,
    homes: &'l [usize],
    leads: &'l [DeviceId],
) -> impl Iterator<Item = &'l SublayerCost> {
    let placed = class.sublayers.iter().zip(homes).zip(leads);
    placed.filter_map(|((&sublayer, &home), &lead)| list.get(sublayer, home, lead))
}
