//! Classes of equal layers, and the choices for one layer of a class.

use crate::cost::{DeviceNeeds, PriceList};
use hwprofiles::DeviceId;
use scenarios::{LayerKind, Sublayer};
use smallvec::SmallVec;

/// The lead device of each sublayer.
pub(crate) type Leads = SmallVec<[DeviceId; 8]>;

/// Layers of one kind, or embed and head together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerClass {
    /// `None` for embed and head.
    pub kind: Option<LayerKind>,
    /// Number of layers; 1 for embed and head.
    pub layers: u64,
    /// Its sublayers, as indices of the price list.
    pub sublayers: Vec<usize>,
    /// The residencies of one layer of the class.
    pub residency: Vec<LayerResidency>,
}

impl LayerClass {
    /// Every choice of lead devices for these homes. Matrices with the same home, except experts,
    /// have the same lead.
    pub fn leads(&self, list: &PriceList<'_>, homes: &[usize]) -> Vec<Leads> {
        let together = |at: usize| {
            let word = list.sublayers[self.sublayers[at]].sublayer;
            self.kind.is_some() && !matches!(word, Sublayer::Attention | Sublayer::Experts)
        };
        let mut all = vec![Leads::new()];
        for (index, (&sublayer, &home)) in self.sublayers.iter().zip(homes).enumerate() {
            let alike = (0..index).find(|&i| together(i) && together(index) && homes[i] == home);
            if let Some(alike) = alike {
                all.retain(|leads| list.get(sublayer, home, leads[alike]).is_some());
                all.iter_mut().for_each(|leads| leads.push(leads[alike]));
                continue;
            }
            let choices: SmallVec<[DeviceId; 4]> = list.leads(sublayer, home).collect();
            let Some((last, others)) = choices.split_last() else { return vec![] };
            for at in 0..all.len() {
                for &lead in others {
                    let mut other = all[at].clone();
                    other.push(lead);
                    all.push(other);
                }
                all[at].push(*last);
            }
        }
        all
    }
}

/// The homes of a layer's sublayers with the choices of devices. The cost of a phase does not
/// depend on the other phase, so a pattern is a residency with one choice for each phase.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerResidency {
    /// Index of each sublayer's home.
    pub homes: Vec<usize>,
    /// Bytes of matrices and KV in each memory.
    pub bytes: Vec<u64>,
    /// The undominated choices for prefill and for decode, at least one of each.
    pub choices: [Vec<PhaseChoice>; 2],
}

/// Identifies a pattern within its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PatternId {
    /// Index of the residency.
    pub residency: usize,
    /// Index of each phase's choice there.
    pub choices: [usize; 2],
}

impl LayerResidency {
    /// The patterns of this residency, which has the index `index` in its class.
    pub fn pattern_ids(&self, index: usize) -> impl Iterator<Item = PatternId> + '_ {
        let [prefill, decode] = self.choices.each_ref().map(Vec::len);
        (0..prefill)
            .flat_map(move |p| (0..decode).map(move |d| PatternId { residency: index, choices: [p, d] }))
    }
}

/// The devices that compute one phase of a layer with given homes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PhaseChoice {
    /// The lead of each sublayer.
    pub leads: Vec<DeviceId>,
    /// Seconds: the serial chain of a micro-batch; each link's lane; each memory's bandwidth; with
    /// several micro-batches, each device; with an issue time, the host of each device.
    pub cost: Vec<f64>,
    /// Seconds that each device computes.
    pub work: Vec<f64>,
    /// What each device needs once.
    pub needs: Vec<DeviceNeeds>,
}

impl PhaseChoice {
    /// Whether this choice dominates `other`: it is nowhere worse. `frugal` also compares the work
    /// of devices.
    pub fn beats(&self, other: &PhaseChoice, frugal: bool) -> bool {
        self.cost.iter().zip(&other.cost).all(|(a, b)| a <= b)
            && (!frugal || self.work.iter().zip(&other.work).all(|(a, b)| a <= b))
            && self.needs.iter().zip(&other.needs).all(|(a, b)| a.is_subset_of(*b))
    }
}
