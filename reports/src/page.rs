//! `report.html`: one file that needs nothing else, neither network nor script.

use crate::compare::{Comparison, LaneRow, OperatorRow};
use crate::configuration::{Configuration, MemoryUse};
use crate::error::ReportError;
use crate::numbers::{duration, percent, signed_percent, size};
use crate::pair::Pair;
use crate::plots::{errors, memory, placement, scatter, timeline};
use crate::svg::STYLE;
use crate::tables::{cells, within_line};
use crate::validation::{ERROR_BAND, ErrorSummary, Validation};
use hwprofiles::{Seconds, write_atomically};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use planner::Recorder;
use scenarios::Phase;
use std::path::Path;

impl Validation {
    /// The text of `report.html`.
    pub fn to_html(&self) -> Result<String, ReportError> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_template("report.html", include_str!("../templates/report.html"))?;
        let safe = Value::from_safe_string;
        let summary = self.summary();
        let metrics =
            [("TTFT", "time to first token", summary.ttft), ("TPOT", "time per output token", summary.tpot)];
        let metrics = metrics.into_iter().filter_map(|(name, words, it)| Some(metric(name, words, &it?)));
        let page = environment.get_template("report.html")?.render(context! {
            style => safe(format!("{STYLE}{}", include_str!("../templates/report.css"))),
            machine => self.machine.as_str(),
            model => self.model.as_str(),
            band => format!("±{:.0} %", ERROR_BAND * 100.0),
            metrics => metrics.collect::<Vec<_>>(),
            recorded => self.recorded(),
            repeats => self.repeats(),
            scatters => [scatter::Metric::Ttft, scatter::Metric::Tpot]
                .map(|metric| safe(scatter::draw(self, metric).inline())),
            errors => safe(errors::draw(self).inline()),
            configurations => self.configurations.iter().map(configuration).collect::<Vec<_>>(),
            shown => self.shown().map(shown),
            facts => self.facts.iter().map(|fact| context! {
                part => fact.part.as_str(),
                quantity => fact.quantity.as_str(),
                value => fact.value.as_str(),
                word => fact.source.word(),
                source => fact.source.to_string(),
            }).collect::<Vec<_>>(),
            commands => self.commands.clone(),
        })?;
        Ok(page)
    }

    /// Writes `report.html`, whole or not at all.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        Ok(write_atomically(path, self.to_html()?)?)
    }

    /// How many runs each measured time is the median of.
    fn repeats(&self) -> String {
        let runs = || self.configurations.iter().map(|it| it.runs.len());
        match (runs().min().unwrap_or(0), runs().max().unwrap_or(0)) {
            (fewest, most) if fewest != most => format!("{fewest} to {most} runs"),
            (1, _) => "1 run".to_owned(),
            (all, _) => format!("{all} runs"),
        }
    }

    /// What "measured" means on this page, where it is not what the word says.
    fn recorded(&self) -> Option<&'static str> {
        let recorders = || self.configurations.iter().map(|it| it.comparison.measured_by);
        match () {
            () if recorders().all(|it| it == Recorder::Measured) => None,
            () if recorders().any(|it| it == Recorder::Simulated) => {
                Some("Some of what is called measured on this page was simulated, not run.")
            }
            () => Some(
                "Some of what is called measured on this page ran on null devices, which spend modelled time.",
            ),
        }
    }
}

fn metric(name: &str, words: &str, errors: &ErrorSummary) -> Value {
    context! {
        name, words,
        median => percent(errors.median),
        p90 => percent(errors.p90),
        worst => percent(errors.worst),
        within => within_line(errors),
        worst_name => errors.worst_name.as_str(),
        ratio => errors.ratio.map(|it| format!("{it:.3}")),
        ranks => errors.rank_correlation.map(|it| format!("{it:.3}")),
    }
}

/// A row of the table of configurations, and its details.
fn configuration(it: &Configuration) -> Value {
    let time = |pair: Option<Pair>, spread: Option<f64>| {
        let [predicted, measured, error] = cells(pair).unwrap_or_else(|| ["–"; 3].map(str::to_owned));
        let off = pair.and_then(|it| it.error()).is_some_and(|error| error.abs() > ERROR_BAND);
        context! { predicted, measured, error, off, spread => spread.map_or("–".to_owned(), percent) }
    };
    context! {
        name => it.label.name.as_str(),
        placement => it.label.placement.as_str(),
        batch => it.label.batch,
        prompt => it.label.prompt_tokens,
        output => it.label.output_tokens,
        times => [time(Some(it.ttft()), it.ttft_spread()), time(it.tpot(), it.tpot_spread())],
        memory => it.memory.iter().map(memory_row).collect::<Vec<_>>(),
        operators => it.comparison.operators.iter().map(|row| operator_row(&it.comparison, row)).collect::<Vec<_>>(),
        lanes => it.comparison.lanes.iter().map(|row| lane_row(&it.comparison, row)).collect::<Vec<_>>(),
    }
}

fn operator_row(comparison: &Comparison, row: &OperatorRow) -> Value {
    context! {
        phase => row.phase.to_string(),
        name => row.name.as_str(),
        lane => row.lane.as_str(),
        count => row.count,
        predicted => duration(row.total.predicted),
        measured => duration(row.total.measured),
        error => signed_percent(row.total.error()),
        share => comparison.share(row).map_or("–".to_owned(), percent),
    }
}

fn lane_row(comparison: &Comparison, row: &LaneRow) -> Value {
    let steps = comparison.phase_time(row.phase);
    let busy = |lane: Seconds, steps: Seconds| match steps > Seconds::ZERO {
        true => percent(lane / steps),
        false => "–".to_owned(),
    };
    context! {
        phase => row.phase.to_string(),
        lane => row.lane.as_str(),
        predicted => duration(row.busy.predicted),
        measured => duration(row.busy.measured),
        error => signed_percent(row.busy.error()),
        predicted_share => busy(row.busy.predicted, steps.predicted),
        measured_share => busy(row.busy.measured, steps.measured),
    }
}

fn memory_row(it: &MemoryUse) -> Value {
    context! {
        memory => it.memory.as_str(),
        capacity => size(it.capacity),
        weights => size(it.weights),
        kv => size(it.kv),
        activations => size(it.activations),
        staging => size(it.staging),
        planned => size(it.planned()),
        allocated => it.allocated.map_or("–".to_owned(), size),
        over => it.planned().max(it.allocated.unwrap_or_default()) > it.capacity,
    }
}

/// The configuration that is drawn.
fn shown(it: &Configuration) -> Value {
    let safe = Value::from_safe_string;
    let timelines = it.comparison.timelines.iter().map(|timeline| {
        context! {
            phase => if timeline.step.phase == Phase::Prefill { "Prefill" } else { "Decode" },
            heading => timeline::name(timeline),
            plots => [timeline::draw(timeline), timeline::draw_layers(timeline)].map(|it| safe(it.inline())),
        }
    });
    context! {
        name => it.label.name.as_str(),
        timelines => timelines.collect::<Vec<_>>(),
        memory => safe(memory::draw(&it.memory).inline()),
        placement => safe(placement::draw(&it.placement).inline()),
    }
}
