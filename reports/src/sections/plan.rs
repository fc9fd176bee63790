//! The section of one plan: its predictions, the placement, and a simulated run.

use super::run::run_blocks;
use super::validation;
use crate::numbers::format::{duration, plain};
use crate::page::block::{NumberTile, PageBlock, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::{memory, placement};
use crate::results::configuration::MemoryUse;
use crate::results::machine_facts::machine_facts;
use crate::results::placement_map::PlacementMap;
use hwprofiles::Machine;
use planner::{MemoryUsage, PhaseTimes, Placement, Plan, Trace};

/// A plan with its machine and a simulated run.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    /// The plan's document.
    pub plan: Plan,
    /// The machine.
    pub machine: Machine,
    /// The simulated run.
    pub trace: Trace,
    placement: PlacementMap,
    memory: Vec<MemoryUse>,
    words: PlanWords,
}

/// What is said about a plan beside its numbers.
#[derive(Debug, Clone, Default)]
pub struct PlanWords {
    /// What binds it, and what more would bring: the text of `fulcrum explain`.
    pub explanation: Option<String>,
    /// How an engine runs it.
    pub engine: Option<EngineCommand>,
}

/// A plan in the words of an engine.
#[derive(Debug, Clone)]
pub struct EngineCommand {
    /// The engine's name.
    pub engine: String,
    /// The command that starts it with the plan's options.
    pub command: String,
    /// The parts of the plan that it cannot express, each with the nearest that it can.
    pub cannot: Vec<String>,
}

impl PlanWords {
    fn blocks(&self) -> Vec<PageBlock> {
        let mut blocks = Vec::new();
        if let Some(text) = &self.explanation {
            let summary = "What binds it, and what more would bring".to_owned();
            blocks.push(PageBlock::Folded { summary, text: text.clone() });
        }
        if let Some(EngineCommand { engine, command, cannot }) = &self.engine {
            blocks.push(PageBlock::Heading(format!("Run it with {engine}")));
            blocks.push(PageBlock::Commands(vec![command.clone()]));
            let cannot = cannot.iter().map(|what| format!("{engine} cannot express {what}."));
            blocks.extend(cannot.map(PageBlock::Text));
        }
        blocks
    }
}

impl PlannedRun {
    /// Joins a plan, its machine, its placement by index, and a simulated run.
    pub fn new(plan: Plan, machine: Machine, placement: &Placement, trace: Trace) -> Self {
        let placement = PlacementMap::from_placement(&machine, placement);
        let usage: Vec<MemoryUsage> = machine
            .memories
            .iter()
            .map(|it| plan.memory.get(&it.name).copied().unwrap_or_default())
            .collect();
        let memory = MemoryUse::from_usage(&machine, &usage, |_| None);
        Self { plan, machine, trace, placement, memory, words: PlanWords::default() }
    }

    /// The same with what is said about the plan.
    #[must_use]
    pub fn with_words(self, words: PlanWords) -> Self {
        Self { words, ..self }
    }

    pub(crate) fn section(&self) -> PageSection {
        let Self { plan, machine, trace, placement: map, memory: memories, words } = self;
        let load = plan.workload;
        let mut blocks = vec![PageBlock::Tiles(self.tiles()), PageBlock::Table(self.rules())];
        blocks.extend(words.blocks());
        blocks.push(PageBlock::Heading("Placement".to_owned()));
        blocks.push(PageBlock::wide("placement", placement::draw(map)));
        blocks.push(PageBlock::wide("homes", placement::draw_homes(map)));
        blocks.push(PageBlock::wide("memory", memory::draw(memories)));
        blocks.extend(run_blocks(trace, Some(machine), Some(plan.formats.weights)));
        blocks.push(PageBlock::Heading("Machine rates behind the predictions".to_owned()));
        blocks.push(PageBlock::Details {
            summary: format!("Rates of {}", machine.name),
            open: false,
            tables: vec![validation::facts(&machine.name, &machine_facts(machine))],
        });
        PageSection {
            title: format!("{} on {}: plan", plan.model.name, plan.machine.name),
            lead: format!(
                "Batch {}, {} prompt and {} output tokens, in {}; best for {}, chosen as ‘{}’.",
                load.batch,
                load.prompt_tokens,
                load.output_tokens,
                plan.formats,
                plan.objective,
                plan.predicted.chosen
            ),
            blocks,
        }
    }

    fn tiles(&self) -> Vec<NumberTile> {
        let predicted = &self.plan.predicted;
        let times = predicted.simulated;
        let mut tiles = vec![NumberTile::new("TTFT, time to first token", duration(times.ttft))];
        tiles.extend(times.tpot.map(|tpot| NumberTile::new("TPOT, time per output token", duration(tpot))));
        let energy = predicted.energy_per_token;
        tiles.extend(energy.map(|it| NumberTile::new("Energy per output token", it.to_string())));
        let cost = predicted.cost_per_token;
        let million = |it: hwprofiles::Dollars| format!("{} USD", plain(it.get() * 1e6));
        tiles.extend(cost.map(|it| NumberTile::new("Cost of a million output tokens", million(it))));
        tiles
    }

    /// A table of the plan beside rules that ignore speeds.
    fn rules(&self) -> Table {
        let predicted = &self.plan.predicted;
        let row = |name: &str, times: &PhaseTimes| {
            let tpot = times.tpot.map_or("–".to_owned(), duration);
            [name.to_owned(), duration(times.ttft), tpot, String::new()].map(TableCell::from).to_vec()
        };
        let own = [row("this plan", &predicted.simulated), row("its bound", &predicted.bound)];
        let rules = predicted.baselines.iter().map(|(name, times)| row(name, times));
        let without = predicted
            .without
            .iter()
            .map(|(name, why)| [name.as_str(), "–", "–", why].map(TableCell::from).to_vec());
        let columns = [
            TableColumn::name("placement"),
            TableColumn::number("TTFT"),
            TableColumn::number("TPOT"),
            TableColumn::wide("why not"),
        ];
        Table {
            label: "The plan and simple rules".to_owned(),
            caption: "Simulated with contention, beside rules that ignore speeds. The bound is the \
                      plan’s own roofline."
                .to_owned(),
            columns: columns.to_vec(),
            rows: own.into_iter().chain(rules).chain(without).collect(),
        }
    }
}
