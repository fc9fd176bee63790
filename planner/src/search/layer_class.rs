//! What is placed alike.

use crate::cost::{DeviceNeeds, PriceList};
use hwprofiles::DeviceId;
use scenarios::{LayerKind, Sublayer};
use smallvec::SmallVec;

/// What is placed alike: the layers of a kind, or embed and head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerClass {
    /// `None` for embed and head.
    pub kind: Option<LayerKind>,
    /// How many; 1 for embed and head.
    pub layers: u64,
    /// Its sublayers, as indices into the price list's.
    pub sublayers: Vec<usize>,
    /// The ways to place one of them, by homes.
    pub residency: Vec<LayerResidency>,
}

impl LayerClass {
    /// Every choice of leads for these homes; matrices of one home, experts apart, have one lead.
    pub fn leads(&self, list: &PriceList<'_>, homes: &[usize]) -> Vec<Vec<DeviceId>> {
        let together = |at: usize| {
            let word = list.sublayers[self.sublayers[at]];
            self.kind.is_some() && !matches!(word, Sublayer::Attention | Sublayer::Experts)
        };
        let mut all: Vec<Vec<DeviceId>> = vec![Vec::with_capacity(homes.len())];
        for (index, (&sublayer, &home)) in self.sublayers.iter().zip(homes).enumerate() {
            let alike = (0..index).find(|&i| together(i) && together(index) && homes[i] == home);
            let fits = |chosen: &[DeviceId], lead: DeviceId| alike.is_none_or(|i| chosen[i] == lead);
            for at in 0..all.len() {
                let leads = list.leads(sublayer, home).filter(|&lead| fits(&all[at], lead));
                let mut leads: SmallVec<[DeviceId; 4]> = leads.collect();
                let Some(last) = leads.pop() else {
                    all[at].clear();
                    continue;
                };
                for lead in leads {
                    let mut other = Vec::with_capacity(homes.len());
                    other.extend_from_slice(&all[at]);
                    other.push(lead);
                    all.push(other);
                }
                all[at].push(last);
            }
            all.retain(|chosen| chosen.len() == index + 1);
        }
        all
    }
}

/// Homes, and what a phase costs there is independent of the other phase: a pattern is homes and a half for each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerResidency {
    /// Index of each sublayer's home.
    pub homes: Vec<usize>,
    /// Bytes of matrices and KV in each memory.
    pub bytes: Vec<u64>,
    /// The ways to compute prefill and decode, of each at least one, none worse in everything than another.
    pub choices: [Vec<PhaseChoice>; 2],
}

/// A pattern by where it is in its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PatternId {
    /// Index of its homes.
    pub residency: usize,
    /// Index of each phase's half there.
    pub choices: [usize; 2],
}

impl LayerResidency {
    /// The picks of these homes, which are the stack's `index`th.
    pub fn picks(&self, index: usize) -> impl Iterator<Item = PatternId> + '_ {
        let [prefill, decode] = self.choices.each_ref().map(Vec::len);
        (0..prefill)
            .flat_map(move |p| (0..decode).map(move |d| PatternId { residency: index, choices: [p, d] }))
    }
}

/// A way to compute one phase of a layer whose homes are given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PhaseChoice {
    /// The lead of each sublayer.
    pub leads: Vec<DeviceId>,
    /// Seconds: the serial chain of a micro-batch, then what each link's lane, each memory's bandwidth and, where there are
    /// several micro-batches, each device is busy; then, where kernels are issued one by one, the host for each device.
    pub cost: Vec<f64>,
    /// Seconds that each device computes.
    pub work: Vec<f64>,
    /// What each device needs once.
    pub needs: Vec<DeviceNeeds>,
}

impl PhaseChoice {
    /// Nowhere worse. Of equals the one found first stays.
    pub fn beats(&self, other: &PhaseChoice, frugal: bool) -> bool {
        self.cost.iter().zip(&other.cost).all(|(a, b)| a <= b)
            && (!frugal || self.work.iter().zip(&other.work).all(|(a, b)| a <= b))
            && self.needs.iter().zip(&other.needs).all(|(a, b)| a.within(*b))
    }
}
