//! The numbers of one scenario, under the names that a served day's JSON has.

use super::day::serve_day_on;
use super::placement::ServingPlacement;
use super::tables::DayTables;
use crate::error::{Error, Result};
use crate::pipeline::PreparedScenario;
use planner::{Effort, LayerGroup, NamedSlices, Plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What was chosen for `scenario`, in words, and its numbers. A static batch is planned with
/// `effort`.
pub(crate) fn measures(scenario: &PreparedScenario, effort: Effort) -> Result<(String, Value)> {
    if scenario.training().is_some() {
        return Err(Error::input("a training step is not planned: `fulcrum sim` simulates it"));
    }
    if let Some(serving) = scenario.serving() {
        let placed = ServingPlacement::new(scenario)?;
        let day = serve_day_on(scenario, serving, placed, DayTables::default())?;
        return Ok((day.plan.clone(), day.to_json()));
    }
    let plan = scenario.plan_document(effort)?;
    let (predicted, load) = (&plan.predicted, &plan.workload);
    let times = predicted.simulated;
    let (first, each) = (times.ttft.get(), times.tpot.map(|tpot| tpot.get()));
    let all = first + each.unwrap_or(0.0) * load.output_tokens.saturating_sub(1) as f64;
    let tokens = (load.batch * load.output_tokens) as f64;
    let same = |value: f64| json!({ "mean": value, "p50": value, "max": value });
    let measures = json!({
        "requests": { "completed": load.batch, "rejected": 0 },
        "duration_s": all,
        "ttft_s": same(first),
        "tpot_s": each.map(same),
        "e2el_s": same(all),
        "requests_per_s": load.batch as f64 / all,
        "output_tokens_per_s": tokens / all,
        "energy_j": predicted.energy_per_token.map(|energy| energy.get() * tokens),
        "cost": predicted.cost_per_token.map(|cost| cost.get() * tokens),
    });
    Ok((format!("{}, {}; {}", predicted.chosen, plan.formats, decode_devices(&plan)), measures))
}

/// The devices that compute decode, most layers first:
/// `40 layers cpu: attention, gpu: qkv out ffn_up ffn_down; 8 layers gpu`.
fn decode_devices(plan: &Plan) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for group in &plan.layers {
        *counts.entry(layer_devices(group)).or_default() += group.count;
    }
    let mut groups: Vec<_> = counts.into_iter().collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words = groups.iter().map(|(devices, count)| format!("{count} layers {devices}"));
    words.collect::<Vec<_>>().join("; ")
}

/// The devices of a layer, each with its sublayers; a device that computes all is named alone.
fn layer_devices(group: &LayerGroup) -> String {
    let LayerGroup { qkv, attention, out, ffn_up, ffn_down, router, shared_expert, experts, .. } = group;
    let sublayers = [
        ("qkv", qkv.as_ref()),
        ("attention", attention.as_ref()),
        ("out", out.as_ref()),
        ("ffn_up", ffn_up.as_ref()),
        ("ffn_down", ffn_down.as_ref()),
        ("router", router.as_ref()),
        ("shared_expert", shared_expert.as_ref()),
        ("experts", experts.as_ref()),
    ];
    let mut by_device: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, parts) in sublayers {
        let Some(NamedSlices(parts)) = parts else { continue };
        let mut devices: Vec<_> = parts.iter().map(|part| part.decode.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        by_device.entry(devices.join("+")).or_default().push(name);
    }
    let all: Vec<_> = by_device.into_iter().collect();
    match &all[..] {
        [(device, _)] => device.clone(),
        _ => {
            let each = all.iter().map(|(device, sublayers)| format!("{device}: {}", sublayers.join(" ")));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}
