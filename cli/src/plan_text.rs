//! A plan in words for a terminal.

use crate::pipeline::Planned;
use crate::tried;
use planner::{LayerGroup, Parts, Plan, Times, Variant};
use scenarios::Workload;
use std::collections::BTreeMap;

/// Who computes what in decode, most layers first: `40 layers cpu: attention, gpu: qkv out ffn_up ffn_down; 8 layers gpu`.
pub fn who_decodes(plan: &Plan) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for group in &plan.layers {
        *counts.entry(devices(group)).or_default() += group.count;
    }
    let mut groups: Vec<_> = counts.into_iter().collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words = groups.iter().map(|(devices, count)| format!("{count} layers {devices}"));
    words.collect::<Vec<_>>().join("; ")
}

/// The devices of a layer, each with its sublayers; of one that computes all, its name.
fn devices(group: &LayerGroup) -> String {
    let LayerGroup { qkv, attention, out, ffn_up, ffn_down, router, shared_expert, experts, .. } = group;
    let always = [("qkv", Some(qkv)), ("attention", Some(attention)), ("out", Some(out))];
    let some = [
        ("ffn_up", ffn_up.as_ref()),
        ("ffn_down", ffn_down.as_ref()),
        ("router", router.as_ref()),
        ("shared_expert", shared_expert.as_ref()),
        ("experts", experts.as_ref()),
    ];
    let mut of_device: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, parts) in always.into_iter().chain(some) {
        let Some(Parts(parts)) = parts else { continue };
        let mut names: Vec<_> = parts.iter().map(|part| part.decode.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        of_device.entry(names.join("+")).or_default().push(name);
    }
    let all: Vec<_> = of_device.into_iter().collect();
    match &all[..] {
        [(device, _)] => device.clone(),
        _ => {
            let each = all.iter().map(|(device, sublayers)| format!("{device}: {}", sublayers.join(" ")));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

impl Planned {
    /// One line that says what it is about.
    pub fn heading(&self) -> String {
        self.heading_of(&self.plan.workload)
    }

    /// The same for a run of another size.
    pub fn heading_of(&self, load: &Workload) -> String {
        format!(
            "{} on {}: batch {}, {} prompt + {} output tokens, {}\n",
            self.model.name,
            self.machine.name,
            load.batch,
            load.prompt_tokens,
            load.output_tokens,
            self.plan.predicted.chosen
        )
    }

    /// What to expect, beside what the simple rules would do.
    pub fn summary(&self) -> String {
        let row = |name: &str, times: &Times| {
            let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
            format!("  {name:<16} {:>12} {tpot:>12}\n", times.ttft.to_string())
        };
        let predicted = &self.plan.predicted;
        let mut text = self.heading();
        text += &self.draft_line();
        text += &format!("  {:<16} {:>12} {:>12}\n", "", "TTFT", "TPOT");
        text += &row("this plan", &predicted.simulated);
        text += &row("its bound", &predicted.bound);
        for (name, times) in &predicted.baselines {
            text += &row(name, times);
        }
        for (name, why) in &predicted.without {
            text += &format!("  {name:<16} {why}\n");
        }
        text + &self.formats_table()
    }

    /// Which draft proposes tokens, and where; empty where none does.
    fn draft_line(&self) -> String {
        let Some((draft, speculation)) = self.plan.draft.as_ref().zip(self.plan.workload.speculation) else {
            return String::new();
        };
        format!(
            "  {} on {} proposes {} tokens a step, in {};\n  a step yields {:.2} in the mean\n",
            draft.model.name,
            draft.device,
            speculation.tokens,
            draft.step,
            speculation.tokens_per_step(),
        )
    }

    /// What each combination of number formats would give; empty where there was no choice.
    pub fn formats_table(&self) -> String {
        tried::table(&self.tried, &self.variant())
    }

    /// What was chosen before anything was placed.
    fn variant(&self) -> Variant {
        let speculation = self.plan.workload.speculation;
        let draft = self.plan.draft.as_ref().zip(speculation);
        Variant {
            tensor_parallel: self.machine.tensor_parallel(),
            formats: self.plan.formats,
            draft: draft.map(|(draft, speculation)| (draft.device.clone(), speculation.tokens)),
        }
    }
}
