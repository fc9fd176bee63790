//! A placement in a few words.

use crate::placement::Placement;
use hwprofiles::Machine;
use std::collections::BTreeMap;

/// The devices that compute layers in decode, most layers first: `53 of 80 layers on gpu, 27 on
/// cpu+gpu`.
pub fn placement_label(machine: &Machine, placement: &Placement) -> String {
    let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for layer in &placement.layers {
        let mut devices: Vec<_> = layer.sublayers.iter().flatten().map(|slice| slice.decode).collect();
        devices.sort_unstable();
        devices.dedup();
        let names = devices.into_iter().map(|id| machine.device(id).name.as_str()).collect();
        *counts.entry(names).or_default() += 1;
    }
    let mut groups: Vec<_> = counts.into_iter().collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let all = placement.layers.len();
    let words = groups.iter().enumerate().map(|(index, (devices, count))| match index {
        0 => format!("{count} of {all} layers on {}", devices.join("+")),
        _ => format!("{count} on {}", devices.join("+")),
    });
    words.collect::<Vec<_>>().join(", ")
}
