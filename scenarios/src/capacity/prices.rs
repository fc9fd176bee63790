//! What buying and running machines costs: the user's figures, and usual ones where the user says nothing.

use crate::capacity::currencies::Currencies;
use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::question::costs::Costs;
use hwprofiles::{Dollars, Years};

/// A figure that the user may give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumed<T> {
    /// The figure.
    pub value: T,
    /// Where the user said nothing: of what the usual figure is an estimate, and of when.
    pub estimate: Option<&'static str>,
}

/// What is bought and paid for besides devices that have a price of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Over how long a machine's price is paid, and after which it is bought again.
    pub lifetime: Assumed<Years>,
    /// Price of a kilowatt-hour.
    pub per_kwh: Assumed<Dollars>,
    /// Energy of the building ÷ that of the machines.
    pub pue: Assumed<f64>,
    /// Price of room and cooling for a kilowatt over a month, electricity apart.
    pub hosting: Assumed<Dollars>,
    /// Price of a machine's chassis, boards, supplies, network and system disk.
    pub server: Assumed<Dollars>,
    /// Price of a gigabyte of host memory, where the machine does not say.
    pub dram_per_gb: Assumed<Dollars>,
    /// The same of memory behind CXL, the card included.
    pub cxl_per_gb: Assumed<Dollars>,
    /// The same of a disk.
    pub nvme_per_gb: Assumed<Dollars>,
}

const fn usual<T>(value: T, estimate: &'static str) -> Assumed<T> {
    Assumed { value, estimate: Some(estimate) }
}

impl Prices {
    /// What is usual.
    pub const USUAL: Self = Self {
        lifetime: usual(Years::new(5.0), "five to six years are usual in accounts of 2024 and 2025"),
        per_kwh: usual(Dollars::new(0.12), "between industrial and commercial tariffs of the USA, 2025"),
        pue: usual(1.56, "the mean of Uptime Institute's survey, 2024"),
        hosting: usual(Dollars::new(180.0), "asking rates of wholesale colocation in the USA, 2024"),
        server: usual(Dollars::new(12_000.0), "a two-socket GPU server without processors and memory, 2025"),
        dram_per_gb: usual(Dollars::new(5.0), "registered DDR5 modules, middle of 2025; it moves fast"),
        cxl_per_gb: usual(Dollars::new(8.0), "its DRAM and as much again for controller and card, 2025"),
        nvme_per_gb: usual(Dollars::new(0.1), "data centre disks, 2025"),
    };

    /// The names of the keys, in order.
    pub const KEYS: [&str; 8] =
        ["lifetime", "per_kwh", "pue", "hosting", "server", "dram_per_gb", "cxl_per_gb", "nvme_per_gb"];
}

/// The figures under `capacity.prices`, then those of `costs`, then what is usual.
pub(crate) fn read_prices(
    section: Option<&Section<'_>>,
    costs: Option<Costs>,
    currencies: &Currencies,
) -> Result<Prices, ScenarioError> {
    let costs = costs.unwrap_or_default();
    let mut prices = Prices::USUAL;
    let given = |value| Assumed { value, estimate: None };
    prices.lifetime = costs.lifetime.map_or(prices.lifetime, |value| Assumed { value, estimate: None });
    prices.per_kwh = costs.per_kwh.map_or(prices.per_kwh, given);
    let Some(section) = section else { return Ok(prices) };
    section.only(&Prices::KEYS)?;
    if let Some(value) = section.quantity("lifetime", ["a lifetime", "5 y"], |years: &Years| years.get())? {
        prices.lifetime = Assumed { value, estimate: None };
    }
    if let Some(value) = section.positive("pue")? {
        if value < 1.0 {
            return Err(section.wrong("pue", "the building's energy ÷ the machines' is at least 1"));
        }
        prices.pue = Assumed { value, estimate: None };
    }
    for (key, place) in [
        ("per_kwh", &mut prices.per_kwh),
        ("hosting", &mut prices.hosting),
        ("server", &mut prices.server),
        ("dram_per_gb", &mut prices.dram_per_gb),
        ("cxl_per_gb", &mut prices.cxl_per_gb),
        ("nvme_per_gb", &mut prices.nvme_per_gb),
    ] {
        if let Some(price) = currencies.price(section, key)? {
            *place = given(price);
        }
    }
    Ok(prices)
}

/// What a price is, and an example.
pub(crate) const PRICE: [&str; 2] = ["a price", "0.12 USD"];
