//! The answer for a terminal (at most 80 columns), and as Markdown, CSV, JSON and a page.

use super::table::per_million;
use super::{Candidate, CapacityReport, CapacityResult, Payback, SensitivityBar, TOKENS};
use crate::numbers::format::plain;
use crate::numbers::text::{csv_text, markdown};
use crate::page::html::{environment, page_style};
use crate::plots::drawing::marks::Drawing;
use crate::plots::tornado;
use crate::results::error::ReportError;
use hwprofiles::{TERMINAL_COLUMNS, wrapped};
use minijinja::context;
use minijinja::value::Value;

/// Columns of a row's name, and of a machine's cell.
const NAME: usize = 22;
const CELL: usize = 28;

impl CapacityReport {
    /// For a terminal: the answer, pairs of machines side by side, and the answer again.
    pub fn to_text(&self) -> String {
        let sentences = |lines: &[String]| {
            lines
                .iter()
                .flat_map(|line| wrapped("", line, 0, TERMINAL_COLUMNS))
                .map(|line| line + "\n")
                .collect::<String>()
        };
        let mut text = format!("{}\n{}", sentences(&self.question), sentences(&self.answer));
        let rows = self.rows();
        for (pair, machines) in self.machines.chunks(2).enumerate() {
            let names: Vec<_> = machines.iter().map(|machine| machine.name.clone()).collect();
            text.push('\n');
            text += &table_line("", &names);
            for (name, cells) in &rows {
                text += &table_line(name, &cells[pair * 2..pair * 2 + machines.len()]);
            }
        }
        for (machine, bars) in self.tornados() {
            text += &format!("\nwhat a million output tokens cost on {machine}, USD:\n");
            for bar in bars {
                let [lower, higher] = [bar.lower, bar.higher].map(per_million);
                text += &format!("  {:34} {lower:>14} to {higher:>14}\n", bar.figure);
            }
        }
        text += "\nassumptions:\n";
        for figure in &self.figures {
            let line = format!("{} {}: {}", figure.name, figure.value, figure.source);
            for (index, part) in wrapped("", &line, 0, TERMINAL_COLUMNS - 4).iter().enumerate() {
                text += &format!("  {}{part}\n", if index == 0 { "" } else { "  " });
            }
        }
        // The answer stands above a long table, so a terminal's last line says it again.
        text + &sentences(&self.answer[..self.answer.len().min(1)]).replacen("", "\n", 1)
    }

    /// For a document: Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}: which machine\n\n", markdown(&self.model));
        text += &self.question.iter().map(|line| format!("{}\n", markdown(line))).collect::<String>();
        text.push('\n');
        text += &self.answer.iter().map(|line| format!("- {}\n", markdown(line))).collect::<String>();
        let names: Vec<_> = self.machines.iter().map(|machine| markdown(&machine.name)).collect();
        text += &format!("\n| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
        for (name, cells) in self.rows() {
            let cells: Vec<_> = cells.iter().map(|cell| markdown(cell)).collect();
            text += &format!("| {name} | {} |\n", cells.join(" | "));
        }
        for (machine, bars) in self.tornados() {
            text += &format!("\n## What a million output tokens cost on {}\n\n", markdown(machine));
            text += "| figure | lower | higher |\n|---|--:|--:|\n";
            for bar in bars {
                let [lower, higher] = [bar.lower, bar.higher].map(per_million);
                text += &format!("| {} | {lower} | {higher} |\n", bar.figure);
            }
        }
        text += "\n## Assumptions\n\n| figure | value | source |\n|---|---|---|\n";
        for figure in &self.figures {
            let [name, value, source] = [&figure.name, &figure.value, &figure.source].map(|it| markdown(it));
            text += &format!("| {name} | {value} | {source} |\n");
        }
        text
    }

    /// For a spreadsheet: one row per machine.
    pub fn to_csv(&self) -> String {
        let header = "machine plan unit largest_load largest_load_slow largest_load_fast requests_per_s beyond \
                      slo_attainment fails bottleneck bottleneck_share machines machines_slow machines_fast utilization \
                      price_usd gpus cxl_bytes energy_per_token_j cost_per_mtoken_usd cost_per_mtoken_usd_slow \
                      cost_per_mtoken_usd_fast total_cost_usd payback_years unmet";
        csv_text(header, self.machines.iter().map(|machine| csv_row(&self.unit, machine)))
    }

    /// The whole report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has text keys") + "\n"
    }

    /// A page that loads nothing else.
    ///
    /// # Errors
    /// A mistake in the template, which a test rules out.
    pub fn to_html(&self) -> Result<String, ReportError> {
        let environment = environment("capacity.html", include_str!("../../../templates/capacity.html"))?;
        let safe = Value::from_safe_string;
        let rows = self.rows().into_iter().map(|(what, cells)| context! { what, cells });
        let results = self.machines.iter().filter_map(|it| Some((&it.name, it.result.as_ref()?)));
        let tornados = results.map(
            |(machine, result)| context! { machine, plot => safe(tornado_plot(machine, result).inline()) },
        );
        let figures = self.figures.iter().map(|figure| {
            context! {
                what => figure.name.as_str(),
                value => figure.value.as_str(),
                source => figure.source.as_str(),
            }
        });
        Ok(environment.get_template("capacity.html")?.render(context! {
            style => page_style(),
            model => self.model.as_str(),
            asked => self.question.clone(),
            answer => self.answer.clone(),
            machines => self.machines.iter().map(|machine| machine.name.clone()).collect::<Vec<_>>(),
            rows => rows.collect::<Vec<_>>(),
            tornados => tornados.collect::<Vec<_>>(),
            figures => figures.collect::<Vec<_>>(),
            version => self.version.as_str(),
        })?)
    }

    fn tornados(&self) -> impl Iterator<Item = (&str, &[SensitivityBar])> {
        self.machines.iter().filter_map(Candidate::tornado)
    }
}

impl Candidate {
    fn tornado(&self) -> Option<(&str, &[SensitivityBar])> {
        Some((&self.name, &self.result.as_ref()?.sensitivity))
    }
}

/// A row of the terminal's table. Cells that are too long continue on the next line.
fn table_line(name: &str, cells: &[String]) -> String {
    let columns: Vec<Vec<String>> = cells.iter().map(|cell| wrapped("", cell, 0, CELL)).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(1);
    let mut text = String::new();
    for row in 0..height {
        let mut line = format!("{:NAME$}", if row == 0 { name } else { "" });
        for column in &columns {
            line += &format!(" {:CELL$}", column.get(row).map_or("", String::as_str));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn csv_row(unit: &str, machine: &Candidate) -> Vec<String> {
    let mut row = vec![machine.name.clone(), machine.plan.clone(), unit.to_owned()];
    let number = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    match &machine.result {
        None => row.extend(std::iter::repeat_n(String::new(), 22)),
        Some(result) => {
            let (load, machines, cost) = (result.largest_load, result.machines, result.cost_per_token);
            row.extend([load.value, load.slow, load.fast].map(|load| load.to_string()));
            row.push(result.requests_per_s.to_string());
            row.extend([result.beyond, result.slo_attainment[0]].map(number));
            row.push(result.fails.clone().unwrap_or_default());
            row.push(result.bottlenecks.first().map_or(String::new(), |most| most.resource.clone()));
            row.push(number(result.bottlenecks.first().map(|most| most.share)));
            row.extend([machines.value, machines.slow, machines.fast].map(|count| count.to_string()));
            row.extend([result.utilization, result.price].map(|number| number.to_string()));
            row.extend([result.gpus, result.cxl_bytes].map(|number| number.to_string()));
            row.push(result.energy_per_token_j.to_string());
            row.extend([cost.value, cost.slow, cost.fast].map(|cost| (cost * TOKENS).to_string()));
            row.push(result.total_cost.value.to_string());
            row.push(match result.payback {
                Some(Payback::AtOnce) => "0".to_owned(),
                Some(Payback::After(years)) => years.to_string(),
                Some(Payback::Never) | None => String::new(),
            });
        }
    }
    row.push(machine.unmet.clone().unwrap_or_default());
    row
}

/// The cost of a million tokens with each figure lower and higher, as bars around the present cost.
fn tornado_plot(machine: &str, result: &CapacityResult) -> Drawing {
    let bar = |bar: &SensitivityBar| tornado::TornadoBar {
        name: bar.figure.clone(),
        values: ["lower".to_owned(), "higher".to_owned()],
        answers: [bar.lower, bar.higher].map(|cost| cost * TOKENS),
    };
    let bars: Vec<_> = result.sensitivity.iter().map(bar).collect();
    let title = format!("{machine}: USD for a million output tokens");
    tornado::draw(&title, result.cost_per_token.value * TOKENS, &bars, plain)
}
