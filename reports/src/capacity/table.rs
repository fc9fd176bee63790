//! The answer as rows of words: the same for a terminal, a document and a page.

use super::{Banded, Candidate, CapacityReport, Found, Payback, TOKENS, Way};
use crate::numbers::percent;
use hwprofiles::{Bytes, Dollars, Joules};

/// A row: what it tells, and of each machine.
pub(super) type Row = (&'static str, Vec<String>);

/// How a number with a band is written.
fn banded(number: &Banded, text: impl Fn(f64) -> String) -> String {
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
    /// What is told of each machine.
    pub(super) fn rows(&self) -> Vec<Row> {
        let of = |text: &dyn Fn(&Found) -> String| -> Vec<String> {
            let cell = |machine: &Candidate| machine.found.as_ref().map_or("–".to_owned(), text);
            self.machines.iter().map(cell).collect()
        };
        let plan = |machine: &Candidate| machine.plan.clone();
        let mut rows: Vec<Row> = vec![("runs", self.machines.iter().map(plan).collect())];
        if self.machines.iter().any(|machine| !machine.ways.is_empty()) {
            let way = |way: &Way| {
                let load = way.largest_load_per_s.map_or("none".to_owned(), |load| bare(load, 3));
                format!("{load}: {}", way.plan)
            };
            let ways = |machine: &Candidate| match &machine.ways[..] {
                [] => "–".to_owned(),
                ways => ways.iter().map(way).collect::<Vec<_>>().join("; "),
            };
            rows.push(("ways tried, req/s", self.machines.iter().map(ways).collect()));
        }
        if self.machines.iter().any(|machine| machine.unmet.is_some()) {
            let unmet = |machine: &Candidate| machine.unmet.clone().unwrap_or_else(|| "–".to_owned());
            rows.push(("keeps no load, because", self.machines.iter().map(unmet).collect()));
        }
        rows.extend([
            ("largest load, req/s", of(&|it| banded(&it.largest_load_per_s, |load| bare(load, 3)))),
            ("keeps the limits", of(&|it| it.slo_attainment[0].map_or("–".to_owned(), percent))),
            ("beyond it, req/s", of(&beyond)),
            ("fails there", of(&|it| it.fails.clone().unwrap_or_else(|| "–".to_owned()))),
            ("taken most", of(&|it| bottleneck(it, 0))),
            ("then", of(&|it| bottleneck(it, 1))),
            ("machines", of(&|it| banded(&it.machines, |count| bare(count, 1)))),
            ("year by year", of(&by_year)),
            ("GPUs", of(&|it| it.gpus.to_string())),
            ("CXL memory", of(&|it| Bytes::new(it.cxl_bytes).to_string())),
            ("at work", of(&|it| percent(it.utilization))),
            ("one costs, USD", of(&|it| thousands(it.price))),
            ("J/output token", of(&|it| Joules::new(it.energy_per_token_j).to_string())),
            ("USD/M output tokens", of(&|it| banded(&it.cost_per_token, |cost| bare(cost * TOKENS, 3)))),
            ("all of it, USD", of(&|it| banded(&it.total_cost, thousands))),
            ("against the first", self.against()),
        ]);
        rows.retain(|(what, cells)| {
            !["GPUs", "CXL memory"].contains(what)
                || cells.iter().any(|cell| !["0", "0 B"].contains(&&**cell))
        });
        rows
    }

    /// When each machine pays back, and what it saves.
    fn against(&self) -> Vec<String> {
        let total = |machine: &Candidate| machine.found.as_ref().map(|found| found.total_cost.value);
        let first = self.machines.first().and_then(total);
        let cell = |machine: &Candidate| {
            let found = machine.found.as_ref()?;
            let saved = first? - found.total_cost.value;
            let money =
                format!("{} {} USD", if saved >= 0.0 { "saves" } else { "costs" }, thousands(saved.abs()));
            Some(match found.payback? {
                Payback::AtOnce => format!("{money}, at once"),
                Payback::After(years) => format!("{money}, after {years:.1} y"),
                Payback::Never => format!("{money}: never"),
            })
        };
        self.machines.iter().map(|machine| cell(machine).unwrap_or_else(|| "–".to_owned())).collect()
    }
}

fn beyond(found: &Found) -> String {
    match (found.beyond_per_s, found.slo_attainment[1]) {
        (Some(load), Some(kept)) => format!("{} ({} keep them)", bare(load, 3), percent(kept)),
        _ => "–".to_owned(),
    }
}

fn bottleneck(found: &Found, place: usize) -> String {
    let told = found.bottlenecks.get(place);
    told.map_or("–".to_owned(), |it| format!("{}, {}", it.what, percent(it.share)))
}

fn by_year(found: &Found) -> String {
    found.years.iter().map(|year| year.machines.to_string()).collect::<Vec<_>>().join(", ")
}

/// Whole dollars, in groups of three digits.
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
