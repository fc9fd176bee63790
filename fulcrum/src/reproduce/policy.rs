//! A publication's policy as a placement.

use crate::error::{Error, Result};
use hwprofiles::{DeviceId, DeviceKind, Machine, MemoryId};
use planner::{LayerPlacement, Pipelining, Placement, Slice, Slices};
use scenarios::{Model, Sublayer};
use serde::Deserialize;

/// Where the parts of a model are, and which devices compute them.
///
/// Sites are written `30% hbm gpu + 70% dram gpu cpu`: a share, the memory, the device that
/// computes the rows there, and the device that computes them in decode where it is another one.
/// The share of the last site may be left out, since it has the rest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlacementPolicy {
    /// The site of embedding and head; where nothing is said, that of the last layer's matrices.
    #[serde(default)]
    head: Option<String>,
    /// The groups of layers.
    layers: Vec<PolicyLayers>,
    /// Staging slots; with 1, nothing is fetched while something is computed.
    #[serde(default)]
    slots: Option<f64>,
    /// Micro-batches, for which weights are read once.
    #[serde(default)]
    micro_batches: Option<f64>,
    /// Whether layers of different groups take turns, so that their fetches are spread. Otherwise
    /// one group follows the other.
    #[serde(default)]
    spread: bool,
}

/// Layers that are placed alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyLayers {
    /// Their share of all layers; the last group has the rest.
    #[serde(default)]
    share: Option<f64>,
    /// The site of all matrices that are not named below.
    weights: String,
    /// The site of the KV cache and of attention.
    attention: String,
    /// The site of the feed-forward network, or of the experts.
    #[serde(default)]
    ffn: Option<String>,
    #[serde(default)]
    qkv: Option<String>,
    #[serde(default)]
    out: Option<String>,
    #[serde(default)]
    ffn_up: Option<String>,
    #[serde(default)]
    ffn_down: Option<String>,
}

impl PolicyLayers {
    fn site(&self, sublayer: Sublayer) -> &str {
        let ffn = || self.ffn.as_ref();
        let own = match sublayer {
            Sublayer::Attention => Some(&self.attention),
            Sublayer::Qkv => self.qkv.as_ref(),
            Sublayer::Out => self.out.as_ref(),
            Sublayer::FfnUp => self.ffn_up.as_ref().or_else(ffn),
            Sublayer::FfnDown => self.ffn_down.as_ref().or_else(ffn),
            Sublayer::Experts => ffn(),
            _ => None,
        };
        own.unwrap_or(&self.weights)
    }
}

impl PlacementPolicy {
    /// Everything in the memory of the first accelerator and computed there, or by the CPU where
    /// there is no accelerator.
    pub(crate) fn on_one_device(machine: &Machine, model: &Model) -> Placement {
        let accelerator = machine.device_ids().find(|&id| machine.device(id).kind != DeviceKind::Cpu);
        let device = accelerator.unwrap_or(DeviceId(0));
        Placement::uniform(model, device, machine.device(device).memory)
    }

    /// The placement of `model` on `machine`.
    ///
    /// # Errors
    /// The policy names something that the machine does not have.
    pub(crate) fn placement(&self, machine: &Machine, model: &Model) -> Result<Placement> {
        let layers = model.layers as usize;
        let mut counts: Vec<usize> = Vec::new();
        for group in &self.layers {
            let left = layers - counts.iter().sum::<usize>();
            let wanted = group.share.map_or(left, |share| (share * layers as f64).round().max(0.0) as usize);
            counts.push(wanted.min(left));
        }
        let no_layers = || Error::input("place.layers is empty");
        let last = counts.len().checked_sub(1).ok_or_else(no_layers)?;
        counts[last] = layers - counts[..last].iter().sum::<usize>();
        let mut placed = Vec::new();
        for (index, group) in group_order(&counts, self.spread).into_iter().enumerate() {
            let (kind, policy) = (model.kind(index as u64), &self.layers[group]);
            let slices = kind.sublayers().iter().map(|&s| slices(machine, model, s, policy.site(s)));
            placed.push(LayerPlacement { kind, sublayers: slices.collect::<Result<_>>()? });
        }
        let head = self.head.as_deref().unwrap_or(&self.layers[last].weights);
        let whole = |sublayer| -> Result<Slices> {
            let mut all = slices(machine, model, sublayer, head)?;
            // The token table is never streamed or divided: a device beside it looks tokens up.
            if sublayer == Sublayer::Embed {
                all.truncate(1);
                all[0].rows.end = model.vocab;
                let near = machine.device_ids().find(|&id| machine.device(id).memory == all[0].home);
                (all[0].prefill, all[0].decode) =
                    near.map_or((all[0].prefill, all[0].decode), |near| (near, near));
            }
            Ok(all)
        };
        let default = Pipelining::default();
        let count =
            |wanted: Option<f64>, otherwise: u64| wanted.map_or(otherwise, |n| n.round().max(1.0) as u64);
        Ok(Placement {
            embed: whole(Sublayer::Embed)?,
            layers: placed,
            head: whole(Sublayer::Head)?,
            pipelining: Pipelining {
                slots: count(self.slots, default.slots as u64) as usize,
                micro_batches: count(self.micro_batches, default.micro_batches),
            },
        })
    }
}

/// The group of each layer, with `counts` layers in each group.
fn group_order(counts: &[usize], spread: bool) -> Vec<usize> {
    let all: usize = counts.iter().sum();
    if !spread {
        return counts
            .iter()
            .enumerate()
            .flat_map(|(group, &count)| std::iter::repeat_n(group, count))
            .collect();
    }
    let mut dealt = vec![0; counts.len()];
    let next = |layer: usize| {
        // The group that lags most behind its share is next.
        let lag =
            |group: &usize| counts[*group] as f64 * (layer + 1) as f64 / all as f64 - dealt[*group] as f64;
        let group = (0..counts.len()).max_by(|a, b| lag(a).total_cmp(&lag(b))).unwrap_or(0);
        dealt[group] += 1;
        group
    };
    (0..all).map(next).collect()
}

/// The slices of `sublayer` at the sites of `text`.
fn slices(machine: &Machine, model: &Model, sublayer: Sublayer, text: &str) -> Result<Slices> {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    let sites: Vec<&str> = text.split('+').map(str::trim).collect();
    let (mut slices, mut share, mut start) = (Slices::new(), 0.0, 0);
    for (index, site) in sites.iter().enumerate() {
        let mut words: Vec<&str> = site.split_whitespace().collect();
        let percent = words.first().and_then(|word| word.strip_suffix('%')).map(str::parse::<f64>);
        let last = index + 1 == sites.len();
        match percent {
            Some(Ok(percent)) => {
                share += percent / 100.0;
                words.remove(0);
            }
            None if last => share = 1.0,
            _ => return Err(Error::input(format!("'{text}': a share is written `30%`"))),
        }
        let end = if last { rows } else { cut(rows, share, sublayer.panel()) };
        let (home, prefill, decode) = read_site(machine, &words, text)?;
        // Attention has no rows to divide: it is at the first site.
        if end > start || (rows == 0 && slices.is_empty()) {
            slices.push(Slice { rows: start..end, home, prefill, decode });
            start = end;
        }
    }
    Ok(slices)
}

/// Where a cumulative share of `rows` ends.
fn cut(rows: u64, share: f64, panel: u64) -> u64 {
    ((rows as f64 * share / panel as f64).round().max(0.0) as u64).saturating_mul(panel).min(rows)
}

/// The memory of a site, and its devices in prefill and in decode.
fn read_site(machine: &Machine, words: &[&str], text: &str) -> Result<(MemoryId, DeviceId, DeviceId)> {
    let wrong = |reason: String| Error::input(format!("'{text}': {reason}"));
    let split = words.split_first();
    let (home, devices) = split.ok_or_else(|| wrong("there is no memory".to_owned()))?;
    let unknown = |name: &str, what: &str| wrong(format!("'{name}' is no {what} of {}", machine.name));
    let home = machine.memory_named(home).ok_or_else(|| unknown(home, "memory"))?;
    let device = |name: &str| machine.device_named(name).ok_or_else(|| unknown(name, "device"));
    match devices {
        [both] => Ok((home, device(both)?, device(both)?)),
        [prefill, decode] => Ok((home, device(prefill)?, device(decode)?)),
        _ => Err(wrong("write a memory, then one device or one for each phase".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::Library;

    #[test]
    fn shares_are_kept_in_rows_and_in_layers() {
        let machine = Library::default().machine("spr-a100").expect("shipped");
        let model = Model::preset("opt-30b").expect("a preset");
        let [own, host] = ["hbm", "dram"].map(|name| machine.memory_named(name).expect("a memory"));
        let text = r#"{"spread": true, "slots": 4, "layers": [
            {"share": 0.25, "weights": "20% hbm gpu + dram gpu", "attention": "hbm gpu"},
            {"weights": "20% hbm gpu + 80% dram gpu", "attention": "dram gpu cpu"}]}"#;
        let place: PlacementPolicy = serde_json::from_str(text).expect("a place");
        let placement = place.placement(&machine, &model).expect("a placement");
        let resident = placement.layers.iter().filter(|layer| layer.kv_home() == Some(own)).count();
        assert_eq!((resident, placement.layers.len()), (12, 48));
        // The resident layers are spread: there is one among any four in a row.
        assert!(
            placement.layers.windows(4).all(|four| four.iter().any(|layer| layer.kv_home() == Some(own)))
        );
        for (_, sublayer, slices) in placement.sublayers().filter(|(_, s, _)| s.matrix(&model).is_some()) {
            let rows = sublayer.matrix(&model).expect("a matrix").0;
            assert_eq!((slices[0].rows.start, slices.last().map(|s| s.rows.end)), (0, Some(rows)));
            assert!(slices.windows(2).all(|two| two[0].rows.end == two[1].rows.start));
            if sublayer != Sublayer::Embed {
                let there = slices[0].rows.end as f64 / rows as f64;
                assert!((there - 0.2).abs() < 0.02 && slices[1].home == host, "{sublayer}: {there}");
            }
        }
        assert_eq!(placement.pipelining.slots, 4);
    }

    #[test]
    fn memories_and_devices_that_a_machine_lacks_are_refused() {
        let machine = Library::default().machine("spr-a100").expect("shipped");
        let model = Model::preset("opt-125m").expect("a preset");
        for site in ["attic gpu", "hbm butler", "hbm", "x% hbm gpu + dram gpu"] {
            let text = serde_json::json!({"layers": [{"weights": site, "attention": "hbm gpu"}]});
            let place: PlacementPolicy = serde_json::from_value(text).expect("a place");
            let refusal = place.placement(&machine, &model).expect_err(site);
            assert!(refusal.to_string().contains(site), "{refusal}");
        }
    }
}
