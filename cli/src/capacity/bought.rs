//! What a machine costs and draws: its parts', or what the user says of the whole.

use crate::exit::{Outcome, Sort};
use anyhow::anyhow;
use hwprofiles::{Device, Dollars, Machine, MemoryKind, Provenance, Watts};
use reports::capacity::{Figure, Running};
use scenarios::{Assumed, Capacity, MachineOption, Prices};
use sim::serving::{Account, Summary};

/// What a machine draws while it waits, as a share of what it draws when it is busy, where only that is said of the whole.
const IDLE_SHARE: f64 = 0.3;

/// What one machine costs, and of what that is the sum.
pub fn price(option: &MachineOption, machine: &Machine, prices: &Prices) -> Outcome<(Dollars, Vec<Figure>)> {
    let name = &option.name;
    if let Some(price) = option.price {
        return Ok((price, vec![figure(&format!("{name}:"), price.to_string(), "given".to_owned())]));
    }
    let (mut sum, mut figures) = (Dollars::ZERO, Vec::new());
    let mut add = |what: String, price: Dollars, source: String| {
        sum += price;
        figures.push(figure(&format!("{name}: {what}"), price.to_string(), source));
    };
    for device in &machine.devices {
        let price = device.price.as_ref().ok_or_else(|| {
            anyhow!(
                "{name}: device '{}' of {} has no price: write what the machine costs, like {{name: {name}, machine: …, price: \
                 50000 USD}}",
                device.name,
                machine.name
            )
        });
        let price = price.or_input()?;
        add(device.name.clone(), price.value, said(&price.source));
    }
    for memory in machine.memories.iter().filter(|memory| memory.stripes.is_empty()) {
        let usual = match memory.kind {
            MemoryKind::Dram => &prices.dram_per_gb,
            MemoryKind::Cxl => &prices.cxl_per_gb,
            MemoryKind::Nvme => &prices.nvme_per_gb,
            // A device's own comes with the device.
            _ => continue,
        };
        let capacity = memory.capacity.value;
        let (each, source) = match &memory.price_per_gb {
            Some(price) => (price.value, said(&price.source)),
            None => (usual.value, who(usual)),
        };
        add(
            format!("{} of {}", capacity, memory.name),
            each * capacity.gigabytes(),
            format!("{each}/GB; {source}"),
        );
    }
    add("the rest of the server".to_owned(), prices.server.value, who(&prices.server));
    Ok((sum, figures))
}

/// What one machine draws: while it waits, and when it is busy.
pub fn power(option: &MachineOption, machine: &Machine) -> Outcome<[Watts; 2]> {
    if let Some(busy) = option.power {
        let idle = option.idle_power.unwrap_or(busy * IDLE_SHARE);
        return Ok([idle.min(busy), busy]);
    }
    let of = |device: &Device| -> Outcome<[Watts; 2]> {
        let name = &option.name;
        let busy = device.power.as_ref().ok_or_else(|| {
            anyhow!(
                "{name}: device '{}' of {} has no power: write what the machine draws, like {{name: {name}, machine: …, power: \
                 2 kW}}",
                device.name,
                machine.name
            )
        });
        let busy = busy.or_input()?.value;
        let idle = device.idle_power.as_ref().map_or(Watts::ZERO, |idle| idle.value);
        Ok([idle.min(busy), busy])
    };
    let mut sum = [Watts::ZERO; 2];
    for device in &machine.devices {
        let [idle, busy] = of(device)?;
        sum = [option.idle_power.unwrap_or(sum[0] + idle), sum[1] + busy];
    }
    Ok(sum)
}

/// A machine at work, from a day of so much load.
pub fn running(
    option: &MachineOption,
    (price, [idle, busy]): (Dollars, [Watts; 2]),
    most: f64,
    (load, day, account): (f64, &Summary, &Account),
) -> Running {
    let drawn = match (option.power, account.energy_j) {
        (None, Some(energy)) => Watts::new(energy / day.duration_s),
        _ => Watts::new(idle.get() + (busy.get() - idle.get()) * day.busy_share),
    };
    let more = (drawn.get() - idle.get()).max(0.0);
    Running { price, idle, busy, for_load: Watts::new(more / load), load: most }
}

/// Every figure that is the same for all machines.
pub fn figures(Capacity { prices, currencies, .. }: &Capacity) -> Vec<Figure> {
    let money = |what: &str, each: &str, price: &Assumed<Dollars>| {
        figure(what, format!("{}{each}", price.value), who(price))
    };
    let mut figures = vec![
        figure("a machine serves", prices.lifetime.value.to_string(), who(&prices.lifetime)),
        money("electricity", "/kWh", &prices.per_kwh),
        figure("the building's energy ÷ the machines'", prices.pue.value.to_string(), who(&prices.pue)),
        money("room and cooling", " for a kW and month", &prices.hosting),
    ];
    let rate = |(code, worth, day): (&str, Dollars, &str)| {
        figure(&format!("1 {code}"), worth.to_string(), format!("given, on {day}"))
    };
    figures.extend(currencies.iter().map(rate));
    figures
}

fn figure(what: &str, value: String, source: String) -> Figure {
    Figure { what: what.to_owned(), value, source }
}

fn who<T>(figure: &Assumed<T>) -> String {
    figure.estimate.map_or("given".to_owned(), |estimate| format!("estimate: {estimate}"))
}

fn said(source: &Provenance) -> String {
    match source {
        Provenance::Estimated { reason } => format!("estimate: {reason}"),
        other => other.to_string(),
    }
}
