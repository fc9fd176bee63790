//! What a machine costs and what power it draws: the sums over its parts, or what the scenario says
//! of the whole.

use crate::error::{Error, Result};
use hwprofiles::{Device, Dollars, Machine, MemoryKind, Provenance, Watts};
use reports::capacity::{Figure, FleetMachine};
use scenarios::{Assumed, CapacityQuestion, MachineOption, MarketPrices};
use sim::serving::{Account, Summary};

/// The power of a waiting machine as a share of that of a busy one, where the scenario says only
/// the latter: that of a waiting socket, the larger of what waiting sockets and GPUs draw.
const IDLE_SHARE: f64 = 0.3;

/// What one machine costs and draws.
pub(crate) struct MachineCost {
    pub(crate) price: Dollars,
    /// The figures of which the price is the sum.
    pub(crate) figures: Vec<Figure>,
    /// The power while it waits, and when it is busy.
    power: [Watts; 2],
}

impl MachineCost {
    /// Of the machine `option`, which is `machine`.
    ///
    /// # Errors
    /// A price or a power that is not known.
    pub(crate) fn new(option: &MachineOption, machine: &Machine, prices: &MarketPrices) -> Result<Self> {
        let (price, figures) = price(option, machine, prices)?;
        Ok(Self { price, figures, power: power(option, machine)? })
    }
}

/// What one machine costs, and the figures of which that is the sum.
fn price(option: &MachineOption, machine: &Machine, prices: &MarketPrices) -> Result<(Dollars, Vec<Figure>)> {
    let name = &option.name;
    if let Some(price) = option.price {
        return Ok((price, vec![figure(&format!("{name}:"), price.to_string(), "given".to_owned())]));
    }
    let (mut sum, mut figures) = (Dollars::ZERO, Vec::new());
    let mut add = |what: String, price: Dollars, source: String| {
        sum += price;
        figures.push(figure(&format!("{name}: {what}"), price.to_string(), source));
    };
    for (device, count) in counted_devices(machine) {
        let price = device.price.as_ref().ok_or_else(|| {
            Error::input(format!(
                "the price of '{}' is not known: write what the machine costs, like {{name: {name}, machine: …, price: \
                 50000 USD}}",
                device.name,
            ))
        })?;
        let each = price.value / device.ranks() as f64;
        let what = match count {
            1 => device.name.clone(),
            _ => format!("{count} × {}, {each} each", device.kind.name()),
        };
        add(what, each * count as f64, source_of(&price.source));
    }
    for memory in machine.memories.iter().filter(|memory| memory.stripes.is_empty()) {
        let usual = match memory.kind {
            MemoryKind::Dram => &prices.dram_per_gb,
            MemoryKind::Cxl => &prices.cxl_per_gb,
            MemoryKind::Nvme => &prices.nvme_per_gb,
            // A device's own memory comes with the device.
            _ => continue,
        };
        let capacity = memory.capacity.value;
        let (each, source) = match &memory.price_per_gb {
            Some(price) => (price.value, source_of(&price.source)),
            None => (usual.value, origin_of(usual)),
        };
        add(
            format!("{} of {}", capacity, memory.name),
            each * capacity.gigabytes(),
            format!("{each}/GB; {source}"),
        );
    }
    add("the rest of the server".to_owned(), prices.server.value, origin_of(&prices.server));
    Ok((sum, figures))
}

/// The different devices of `machine`, each with how many there are of it, the ranks of a group
/// included.
fn counted_devices(machine: &Machine) -> Vec<(&Device, u64)> {
    let alike = |one: &Device, other: &Device| one.kind == other.kind && one.price == other.price;
    let mut counted: Vec<(&Device, u64)> = Vec::new();
    for device in &machine.devices {
        match counted.iter_mut().find(|(first, _)| alike(first, device)) {
            Some((_, count)) => *count += device.ranks(),
            None => counted.push((device, device.ranks())),
        }
    }
    counted
}

/// The power of one machine: while it waits, and when it is busy.
fn power(option: &MachineOption, machine: &Machine) -> Result<[Watts; 2]> {
    if let Some(busy) = option.power {
        let idle = option.idle_power.unwrap_or(busy * IDLE_SHARE);
        return Ok([idle.min(busy), busy]);
    }
    let power_of = |device: &Device| -> Result<[Watts; 2]> {
        let name = &option.name;
        let busy = device.power.as_ref().ok_or_else(|| {
            Error::input(format!(
                "the power of '{}' is not known: write what the machine draws, like {{name: {name}, machine: …, power: \
                 2 kW}}",
                device.name,
            ))
        });
        let busy = busy?.value;
        let idle = device.idle_power.as_ref().map_or(Watts::ZERO, |idle| idle.value);
        Ok([idle.min(busy), busy])
    };
    let mut sum = [Watts::ZERO; 2];
    for device in &machine.devices {
        let [idle, busy] = power_of(device)?;
        sum = [option.idle_power.unwrap_or(sum[0] + idle), sum[1] + busy];
    }
    Ok(sum)
}

/// A day of some load on one machine.
pub(crate) struct LoadedDay<'d> {
    pub(crate) load: f64,
    pub(crate) summary: &'d Summary,
    pub(crate) account: &'d Account,
}

/// A machine at work that carries `most` load, with the power that it draws on `day`.
pub(crate) fn running(
    option: &MachineOption,
    cost: &MachineCost,
    most: f64,
    LoadedDay { load, summary: day, account }: LoadedDay<'_>,
) -> FleetMachine {
    let [idle, busy] = cost.power;
    let drawn = match (option.power, account.energy_j) {
        (None, Some(energy)) => Watts::new(energy / day.duration_s),
        _ => Watts::new(idle.get() + (busy.get() - idle.get()) * day.busy_share),
    };
    let above_idle = (drawn.get() - idle.get()).max(0.0);
    FleetMachine {
        price: cost.price,
        idle_power: idle,
        busy_power: busy,
        power_per_load: Watts::new(above_idle / load),
        largest_load: most,
    }
}

/// The figures that are the same for all machines.
pub(crate) fn shared_figures(CapacityQuestion { prices, currencies, .. }: &CapacityQuestion) -> Vec<Figure> {
    let money = |what: &str, each: &str, price: &Assumed<Dollars>| {
        figure(what, format!("{}{each}", price.value), origin_of(price))
    };
    let mut figures = vec![
        figure("a machine serves", prices.lifetime.value.to_string(), origin_of(&prices.lifetime)),
        money("electricity", "/kWh", &prices.per_kwh),
        figure("the building's energy ÷ the machines'", prices.pue.value.to_string(), origin_of(&prices.pue)),
        money("room and cooling", " for a kW and month", &prices.hosting),
    ];
    let rate = |(code, worth, day): (&str, Dollars, &str)| {
        figure(&format!("1 {code}"), worth.to_string(), format!("given, on {day}"))
    };
    figures.extend(currencies.iter().map(rate));
    figures
}

fn figure(name: &str, value: String, source: String) -> Figure {
    Figure { name: name.to_owned(), value, source }
}

fn origin_of<T>(figure: &Assumed<T>) -> String {
    figure.estimate.map_or("given".to_owned(), |estimate| format!("estimate: {estimate}"))
}

fn source_of(source: &Provenance) -> String {
    match source {
        Provenance::Estimated { reason } => format!("estimate: {reason}"),
        other => other.to_string(),
    }
}
