//! What running a machine takes: energy by how long its devices work, and money.

use crate::error::PlannerError;
use hwprofiles::{Dollars, Joules, Machine, Seconds, Watts};
use scenarios::Costs;

/// What a device draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PowerDraw {
    /// As long as the machine is on; nothing where nobody says what it draws while it waits.
    pub always: Watts,
    /// On top of that, while it computes.
    pub working: Watts,
}

/// What the devices draw of which a machine is on for `time`, each of them at work for its time of `busy`:
/// Σ idle power · time + (busy power − idle power) · busy.
///
/// # Errors
/// [`PlannerError::Unpriced`] where nobody says what a device draws.
pub fn energy(machine: &Machine, time: Seconds, busy: &[Seconds]) -> Result<Joules, PlannerError> {
    Ok(drawn(&power(machine)?, time, busy))
}

/// What a machine costs that is on for `time` and draws `energy`: its price over its lifetime, and electricity.
///
/// # Errors
/// [`PlannerError::Unpriced`] where a price or the lifetime is not known.
pub fn cost(
    machine: &Machine,
    costs: &Costs,
    time: Seconds,
    energy: Joules,
) -> Result<Dollars, PlannerError> {
    let (second, joule) = price(machine, costs)?;
    Ok(second * time.get() + joule * energy.get())
}

pub(crate) fn drawn(power: &[PowerDraw], time: Seconds, busy: &[Seconds]) -> Joules {
    let devices = power.iter().zip(busy).map(|(draw, &busy)| draw.always * time + draw.working * busy);
    devices.fold(Joules::ZERO, |sum, joules| sum + joules)
}

pub(crate) fn power(machine: &Machine) -> Result<Vec<PowerDraw>, PlannerError> {
    let of = |device: &hwprofiles::Device| match &device.power {
        Some(power) => {
            let idle = device.idle_power.as_ref().map_or(0.0, |idle| idle.value.get());
            let always = Watts::new(idle.min(power.value.get()));
            Ok(PowerDraw { always, working: power.value - always })
        }
        None => Err(PlannerError::Unpriced {
            what: format!("device '{}' of {}", device.name, machine.name),
            key: "power",
            wanted: "what it draws when it is busy, like \"350 W\"",
        }),
    };
    machine.devices.iter().map(of).collect()
}

/// What a second of the machine costs, and what a joule does.
pub(crate) fn price(machine: &Machine, costs: &Costs) -> Result<(Dollars, Dollars), PlannerError> {
    let missing = |what: String, key, wanted| PlannerError::Unpriced { what, key, wanted };
    let scenario = || "the scenario".to_owned();
    let lifetime = costs.lifetime.ok_or_else(|| {
        missing(scenario(), "costs.lifetime", "over how long the machine is paid, like \"4 y\"")
    })?;
    let joule = costs
        .per_joule()
        .ok_or_else(|| missing(scenario(), "costs.per_kwh", "what electricity costs, like \"0.12 USD\""))?;
    let mut sum = Dollars::ZERO;
    for device in &machine.devices {
        let price = device.price.as_ref().ok_or_else(|| {
            missing(
                format!("device '{}' of {}", device.name, machine.name),
                "price",
                "what it costs, like \"8000 USD\"",
            )
        })?;
        sum += price.value;
    }
    for memory in &machine.memories {
        if let Some(price) = &memory.price_per_gb {
            sum += price.value * memory.capacity.value.gigabytes();
        }
    }
    Ok((sum / lifetime.to_seconds().get(), joule))
}
