//! How the cost of a token depends on single figures: each is made lower and higher while the
//! others stay.

use super::fleet::{Fleet, FleetMachine, FleetTerms};
use hwprofiles::{Ratio, Years};
use serde::Serialize;

/// The cost of an output token when one figure changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SensitivityBar {
    /// The figure and the size of its change.
    #[serde(rename = "what")]
    pub figure: String,
    /// Dollars for an output token with the lower figure.
    pub lower: f64,
    /// Dollars for an output token with the higher figure.
    pub higher: f64,
}

impl SensitivityBar {
    /// The distance between the two costs.
    pub fn width(&self) -> f64 {
        (self.higher - self.lower).abs()
    }
}

/// How uncertain figures are taken to be: prices by a quarter; tariffs, room and cooling by half.
const QUARTER: f64 = 0.25;
const HALF: f64 = 0.5;
const A_YEAR: f64 = 1.0;

/// The effect of each figure on `fleet`'s cost, the largest first. `rates` is the machine with its
/// rates at the slow end and at the fast end of their bands; an end is absent where the machine
/// then meets the limits at no load.
pub fn sensitivity(fleet: &Fleet, rates: [Option<FleetMachine>; 2]) -> Vec<SensitivityBar> {
    let bar = |figure: String, [lower, higher]: [Fleet; 2]| SensitivityBar {
        figure,
        lower: lower.per_token().get(),
        higher: higher.per_token().get(),
    };
    let scaled = |name: &str, by: f64, scale: &dyn Fn(&Fleet, f64) -> Fleet| {
        bar(format!("{name} ±{:.0} %", by * 100.0), [1.0 - by, 1.0 + by].map(|factor| scale(fleet, factor)))
    };
    let terms = |change: &dyn Fn(&mut FleetTerms)| {
        let mut changed = *fleet;
        change(&mut changed.terms);
        changed
    };
    let life = fleet.terms.lifetime.get();
    let mut bars = vec![
        scaled("price of the machine", QUARTER, &|fleet, factor| {
            let price = fleet.machine.price * factor;
            Fleet { machine: FleetMachine { price, ..fleet.machine }, ..*fleet }
        }),
        scaled("price of electricity", HALF, &|_, factor| {
            terms(&|terms| terms.price_per_kwh = terms.price_per_kwh * factor)
        }),
        scaled("room and cooling", HALF, &|_, factor| terms(&|terms| terms.hosting = terms.hosting * factor)),
        scaled("load", QUARTER, &|_, factor| terms(&|terms| terms.load *= factor)),
        bar(
            format!("lifetime ±{A_YEAR} y"),
            [(life - A_YEAR).max(life / 2.0), life + A_YEAR]
                .map(|years| terms(&|terms| terms.lifetime = Years::new(years))),
        ),
    ];
    if let [Some(slow), Some(fast)] = rates {
        let ends = [slow, fast].map(|machine| Fleet { machine, ..*fleet });
        bars.push(bar("rates of the machine, 80 % band".to_owned(), ends));
    }
    bars.sort_by(|one, other| other.width().total_cmp(&one.width()));
    bars
}

impl FleetMachine {
    /// The same machine where everything takes `slower` times as long and the largest load is
    /// `load`. The power for a unit of load grows with the time that a request takes.
    pub fn slower(&self, slower: Ratio, load: f64) -> Self {
        Self { largest_load: load, power_per_load: self.power_per_load * slower.get(), ..*self }
    }
}
