//! A machine's own numbers, for rows that quote what a part can do.

use super::scenario_run::as_name;
use super::testbed::Testbed;

/// The numbers of a machine's memories, devices and links, like `dram.bandwidth`, `gpu.price` and
/// `dram_to_hbm.latency`, in bytes, bytes/s, seconds, W and USD.
pub(crate) fn machine_numbers(testbed: &Testbed) -> Vec<(String, f64)> {
    let machine = &testbed.machine;
    let mut numbers = Vec::new();
    let mut add = |part: &str, what: &str, number: Option<f64>| {
        numbers.extend(number.map(|number| (format!("{}.{what}", as_name(part)), number)));
    };
    for (id, memory) in machine.memory_ids().zip(&machine.memories) {
        let stated = !testbed.unstated_capacities.contains(&id);
        add(&memory.name, "capacity", stated.then(|| memory.capacity.value.as_f64()));
        add(&memory.name, "bandwidth", Some(memory.bandwidth.value.get()));
        add(&memory.name, "latency", memory.latency.as_ref().map(|latency| latency.value.get()));
    }
    for device in &machine.devices {
        add(&device.name, "sync", Some(device.sync.value.get()));
        add(&device.name, "power", device.power.as_ref().map(|power| power.value.get()));
        add(&device.name, "price", device.price.as_ref().map(|price| price.value.get()));
    }
    for link in &machine.links {
        add(&link.name, "bandwidth", Some(link.bandwidth.value.get()));
        add(&link.name, "latency", Some(link.latency.value.get()));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::Library;

    #[test]
    fn numbers_have_names_that_expressions_know() {
        let machine = Library::default().machine("spr-a100").expect("shipped");
        let testbed = Testbed { machine: machine.clone(), unstated_capacities: vec![] };
        let numbers = machine_numbers(&testbed);
        let named = |name: &str| numbers.iter().find(|(path, _)| path == name).expect(name).1;
        let memory = machine.memory(machine.memory_named("hbm").expect("a memory"));
        assert_eq!(named("hbm.bandwidth").to_bits(), memory.bandwidth.value.get().to_bits());
        assert_eq!(named("hbm.capacity").to_bits(), memory.capacity.value.as_f64().to_bits());
        for (name, _) in &numbers {
            assert!(scenarios::published::Expression::parse(name).is_ok(), "{name}");
        }
    }
}
