//! Whether a little more of a machine moves a plan by little, and never for the worse: for
//! machines, models and loads, the latency of the plan with 50 MB or 1 GB more of a memory, with
//! faster memories and links, and with one accelerator more, beside that of the plan without.
//!
//! `cargo run --release -p fulcrum-sim --example smoothness [questions]`; with `small`, for 60
//! small memories of one accelerator, where little fits.

use hwprofiles::{Bytes, Machine, MemoryKind};
use planner::{CostModel, Effort, Plan, PlannerError, Problem, plan_improved};
use scenarios::{Document, FileCatalog, ResolvedScenario};

/// Machines as scenarios name them, without their accelerators: the same with one and with two.
const HOSTS: [(&str, &str); 4] = [
    ("{cpu: i9-13900k, dram: {capacity: 192 GB}, link: pcie4-x16", "rtx-4090"),
    ("{cpu: xeon-gold-6454s, sockets: 2, dram: {capacity: 1 TB}, link: pcie4-x16", "rtx-4090"),
    (
        "{cpu: xeon-8460h, dram: {capacity: 512 GB}, link: pcie5-x16, cxl: {part: samsung-128gb, count: 2}",
        "h100-pcie",
    ),
    ("{cpu: xeon-6980p, dram: {capacity: 768 GB}, link: pcie5-x16", "h200-sxm"),
];
const MODELS: [(&str, &str); 6] = [
    ("llama-3.1-70b", "int4"),
    ("gpt-oss-120b", "int4"),
    ("qwen3-235b-a22b", "int4"),
    ("gemma-3-27b", "bf16"),
    ("deepseek-v3", "int4"),
    ("glm-4.5-air", "int8"),
];
const LOADS: [[u64; 3]; 3] = [[1, 2048, 256], [8, 1024, 256], [1, 16_384, 512]];

/// A change of a machine.
type Change = (&'static str, fn(&mut Machine));

const CHANGES: [Change; 7] = [
    ("accelerator memory +50 MB", |machine| add(machine, false, 50_000_000)),
    ("accelerator memory +1 GB", |machine| add(machine, false, 1_000_000_000)),
    ("host memory +50 MB", |machine| add(machine, true, 50_000_000)),
    ("host memory +1 GB", |machine| add(machine, true, 1_000_000_000)),
    ("link x1.1", |machine| {
        machine.links.iter_mut().for_each(|link| link.bandwidth.value = link.bandwidth.value * 1.1);
    }),
    ("host bandwidth x1.1", |machine| faster(machine, true)),
    ("accelerator bandwidth x1.1", |machine| faster(machine, false)),
];

fn is_hosts(machine: &Machine, memory: usize) -> bool {
    !matches!(machine.memories[memory].kind, MemoryKind::Hbm | MemoryKind::Loopback)
}

fn add(machine: &mut Machine, host: bool, bytes: u64) {
    for memory in 0..machine.memories.len() {
        if is_hosts(machine, memory) == host && machine.memories[memory].stripes.is_empty() {
            machine.memories[memory].capacity.value += Bytes::new(bytes);
        }
    }
    machine.restripe();
}

fn faster(machine: &mut Machine, host: bool) {
    let factor = hwprofiles::Ratio::new(1.1).expect("a ratio");
    for memory in 0..machine.memories.len() {
        if is_hosts(machine, memory) == host {
            let rate = &mut machine.memories[memory].bandwidth.value;
            *rate = *rate * factor.get();
        }
    }
    for at in 0..machine.devices.len() {
        if is_hosts(machine, machine.devices[at].memory.0) == host {
            machine.devices[at] = machine.devices[at].faster(hwprofiles::Bound::Memory, factor);
        }
    }
    machine.restripe();
}

/// Time of a request with the best plan among the groupings of `machines`.
fn latency(found: &ResolvedScenario, machines: &[Machine]) -> Option<(f64, Plan)> {
    let workload = found.requirements.workload;
    let of_machine = |machine: &Machine| {
        let cost_model = CostModel { machine, model: &found.model, formats: &found.formats.allowed[0] };
        let problem = Problem { cost_model, requirements: found.requirements, draft: None };
        let planned = plan_improved(&problem, Effort::PLAN, &*sim::scorer(cost_model, workload));
        if let Err(error @ (PlannerError::Missing(_) | PlannerError::Solver { .. })) = &planned {
            println!("{}: {error}", machine.name);
        }
        let plan = planned.ok()?;
        let times = &plan.predicted.simulated;
        let decodes = (workload.output_tokens - 1) as f64;
        Some((times.ttft.get() + times.tpot.map_or(0.0, |tpot| tpot.get() * decodes), plan))
    };
    machines.iter().filter_map(of_machine).min_by(|a, b| a.0.total_cmp(&b.0))
}

fn scenario(
    host: &str,
    gpu: &str,
    (model, weights): (&str, &str),
    load: [u64; 3],
) -> Option<ResolvedScenario> {
    let [batch, prompt, output] = load;
    let text = format!(
        "machine: {host}, gpu: {gpu}}}\nmodel: {model}\ndtype: {{weights: {weights}}}\n\
         workload: {{batch: {batch}, prompt_tokens: {prompt}, output_tokens: {output}}}\n"
    );
    let scenario = Document::from_yaml("question", &text).and_then(|document| document.scenario_with(&[]));
    match scenario.and_then(|scenario| scenario.resolve(&FileCatalog::default())) {
        Ok(found) => Some(found),
        Err(error) => {
            println!("{text}: {error}");
            None
        }
    }
}

/// Latencies with more of a machine ÷ without, by what there is more of.
#[derive(Default)]
struct Ratios(Vec<(&'static str, Vec<f64>)>);

impl Ratios {
    fn add(&mut self, name: &'static str, ratio: f64) -> String {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ratios)) => ratios.push(ratio),
            None => self.0.push((name, vec![ratio])),
        }
        format!(" {ratio:>7.4}")
    }

    /// Adds each change of `machine`, whose plan takes `before`; returns the ratios as text.
    fn add_changes(&mut self, found: &ResolvedScenario, machine: &Machine, before: f64) -> String {
        let changes = CHANGES.iter().map(|(name, change)| {
            let mut machine = machine.clone();
            change(&mut machine);
            let after = latency(found, &[machine]).map_or(f64::INFINITY, |(after, _)| after);
            self.add(name, after / before)
        });
        changes.collect()
    }

    fn print(self) {
        for (name, mut ratios) in self.0 {
            ratios.sort_by(f64::total_cmp);
            let worst = ratios.last().copied().unwrap_or(f64::NAN);
            let median = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
            let worse = ratios.iter().filter(|ratio| **ratio > 1.001).count();
            println!("{name:<28} worst {worst:.4}, median {median:.4}, over 0.1 % worse in {worse}");
        }
    }
}

/// Llama-3.1-8B on desktops whose accelerator has 1 to 7 GB.
fn small_memories() {
    let mut ratios = Ratios::default();
    for index in 0..60_u64 {
        let load = [index % 3 + 1, 512, 64];
        let Some(found) = scenario(HOSTS[0].0, HOSTS[0].1, ("llama-3.1-8b", "int4"), load) else { continue };
        let mut machine = found.machines[0].clone();
        let own = (0..machine.memories.len()).find(|&memory| !is_hosts(&machine, memory));
        machine.memories[own.expect("an accelerator")].capacity.value =
            Bytes::new(1_000_000_000 + 100_000_000 * index);
        machine.restripe();
        let Some((before, _)) = latency(&found, std::slice::from_ref(&machine)) else { continue };
        println!("{load:?} {before:>9.4}{}", ratios.add_changes(&found, &machine, before));
    }
    ratios.print();
}

fn main() {
    let word = std::env::args().nth(1);
    if word.as_deref() == Some("small") {
        return small_memories();
    }
    let questions = word.map_or(usize::MAX, |word| word.parse().expect("a number"));
    let mut ratios = Ratios::default();
    let mut asked = 0;
    for (turn, load) in LOADS.into_iter().enumerate() {
        for (with, model) in MODELS.into_iter().enumerate() {
            for (at, (host, gpu)) in HOSTS.into_iter().enumerate() {
                if asked == questions || (at + with + turn) % 3 != 0 {
                    continue;
                }
                let Some(found) = scenario(host, gpu, model, load) else { continue };
                let Some((before, _)) = latency(&found, &found.machines) else { continue };
                asked += 1;
                let mut line = format!("{gpu:<10} {:<16} {:>16} {before:>9.3}", model.0, format!("{load:?}"));
                line += &ratios.add_changes(&found, &found.machines[0], before);
                let two = format!("{{part: {gpu}, count: 2}}");
                if let Some(found) = scenario(host, &two, model, load) {
                    let after = latency(&found, &found.machines).map_or(f64::INFINITY, |(after, _)| after);
                    line += &ratios.add("one accelerator more", after / before);
                }
                println!("{line}");
            }
        }
    }
    println!("{asked} questions; time after ÷ before");
    ratios.print();
}
