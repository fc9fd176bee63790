//! The memory of placements without their programs.

use crate::cost::cost_model::CostModel;
use crate::memory::{LayerNeeds, MemoryUsage, NeedsCounter, different_layers};
use crate::placement::{LayerPlacement, Placement, Slice, Slices};
use crate::program::{LowerError, PhasePrograms, RunExtent};
use hwprofiles::{Machine, MemoryId};
use rustc_hash::FxHashMap;
use scenarios::{Phase, Sublayer};
use std::sync::{Arc, Mutex, PoisonError};

/// Equal to [`crate::usage`] of `placement`, by memory index.
///
/// # Errors
/// [`LowerError`] if bytes must move between two memories without a link.
pub fn footprint(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    placement: &Placement,
) -> Result<Vec<MemoryUsage>, LowerError> {
    Footprints::new(cost_model, extent).usage(placement)
}

/// [`footprint`] of many placements in runs of one extent: what a layer needs is counted once for
/// all placements that have it.
pub(crate) struct Footprints<'a> {
    cost_model: CostModel<'a>,
    counter: NeedsCounter<'a>,
    /// Whether there is a link between any two devices.
    linked: bool,
    layers: Mutex<FxHashMap<LayerPlacement, Arc<LinkedNeeds>>>,
    /// By the slices of the embedding and of the head.
    ends: Mutex<FxHashMap<[Slices; 2], Arc<LinkedNeeds>>>,
}

/// What a layer needs, and whether there is a link for everything that is streamed for it.
struct LinkedNeeds {
    needs: LayerNeeds,
    linked: bool,
}

impl<'a> Footprints<'a> {
    /// For runs of `extent`.
    pub fn new(cost_model: CostModel<'a>, extent: &RunExtent) -> Self {
        let CostModel { machine, model, formats } = cost_model;
        let own = |device| machine.device(device).memory;
        let mut pairs = machine.device_ids().flat_map(|a| machine.device_ids().map(move |b| (a, b)));
        let linked = pairs.all(|(a, b)| a == b || machine.link_between(own(a), own(b)).is_some());
        let counter = NeedsCounter::new(machine, model, formats, extent);
        Self { cost_model, counter, linked, layers: Mutex::default(), ends: Mutex::default() }
    }

    /// The bytes of each memory, by index.
    ///
    /// # Errors
    /// [`LowerError`] if bytes must move between two memories without a link.
    pub fn usage(&self, placement: &Placement) -> Result<Vec<MemoryUsage>, LowerError> {
        let layers = different_layers(placement);
        let (needs, linked) = self.needs(placement, &layers);
        if !linked {
            // The programs may not need the missing link.
            let CostModel { machine, model, .. } = self.cost_model;
            PhasePrograms::lower(machine, model, &placement.outline())?;
        }
        Ok(self.counter.usage(needs, placement.pipelining.slots as u64))
    }

    /// Equal to [`Footprints::usage`] of a placement with the embed, the head and the pipelining
    /// of `placement` and with `layers`, each different layer once with its number. `None` if a
    /// link is missing, which may not be needed.
    pub fn usage_of_layers(
        &self,
        placement: &Placement,
        layers: &[(&LayerPlacement, u64)],
    ) -> Option<Vec<MemoryUsage>> {
        let (needs, linked) = self.needs(placement, layers);
        linked.then(|| self.counter.usage(needs, placement.pipelining.slots as u64))
    }

    fn needs(&self, placement: &Placement, layers: &[(&LayerPlacement, u64)]) -> (LayerNeeds, bool) {
        let ends = [placement.embed.clone(), placement.head.clone()];
        let of_ends = remembered(&self.ends, &ends, || LinkedNeeds {
            needs: self.counter.of_ends(placement),
            linked: self.all_fetched(Sublayer::Embed, &ends[0]) && self.all_fetched(Sublayer::Head, &ends[1]),
        });
        let (mut needs, mut linked) = (of_ends.needs.clone(), self.linked && of_ends.linked);
        for &(layer, count) in layers {
            let of_layer = remembered(&self.layers, layer, || LinkedNeeds {
                needs: self.counter.of_layer(layer),
                linked: layer.iter().all(|(sublayer, slices)| self.all_fetched(sublayer, slices)),
            });
            needs.add(&of_layer.needs, count);
            linked &= of_layer.linked;
        }
        (needs, linked)
    }

    /// Whether there is a link for every slice that is streamed.
    fn all_fetched(&self, sublayer: Sublayer, slices: &Slices) -> bool {
        let fetched = |slice: &Slice, phase| is_fetched(self.cost_model.machine, slice, phase, sublayer);
        slices.iter().all(|slice| [Phase::Prefill, Phase::Decode].iter().all(|&phase| fetched(slice, phase)))
    }
}

fn is_fetched(machine: &Machine, slice: &Slice, phase: Phase, sublayer: Sublayer) -> bool {
    let linked = |from: MemoryId, to: MemoryId| machine.link_between(from, to).is_some();
    let (device, home) = (slice.device(phase), slice.home);
    let own = machine.device(device).memory;
    machine.reads_in_place(device, home)
        || linked(home, own) && (sublayer != Sublayer::Attention || linked(own, home))
}

/// The value of `key` in `known`, counted if it is not there.
fn remembered<K: std::hash::Hash + Eq + Clone>(
    known: &Mutex<FxHashMap<K, Arc<LinkedNeeds>>>,
    key: &K,
    count: impl FnOnce() -> LinkedNeeds,
) -> Arc<LinkedNeeds> {
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(needs) = known().get(key) {
        return needs.clone();
    }
    let needs = Arc::new(count());
    known().insert(key.clone(), needs.clone());
    needs
}
