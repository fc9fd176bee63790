//! The machine that a publication ran on, described by the few rates that its engine reached.

use crate::error::{Error, ErrorContext, OrError, Result};
use hwprofiles::yaml::{self, Entries};
use hwprofiles::{
    AttentionRates, Bytes, BytesPerSec, Composition, DType, Device, DeviceDetails, DeviceKind, FlopPerSec,
    GemmPoint, GemmRates, Library, Link, LinkDetails, LinkId, Machine, Memory, MemoryDetails, MemoryId,
    MemoryKind, PartNames, Provenance, Seconds, Sourced,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A machine, and what its publication does not say of it.
#[derive(Debug)]
pub(crate) struct Testbed {
    /// The machine.
    pub(crate) machine: Machine,
    /// Memories whose capacity the publication does not state, because it never binds there.
    pub(crate) unstated_capacities: Vec<MemoryId>,
}

impl Testbed {
    /// Refuses a placement that keeps more in a memory than there is room for.
    ///
    /// # Errors
    /// The memory's stated capacity is less than `needed`.
    pub(crate) fn require_room(&self, id: MemoryId, needed: Bytes) -> Result {
        let memory = self.machine.memory(id);
        if needed <= memory.capacity.value || self.unstated_capacities.contains(&id) {
            return Ok(());
        }
        let (name, capacity) = (&memory.name, memory.capacity.value);
        Err(Error::infeasible(format!("the placement keeps {needed} in {name}, which has {capacity}")))
    }
}

/// The capacity that stands in for an unstated one: no placement of a publication fills it.
const NEVER_FULL: Bytes = Bytes::new(1 << 50);

/// A shipped machine with some rates replaced, or a machine that is made of rates alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestbedFile {
    /// A shipped machine, a GPU in its server, or parts as scenarios write them.
    #[serde(default)]
    base: Option<TestbedBase>,
    /// How many GPUs the base has.
    #[serde(default = "one")]
    gpus: u64,
    /// How many of them compute as one.
    #[serde(default = "one")]
    tensor_parallel: u64,
    #[serde(default)]
    devices: Entries<DeviceRates>,
    #[serde(default)]
    memories: Entries<MemoryRates>,
    #[serde(default)]
    links: Entries<LinkRates>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TestbedBase {
    Named(String),
    Parts(Box<PartNames>),
}

fn one() -> u64 {
    1
}

/// The rates that an engine reaches on a device.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceRates {
    #[serde(default)]
    kind: Option<DeviceKind>,
    #[serde(default)]
    memory: Option<String>,
    /// Memories besides its own that it reads in place.
    #[serde(default)]
    reads: Vec<String>,
    /// Matrix products: one rate, or rates by rows.
    #[serde(default)]
    products: Option<ProductRates>,
    /// How fast it reads weights.
    #[serde(default)]
    weights: Option<BytesPerSec>,
    /// The rate of attention in prefill.
    #[serde(default)]
    attention: Option<FlopPerSec>,
    /// How fast it reads the KV cache in decode.
    #[serde(default)]
    kv: Option<BytesPerSec>,
    #[serde(default)]
    elementwise: Option<BytesPerSec>,
    #[serde(default)]
    launch: Option<Seconds>,
    #[serde(default)]
    issue: Option<Seconds>,
    #[serde(default)]
    sync: Option<Seconds>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ProductRates {
    Flat(FlopPerSec),
    ByRows(BTreeMap<String, FlopPerSec>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryRates {
    #[serde(default)]
    kind: Option<MemoryKind>,
    #[serde(default)]
    capacity: Option<Bytes>,
    #[serde(default)]
    bandwidth: Option<BytesPerSec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRates {
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    bandwidth: Option<BytesPerSec>,
    #[serde(default)]
    latency: Option<Seconds>,
    /// The link whose wire it shares.
    #[serde(default)]
    wire: Option<String>,
}

/// The machine that `value` describes, whose expressions are filled in.
///
/// # Errors
/// A key is wrong, or names something that the machine does not have.
pub(crate) fn read_testbed(name: &str, value: &Value) -> Result<Testbed> {
    let bed: TestbedFile = yaml::read(&value.to_string(), &format!("machine {name}")).or_input()?;
    let mut machine = match &bed.base {
        Some(base) => {
            let library = Library::default();
            let machine = match base {
                TestbedBase::Named(name) => library.machine_with(name, bed.gpus),
                TestbedBase::Parts(parts) => {
                    library.compose(&Composition { parts: (**parts).clone(), ..Composition::default() })
                }
            };
            machine.or_input()?.with_tensor_parallel(bed.tensor_parallel).or_input()?
        }
        None => Machine {
            name: name.to_owned(),
            note: None,
            assumed: vec![],
            devices: vec![],
            memories: vec![],
            links: vec![],
        },
    };
    let mut unstated_capacities = Vec::new();
    for (name, rates) in &bed.memories.0 {
        let is_new = machine.memory_named(name).is_none();
        set_memory(&mut machine, name, rates)?;
        if is_new && rates.capacity.is_none() {
            unstated_capacities.push(memory(&machine, name)?);
        }
    }
    for (name, rates) in &bed.devices.0 {
        set_device(&mut machine, name, rates)?;
    }
    for (name, rates) in &bed.links.0 {
        set_link(&mut machine, name, rates)?;
    }
    Ok(Testbed { machine, unstated_capacities })
}

/// A rate with its provenance: a publication's word is an estimate of what its engine reached.
fn reached<T>(value: T) -> Sourced<T> {
    Sourced::estimated(value, SOURCE)
}

const SOURCE: &str = "the publication's own rows, or a datasheet; see the constants of its scenario";

fn set_memory(machine: &mut Machine, name: &str, store: &MemoryRates) -> Result {
    if machine.memory_named(name).is_none() {
        machine.memories.push(Memory {
            name: name.to_owned(),
            kind: need(store.kind, name, "kind")?,
            capacity: reached(store.capacity.unwrap_or(NEVER_FULL)),
            bandwidth: reached(need(store.bandwidth, name, "bandwidth")?),
            latency: None,
            within: None,
            stripes: vec![],
            price_per_gb: None,
            details: MemoryDetails::default(),
        });
        return Ok(());
    }
    let id = memory(machine, name)?;
    let known = &mut machine.memories[id.0];
    if let Some(capacity) = store.capacity {
        known.capacity = reached(capacity);
    }
    if let Some(bandwidth) = store.bandwidth {
        known.bandwidth = reached(bandwidth);
    }
    Ok(())
}

fn new_device(machine: &Machine, name: &str, engine: &DeviceRates) -> Result<Device> {
    let own = memory(machine, &need(engine.memory.clone(), name, "memory")?)?;
    Ok(Device {
        name: name.to_owned(),
        kind: need(engine.kind, name, "kind")?,
        memory: own,
        reads: vec![],
        cores: vec![],
        launch: reached(Seconds::ZERO),
        issue: None,
        sync: reached(Seconds::ZERO),
        gemm: BTreeMap::new(),
        attention: BTreeMap::new(),
        elementwise: machine.memory(own).bandwidth.clone(),
        power: None,
        idle_power: None,
        price: None,
        ranks: None,
        details: DeviceDetails::default(),
    })
}

fn set_device(machine: &mut Machine, name: &str, engine: &DeviceRates) -> Result {
    let mut device = match machine.device_named(name) {
        Some(id) => machine.device(id).clone(),
        None => new_device(machine, name, engine)?,
    };
    for read in &engine.reads {
        device.reads.push(memory(machine, read)?);
    }
    let own = machine.memory(device.memory).bandwidth.value;
    let weights = engine.weights.unwrap_or(own);
    if let Some(products) = &engine.products {
        for dtype in DType::OWN.into_iter().filter(|dtype| dtype.holds_weights()) {
            let rates = products.rates(dtype, weights).within(|| name.to_owned())?;
            device.gemm.insert(dtype, rates);
        }
    }
    if let Some(rate) = engine.attention {
        for dtype in DType::OWN {
            let rates = AttentionRates::roofline(dtype, rate, engine.kv.unwrap_or(own), source());
            device.attention.insert(dtype, rates);
        }
    }
    let replace = |known: &mut Sourced<Seconds>, new: Option<Seconds>| {
        if let Some(new) = new {
            *known = reached(new);
        }
    };
    replace(&mut device.launch, engine.launch);
    replace(&mut device.sync, engine.sync);
    device.issue = engine.issue.map(reached).or(device.issue);
    device.elementwise = engine.elementwise.map(reached).unwrap_or(device.elementwise);
    match machine.device_named(name) {
        Some(id) => machine.devices[id.0] = device,
        None => machine.devices.push(device),
    }
    Ok(())
}

fn set_link(machine: &mut Machine, name: &str, wire: &LinkRates) -> Result {
    let Some(index) = machine.links.iter().position(|link| link.name == name) else {
        let known = |name: &String| {
            let position = machine.links.iter().position(|link| link.name == *name);
            let unknown = || Error::input(format!("there is no link '{name}' before it"));
            position.map(LinkId).ok_or_else(unknown)
        };
        let over = wire.wire.as_ref().map(known).transpose()?;
        let (from, to) = (need(wire.from.clone(), name, "from")?, need(wire.to.clone(), name, "to")?);
        let link = Link {
            name: name.to_owned(),
            from: memory(machine, &from)?,
            to: memory(machine, &to)?,
            latency: reached(wire.latency.unwrap_or(Seconds::ZERO)),
            bandwidth: reached(need(wire.bandwidth, name, "bandwidth")?),
            wire: over,
            details: LinkDetails::default(),
        };
        machine.links.push(link);
        return Ok(());
    };
    let link = &mut machine.links[index];
    if let Some(bandwidth) = wire.bandwidth {
        link.bandwidth = reached(bandwidth);
    }
    if let Some(latency) = wire.latency {
        link.latency = reached(latency);
    }
    Ok(())
}

fn memory(machine: &Machine, name: &str) -> Result<MemoryId> {
    let known: Vec<_> = machine.memories.iter().map(|memory| memory.name.as_str()).collect();
    let known = known.join(", ");
    let unknown = || Error::input(format!("there is no memory '{name}': use one of {known}"));
    machine.memory_named(name).ok_or_else(unknown)
}

fn need<T>(value: Option<T>, part: &str, key: &str) -> Result<T> {
    let missing = || Error::input(format!("{part}: {key} is missing, and there is no such part in the base"));
    value.ok_or_else(missing)
}

fn source() -> Provenance {
    Provenance::Estimated { reason: SOURCE.to_owned() }
}

/// The rows at which rates by rows are sampled.
const SAMPLES: [u64; 22] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 16384];
/// The side of the square weights whose times stand for those of all weights.
const SIDE: u64 = 8192;

impl ProductRates {
    /// max(FLOP ÷ rate, bytes of weights ÷ `weights`) for weights in `dtype`.
    fn rates(&self, dtype: DType, weights: BytesPerSec) -> Result<GemmRates> {
        let by_rows = match self {
            Self::Flat(rate) => return Ok(GemmRates::roofline(dtype, *rate, weights, source())),
            Self::ByRows(by_rows) => by_rows,
        };
        let mut points = Vec::new();
        for (rows, rate) in by_rows {
            let wanted = || format!("products: '{rows}' is no number of rows");
            points.push((rows.parse::<f64>().or_input().within(wanted)?, rate.get()));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.is_empty() {
            return Err(Error::input("products: a rate for one number of rows at least is wanted"));
        }
        let read = dtype.matrix_bytes(SIDE, SIDE) / weights;
        let mut longest = Seconds::ZERO;
        let time = |m: u64| {
            let flop = 2.0 * m as f64 * (SIDE * SIDE) as f64;
            longest = longest.max(read.max(Seconds::new(flop / rate_at(&points, m as f64))));
            GemmPoint { m, n: SIDE, k: SIDE, time: longest }
        };
        Ok(GemmRates::new(source(), SAMPLES.into_iter().map(time).collect()))
    }
}

/// The rate at `rows`: log-log interpolation between the points, and the nearest point's rate
/// beyond them. There is at least one point.
fn rate_at(points: &[(f64, f64)], rows: f64) -> f64 {
    let above = points.partition_point(|(at, _)| *at < rows);
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (Some((a, low)), Some((b, high))) => {
            let share = (rows / a).ln() / (b / a).ln();
            low * (high / low).powf(share)
        }
        (Some((_, rate)), None) | (None, Some(&(_, rate))) => rate,
        (None, None) => unreachable!("there is at least one point"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_kept_and_interpolated_between_rows() {
        let value = json!({
            "memories": {"dram": {"kind": "dram", "bandwidth": "200 GB/s"}},
            "devices": {"cpu": {"kind": "cpu", "memory": "dram", "weights": "100 GB/s", "attention": "1 TFLOP/s",
                "products": {"1": "1 TFLOP/s", "1024": "10 TFLOP/s"}}},
        });
        let machine = read_testbed("m", &value).expect("a machine").machine;
        let cpu = &machine.devices[0];
        let time = |m| cpu.gemm_time(DType::Bf16, m, SIDE, SIDE).expect("a rate").time.get();
        let flop = 2.0 * (SIDE * SIDE) as f64;
        assert!((time(1) - flop / 100e9).abs() < 1e-9, "few rows read the weights: {}", time(1));
        assert!((time(1024) - 1024.0 * flop / 10e12).abs() < 1e-6);
        assert!((1..1024).all(|m| time(m) <= time(m + 1)));
        let value = json!({
            "memories": {"dram": {"kind": "dram", "bandwidth": "200 GB/s"}},
            "devices": {"cpu": {"kind": "cpu", "memory": "dram", "products": {}}},
        });
        let refused = read_testbed("m", &value).expect_err("no rate");
        assert_eq!(refused.to_string(), "cpu: products: a rate for one number of rows at least is wanted");
    }

    #[test]
    fn a_base_keeps_the_rates_that_are_not_replaced() {
        let value = json!({"base": "spr-a100", "links": {"pcie-up": {"bandwidth": "20 GB/s"}}});
        assert!(read_testbed("m", &value).is_err(), "an unknown link has no ends");
        let base = Library::default().machine("spr-a100").expect("shipped");
        let name = base.links[0].name.clone();
        let value = json!({"base": "spr-a100", "links": {name: {"bandwidth": "20 GB/s"}}});
        let machine = read_testbed("m", &value).expect("a machine").machine;
        assert_eq!(machine.links[0].bandwidth.value, BytesPerSec::new(20e9));
        assert_eq!(machine.devices, base.devices);
    }

    #[test]
    fn parts_make_a_base_too() {
        let dram = json!({"capacity": {"value": "512 GB", "source": {"estimated": {"reason": "made up"}}}});
        let value =
            json!({"base": {"cpu": "xeon-8592p", "dram": dram, "cxl": {"part": "micron-cz122", "count": 4}}});
        let machine = read_testbed("m", &value).expect("a machine").machine;
        assert!(machine.memory_named("cxl").is_some() && machine.memory_named("dram").is_some());
        let unknown = json!({"base": {"cpu": "abacus"}});
        assert!(read_testbed("m", &unknown).expect_err("no part").to_string().contains("abacus"));
    }
}
