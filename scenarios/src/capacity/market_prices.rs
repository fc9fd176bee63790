//! Prices of buying and running machines: the user's figures, or usual ones where the user
//! gives none.

use crate::capacity::currencies::Currencies;
use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::question::costs::Costs;
use hwprofiles::{Dollars, Years};

/// A figure that the user may give, or else a usual estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumed<T> {
    /// The figure.
    pub value: T,
    /// Source and date of the estimate; `None` if the user gave the figure.
    pub estimate: Option<&'static str>,
}

/// All prices except those of devices, which have their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarketPrices {
    /// The time over which a machine's price is spread, and after which it is replaced.
    pub lifetime: Assumed<Years>,
    /// Price of one kilowatt-hour.
    pub per_kwh: Assumed<Dollars>,
    /// Power usage effectiveness: energy of the building ÷ energy of the machines.
    pub pue: Assumed<f64>,
    /// Monthly price of room and cooling for one kilowatt, without electricity.
    pub hosting: Assumed<Dollars>,
    /// Price of a machine's chassis, boards, power supplies, network and system disk.
    pub server: Assumed<Dollars>,
    /// Price of one gigabyte of host memory, if the machine's file gives none.
    pub dram_per_gb: Assumed<Dollars>,
    /// Price of one gigabyte of memory behind CXL, including the card.
    pub cxl_per_gb: Assumed<Dollars>,
    /// Price of one gigabyte of disk.
    pub nvme_per_gb: Assumed<Dollars>,
}

const fn estimated<T>(value: T, estimate: &'static str) -> Assumed<T> {
    Assumed { value, estimate: Some(estimate) }
}

impl MarketPrices {
    /// The usual figures.
    pub const USUAL: Self = Self {
        lifetime: estimated(Years::new(5.0), "five to six years are usual in accounts of 2024 and 2025"),
        per_kwh: estimated(Dollars::new(0.12), "between industrial and commercial tariffs of the USA, 2025"),
        pue: estimated(1.56, "the mean of Uptime Institute's survey, 2024"),
        hosting: estimated(Dollars::new(180.0), "asking rates of wholesale colocation in the USA, 2024"),
        server: estimated(
            Dollars::new(12_000.0),
            "a two-socket GPU server without processors and memory, 2025",
        ),
        dram_per_gb: estimated(Dollars::new(5.0), "registered DDR5 modules, middle of 2025; it moves fast"),
        cxl_per_gb: estimated(Dollars::new(8.0), "its DRAM and as much again for controller and card, 2025"),
        nvme_per_gb: estimated(Dollars::new(0.1), "data centre disks, 2025"),
    };

    /// The names of the keys, in order.
    pub const KEYS: [&str; 8] =
        ["lifetime", "per_kwh", "pue", "hosting", "server", "dram_per_gb", "cxl_per_gb", "nvme_per_gb"];
}

/// Reads the figures under `capacity.prices`; absent ones come from `costs`, then from the usual
/// figures.
pub(crate) fn read_market_prices(
    section: Option<&DocumentSection<'_>>,
    costs: Costs,
    currencies: &Currencies,
) -> Result<MarketPrices, ScenarioError> {
    let mut prices = MarketPrices::USUAL;
    let given = |value| Assumed { value, estimate: None };
    prices.lifetime = costs.lifetime.map_or(prices.lifetime, |value| Assumed { value, estimate: None });
    prices.per_kwh = costs.per_kwh.map_or(prices.per_kwh, given);
    let Some(section) = section else { return Ok(prices) };
    section.only(&MarketPrices::KEYS)?;
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
