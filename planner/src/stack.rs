//! What is placed alike.

use crate::homed::Homed;
use crate::price_list::PriceList;
use hwprofiles::DeviceId;
use scenarios::{LayerKind, Sublayer};
use smallvec::SmallVec;

/// What is placed alike: the layers of a kind, or embed and head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stack {
    /// `None` for embed and head.
    pub kind: Option<LayerKind>,
    /// How many; 1 for embed and head.
    pub layers: u64,
    /// Its sublayers, as indices into the price list's.
    pub sublayers: Vec<usize>,
    /// The ways to place one of them, by homes.
    pub homed: Vec<Homed>,
}

impl Stack {
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
