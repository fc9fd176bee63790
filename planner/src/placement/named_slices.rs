//! The slices of a sublayer in plan documents, with names in place of indices.

use crate::placement::plan_error::PlanError;
use crate::placement::slices::{Slice, Slices, split_row};
use hwprofiles::{DeviceId, Machine, MemoryId};
use scenarios::{Model, Sublayer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, value};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// One device's slice of a sublayer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSlice {
    /// Share of the matrix's rows. Absent if the sublayer is undivided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Name of the memory that holds it (for attention, that holds the KV cache).
    pub home: String,
    /// Name of the device that computes it in prefill.
    pub prefill: String,
    /// Name of the device that computes it in decode.
    pub decode: String,
}

/// The slices of one sublayer. In files an undivided sublayer is one mapping, a divided one a list.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedSlices(pub Vec<NamedSlice>);

impl Serialize for NamedSlices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            many => many.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NamedSlices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = NamedSlices;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{home: …, prefill: …, decode: …}, or a list of such parts with their shares")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NamedSlices, A::Error> {
                NamedSlice::deserialize(value::MapAccessDeserializer::new(map))
                    .map(|part| NamedSlices(vec![part]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<NamedSlices, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(NamedSlices)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl NamedSlices {
    /// Replaces indices by names.
    pub(crate) fn from_slices(machine: &Machine, model: &Model, sublayer: Sublayer, slices: &Slices) -> Self {
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        let part = |slice: &Slice| NamedSlice {
            share: (slices.len() > 1).then(|| (slice.rows.end - slice.rows.start) as f64 / rows as f64),
            home: machine.memory(slice.home).name.clone(),
            prefill: machine.device(slice.prefill).name.clone(),
            decode: machine.device(slice.decode).name.clone(),
        };
        Self(slices.iter().map(part).collect())
    }

    /// Replaces names by indices. The key path of an error begins at the sublayer.
    pub(crate) fn slices(
        &self,
        machine: &Machine,
        model: &Model,
        sublayer: Sublayer,
    ) -> Result<Slices, PlanError> {
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        self.check_shares(sublayer)?;
        let (mut start, mut sum, mut slices) = (0, 0.0, Slices::new());
        for (index, part) in self.0.iter().enumerate() {
            sum += part.share.unwrap_or(1.0);
            let end = if index + 1 == self.0.len() { rows } else { split_row(rows, sum, sublayer.panel()) };
            let wrong = |key: &str, value: &dyn fmt::Display, wanted: String| {
                let place = [sublayer.name().to_owned(), index.to_string(), key.to_owned()];
                let undivided = self.0.len() == 1;
                let path = place.into_iter().enumerate().filter(|(at, _)| !(undivided && *at == 1));
                PlanError { path: path.map(|(_, step)| step).collect(), value: value.to_string(), wanted }
            };
            let home = memory(machine, &part.home).map_err(|wanted| wrong("home", &part.home, wanted))?;
            let [prefill, decode] = [("prefill", &part.prefill), ("decode", &part.decode)]
                .map(|(key, name)| device(machine, name).map_err(|wanted| wrong(key, name, wanted)));
            let slice = Slice { rows: start..end.max(start), home, prefill: prefill?, decode: decode? };
            if rows > 0 && slice.rows.is_empty() {
                let unit = if sublayer == Sublayer::Experts { "experts" } else { "rows" };
                let wanted = format!("with a part of at least {} of its {rows} {unit}", sublayer.panel());
                return Err(wrong("share", &part.share.unwrap_or(1.0), wanted));
            }
            let away = [slice.prefill, slice.decode].into_iter().any(|d| machine.device(d).memory != home);
            if sublayer == Sublayer::Embed && away {
                let wanted = "the token table is not streamed: its home must be the own memory of its device";
                return Err(wrong("home", &part.home, wanted.to_owned()));
            }
            start = slice.rows.end;
            slices.push(slice);
        }
        Ok(slices)
    }

    fn check_shares(&self, sublayer: Sublayer) -> Result<(), PlanError> {
        let shares = self.0.iter().map(|part| part.share.unwrap_or(1.0));
        let total: f64 = shares.clone().sum();
        let one = self.0.len() == 1;
        let wanted = if !one && matches!(sublayer, Sublayer::Attention | Sublayer::Embed | Sublayer::Router) {
            "this sublayer cannot be divided: write one part"
        } else if self.0.is_empty() || (total - 1.0).abs() > 1e-6 {
            "the shares of its parts must add up to 1"
        } else if shares.clone().any(|share| share.is_nan() || share <= 0.0) {
            "every share must be above 0"
        } else if !one && self.0.iter().any(|part| part.share.is_none()) {
            "every part needs its share"
        } else {
            return Ok(());
        };
        let listed: Vec<_> = shares.map(|share| share.to_string()).collect();
        let value = if listed.is_empty() { "without parts".to_owned() } else { listed.join(" + ") };
        Err(PlanError { path: vec![sublayer.name().to_owned()], value, wanted: wanted.to_owned() })
    }
}

fn memory(machine: &Machine, name: &str) -> Result<MemoryId, String> {
    let known: Vec<_> = machine.memories.iter().map(|memory| memory.name.as_str()).collect();
    machine.memory_named(name).ok_or_else(|| format!("the machine's memories are {}", known.join(", ")))
}

fn device(machine: &Machine, name: &str) -> Result<DeviceId, String> {
    let known: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
    machine.device_named(name).ok_or_else(|| format!("the machine's devices are {}", known.join(", ")))
}
