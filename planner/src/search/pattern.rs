//! Patterns: the ways in which a layer can be placed, with what each costs.
//!
//! Layers of a kind are alike, so a plan is a count of layers per pattern. A pattern gives each sublayer a home and
//! each phase its devices. Homes of `qkv`, `out`, `router` and `shared_expert` go together (the latter two undivided), and
//! so do divisions of `ffn_up` and `ffn_down`; the matrices of one home, experts apart, are computed by one device (some
//! layers streamed and others not balances a link as well as some matrices of each, with fewer hops). Given the homes the
//! phases are searched alone; what is nowhere better is dropped, and what the solver may not use not written out (`pool`).

use crate::cost::SerialChain;
use crate::cost::{DeviceNeeds, PriceList, SublayerCost};
use crate::placement::ModelShare;
use crate::placement::{Home, mixes_stripes};
use crate::placement::{LayerPlacement, Slices};
use crate::search::layer_class::LayerClass;
use crate::search::layer_class::PhaseChoice;
use crate::search::layer_class::{LayerResidency, PatternId};
use hwprofiles::{Bytes, DeviceId, DeviceKind};
use scenarios::{LayerKind, Phase, Sublayer};
use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub items: Vec<u128>,
    /// Seconds per phase: the serial chain of a micro-batch, then what each link's lane, each memory's bandwidth and, where
    /// there are several micro-batches, each device is busy; then, where kernels are issued one by one, the host for each.
    pub cost: [Vec<f64>; 2],
    /// Seconds per phase that each device computes.
    pub work: [Vec<f64>; 2],
}

/// Layers of one kind and the patterns that they may follow.
#[derive(Debug, Clone)]
pub(crate) struct PatternGroup {
    pub layers: u64,
    pub patterns: Vec<Arc<Pattern>>,
}

/// What a device needs once, by bit, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneTimeItems<'s> {
    /// Bytes of each device's items, by bit.
    pub bytes: &'s [Vec<Bytes>],
    /// The memory of each device.
    pub own: &'s [usize],
}

/// What patterns are made from.
#[derive(Debug)]
pub(crate) struct Patterns<'a> {
    pub homes: Vec<Home>,
    /// Prefill and decode.
    pub prices: [PriceList<'a>; 2],
    /// One layer's KV cache at the end, in each memory.
    kv: Vec<Bytes>,
    /// The model as it is in each memory.
    within: Vec<ModelShare<'a>>,
    /// Whether a way that is slower, but works its devices less, is kept.
    frugal: bool,
}

/// The chain of each choice of devices that was walked, and what its hops load each memory with: homes change neither.
pub(crate) type Walked = BTreeMap<Vec<usize>, Option<(f64, Vec<f64>)>>;

impl<'a> Patterns<'a> {
    pub fn new(homes: Vec<Home>, prices: [PriceList<'a>; 2], batch: u64, context: u64, frugal: bool) -> Self {
        let cost_model = prices[0].cost_model;
        let within = |memory| ModelShare::in_memory(cost_model.machine, cost_model.model, memory);
        let within: Vec<_> = cost_model.machine.memory_ids().map(within).collect();
        let kv = within.iter().map(|shared| shared.kv_bytes(cost_model.formats, batch, context)).collect();
        Self { homes, prices, kv, within, frugal }
    }

    /// Embed and head, then each kind of layer in the model's order, with all patterns.
    pub fn stacks(&self) -> Vec<LayerClass> {
        let model = self.prices[0].cost_model.model;
        let stack = |kind, layers, sublayers: &[Sublayer]| {
            let sublayers = sublayers.iter().map(|&s| self.prices[0].index(s)).collect();
            let mut stack = LayerClass { kind, layers, sublayers, residency: vec![] };
            self.fill(&mut stack);
            stack
        };
        let kinds = model.kinds().map(|(kind, layers)| stack(Some(kind), layers, kind.sublayers()));
        let ends = stack(None, 1, &[Sublayer::Embed, Sublayer::Head]);
        std::iter::once(ends).chain(kinds).collect()
    }

    fn fill(&self, stack: &mut LayerClass) {
        let homes = self.homes_of(stack.kind);
        let ways = |phase: usize| {
            let (mut walk, mut walked) = (self.walk(), Walked::new());
            let list = &self.prices[phase];
            let choices = homes.iter().map(|homes| self.choices(&mut walk, &mut walked, list, stack, homes));
            choices.collect::<Vec<_>>()
        };
        let (prefill, decode) = rayon::join(|| ways(0), || ways(1));
        let both = prefill.into_iter().zip(decode).zip(homes);
        let residency =
            both.filter_map(|((prefill, decode), homes)| self.with(stack, homes, [prefill, decode]));
        stack.residency = residency.collect();
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
        match kind {
            None => pairs(&whole, &every).into_iter().map(|(embed, head)| vec![embed, head]).collect(),
            Some(kind @ (LayerKind::Dense | LayerKind::Parallel)) => {
                // Up and down part where one is with an accelerator: which of the slower memories holds which is one.
                let mut ffn = pairs(&whole, &whole);
                let near = |home| self.is_accelerators(home);
                ffn.retain(|&(up, down)| up == down || near(up) || near(down));
                ffn.extend(split.iter().map(|&home| (home, home)));
                let both = attention.iter().flat_map(|a| ffn.iter().map(move |f| (a, f)));
                let homes = both.map(|(&(linear, kv), &(up, down))| match kind {
                    LayerKind::Parallel => vec![linear, kv, up, down, linear],
                    _ => vec![linear, kv, linear, up, down],
                });
                homes.filter(|homes| !self.mixes(homes, 1)).collect()
            }
            Some(kind) => {
                let both = attention.iter().flat_map(|a| every.iter().map(move |&experts| (a, experts)));
                both.map(|(&(linear, kv), experts)| {
                    let undivided = self.undivided(linear);
                    let of = |word: &Sublayer| match word {
                        Sublayer::Attention => kv,
                        Sublayer::Experts => experts,
                        Sublayer::Router | Sublayer::SharedExpert => undivided,
                        _ => linear,
                    };
                    kind.sublayers().iter().map(of).collect::<Vec<_>>()
                })
                .filter(|homes| !self.mixes(homes, 1))
                .collect()
            }
        }
    }

    /// Whether the homes of a layer, at `kv` that of its KV cache, mix stripes with what other layers can use as well.
    pub fn mixes(&self, homes: &[usize], kv: usize) -> bool {
        let machine = self.prices[0].cost_model.machine;
        let weights = (0..homes.len()).filter(|&at| at != kv).map(|at| self.homes[homes[at]]);
        mixes_stripes(machine, weights, self.homes[homes[kv]])
    }

    /// Whether it is the own memory of a device that is no CPU.
    fn is_accelerators(&self, home: usize) -> bool {
        let devices = &self.prices[0].cost_model.machine.devices;
        let own = |memory| devices.iter().any(|d| d.memory == memory && d.kind != DeviceKind::Cpu);
        matches!(self.homes[home], Home::Whole(memory) if own(memory))
    }

    /// The home, or where it is divided the one of its first part alone: what is too small to be divided.
    fn undivided(&self, home: usize) -> usize {
        let machine = self.prices[0].cost_model.machine;
        let lead = match self.homes[home] {
            Home::Whole(_) => return home,
            Home::Split { lead, .. } => Home::Whole(machine.device(lead).memory),
        };
        self.homes.iter().position(|&home| home == lead).expect("every memory is a home")
    }

    /// The layer that `pattern` of `stack` places.
    pub fn layer(&self, stack: &LayerClass, pattern: &Pattern) -> LayerPlacement {
        let slices = (0..stack.sublayers.len()).map(|index| self.slices(stack, pattern, index));
        LayerPlacement { kind: stack.kind.expect("embed and head are no layer"), sublayers: slices.collect() }
    }

    /// Embed and head as `pattern` of `stack` places them.
    pub fn ends(&self, stack: &LayerClass, pattern: &Pattern) -> [Slices; 2] {
        std::array::from_fn(|index| self.slices(stack, pattern, index))
    }

    /// Whether some sublayer is divided.
    pub fn divides(&self, homes: &[usize]) -> bool {
        homes.iter().any(|&home| self.homes[home].is_split())
    }

    /// Whether one of `leads` computes from a home that it does not own.
    pub fn streams(&self, homes: &[usize], leads: &[DeviceId]) -> bool {
        let machine = self.prices[0].cost_model.machine;
        homes.iter().zip(leads).any(|(&home, &lead)| match self.homes[home] {
            Home::Whole(memory) => !machine.reads_in_place(lead, memory),
            Home::Split { .. } => false,
        })
    }

    /// The chain of `phase` through a layer when the residual comes from `from`; infinite where it cannot.
    pub fn chain(
        &self,
        walk: &mut SerialChain,
        stack: &LayerClass,
        pattern: &Pattern,
        phase: Phase,
        from: DeviceId,
    ) -> f64 {
        let list = &self.prices[phase as usize];
        let walked = self.walked(walk, list, stack, &pattern.homes, &pattern.leads[phase as usize], from);
        walked.map_or(f64::INFINITY, |(chain, _)| chain)
    }

    /// An empty walk.
    pub fn walk(&self) -> SerialChain {
        let cost_model = self.prices[0].cost_model;
        SerialChain::new(cost_model.machine, cost_model.model, cost_model.formats)
    }

    fn slices(&self, stack: &LayerClass, pattern: &Pattern, index: usize) -> Slices {
        let cost_model = self.prices[0].cost_model;
        let [prefill, decode] = pattern.leads.each_ref().map(|leads| leads[index]);
        let home = self.homes[pattern.homes[index]];
        let word = self.prices[0].sublayers[stack.sublayers[index]];
        let slices = home.slices(cost_model.machine, cost_model.model, word, prefill, decode);
        slices.expect("patterns are made of homes that were priced")
    }

    /// These homes with the best ways to compute both phases; `None` where one cannot be.
    pub fn residency(
        &self,
        walk: &mut SerialChain,
        walked: &mut [Walked; 2],
        homes: Vec<usize>,
        stack: &LayerClass,
    ) -> Option<LayerResidency> {
        let [first, second] = walked;
        let prefill = self.choices(walk, first, &self.prices[0], stack, &homes);
        let decode = self.choices(walk, second, &self.prices[1], stack, &homes);
        self.with(stack, homes, [prefill, decode])
    }

    fn with(
        &self,
        stack: &LayerClass,
        homes: Vec<usize>,
        choices: [Vec<PhaseChoice>; 2],
    ) -> Option<LayerResidency> {
        let bytes = self.home_bytes(stack, &homes);
        choices.iter().all(|choices| !choices.is_empty()).then_some(LayerResidency { homes, bytes, choices })
    }

    /// The pattern of `stack` that `pick` names.
    pub fn pattern(&self, stack: &LayerClass, pick: PatternId) -> Arc<Pattern> {
        let residency = &stack.residency[pick.residency];
        let [prefill, decode] = [0, 1].map(|phase| &residency.choices[phase][pick.choices[phase]]);
        let needs: Vec<_> = prefill.needs.iter().zip(&decode.needs).map(|(a, b)| a.and(*b)).collect();
        let mut bytes = residency.bytes.clone();
        self.add_vector_bytes(&needs, &mut bytes);
        Arc::new(Pattern {
            homes: residency.homes.clone(),
            leads: [prefill.leads.clone(), decode.leads.clone()],
            bytes,
            items: needs.iter().map(|need| need.items()).collect(),
            cost: [prefill.cost.clone(), decode.cost.clone()],
            work: [prefill.work.clone(), decode.work.clone()],
        })
    }

    /// The ways to compute these homes in one phase, none worse in everything than another.
    fn choices(
        &self,
        walk: &mut SerialChain,
        walked: &mut Walked,
        list: &PriceList<'_>,
        stack: &LayerClass,
        homes: &[usize],
    ) -> Vec<PhaseChoice> {
        let machine = list.cost_model.machine;
        let (links, memories) = (machine.links.len(), machine.memories.len());
        let mut choices: Vec<PhaseChoice> = Vec::new();
        for leads in stack.leads(list, homes) {
            // A layer follows one of its own kind; the embedding follows nothing.
            let from = if stack.kind.is_none() { leads[0] } else { leads[leads.len() - 1] };
            let key = homes.iter().zip(&leads).map(|(&home, lead)| match self.homes[home] {
                Home::Whole(memory) if machine.device(*lead).reads.contains(&memory) => {
                    machine.devices.len() + self.homes.len() * (1 + lead.0) + home
                }
                Home::Whole(_) => lead.0,
                Home::Split { .. } => machine.devices.len() + home,
            });
            let chain = walked
                .entry(key.collect())
                .or_insert_with(|| self.walked(walk, list, stack, homes, &leads, from));
            let Some((chain, hops)) = chain else { continue };
            let mut busy = vec![0.0; links + memories + 2 * machine.devices.len()];
            busy[links..links + memories].copy_from_slice(hops);
            let mut needs = vec![DeviceNeeds::default(); machine.devices.len()];
            for priced in priced(list, stack, homes, &leads) {
                busy.iter_mut().zip(&priced.busy).for_each(|(sum, busy)| *sum += busy);
                needs.iter_mut().zip(&priced.needs).for_each(|(need, more)| *need = need.and(*more));
            }
            let mut work = busy.split_off(links + memories);
            let issued = work.split_off(machine.devices.len());
            busy.insert(0, *chain);
            if list.micro_batches > 1 {
                // The chain of one micro-batch does not show how long a device works for all.
                busy.extend(&work);
            }
            if machine.devices.iter().any(|device| device.issue.is_some()) {
                busy.extend(&issued);
            }
            let half = PhaseChoice { leads, cost: busy, work, needs };
            if !choices.iter().any(|other| other.beats(&half, self.frugal)) {
                choices.retain(|other| !half.beats(other, self.frugal));
                choices.push(half);
            }
        }
        choices
    }

    /// Seconds over all steps of the phase of the chain, and what its hops load each memory with. `None` where bytes
    /// cannot move.
    pub fn walked(
        &self,
        walk: &mut SerialChain,
        list: &PriceList<'_>,
        stack: &LayerClass,
        homes: &[usize],
        leads: &[DeviceId],
        from: DeviceId,
    ) -> Option<(f64, Vec<f64>)> {
        let (mut chain, mut hops) = (0.0, vec![0.0; list.cost_model.machine.memories.len()]);
        for (index, steps) in list.kinds.iter().enumerate() {
            let times = steps.len() as f64;
            walk.begin(from);
            let stages = stack.sublayers.iter().zip(leads).zip(priced(list, stack, homes, leads));
            for ((&sublayer, &lead), priced) in stages {
                let is_head = list.sublayers[sublayer] == Sublayer::Head;
                if is_head {
                    // Embed and head are not neighbours: the layers between them bring the residual.
                    chain += times * walk.end().get();
                    walk.begin(lead);
                }
                let rows = if is_head { steps[0].batch } else { steps[0].rows() };
                walk.stage(&priced.stages[index], rows).then_some(())?;
                if is_head {
                    walk.gather_logits(lead, rows).then_some(())?;
                }
                self.charge_hops(walk, times * list.micro_batches as f64, &mut hops);
                walk.hopped.fill(0.0);
            }
            chain += times * walk.end().get();
        }
        Some((chain, hops))
    }

    /// Adds what hops load the memories at both ends.
    fn charge_hops(&self, walk: &SerialChain, times: f64, hops: &mut [f64]) {
        let machine = self.prices[0].cost_model.machine;
        let devices = machine.devices.len();
        for (pair, &bytes) in walk.hopped.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
            for device in [pair / devices, pair % devices] {
                let memory = machine.bandwidth_of(machine.devices[device].memory);
                let rate = machine.memory(memory).bandwidth.value.get();
                hops[memory.0] += times * bytes / rate;
            }
        }
    }

    /// Bytes of matrices and KV in each memory.
    fn home_bytes(&self, stack: &LayerClass, homes: &[usize]) -> Vec<u64> {
        let cost_model = self.prices[0].cost_model;
        let mut bytes = vec![0; cost_model.machine.memories.len()];
        let tied = cost_model.model.tied_embeddings;
        for (&sublayer, &home) in stack.sublayers.iter().zip(homes) {
            let (word, any) = (self.prices[0].sublayers[sublayer], DeviceId(0));
            let slices = self.homes[home].slices(cost_model.machine, cost_model.model, word, any, any);
            for slice in slices.into_iter().flatten() {
                let shared = tied && word == Sublayer::Head && homes[0] == home;
                let kept = match word {
                    Sublayer::Attention => self.kv[slice.home.0],
                    _ if shared => Bytes::ZERO,
                    _ => self.within[slice.home.0].matrix_bytes(word, cost_model.formats, &slice.rows),
                };
                let kept = cost_model.machine.spread(slice.home, kept);
                kept.for_each(|(memory, part)| bytes[memory.0] += part.get());
            }
        }
        bytes
    }

    /// Adds the norms and biases that each device holds.
    fn add_vector_bytes(&self, needs: &[DeviceNeeds], bytes: &mut [u64]) {
        let list = &self.prices[0];
        for (device, need) in list.cost_model.machine.devices.iter().zip(needs) {
            let within = &self.within[device.memory.0];
            let held = need.holds(list.sublayers.len());
            let vectors = held.map(|sublayer| within.vector_bytes(list.sublayers[sublayer]).get());
            bytes[device.memory.0] += vectors.sum::<u64>();
        }
    }

    /// The norms and biases of one layer in `memory`.
    pub fn all_vector_bytes(&self, stack: &LayerClass, memory: usize) -> u64 {
        let list = &self.prices[0];
        let of = |&index: &usize| self.within[memory].vector_bytes(list.sublayers[index]).get();
        stack.sublayers.iter().map(of).sum::<u64>()
    }
}

pub(crate) fn priced<'l>(
    list: &'l PriceList<'_>,
    stack: &'l LayerClass,
    homes: &'l [usize],
    leads: &'l [DeviceId],
) -> impl Iterator<Item = &'l SublayerCost> {
    let placed = stack.sublayers.iter().zip(homes).zip(leads);
    placed.filter_map(|((&sublayer, &home), &lead)| list.get(sublayer, home, lead))
}
