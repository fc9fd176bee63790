//! A fleet: machines of one kind that share a load. How many there are, the power they draw, and
//! what they cost in each year. Loads have one unit throughout: requests per second, or users.

use hwprofiles::{Dollars, Joules, Seconds, Watts, Years};
use serde::Serialize;

/// One machine of a fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetMachine {
    /// The price of one machine.
    pub price: Dollars,
    /// The power it draws while it waits.
    pub idle_power: Watts,
    /// The power it draws when busy. Room and cooling are paid for this power.
    pub busy_power: Watts,
    /// The additional power for one unit of load.
    pub power_per_load: Watts,
    /// The largest load that one machine serves within the limits.
    pub largest_load: f64,
}

/// The load, the period and the prices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetTerms {
    /// The total load in the first year.
    pub load: f64,
    /// The share by which the load grows from one year to the next.
    pub growth: f64,
    /// The number of years.
    pub years: u64,
    /// The share of the time in which the load is present.
    pub duty: f64,
    /// Mean output tokens per second for one unit of load.
    pub tokens_per_s: f64,
    /// The time after which a machine is replaced. Its price is spread over this time.
    pub lifetime: Years,
    /// The price of a kilowatt-hour.
    pub price_per_kwh: Dollars,
    /// Energy of the building ÷ energy of the machines.
    pub pue: f64,
    /// The monthly price of room and cooling for a kilowatt.
    pub hosting: Dollars,
}

/// The costs of one year.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FleetYear {
    /// The total load.
    pub load: f64,
    /// Machines that serve the load.
    pub machines: u64,
    /// Machines bought at the start of the year, for growth and as replacements.
    pub bought: u64,
    /// The price of the machines bought, in dollars.
    pub hardware: f64,
    /// The energy that the machines draw, in joules.
    pub energy_j: f64,
    /// The price of that energy and of the building's share, in dollars.
    pub electricity: f64,
    /// The price of room and cooling, in dollars.
    pub hosting: f64,
}

impl FleetYear {
    /// Electricity, room and cooling.
    fn running(&self) -> f64 {
        self.electricity + self.hosting
    }
}

const MONTHS: f64 = 12.0;
const WATTS_TO_THE_KILOWATT: f64 = 1000.0;

/// Machines of one kind and the terms under which they run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fleet {
    /// One machine.
    pub machine: FleetMachine,
    /// The terms.
    pub terms: FleetTerms,
}

/// When one fleet becomes cheaper than another and stays so until the last year.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payback {
    /// From the first day.
    AtOnce,
    /// After this many years.
    After(f64),
    /// Not within the years that are looked at.
    Never,
}

impl Fleet {
    /// The number of machines for `load`; each takes an equal share.
    pub fn machines(&self, load: f64) -> u64 {
        (load / self.machine.largest_load).ceil().max(1.0) as u64
    }

    /// The costs of each year. Machines are bought at the start of a year in which too few are
    /// still in service.
    pub fn years(&self) -> Vec<FleetYear> {
        let terms = &self.terms;
        let mut bought: Vec<u64> = Vec::new();
        let year = |year: u64| {
            let load = terms.load * (1.0 + terms.growth).powi(year as i32);
            let machines = self.machines(load);
            let serves = |&(then, _): &(usize, &u64)| ((year - then as u64) as f64) < terms.lifetime.get();
            let there: u64 = bought.iter().enumerate().filter(serves).map(|(_, count)| count).sum();
            bought.push(machines.saturating_sub(there));
            self.year(load, machines, machines.saturating_sub(there))
        };
        (0..terms.years).map(year).collect()
    }

    fn year(&self, load: f64, machines: u64, bought: u64) -> FleetYear {
        let (machine, terms) = (&self.machine, &self.terms);
        let count = machines as f64;
        let energy =
            (machine.idle_power * count + machine.power_per_load * (load * terms.duty)) * year_long();
        let kilowatts = machine.busy_power.get() * count / WATTS_TO_THE_KILOWATT;
        FleetYear {
            load,
            machines,
            bought,
            hardware: machine.price.get() * bought as f64,
            energy_j: energy.get(),
            electricity: (terms.price_per_kwh * (energy / Joules::KILOWATT_HOUR) * terms.pue).get(),
            hosting: (terms.hosting * kilowatts * MONTHS).get(),
        }
    }

    /// The sum of all costs over the years.
    pub fn total(&self) -> Dollars {
        Dollars::new(self.years().iter().map(|year| year.hardware + year.running()).sum())
    }

    /// The cost of an output token in the first year: the machines' price spread over their
    /// lifetime, electricity, room and cooling.
    pub fn per_token(&self) -> Dollars {
        let machines = self.machines(self.terms.load);
        let year = self.year(self.terms.load, machines, machines);
        let spent = year.hardware / self.terms.lifetime.get() + year.running();
        Dollars::new(spent / self.tokens_a_year())
    }

    /// The energy that the machines draw for an output token.
    pub fn energy_per_token(&self) -> Joules {
        let machines = self.machines(self.terms.load);
        Joules::new(self.year(self.terms.load, machines, machines).energy_j / self.tokens_a_year())
    }

    fn tokens_a_year(&self) -> f64 {
        self.terms.load * self.terms.duty * self.terms.tokens_per_s * year_long().get()
    }

    /// When the total cost of this fleet falls to that of `other` or below, and stays there.
    pub fn pays_back(&self, other: &Self) -> Payback {
        // How much more this fleet has cost so far, and since when it has not; `None` while it has.
        let (mut excess, mut since) = (0.0, Some(0.0));
        for (index, (ours, theirs)) in self.years().iter().zip(other.years()).enumerate() {
            let start = excess + ours.hardware - theirs.hardware;
            let end = start + ours.running() - theirs.running();
            since = match (start > 0.0, end > 0.0) {
                (_, true) => None,
                (true, false) => Some(index as f64 + start / (start - end)),
                // After a dearer time, the other fleet bought machines again.
                (false, false) => since.or(Some(index as f64)),
            };
            excess = end;
        }
        match since {
            None => Payback::Never,
            Some(0.0) => Payback::AtOnce,
            Some(years) => Payback::After(years),
        }
    }
}

fn year_long() -> Seconds {
    Years::new(1.0).to_seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fleets() -> impl Strategy<Value = Fleet> {
        let machine = (100.0..100_000.0, 0.0..500.0, 1.0..2000.0, 0.0..3000.0, 0.1..50.0);
        let terms = (0.1..500.0, -0.3..1.0, 1..9_u64, 0.1..1.0, 1.0..2000.0, 1.0..8.0, 0.01..0.5);
        (machine, terms).prop_map(|(machine, terms)| {
            let (price, idle, active, power_per_load, load) = machine;
            let (demand, growth, years, duty, tokens_per_s, lifetime, price_per_kwh) = terms;
            Fleet {
                machine: FleetMachine {
                    price: Dollars::new(price),
                    idle_power: Watts::new(idle),
                    busy_power: Watts::new(idle + active),
                    power_per_load: Watts::new(power_per_load),
                    largest_load: load,
                },
                terms: FleetTerms {
                    load: demand,
                    growth,
                    years,
                    duty,
                    tokens_per_s,
                    lifetime: Years::new(lifetime),
                    price_per_kwh: Dollars::new(price_per_kwh),
                    pue: 1.3,
                    hosting: Dollars::new(150.0),
                },
            }
        })
    }

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn more_load_never_needs_fewer_machines_or_less_money(fleet in fleets(), factor in 1.0..3.0) {
            let terms = FleetTerms { load: fleet.terms.load * factor, ..fleet.terms };
            let busier = Fleet { terms, ..fleet };
            prop_assert!(busier.machines(terms.load) >= fleet.machines(fleet.terms.load));
            for (busy, calm) in busier.years().iter().zip(fleet.years()) {
                prop_assert!(busy.machines >= calm.machines && busy.energy_j >= calm.energy_j);
            }
            prop_assert!(busier.total() >= fleet.total());
        }

        #[test]
        fn costs_scale_with_all_prices_and_energy_does_not(fleet in fleets(), factor in 0.1..10.0) {
            let mut dearer = fleet;
            dearer.machine.price = dearer.machine.price * factor;
            dearer.terms.price_per_kwh = dearer.terms.price_per_kwh * factor;
            dearer.terms.hosting = dearer.terms.hosting * factor;
            let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
            prop_assert!(near(dearer.per_token().get(), fleet.per_token().get() * factor));
            prop_assert!(near(dearer.total().get(), fleet.total().get() * factor));
            prop_assert_eq!(dearer.energy_per_token(), fleet.energy_per_token());
        }

        #[test]
        fn what_costs_less_in_the_end_pays_back_and_what_costs_more_never_does(one in fleets(), other in fleets()) {
            let other = Fleet { terms: one.terms, ..other };
            let (ours, theirs) = (one.total(), other.total());
            match one.pays_back(&other) {
                Payback::Never => prop_assert!(ours > theirs),
                Payback::AtOnce => prop_assert!(ours <= theirs),
                Payback::After(years) => {
                    prop_assert!(ours <= theirs && 0.0 < years && years <= one.terms.years as f64);
                }
            }
            prop_assert_eq!(one.pays_back(&one), Payback::AtOnce);
        }

        #[test]
        fn in_every_year_there_are_machines_that_still_serve(fleet in fleets()) {
            let years = fleet.years();
            for (now, year) in years.iter().enumerate() {
                let serving = |(then, _): &(usize, &FleetYear)| ((now - then) as f64) < fleet.terms.lifetime.get();
                let there: u64 = years[..=now].iter().enumerate().filter(serving).map(|(_, year)| year.bought).sum();
                prop_assert!(there >= year.machines);
                prop_assert!(year.bought == 0 || there == year.machines, "no more than are needed");
            }
        }
    }

    #[test]
    fn dear_and_frugal_pays_back_when_the_difference_is_saved() {
        let machine = |price: f64, idle: f64| FleetMachine {
            price: Dollars::new(price),
            idle_power: Watts::new(idle),
            busy_power: Watts::new(idle),
            power_per_load: Watts::ZERO,
            largest_load: 10.0,
        };
        // A kilowatt less saves 8766 kWh a year: 876.6 dollars at 0.1 each.
        let terms = FleetTerms {
            load: 10.0,
            growth: 0.0,
            years: 5,
            duty: 1.0,
            tokens_per_s: 100.0,
            lifetime: Years::new(5.0),
            price_per_kwh: Dollars::new(0.1),
            pue: 1.0,
            hosting: Dollars::ZERO,
        };
        let cheap = Fleet { machine: machine(1000.0, 2000.0), terms };
        let frugal = Fleet { machine: machine(1000.0 + 2.0 * 876.6, 1000.0), terms };
        let Payback::After(years) = frugal.pays_back(&cheap) else { panic!("it pays back") };
        assert!((years - 2.0).abs() < 1e-9, "{years}");
        // A fleet that is cheaper at first and dearer in the end does not pay back.
        assert_eq!(cheap.pays_back(&frugal), Payback::Never);
    }
}
