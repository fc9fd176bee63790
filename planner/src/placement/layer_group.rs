//! Equal layers as documents write them.

use crate::placement::named_slices::NamedSlices;
use crate::placement::pipelining::Pipelining;
use crate::placement::plan_error::PlanError;
use crate::placement::slices::{LayerPlacement, Placement};
use hwprofiles::Machine;
use scenarios::{Model, Sublayer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Consecutive layers with equal placements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// Index of the first layer.
    pub first: u64,
    /// Number of layers.
    pub count: u64,
    /// Slices of the projections in front of the mixer, in layers that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qkv: Option<NamedSlices>,
    /// Attention, or another mixer, and the home of its cache: one slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<NamedSlices>,
    /// Slices of the output projection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<NamedSlices>,
    /// Slices of the (gate and) up projection, in dense layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn_up: Option<NamedSlices>,
    /// Slices of the down projection, in dense layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn_down: Option<NamedSlices>,
    /// The router, in layers with experts: one slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<NamedSlices>,
    /// Slices of the expert that every token goes to, in layers that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_expert: Option<NamedSlices>,
    /// Slices of the experts, the most popular ones first: a share of 0.25 means the most popular
    /// quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<NamedSlices>,
}

impl LayerGroup {
    fn from_layer(machine: &Machine, model: &Model, first: u64, layer: &LayerPlacement) -> Self {
        let shape = model.shape(layer.kind);
        let named_slices =
            |sublayer| NamedSlices::from_slices(machine, shape, sublayer, layer.slices(sublayer));
        let has = |sublayer| layer.kind.sublayers().contains(&sublayer).then(|| named_slices(sublayer));
        Self {
            first,
            count: 1,
            qkv: has(Sublayer::Qkv),
            attention: has(Sublayer::Attention),
            out: has(Sublayer::Out),
            ffn_up: has(Sublayer::FfnUp),
            ffn_down: has(Sublayer::FfnDown),
            router: has(Sublayer::Router),
            shared_expert: has(Sublayer::SharedExpert),
            experts: has(Sublayer::Experts),
        }
    }

    /// Its sublayers with their slices, in the order of the file.
    pub fn parts(&self) -> impl Iterator<Item = (Sublayer, &NamedSlices)> {
        let all = [
            (Sublayer::Qkv, self.qkv.as_ref()),
            (Sublayer::Attention, self.attention.as_ref()),
            (Sublayer::Out, self.out.as_ref()),
            (Sublayer::FfnUp, self.ffn_up.as_ref()),
            (Sublayer::FfnDown, self.ffn_down.as_ref()),
            (Sublayer::Router, self.router.as_ref()),
            (Sublayer::SharedExpert, self.shared_expert.as_ref()),
            (Sublayer::Experts, self.experts.as_ref()),
        ];
        all.into_iter().filter_map(|(sublayer, parts)| Some((sublayer, parts?)))
    }

    /// The placement of each of its layers. `before` layers precede the group.
    fn layer(&self, machine: &Machine, model: &Model, before: u64) -> Result<LayerPlacement, PlanError> {
        if self.first != before {
            let wanted = format!("layer {before} is the next: groups follow each other without gaps");
            return Err(PlanError::new(&["first"], self.first, wanted));
        }
        if self.count == 0 || self.count > model.layers - before.min(model.layers) {
            let wanted = format!("from 1 to the {} layers that are left", model.layers - before);
            return Err(PlanError::new(&["count"], self.count, wanted));
        }
        let kind = model.kind(before);
        if (before..before + self.count).any(|layer| model.kind(layer) != kind) {
            let wanted = "its layers are not all of one kind: write a group for each run of equal layers";
            return Err(PlanError::new(&["count"], self.count, wanted));
        }
        let has: Vec<_> = self.parts().map(|(sublayer, _)| sublayer).collect();
        let mut wanted = kind.sublayers().to_vec();
        wanted.sort_unstable();
        if has != wanted {
            let words =
                |sublayers: &[Sublayer]| sublayers.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ");
            let wanted = format!("layer {before} of {} has {}", model.name, words(&wanted));
            return Err(PlanError::new(&[], format!("a layer of {}", words(&has)), wanted));
        }
        let mut slices = BTreeMap::new();
        for (sublayer, parts) in self.parts() {
            slices.insert(sublayer, parts.slices(machine, model.shape(kind), sublayer)?);
        }
        Ok(LayerPlacement::from_slices(kind, |sublayer| {
            slices.remove(&sublayer).expect("it has what its kind has")
        }))
    }
}

/// Embed, layers and head of a placement with names.
pub(crate) fn named(
    machine: &Machine,
    model: &Model,
    placement: &Placement,
) -> (NamedSlices, Vec<LayerGroup>, NamedSlices) {
    let mut groups: Vec<LayerGroup> = Vec::new();
    let mut previous: Option<&LayerPlacement> = None;
    for (index, layer) in placement.layers.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if previous == Some(layer) => group.count += 1,
            _ => groups.push(LayerGroup::from_layer(machine, model, index as u64, layer)),
        }
        previous = Some(layer);
    }
    let embed = NamedSlices::from_slices(machine, model, Sublayer::Embed, &placement.embed);
    (embed, groups, NamedSlices::from_slices(machine, model, Sublayer::Head, &placement.head))
}

/// The placement by index of named embed, layers and head.
pub(crate) fn placement_of(
    machine: &Machine,
    model: &Model,
    (embed, groups, head): (&NamedSlices, &[LayerGroup], &NamedSlices),
    pipelining: Pipelining,
) -> Result<Placement, PlanError> {
    let mut layers = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let place = |error: PlanError| error.under(["layers".to_owned(), index.to_string()]);
        let layer = group.layer(machine, model, layers.len() as u64).map_err(place)?;
        layers.extend(std::iter::repeat_n(layer, group.count as usize));
    }
    if layers.len() as u64 != model.layers {
        let wanted = format!("the model has {}", model.layers);
        return Err(PlanError::new(&["layers"], format!("for {} layers", layers.len()), wanted));
    }
    Ok(Placement {
        embed: embed.slices(machine, model, Sublayer::Embed)?,
        layers,
        head: head.slices(machine, model, Sublayer::Head)?,
        pipelining,
    })
}
