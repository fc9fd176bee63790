//! Energy and money: what a machine takes while it runs.

use crate::error::PlannerError;
use hwprofiles::{Dollars, Joules, Machine, Seconds, Watts};
use scenarios::Costs;

/// Power of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PowerDraw {
    /// Power while the machine is on. Zero if the device's idle power is not known.
    pub idle: Watts,
    /// Additional power while the device computes.
    pub working: Watts,
}

/// Energy of all devices of a machine that is on for `time`, where each device computes for its
/// entry of `busy`: Σ idle power · time + (busy power − idle power) · busy.
///
/// # Errors
/// [`PlannerError::Unpriced`] if a device's power is not known.
pub fn energy(machine: &Machine, time: Seconds, busy: &[Seconds]) -> Result<Joules, PlannerError> {
    Ok(energy_of(&power(machine)?, time, busy))
}

/// Cost of a machine that is on for `time` and takes `energy`: its share of the purchase price over
/// its lifetime, and electricity.
///
/// # Errors
/// [`PlannerError::Unpriced`] if a price or the lifetime is not known.
pub fn cost(
    machine: &Machine,
    costs: &Costs,
    time: Seconds,
    energy: Joules,
) -> Result<Dollars, PlannerError> {
    let (second, joule) = price(machine, costs)?;
    Ok(second * time.get() + joule * energy.get())
}

pub(crate) fn energy_of(power: &[PowerDraw], time: Seconds, busy: &[Seconds]) -> Joules {
    let devices = power.iter().zip(busy).map(|(draw, &busy)| draw.idle * time + draw.working * busy);
    devices.fold(Joules::ZERO, |sum, joules| sum + joules)
}

pub(crate) fn power(machine: &Machine) -> Result<Vec<PowerDraw>, PlannerError> {
    let draw = |device: &hwprofiles::Device| match &device.power {
        Some(power) => {
            let idle = device.idle_power.as_ref().map_or(0.0, |idle| idle.value.get());
            let idle = Watts::new(idle.min(power.value.get()));
            Ok(PowerDraw { idle, working: power.value - idle })
        }
        None => Err(PlannerError::Unpriced {
            what: format!("device '{}' of {}", device.name, machine.name),
            key: "power",
            wanted: "what it draws when it is busy, like \"350 W\"",
        }),
    };
    machine.devices.iter().map(draw).collect()
}

/// Cost of a second of the machine, and cost of a joule.
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
