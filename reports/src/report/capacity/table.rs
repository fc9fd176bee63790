//! The answer as rows of texts, shared by terminal, document and page.

use super::{BandedValue, Candidate, CapacityReport, CapacityResult, GpuArrangement, Payback, TOKENS};
use crate::numbers::format::percent;
use hwprofiles::{Bytes, Dollars, Joules};
use scenarios::LoadUnit;

/// A row: its name and a cell for each machine.
pub(super) type Row = (String, Vec<String>);

/// A number with its band, as text.
fn banded(number: &BandedValue, text: impl Fn(f64) -> String) -> String {
    match number.slow == number.value && number.fast == number.value {
        true => text(number.value),
        false => {
            let ends = [number.slow.min(number.fast), number.slow.max(number.fast)];
            format!("{} ({} – {})", text(number.value), text(ends[0]), text(ends[1]))
        }
    }
}

fn bare(value: f64, digits: i32) -> String {
    match value {
        0.0 => return "0".to_owned(),
        infinite if infinite.is_infinite() => return "∞".to_owned(),
        _ => {}
    }
    let places = (digits - 1 - value.abs().log10().floor() as i32).max(0) as usize;
    format!("{value:.places$}")
}

impl CapacityReport {
    /// The rows of the answer.
    pub(super) fn rows(&self) -> Vec<Row> {
        let by_result = |text: &dyn Fn(&CapacityResult) -> String| -> Vec<String> {
            let cell = |machine: &Candidate| machine.result.as_ref().map_or("–".to_owned(), text);
            self.machines.iter().map(cell).collect()
        };
        let by_machine =
            |text: &dyn Fn(&Candidate) -> String| self.machines.iter().map(text).collect::<Vec<_>>();
        let unit = &self.unit;
        let mut rows: Vec<Row> = Vec::new();
        let mut add = |name: &str, cells: Vec<String>| rows.push((name.to_owned(), cells));
        if self.machines.iter().any(|machine| machine.unmet.is_some()) {
            add("left out, because", by_machine(&|it| it.unmet.clone().unwrap_or_else(|| "–".to_owned())));
        }
        add("machines", by_result(&|it| banded(&it.machines, |count| bare(count, 1))));
        add("year by year", by_result(&by_year));
        add("total cost, USD", by_result(&|it| banded(&it.total_cost, thousands)));
        add("against the first", self.against());
        add(
            "USD/M output tokens",
            by_result(&|it| banded(&it.cost_per_token, |cost| bare(cost * TOKENS, 3))),
        );
        add("energy per token", by_result(&|it| Joules::new(it.energy_per_token_j).to_string()));
        add("price of one, USD", by_result(&|it| thousands(it.price)));
        let mut add_if_any = |name: &str, cells: Vec<String>| {
            if cells.iter().any(|cell| !["0", "0 B", "–"].contains(&&**cell)) {
                add(name, cells);
            }
        };
        add_if_any("GPUs in all", by_result(&|it| it.gpus.to_string()));
        add_if_any("CXL memory in all", by_result(&|it| Bytes::new(it.cxl_bytes).to_string()));
        add(
            &format!("largest load, {unit}"),
            by_result(&|it| banded(&it.largest_load, |load| self.amount(load))),
        );
        if self.unit != LoadUnit::Requests.name() {
            add("answers per second", by_result(&|it| bare(it.requests_per_s, 3)));
        }
        add("keeps the limits", by_result(&|it| it.slo_attainment[0].map_or("–".to_owned(), percent)));
        add(&format!("next load tried, {unit}"), by_result(&|it| self.beyond(it)));
        add("limit it breaks", by_result(&|it| it.fails.clone().unwrap_or_else(|| "–".to_owned())));
        add("busiest resource", by_result(&|it| bottleneck(it, 0)));
        add("the next", by_result(&|it| bottleneck(it, 1)));
        add("share of time busy", by_result(&|it| percent(it.utilization)));
        add("engines in a machine", by_machine(&|it| it.plan.clone()));
        if self.machines.iter().any(|machine| !machine.arrangements.is_empty()) {
            let arrangement = |it: &GpuArrangement| {
                let load = it.largest_load.map_or("none".to_owned(), |load| self.amount(load));
                format!("{load}: {}", it.plan)
            };
            let arrangements = |machine: &Candidate| match &machine.arrangements[..] {
                [] => "–".to_owned(),
                tried => tried.iter().map(arrangement).collect::<Vec<_>>().join("; "),
            };
            add(&format!("ways tried, {unit}"), by_machine(&arrangements));
        }
        rows
    }

    /// A load as text: whole users, or a rate with three digits.
    fn amount(&self, load: f64) -> String {
        let digits = if self.unit == LoadUnit::Users.name() { 1 } else { 3 };
        bare(load, digits)
    }

    fn beyond(&self, result: &CapacityResult) -> String {
        match (result.beyond, result.slo_attainment[1]) {
            (Some(load), Some(kept)) => format!("{} ({} keep them)", self.amount(load), percent(kept)),
            _ => "–".to_owned(),
        }
    }

    /// When each machine pays back against the first one, and how much it saves.
    fn against(&self) -> Vec<String> {
        let total = |machine: &Candidate| machine.result.as_ref().map(|result| result.total_cost.value);
        let first = self.machines.first().and_then(total);
        let cell = |machine: &Candidate| {
            let result = machine.result.as_ref()?;
            let saved = first? - result.total_cost.value;
            let money =
                format!("{} {} USD", if saved >= 0.0 { "saves" } else { "costs" }, thousands(saved.abs()));
            Some(match result.payback? {
                Payback::AtOnce => format!("{money}, at once"),
                Payback::After(years) => format!("{money}, after {years:.1} y"),
                Payback::Never => format!("{money}: never"),
            })
        };
        self.machines.iter().map(|machine| cell(machine).unwrap_or_else(|| "–".to_owned())).collect()
    }
}

fn bottleneck(result: &CapacityResult, place: usize) -> String {
    result
        .bottlenecks
        .get(place)
        .map_or("–".to_owned(), |it| format!("{}, {}", it.resource, percent(it.share)))
}

fn by_year(result: &CapacityResult) -> String {
    result.years.iter().map(|year| year.machines.to_string()).collect::<Vec<_>>().join(", ")
}

/// Whole dollars in groups of three digits.
pub(super) fn thousands(dollars: f64) -> String {
    if dollars.is_infinite() {
        return "∞".to_owned();
    }
    let digits = format!("{:.0}", dollars.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if dollars < -0.5 { format!("-{text}") } else { text }
}

/// Dollars for a million output tokens.
pub(super) fn per_million(cost: f64) -> String {
    Dollars::new(cost * TOKENS).to_string()
}
