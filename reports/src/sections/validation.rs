//! The section of a validation: predicted beside measured.

use crate::numbers::format::counted;
use crate::numbers::format::{duration, percent, signed_percent, size};
use crate::numbers::pair::Pair;
use crate::page::block::{NumberTile, PageBlock, Plot, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::{errors, memory, placement, scatter, timeline};
use crate::results::comparison::{Comparison, LaneRow, OperatorRow};
use crate::results::configuration::{Configuration, MemoryUse};
use crate::results::machine_facts::Fact;
use crate::results::validation::{ERROR_BAND, ErrorSummary, Validation};
use crate::results::validation_text::{cells, within_line};
use hwprofiles::Seconds;
use planner::Recorder;

/// The terms of the page and their meaning.
const WORDS: &[(&str, &str)] = &[
    (
        "TTFT, time to first token",
        "From the start of the run to the end of the last prefill step, which yields the first token.",
    ),
    ("TPOT, time per output token", "(End of the run − first token) ÷ decode steps."),
    (
        "Error",
        "Predicted ÷ measured − 1: +10 % means that the prediction is 10 % too long. |error| is its magnitude.",
    ),
    (
        "Median, p90, worst",
        "Over all configurations: the median |error|, its 90th percentile by nearest rank, and the \
         largest |error|.",
    ),
    (
        "Overall predicted ÷ measured",
        "The geometric mean of the ratio: above 1 where predictions are too long overall.",
    ),
    (
        "Rank correlation",
        "Spearman’s rank correlation: 1 where predictions and measurements have the same order.",
    ),
    ("Lane", "A device or a link. It runs one task at a time."),
    (
        "Streamed",
        "Weights or KV cache that are not in the device’s own memory and cross a link each time they are used.",
    ),
];

pub(crate) fn section(it: &Validation) -> PageSection {
    let summary = it.summary();
    let tiles = [("TTFT, time to first token", summary.ttft), ("TPOT, time per output token", summary.tpot)];
    let tiles = tiles.into_iter().filter_map(|(name, errors)| Some(tile(name, &errors?)));
    let mut blocks: Vec<PageBlock> =
        it.recorded().map(|note| PageBlock::Note(note.to_owned())).into_iter().collect();
    blocks.push(PageBlock::Tiles(tiles.collect()));
    blocks.extend(how_far_off(it));
    blocks.push(PageBlock::Heading("Every configuration".to_owned()));
    blocks.push(PageBlock::Table(configurations(it)));
    blocks.extend(it.shown_configuration().map(shown).into_iter().flatten());
    blocks.push(PageBlock::Heading("Operators, lanes and memories".to_owned()));
    blocks.push(PageBlock::Text(
        "The repeat with the median total duration, joined with its prediction task by task.".to_owned(),
    ));
    for configuration in &it.configurations {
        let label = &configuration.label.name;
        let tables = comparison_tables(&configuration.comparison).into_iter();
        let tables = tables.chain([memory_table(&configuration.memory)]).collect();
        let open = it.shown_configuration().is_some_and(|shown| shown.label.name == *label);
        blocks.push(PageBlock::Details { summary: label.clone(), open, tables });
    }
    blocks.push(PageBlock::Heading("Machine rates behind the predictions".to_owned()));
    blocks.push(PageBlock::Table(facts(&it.machine, &it.facts)));
    blocks.push(PageBlock::Heading("Commands to reproduce this".to_owned()));
    blocks.push(PageBlock::Commands(it.commands.clone()));
    blocks.push(PageBlock::Heading("Terms".to_owned()));
    blocks.push(PageBlock::Words(WORDS));
    PageSection {
        title: format!("{} on {}: predicted and measured", it.model, it.machine),
        lead: format!(
            "{} of batch size, prompt and placement. The plan of each was simulated with the machine’s \
             rates and then run; both executed the same tasks.",
            counted(it.configurations.len(), "configuration")
        ),
        blocks,
    }
}

fn tile(name: &str, errors: &ErrorSummary) -> NumberTile {
    let mut lines = vec![
        within_line(errors),
        format!("p90 {}, worst {} ({})", percent(errors.p90), percent(errors.worst), errors.worst_name),
    ];
    lines.extend(errors.ratio.map(|ratio| {
        let ranks = errors.rank_correlation.map_or(String::new(), |it| format!(", rank correlation {it:.3}"));
        format!("overall predicted ÷ measured = {ratio:.3}{ranks}")
    }));
    NumberTile { name: format!("{name}: median |error|"), value: percent(errors.median), lines }
}

fn how_far_off(it: &Validation) -> Vec<PageBlock> {
    let band = band();
    let scatters = [
        Plot::fitting("predicted-vs-measured-ttft", scatter::draw(it, scatter::TimeMetric::Ttft)),
        Plot::fitting("predicted-vs-measured-tpot", scatter::draw(it, scatter::TimeMetric::Tpot)),
    ];
    vec![
        PageBlock::Heading("Prediction errors".to_owned()),
        PageBlock::Text(format!(
            "On the dashed line predictions are exact; the shaded band is {band}. Above the line \
             predictions are too long."
        )),
        PageBlock::Plots(scatters.to_vec()),
        PageBlock::Text(
            "The error of every configuration. The thin line spans the errors against the first and \
             third quartile of the repeats."
                .to_owned(),
        ),
        PageBlock::wide("errors", errors::draw(it)),
    ]
}

/// The configuration that is shown in detail.
fn shown(it: &Configuration) -> Vec<PageBlock> {
    let mut blocks = vec![PageBlock::Heading(format!("Two steps of {}", it.label.name))];
    blocks.extend(joined_steps(&it.comparison));
    blocks.push(PageBlock::Heading(format!("Placement of {}", it.label.name)));
    blocks.push(PageBlock::wide("placement", placement::draw(&it.placement)));
    blocks.push(PageBlock::wide("homes", placement::draw_homes(&it.placement)));
    blocks.push(PageBlock::Text(
        "The use of each memory. The thick line is the capacity; the triangle is the largest allocation \
         during the run."
            .to_owned(),
    ));
    blocks.push(PageBlock::wide("memory", memory::draw(&it.memory)));
    blocks
}

/// Both sides of the steps that are drawn, and of their operators.
pub(crate) fn joined_steps(comparison: &Comparison) -> Vec<PageBlock> {
    let mut blocks = vec![PageBlock::Text(
        "Predicted tasks (above) and measured tasks (below) of each device and link. The dashed line is \
         the predicted end of the step, the solid line the measured end."
            .to_owned(),
    )];
    for step in &comparison.timelines {
        let phase = step.step.phase;
        blocks.push(PageBlock::wide(format!("step-{phase}"), timeline::draw(step, timeline::BOTH)));
        blocks.push(PageBlock::wide(
            format!("step-{phase}-layers"),
            timeline::draw_layers(step, timeline::BOTH),
        ));
    }
    let operators = scatter::draw_operators(comparison);
    blocks.push(PageBlock::Text(
        "The time of every operator and transfer, summed over all steps of its phase.".to_owned(),
    ));
    blocks.push(PageBlock::Plots(vec![Plot::fitting("operators", operators)]));
    blocks
}

/// `±12 %`.
pub(crate) fn band() -> String {
    format!("±{:.0} %", ERROR_BAND * 100.0)
}

fn configurations(it: &Validation) -> Table {
    let first = [TableColumn::name("configuration"), TableColumn::text("placement")];
    let load = ["batch", "prompt", "output"].map(TableColumn::number);
    let times =
        ["TTFT predicted", "measured", "spread", "error", "TPOT predicted", "measured", "spread", "error"];
    let columns = first.into_iter().chain(load).chain(times.map(TableColumn::number)).collect();
    let time = |pair: Option<Pair>, spread: Option<f64>| {
        let [predicted, measured, error] = cells(pair).unwrap_or_else(|| ["–"; 3].map(str::to_owned));
        let unusual = pair.and_then(|it| it.error()).is_some_and(|error| error.abs() > ERROR_BAND);
        let spread = spread.map_or("–".to_owned(), percent);
        [predicted.into(), measured.into(), spread.into(), TableCell { text: error, unusual }]
    };
    let row = |it: &Configuration| {
        let label = &it.label;
        let load =
            [label.batch, label.prompt_tokens, label.output_tokens].map(|it| TableCell::from(it.to_string()));
        let names = [label.name.as_str().into(), label.placement.as_str().into()];
        let times = [time(Some(it.ttft()), it.ttft_spread()), time(it.tpot(), it.tpot_spread())];
        names.into_iter().chain(load).chain(times.into_iter().flatten()).collect()
    };
    Table {
        label: "Predicted and measured times of every configuration".to_owned(),
        caption: format!(
            "Measured: the median of {}. Spread: (third quartile − first quartile) ÷ median. Errors \
             beyond {} are marked ‘!’.",
            it.repeats(),
            band()
        ),
        columns,
        rows: it.configurations.iter().map(row).collect(),
    }
}

/// The operators and the lanes of two joined traces.
pub(crate) fn comparison_tables(comparison: &Comparison) -> [Table; 2] {
    let operator = |row: &OperatorRow| {
        let share = comparison.share(row).map_or("–".to_owned(), percent);
        let [predicted, measured, error] = times(row.total);
        let count = row.count.to_string();
        [row.phase.to_string(), row.name.clone(), row.lane.clone(), count, predicted, measured, error, share]
            .map(TableCell::from)
            .to_vec()
    };
    let words = [TableColumn::text("phase"), TableColumn::name("operator"), TableColumn::text("lane")];
    let numbers = ["count", "predicted", "measured", "error", "share"].map(TableColumn::number);
    let operators = Table {
        label: "Operators".to_owned(),
        caption: "Operators and transfers. Share: of the measured time of the phase’s steps. Lanes run \
                  at the same time, so shares may exceed 100 % in total."
            .to_owned(),
        columns: words.into_iter().chain(numbers).collect(),
        rows: comparison.operators.iter().map(operator).collect(),
    };
    let lane = |row: &LaneRow| {
        let steps = comparison.phase_time(row.phase);
        let busy = |lane: Seconds, steps: Seconds| match steps > Seconds::ZERO {
            true => percent(lane / steps),
            false => "–".to_owned(),
        };
        let shares = [busy(row.busy.predicted, steps.predicted), busy(row.busy.measured, steps.measured)];
        let ([predicted, measured, error], [first, second]) = (times(row.busy), shares);
        [row.phase.to_string(), row.lane.clone(), predicted, first, measured, second, error]
            .map(TableCell::from)
            .to_vec()
    };
    let numbers = ["predicted", "share", "measured", "share", "error"].map(TableColumn::number);
    let lanes = Table {
        label: "Lanes".to_owned(),
        caption: "Busy time of each device and link, and its share of the phase’s steps.".to_owned(),
        columns: [TableColumn::text("phase"), TableColumn::name("lane")].into_iter().chain(numbers).collect(),
        rows: comparison.lanes.iter().map(lane).collect(),
    };
    [operators, lanes]
}

fn times(pair: Pair) -> [String; 3] {
    [duration(pair.predicted), duration(pair.measured), signed_percent(pair.error())]
}

/// The planned use of each memory.
pub(crate) fn memory_table(memories: &[MemoryUse]) -> Table {
    let numbers = ["capacity", "weights", "KV cache", "activations", "staging", "planned", "allocated"];
    let row = |it: &MemoryUse| {
        let unusual = it.planned().max(it.allocated.unwrap_or_default()) > it.capacity;
        let sizes = [it.capacity, it.weights, it.kv, it.activations, it.staging, it.planned()].map(size);
        let allocated = TableCell { text: it.allocated.map_or("–".to_owned(), size), unusual };
        let cells = [TableCell::from(it.memory.as_str())].into_iter().chain(sizes.map(TableCell::from));
        cells.chain([allocated]).collect()
    };
    Table {
        label: "Memories".to_owned(),
        caption: "Planned bytes and the largest allocation. ‘!’ marks a memory that is too small.".to_owned(),
        columns: [TableColumn::name("memory")].into_iter().chain(numbers.map(TableColumn::number)).collect(),
        rows: memories.iter().map(row).collect(),
    }
}

/// Every rate of a machine.
pub(crate) fn facts(machine: &str, facts: &[Fact]) -> Table {
    let row = |fact: &Fact| {
        [&fact.part, &fact.quantity, &fact.value, &fact.source.to_string()]
            .map(|it| TableCell::from(it.as_str()))
            .to_vec()
    };
    let columns = [
        TableColumn::text("part"),
        TableColumn::name("quantity"),
        TableColumn::text("value"),
        TableColumn::wide("source"),
    ];
    Table {
        label: "Rates of the machine and their sources".to_owned(),
        caption: format!("Every rate of {machine} and its source."),
        columns: columns.to_vec(),
        rows: facts.iter().map(row).collect(),
    }
}

impl Validation {
    /// The number of runs behind each measured time.
    fn repeats(&self) -> String {
        let runs = || self.configurations.iter().map(|it| it.runs.len());
        match (runs().min().unwrap_or(0), runs().max().unwrap_or(0)) {
            (fewest, most) if fewest != most => format!("{fewest} to {most} runs"),
            (all, _) => counted(all, "run"),
        }
    }

    /// A warning where the measured times were not measured on real devices.
    fn recorded(&self) -> Option<&'static str> {
        let recorders = || self.configurations.iter().map(|it| it.comparison.measured_by);
        if recorders().all(|it| it == Recorder::Measured) {
            None
        } else if recorders().any(|it| it == Recorder::Simulated) {
            Some("Some of the times called “measured” on this page were simulated.")
        } else {
            Some(
                "Some of the times called “measured” on this page ran on null devices, which spend \
                 modelled time.",
            )
        }
    }
}
