//! The costs of running a machine, besides its price.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::{Dollars, Joules, Years};
use serde::{Deserialize, Serialize};

/// The figures that the objective `cost` needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The time over which the machine's price is spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Years>,
    /// Price of one kilowatt-hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_kwh: Option<Dollars>,
}

impl Costs {
    /// Price of one joule.
    pub fn per_joule(&self) -> Option<Dollars> {
        self.per_kwh.map(|price| price / Joules::KILOWATT_HOUR.get())
    }
}

/// Reads the figures under `costs`.
pub(crate) fn read_costs(section: &DocumentSection<'_>) -> Result<Costs, ScenarioError> {
    section.only(&["lifetime", "per_kwh"])?;
    Ok(Costs {
        lifetime: section.quantity("lifetime", ["a lifetime", "4 y"], |years: &Years| years.get())?,
        per_kwh: section.quantity("per_kwh", ["a price", "0.12 USD"], |price: &Dollars| price.get())?,
    })
}
