//! What the cost of a token hangs on: each figure a little lower and a little higher, the others as they are.

use super::fleet::{Fleet, FleetMachine, FleetTerms};
use hwprofiles::{Ratio, Years};
use serde::Serialize;

/// What becomes of the cost of an output token when one figure changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SensitivityBar {
    /// Which figure, and by how much.
    #[serde(rename = "what")]
    pub figure: String,
    /// Dollars for an output token with the lower figure.
    pub lower: f64,
    /// Dollars with the higher one.
    pub higher: f64,
}

impl SensitivityBar {
    /// How far apart they are.
    pub fn width(&self) -> f64 {
        (self.higher - self.lower).abs()
    }
}

/// Prices are taken to be off by a quarter, tariffs, room and cooling by half.
const QUARTER: f64 = 0.25;
const HALF: f64 = 0.5;
const A_YEAR: f64 = 1.0;

/// The figures that `fleet`'s cost hangs on, what matters most first; `rates` are the loads of a machine whose rates are at the
/// slow and at the fast end of their band, absent where it keeps the limits at none.
pub fn sensitivity(fleet: &Fleet, rates: [Option<FleetMachine>; 2]) -> Vec<SensitivityBar> {
    let bar = |figure: String, [lower, higher]: [Fleet; 2]| SensitivityBar {
        figure,
        lower: lower.per_token().get(),
        higher: higher.per_token().get(),
    };
    let scaled = |name: &str, by: f64, of: &dyn Fn(&Fleet, f64) -> Fleet| {
        bar(format!("{name} ±{:.0} %", by * 100.0), [1.0 - by, 1.0 + by].map(|factor| of(fleet, factor)))
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
    /// The same machine where everything takes `slower` times as long and which serves `load` then: what a request takes grows
    /// with its time.
    pub fn slower(&self, slower: Ratio, load: f64) -> Self {
        Self { largest_load: load, power_per_load: self.power_per_load * slower.get(), ..*self }
    }
}
